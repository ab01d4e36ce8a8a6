"""Polling over a real control socket, from the files of an ended run, and with a silent supervisor."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from canned_runs import STEPPED, trainer
from fake_supervisor import FakeSupervisor

from hive.config import load_config, render
from hive.errors import UsageError
from hive.monitor import poller as module
from hive.monitor.poller import RETURNS, Poller, poll_once, thinned
from hive.records import RunDirectory, RunFacts, Summary, process_start_time, read_run_facts, write_run_facts
from hive.records.environments import write_environments
from hive.runtime.run import control_server
from hive.runtime.run.control import PROTOCOL, OtherProtocol, control_path


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a run in a folder with a short name; its supervisor sends documents without delay."""
    monkeypatch.setattr(control_server, "PUSH_S", 0.05)
    path = Path(tempfile.mkdtemp(prefix="hv"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def directory(folder: Path) -> RunDirectory:
    return RunDirectory.create(folder, "cartpole")


def write_facts(directory: RunDirectory, pid: int) -> None:
    start = process_start_time(pid)
    facts = RunFacts(
        directory.name, pid, start or 1, str(directory.path.parent), 1.7e9, [], "0.1", "3.11", protocol=PROTOCOL
    )
    write_run_facts(directory, facts)


def test_a_run_of_another_hive_is_refused_for_that(directory: RunDirectory, supervisor: FakeSupervisor) -> None:
    assert poll_once(directory).state == "running"
    write_run_facts(directory, dataclasses.replace(read_run_facts(directory), protocol=PROTOCOL + 1))
    with pytest.raises(OtherProtocol, match=rf"(?m)speaks protocol {PROTOCOL}, cartpole-1 speaks {PROTOCOL + 1}$"):
        poll_once(directory)


def end(directory: RunDirectory) -> None:
    parts = (
        "cartpole-1",
        "a2c",
        "finished",
        "done",
        1,
        True,
        500,
        9,
        3,
        33.0,
        1.7e9,
        9.0,
        5.0,
        "",
        {},
        {"learner-0": 0},
    )
    Summary(*parts).write(directory.summary_file)


@pytest.fixture
def supervisor(directory: RunDirectory) -> Iterator[FakeSupervisor]:
    write_facts(directory, os.getpid())
    fake = FakeSupervisor(directory.path.parent, trainer(10.0, pid=os.getpid()))
    yield fake
    if fake.thread.is_alive():
        fake.close()


@pytest.fixture
def poller(directory: RunDirectory) -> Iterator[Poller]:
    made = Poller(directory)
    yield made
    made.close()


def test_snapshots_follow_the_documents_of_the_supervisor(poller: Poller, supervisor: FakeSupervisor) -> None:
    first = poller.next()
    assert (first.state, first.window_s, first.bound_by) == ("running", 0.0, "nothing yet")
    for second in range(11, 14):
        supervisor.status = trainer(float(second), pid=os.getpid())
        seen = poller.next()
    assert seen.window_s > 0.05
    assert seen.actors[0].phases["env"] == pytest.approx(0.74)
    assert seen.helpers[0].memory_bytes is not None  # this process
    assert seen.cores == len(os.sched_getaffinity(0))
    assert {"collectors/busy", "collectors/env_steps_per_s"} <= {*poller.series.names}


def test_a_snapshot_includes_data_of_the_files(poller: Poller, supervisor: FakeSupervisor) -> None:
    files = poller.directory
    files.metrics_file.write_text('{"t": 1.7e9, "steps": 5, "updates": 1, "seconds": 1, "return/mean_100": 7.5}\n')
    files.events_file.write_text('{"t": 1.7e9, "kind": "died", "actor": "recorder", "text": "it died"}\nbroken\n')
    seen = poller.next()
    assert seen.returns == ((5.0, 7.5),)
    assert [event["kind"] for event in seen.events] == ["died"]
    assert seen.actors[-1].last_words == "it died"


def test_environments_are_those_of_the_files(poller: Poller, supervisor: FakeSupervisor) -> None:
    for name, rows in STEPPED.items():
        write_environments(poller.directory, name, rows)
    supervisor.status = trainer(11.0, changes={"collector-1": {"host": "other"}}, pid=os.getpid())
    first = {row.name: row.environments for row in poller.next().actors}
    assert first["collector-0"] == STEPPED["collector-0"]
    assert first["collector-1"] == first["learner-0"] == ()  # the files of another host are not here


def test_many_views_poll_at_once_and_leave(directory: RunDirectory, supervisor: FakeSupervisor) -> None:
    pollers = [Poller(directory) for _ in range(8)]
    assert {poller.next().run for poller in pollers} == {"cartpole-1"}
    for poller in pollers[1:]:
        poller.close()
    assert pollers[0].next().state == "running"
    pollers[0].close()
    assert supervisor.asked == []


def test_the_snapshot_of_an_ended_run_comes_from_its_files(poller: Poller, supervisor: FakeSupervisor) -> None:
    assert poller.next().state == "running"
    end(poller.directory)
    supervisor.close()
    seen = poller.next()
    assert (seen.state, seen.env_steps, seen.goal_steps) == ("finished", 500, 0)
    assert poller.client is None
    poller.directory.resolved_file.write_text(
        render(load_config("run.toml", text='[run]\nsteps = 900\n[env]\nid = "CartPole-v1"\n'))
    )
    assert poller.next().goal_steps == 900


def test_a_resumed_run_is_polled_again(poller: Poller, supervisor: FakeSupervisor) -> None:
    end(poller.directory)
    assert poller.next().state == "finished"
    write_facts(poller.directory, os.getpid())
    assert poller.next().state == "running"


@pytest.fixture
def silent(directory: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Return a function that opens a control socket which never replies."""
    monkeypatch.setattr(module, "SILENT_S", 0.05)
    listener = socket.socket(socket.AF_UNIX)

    def listen() -> None:
        listener.bind(str(control_path(directory.path.parent)))
        listener.listen(8)

    yield listen
    listener.close()


def test_the_last_snapshot_is_kept_while_the_supervisor_is_silent(
    poller: Poller, supervisor: FakeSupervisor, silent: Callable[[], None]
) -> None:
    known = poller.next()
    supervisor.close()
    control_path(poller.directory.path.parent).unlink()
    silent()
    seen = poller.next()
    assert seen.supervisor.startswith("does not answer, since ")
    assert (seen.env_steps, seen.bound_by) == (known.env_steps, "unknown")


def test_a_supervisor_that_has_never_answered_is_an_error(poller: Poller, silent: Callable[[], None]) -> None:
    write_facts(poller.directory, os.getpid())
    silent()
    with pytest.raises(UsageError, match="the supervisor of cartpole-1 does not answer") as caught:
        poller.next()
    assert caught.value.hint == f"its pid is {os.getpid()}"


def test_a_stopped_supervisor_is_distinguished_from_a_busy_one(poller: Poller, silent: Callable[[], None]) -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"
    with subprocess.Popen([sys.executable, "-P", "-c", code]) as process:
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        write_facts(poller.directory, process.pid)
        silent()
        with pytest.raises(UsageError, match=r"is stopped \(SIGSTOP\); training continues unsupervised"):
            poller.next()
        process.kill()


def test_poll_once_polls_a_live_run_twice_and_an_ended_one_once(
    directory: RunDirectory, supervisor: FakeSupervisor
) -> None:
    assert poll_once(directory).window_s > 0
    end(directory)
    assert poll_once(directory).state == "finished"


def test_the_curve_of_a_snapshot_is_thinned() -> None:
    points = [(float(n), 0.0) for n in range(10_000)]
    assert len(thinned(points)) <= RETURNS + 1
    assert (thinned(points)[0], thinned(points)[-1]) == (points[0], points[-1])
    assert thinned(points[:5]) == points[:5]
    assert thinned([]) == []


def test_old_checkpoints_are_left_out_before_rarer_events(directory: RunDirectory) -> None:
    kinds = ["died", *["saved"] * (module.EVENTS + 50), "died"]
    directory.events_file.write_text("".join(json.dumps({"kind": kind, "n": n}) + "\n" for n, kind in enumerate(kinds)))
    write_run_facts(directory, RunFacts("cartpole-1", 1 << 30, 1, "/nowhere", 1.7e9, [], "0.1", "3.11"))
    events = Poller(directory).next().events
    assert len(events) == module.EVENTS
    assert [event["n"] for event in events if event["kind"] == "died"] == [0, len(kinds) - 1]
    assert [event["n"] for event in events] == sorted(event["n"] for event in events)
