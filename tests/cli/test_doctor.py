"""The findings of `hive doctor`: of this machine, and of runs in every state."""

from __future__ import annotations

import importlib.metadata
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from canned_status import account, actor, status, warned

from hive.cli.parts import machine_checks
from hive.cli.parts.machine_checks import BAD, OK, WARN, Diagnosis, machine_findings
from hive.cli.parts.run_checks import run_findings
from hive.distribution import HOME
from hive.free_memory import FreeMemory
from hive.records import write_checkpoint
from hive.runtime.run import control_server, folders
from hive.runtime.run.folders import make_socket_folder, socket_root

if TYPE_CHECKING:
    from conftest import Place


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Supervisors push their status often."""
    monkeypatch.setattr(control_server, "PUSH_S", 0.01)


def machine(subject: str) -> Diagnosis:
    (found,) = (finding for finding in machine_findings() if finding.subject == subject)
    return found


# --- the machine


def test_this_machine(place: Place) -> None:
    done = place.hive("doctor")
    subjects = [line.split()[1] for line in done.out.splitlines()]
    assert subjects[:5] == ["system", "python", "cores", "native", "folder"]
    assert {*machine_checks.NEEDED, "descriptors", "processes", "memory", "sockets", "runs", "leftovers"} <= {*subjects}
    assert "torch" not in {name for name in sys.modules if name == "torch"} or done.code in (0, 1)
    told = json.loads(place.hive("doctor", "--json").out)
    assert [finding["subject"] for finding in told] == subjects
    assert {*told[0]} == {"level", "subject", "text", "hint"}
    assert done.code == int(any(finding["level"] == BAD for finding in told))


def test_packages_that_are_not_installed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert machine("torch") == Diagnosis(BAD, "torch", "is not installed", "pip install torch")
    assert machine("mujoco") == Diagnosis(OK, "mujoco", "is not installed; only needed for MuJoCo")
    assert place.hive("doctor").code == 1


def test_a_package_that_is_too_old_is_a_fault(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.28.1" if name == "gymnasium" else "99")
    found = machine("gymnasium")
    assert (found.level, found.hint) == (BAD, "pip install 'gymnasium>=1.0'")
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.1" if name == "minigrid" else "99")
    assert machine("minigrid").level == WARN  # of an extra


def test_a_folder_that_another_distribution_has_files_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_checks, "strangers", lambda: iter(["rlhive 1.0.1 (hive/agents/agent.py)"]))
    found = machine("folder")
    assert (found.level, found.text) == (
        BAD,
        f"another distribution owns files of {HOME}: rlhive 1.0.1 (hive/agents/agent.py)",
    )
    assert found.hint.startswith("`pip uninstall` it, then install hive-trainer again")


@pytest.mark.parametrize(
    ("hard", "level", "text"), [(256, WARN, "at most 256"), (-1, OK, "unlimited"), (4096, OK, "at most 4,096")]
)
def test_limits(place: Place, monkeypatch: pytest.MonkeyPatch, hard: int, level: str, text: str) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (16, hard))
    found = machine("descriptors")
    assert (found.level, found.text) == (level, text)
    assert bool(found.hint) == (level == WARN)


def test_too_little_of_everything(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_checks, "MEMORY_GIB", 1e9)
    monkeypatch.setattr(machine_checks, "DISK_GIB", 1e9)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    assert [machine(name).level for name in ("memory", "runs", "cores")] == [WARN] * 3
    assert all(machine(name).hint for name in ("memory", "runs", "cores"))


def test_sockets(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine("sockets").level == OK
    with monkeypatch.context() as patched:
        patched.setattr(folders, "NAME_BYTES", 90)
        found = machine("sockets")
        assert (found.level, found.text) == (
            BAD,
            f"{socket_root()} is too long for sockets: it may have 16 bytes at most",
        )
        done = place.hive("up", place.config())
        assert (done.code, done.err.splitlines()[0]) == (3, f"error: {found.text}")
        assert not place.runs.exists()
    socket_root().chmod(0o777)
    found = machine("sockets")
    assert found.level == BAD
    assert "is not a private folder of yours" in found.text
    assert found.hint.startswith("remove it, or: chmod 700")
    assert place.hive("doctor").code == 1
    assert place.hive("ls").code == 3
    Path(found.text.split()[0]).chmod(0o700)


def test_runs_that_are_lost(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    run = place.lost()
    place.never_begun("empty")
    place.ended("pong")
    assert machine("cartpole-1") == Diagnosis(WARN, "cartpole-1", "was lost: its supervisor was killed", "")
    write_checkpoint(run.checkpoints, 40, tensors={}, parts={"weights": b"x"}, state={})
    found = [finding for finding in machine_findings() if finding.subject.endswith("-1")]
    assert found == [
        Diagnosis(WARN, "cartpole-1", "was lost: its supervisor was killed", "hive resume cartpole-1"),
    ]
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert machine("runs").level == BAD


def test_leftovers(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that bears the name of an actor and has no living supervisor for a parent."""
    make_socket_folder(place.folder / "runs" / "cartpole-1")
    naming = "import ctypes, sys; ctypes.CDLL(None).prctl(15, b'hive:test-0', 0, 0, 0); print(); sys.stdin.read()"
    command = [sys.executable, "-P", "-c", naming]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert (process.pid, os.getpid()) in [*machine_checks._actors()]
        only_it = [(process.pid, os.getpid())]
        monkeypatch.setattr(machine_checks, "_actors", lambda: iter(only_it))
        assert machine("leftovers") == Diagnosis(OK, "leftovers", "none; live runs: 1")
        monkeypatch.setattr(machine_checks, "live_owners", list)
        monkeypatch.setattr(machine_checks, "GRACE_S", 0.1)
        assert machine("leftovers") == Diagnosis(
            BAD, "leftovers", f"processes without a run: {process.pid}", "kill -9 them"
        )
        process.send_signal(signal.SIGKILL)


def test_a_process_that_is_being_forked_is_not_a_leftover(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fork server sweeps when its supervisor has ended; what is half forked is not the supervisor's child yet."""
    looks = iter([[(7, 1), (8, 6)], [(7, 1), (8, 5)], [(7, 1), (9, 6)], [(9, 6)]])
    monkeypatch.setattr(machine_checks, "_actors", lambda: iter(next(looks)))
    assert machine("leftovers") == Diagnosis(OK, "leftovers", "none; live runs: 0")
    assert next(looks, None) is None
    monkeypatch.setattr(machine_checks, "GRACE_S", 0.1)
    monkeypatch.setattr(machine_checks, "_actors", lambda: iter([(7, 1)]))
    assert machine("leftovers").text == "processes without a run: 7"


def test_a_run_with_another_socket_folder_is_not_a_leftover(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = [sys.executable, "-P", "-c", "import sys; print(); sys.stdin.read()", "hive.runtime.run"]
    with subprocess.Popen(stand_in, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as supervisor:
        assert supervisor.stdout is not None
        supervisor.stdout.readline()
        monkeypatch.setattr(machine_checks, "_actors", lambda: iter([(7, supervisor.pid), (8, 1)]))
        monkeypatch.setattr(machine_checks, "GRACE_S", 0.1)
        assert machine("leftovers").text == "processes without a run: 8"
        supervisor.send_signal(signal.SIGKILL)
    assert machine("leftovers").text == "processes without a run: 7, 8"


# --- a run


def findings(place: Place, *words: str) -> dict[str, Diagnosis]:
    found = json.loads(place.hive("doctor", "cartpole-1", "--json").out)
    return {finding["subject"]: Diagnosis(**finding) for finding in found}


def test_a_healthy_run(place: Place) -> None:
    run = place.live(status())
    write_checkpoint(run.checkpoints, 40, tensors={}, parts={"weights": b"x"}, state={})
    done = place.hive("doctor", "cartpole-1")
    assert done.code == 0
    assert {line.split()[0] for line in done.out.splitlines()} == {OK}
    assert "running, 20,480 of 500,000 steps" in done.out
    assert "1, the newest of update 40" in done.out


def test_a_run_in_trouble(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    run = place.live(
        status(
            actor("collector-0", activity="env", since_s=42.0),
            actor("collector-1", activity="wait rollouts", since_s=42.0, restarts=2),
            actor("learner-0", state="failed"),
            channels={"rollouts": account(40, stale=3, consumer_died=1, overflow=0)},
        )
    )
    run.crash_file("collector-1", 1).write_text("collector-1 failed: it broke\n\nstack\n")
    (run.nan_dumps / "one").mkdir(parents=True)
    monkeypatch.setattr(machine_checks, "DISK_GIB", 1e9)
    found = findings(place)
    assert found["collector-0"] == Diagnosis(
        WARN, "collector-0", "in `env` for 42 s", "hive stack cartpole-1 collector-0"
    )
    assert found["collector-1"].text.startswith("was restarted 2 times")
    assert found["learner-0"] == Diagnosis(WARN, "learner-0", "is failed", "hive history cartpole-1 learner-0")
    assert found["rollouts"].text == "4 of 40 messages were dropped: 3 stale, 1 consumer_died"
    assert found["crash"].text == "collector-1 failed: it broke"
    assert found["not finite"].text == "1 gradients were NaN or infinite"
    assert found["checkpoints"].level == found["disk"].level == WARN


@pytest.mark.parametrize("live", [True, False])
def test_warnings_of_a_run(place: Place, live: bool) -> None:
    both = [warned(), warned("return collapsed", last_steps=20_000)]
    run = place.live(status(warnings=both)) if live else place.ended(warnings=both)
    found = {finding.subject: finding for finding in run_findings(run)}
    text = "it is so (steps 10,000"
    assert found["entropy gone"] == Diagnosis(WARN, "entropy gone", f"{text})", "raise algorithm.entropy_weight")
    assert found["return collapsed"] == Diagnosis(OK, "return collapsed", f"{text} to 20,000)", "")


def test_a_paused_run(place: Place) -> None:
    place.live(status(state="paused"))
    found = findings(place)["state"]
    assert (found.level, found.hint) == (WARN, "hive resume cartpole-1")


def test_a_supervisor_that_does_not_answer(place: Place) -> None:
    place.live(None)
    found = findings(place)["supervisor"]
    assert (found.level, found.hint) == (BAD, f"kill -CONT {os.getpid()}")
    assert "does not answer" in found.text
    assert place.hive("doctor", "cartpole-1").code == 1


@pytest.mark.parametrize(
    ("state", "level", "text", "hint"),
    [
        ("finished", OK, "finished: 500,000 steps", ""),
        ("stopped", OK, "stopped by hive down", "hive resume cartpole-1"),
        ("failed", BAD, "failed: collector-0 failed", "hive resume cartpole-1"),
    ],
)
def test_an_ended_run(place: Place, state: str, level: str, text: str, hint: str) -> None:
    changes: dict[str, Any] = {
        "failed": {"error": "collector-0 failed\n\nhint: look"},
        "stopped": {"stop_reason": "hive down"},
    }.get(state, {})
    run = place.ended(state=state, **changes)
    assert next(run_findings(run)) == Diagnosis(level, "state", text, "")
    write_checkpoint(run.checkpoints, 40, tensors={}, parts={"weights": b"x"}, state={})
    found = {finding.subject: finding for finding in run_findings(run)}
    assert found["state"] == Diagnosis(level, "state", text, hint)
    assert found["collector-0"].text == "was restarted 1 times"
    assert "learner-0" not in found


def test_a_lost_run(place: Place) -> None:
    place.lost()
    assert findings(place)["state"].level == BAD
    shutil.rmtree(place.runs / "cartpole-1")
    assert place.hive("doctor", "cartpole-1").code == 2


@pytest.mark.parametrize(("quota", "text"), [(None, "4 of "), (0.5, "by a CPU quota of 0.5 cores; every actor")])
def test_a_quota_is_named_and_so_are_keys_that_exist(
    monkeypatch: pytest.MonkeyPatch, quota: float | None, text: str
) -> None:
    monkeypatch.setattr(machine_checks, "cpu_quota", lambda: quota)
    monkeypatch.setattr(machine_checks, "cores", lambda: 4 if quota is None else 1)
    found = machine("cores")
    assert text in found.text
    assert ("collection.workers = 0" in found.hint) is (quota is not None)


def test_memory_is_that_of_the_control_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_checks, "free_memory", lambda: FreeMemory(1 << 30, "/jobs/7"))
    found = machine("memory")
    assert (found.level, found.text) == (WARN, "1.00 GiB (limit of the control group /jobs/7) free")
