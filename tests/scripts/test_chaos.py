"""scripts/chaos: the choice of victims, the promises and the report. tests/live/test_chaos.py has runs under chaos."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chaotic.command import parser, sets_of, target_of
from chaotic.leaks import Growth, Sample, descendants, growth_of, name_of, sample
from chaotic.promises import Outcome, Promise, promises_of
from chaotic.report import document_of, recoveries_of
from chaotic.sandbox import Sandbox, segments_of, users_of
from chaotic.strikes import SIGNALS, Rhythm, Strike, Victim, role_of, victims_of
from chaotic.trial import Observation, pidfd_of
from chaotic.watched import Events, results_of

from hive.config import load_config

ROOT = Path(__file__).parents[2]
THERE = [
    *(Victim(f"collector-{n}", 10 + n, 0) for n in range(2)),
    *(Victim(f"gradient-worker-{n}", 20 + n, 0) for n in range(2)),
    *(Victim(name, 30 + n, 0) for n, name in enumerate(("learner-0", "evaluator-0", "recorder", "fork-server"))),
]
ROLES = {"collector", "gradient-worker", "learner", "evaluator", "recorder", "fork-server"}
PAUSE_S = (0.5, 2.0)


# --- strikes


def drawn(rhythm: Rhythm, there: list[Victim], count: int) -> list[tuple[float, str, signal.Signals]]:
    found = []
    for _ in range(count):
        pause, chosen = rhythm.pause(), rhythm.choose(there)
        assert chosen is not None
        found.append((pause, chosen[0].name, chosen[1]))
    return found


def test_the_same_seed_gives_the_same_strikes() -> None:
    first = drawn(Rhythm(7, PAUSE_S), THERE, 50)
    assert drawn(Rhythm(7, PAUSE_S), THERE, 50) == first
    assert drawn(Rhythm(8, PAUSE_S), THERE, 50) != first
    assert all(PAUSE_S[0] <= pause <= PAUSE_S[1] for pause, _, _ in first)
    assert {number for _, _, number in first} == set(SIGNALS)


def test_every_role_is_struck_once_and_then_all_processes_equally() -> None:
    for seed in range(20):
        names = [name for _, name, _ in drawn(Rhythm(seed, PAUSE_S), THERE, 6)]
        assert {role_of(name) for name in names} == ROLES
    later = Counter(name for _, name, _ in drawn(Rhythm(1, PAUSE_S), THERE, 2000)[6:])
    assert min(later.values()) > 180  # expected: 250 each


def test_only_selected_roles_are_struck() -> None:
    names = {name for _, name, _ in drawn(Rhythm(1, PAUSE_S, only=["collector", "recorder"]), THERE, 100)}
    assert names == {"collector-0", "collector-1", "recorder"}
    assert Rhythm(1, PAUSE_S, only=["learner"]).choose(THERE[:2]) is None
    assert {number for *_, number in drawn(Rhythm(1, PAUSE_S, [signal.SIGKILL]), THERE, 20)} == {signal.SIGKILL}


def test_victims_are_the_helpers_and_the_actors() -> None:
    status = {
        "helpers": [{"name": "fork-server", "pid": 5, "state": "running"}],
        "actors": [{"name": "learner-0", "pid": 6, "incarnation": 3, "counters": {"updates": 9.0}}],
        "results": {"updates": 9.0},
    }
    assert victims_of(status) == [Victim("fork-server", 5, -1), Victim("learner-0", 6, 3)]
    assert results_of(status) == {"updates": 9.0}
    assert results_of({"actors": []}) == {}


@pytest.fixture
def child() -> Iterator[subprocess.Popen[str]]:
    """Start a process that holds a segment, prints its inode, and waits."""
    code = "import mmap, os; fd = os.memfd_create('hive-test'); os.ftruncate(fd, 4096); held = mmap.mmap(fd, 4096)"
    code += "; print(os.fstat(fd).st_ino, flush=True); input()"
    command = [sys.executable, "-P", "-c", code]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.communicate()


def test_only_children_of_the_supervisor_are_struck(child: subprocess.Popen[str]) -> None:
    """The kernel may have given the pid to another process by the time that the signal is sent."""
    victim = Victim("collector-0", child.pid, 0)
    line = pidfd_of(victim, os.getpid())
    assert line is not None
    os.close(line)
    assert pidfd_of(victim, os.getppid()) is None
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert pidfd_of(victim, os.getpid()) is None  # a zombie
    child.wait()
    assert pidfd_of(victim, os.getpid()) is None


# --- leaks


def samples(values: list[int], calm: bool = True) -> list[Sample]:
    return [Sample(float(n), calm, value, value, value, 9, {}) for n, value in enumerate(values)]


def test_growth_is_of_the_second_and_the_last_quarter() -> None:
    growth = growth_of(samples([1] * 10 + [100] * 10 + [900] * 10 + [103] * 10), "rss_bytes")
    assert growth == Growth(100.0, 103.0)
    assert growth.share == pytest.approx(0.03)


def test_samples_that_are_not_calm_do_not_count() -> None:
    there, missing = samples([100] * 40), samples([1] * 40, calm=False)
    mixed = [one if n % 4 else other for n, (one, other) in enumerate(zip(there, missing, strict=True))]
    assert growth_of(mixed, "descriptors") == Growth(100.0, 100.0)
    assert growth_of(missing, "descriptors") is None
    assert growth_of([], "descriptors") is None
    assert growth_of(samples([1]), "descriptors") is None


def test_a_sample_counts_descendants_and_names_strangers(child: subprocess.Popen[str]) -> None:
    assert child.stdout is not None
    child.stdout.readline()
    assert child.pid in descendants(os.getpid())
    assert "python" in name_of(child.pid)
    one = sample(os.getpid(), [], 1.0, True)
    assert child.pid in one.strangers
    assert child.pid not in sample(os.getpid(), [child.pid], 1.0, True).strangers
    assert 0 < one.pss_bytes <= one.rss_bytes
    assert one.descriptors >= 3
    with Path("/dev/null").open(), Path("/dev/null").open():
        assert sample(os.getpid(), [], 1.0, True).descriptors >= one.descriptors + 2


def test_segments_are_found_in_processes_that_map_them(child: subprocess.Popen[str]) -> None:
    assert child.stdout is not None
    inode = int(child.stdout.readline())
    assert segments_of(child.pid) == {inode}
    assert [user.split()[0] for user in users_of({inode})] == [str(child.pid)]
    assert users_of(set()) == []


# --- sandbox and looks


def test_a_sandbox_finds_its_processes_and_kills_them() -> None:
    sandbox = Sandbox()
    process = subprocess.Popen([sys.executable, "-P", "-c", "input()"], env=sandbox.environment, stdin=subprocess.PIPE)
    try:
        assert list(sandbox.processes()) == [process.pid]
        (sandbox.folder / f"hive-{os.getuid()}" / "abc").mkdir(parents=True)
        left = sandbox.left_behind(set())
        assert left["processes"][0].startswith(f"{process.pid} ")
        assert left["sockets"] == sandbox.sockets() != []
    finally:
        sandbox.close()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not sandbox.folder.exists()


def test_events_come_once_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"kind": "died", "text": "a"}\n{"kind": "re')
    events = Events(path)
    assert [event["kind"] for event in events.fresh()] == ["died"]
    with path.open("a") as file:
        file.write('started", "text": "b"}\n')
    assert [event["text"] for event in events.fresh()] == ["b"]
    assert events.fresh() == []
    assert len(events.all) == 2


# --- promises


def strike(name: str, number: str = "SIGKILL", back_ms: float | None = 50.0, alone: bool = True) -> Strike:
    return Strike(Victim(name, 100, 0), number, 1.0, 1000.0, alone, back_ms)


ACCOUNT = {"produced": 9, "consumed": 7, "dropped": {"consumer_died": 2}, "in_flight": 0}
SUMMARY: dict[str, Any] = {
    "state": "finished",
    "stop_reason": "1,000 steps",
    "env_steps": 1000,
    "updates": 10,
    "error": None,
    "channels": {"rollouts": ACCOUNT},
    "wall_s": 3.0,
    "train_s": 2.0,
    "mean_return_100": 12.5,
    "weights_sha256": "abc",
    "exact": True,
}


def outcome(**seen: Any) -> Outcome:
    observed = Observation(samples=samples([100] * 40), **{"strikes": [strike("learner-0")], "chaos_s": 2.0, **seen})
    return Outcome("run.toml", [], 1000, 800.0, observed, SUMMARY, {"processes": [], "sockets": [], "segments": []})


def broken(judged: Outcome) -> list[Promise]:
    return [promise for promise in promises_of(judged) if promise.kept is False]


def test_a_run_that_went_well_keeps_all_promises() -> None:
    assert all(promise.kept for promise in promises_of(outcome(lost_updates=[0, 1])))


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        ({"hung": "no step for 45 s"}, "hang"),
        ({"silent": ["at 3 s: no answer"]}, "answers"),
        ({"accounts": ["at 3 s: rollouts"]}, "balance during"),
        ({"back": ["version of learner-0 went from 5 to 4"]}, "never decrease"),
        ({"strikes": [strike("learner-0", back_ms=None)]}, "recovers within"),
        ({"strikes": [strike("learner-0", back_ms=31e3)]}, "recovers within"),
        ({"deaths": [{"actor": "recorder", "pid": 7, "text": "recorder died"}]}, "no other process"),
        ({"lost_updates": [0, 2]}, "loses at most"),
    ],
)
def test_each_observation_breaks_its_promise(seen: dict[str, Any], text: str) -> None:
    (found,) = broken(outcome(**seen))
    assert text in found.text


def test_victims_may_exit_and_need_not_recover_after_the_end_of_the_run() -> None:
    last = strike("collector-0", back_ms=None)
    last.over = True
    assert not broken(outcome(strikes=[last], deaths=[{"actor": "collector-0", "pid": 100, "text": "died"}]))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"state": "stopped"}, "target"),
        ({"env_steps": 999}, "target"),
        ({"channels": {"rollouts": ACCOUNT | {"produced": 10}}}, "account balances"),
        ({"channels": {"rollouts": ACCOUNT | {"produced": 10, "in_flight": 1}}}, "account balances"),
    ],
)
def test_the_summary_is_judged(change: dict[str, Any], text: str) -> None:
    (found,) = broken(replace(outcome(), summary=SUMMARY | change))
    assert text in found.text


@pytest.mark.parametrize(("last", "kept"), [([104] * 10, True), ([106] * 10, False), ([50] * 10, True)])
def test_memory_may_grow_by_a_twentieth(last: list[int], kept: bool) -> None:
    grown = samples([100] * 30 + last)
    judged = outcome()
    judged.seen.samples = [replace(one, descriptors=70) for one in grown]
    assert [promise.text for promise in broken(judged)] == ([] if kept else ["memory grows by at most 5%"])


def test_descriptors_may_not_grow_at_all() -> None:
    judged = outcome()
    judged.seen.samples = [replace(one, rss_bytes=100) for one in samples([70] * 30 + [71] * 10)]
    (found,) = broken(judged)
    assert (found.text, found.measured) == ("the supervisor's descriptors do not grow", "70 -> 71")


def test_what_could_not_be_measured_is_neither_kept_nor_broken() -> None:
    judged = outcome()
    judged.seen.samples = samples([70] * 40, calm=False)
    assert [promise.kept for promise in promises_of(judged)].count(None) == 2


def test_a_stranger_counts_after_two_samples() -> None:
    judged = outcome()
    judged.seen.samples[5] = replace(judged.seen.samples[5], strangers={44: "hive:collector-0"})
    assert not broken(judged)
    judged.seen.samples[6] = replace(judged.seen.samples[6], strangers={44: "hive:collector-0", 45: "x"})
    (found,) = broken(judged)
    assert found.measured == "hive:collector-0 (44, since 5.0 s)"


@pytest.mark.parametrize(("name", "digest", "kept"), [("learner-0", "abc", True), ("learner-0", "abd", False)])
def test_kills_of_the_learner_change_no_weights(name: str, digest: str, kept: bool) -> None:
    beside = SUMMARY | {"weights_sha256": digest}
    found = promises_of(replace(outcome(strikes=[strike(name)]), beside=beside))[-1]
    assert found.kept is kept
    assert "mean return 12.5" in found.measured
    of_others = promises_of(replace(outcome(strikes=[strike("collector-0")]), beside=beside))[-1]
    assert of_others.kept is None
    assert promises_of(replace(outcome(), beside=beside | {"exact": False}))[-1].kept is None


# --- report


STRIKES = [
    strike("collector-0", back_ms=10.0),
    strike("collector-1", back_ms=30.0, alone=False),
    strike("collector-0", "SIGSTOP", back_ms=300.0),
    strike("learner-0", back_ms=None),
]


def test_recoveries_are_by_role_and_signal() -> None:
    lines = {(line.role, line.signal): line for line in recoveries_of(STRIKES)}
    assert list(lines) == [("collector", "SIGKILL"), ("collector", "SIGSTOP"), ("learner", "SIGKILL"), ("all", "")]
    killed = lines["collector", "SIGKILL"]
    assert (killed.strikes, killed.back, killed.p50_ms, killed.max_ms, killed.alone_p99_ms) == (2, 2, 10.0, 30.0, 10.0)
    assert (lines["learner", "SIGKILL"].back, lines["learner", "SIGKILL"].p50_ms) == (0, None)
    assert (lines["all", ""].strikes, lines["all", ""].back) == (4, 3)


def test_the_document_is_json_and_lists_broken_promises() -> None:
    document = json.loads(json.dumps(document_of([outcome(strikes=STRIKES)], {"seed": "1"}, {"cpu": "A CPU"})))
    assert document["machine"] == {"cpu": "A CPU"}
    (line,) = document["broken"]
    assert line.startswith("run.toml: every victim recovers within 30 s: learner-0")
    (run,) = document["runs"]
    assert [one["role"] for one in run["strikes"]] == ["collector", "collector", "collector", "learner"]
    assert run["growth"]["descriptors"] == {"second": 100.0, "last": 100.0, "share": 0.0}
    assert run["table"][0]["p50_ms"] == 10.0
    assert json.loads(json.dumps(document_of([outcome()], {}, {})))["broken"] == []


# --- the command


def test_the_target_is_what_a_calm_run_does_in_the_chaos() -> None:
    options = parser().parse_args(["--config", "x.toml", "--seconds", "30"])
    assert target_of(options, 100.0) == 3000
    counted = parser().parse_args(["--config", "x.toml", "--kills", "10", "--pause", "0.5", "1.5"])
    assert target_of(counted, 100.0) == 1300  # ten times a pause and a time to recover


@pytest.mark.parametrize("name", ["cartpole", "cartpole-ppo", "cartpole-impala", "pendulum", "acrobot"])
def test_the_settings_fit_every_example(name: str) -> None:
    options = parser().parse_args(["--config", "x.toml", "--seed", "9", "--set", "collection.workers=3"])
    config = load_config(ROOT / "examples" / f"{name}.toml", sets_of(options))
    assert (config.run.seed, config.collection.workers, config.gradients.workers) == (9, 3, 2)
    assert config.supervision.restarts >= 100_000
    assert config.evaluation.every
    assert config.run.stop_at_return == 1e12


def test_a_missing_config_is_an_error() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "chaos"), "--config", "nowhere.toml"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "error: the config `nowhere.toml` does not exist\n"
