"""The start of a run until the supervisor listens: its errors and interrupts."""

from __future__ import annotations

import dataclasses
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from canned_status import starting, status
from event_lines import event
from fake_process import FakeClient, FakeProcess, fail, interrupt, nothing

from hive.errors import ActorFailed, ConfigError, HiveError, RecordError
from hive.launch import starting as module
from hive.launch.interrupts import deferred_interrupts, number_of, raising_interrupts
from hive.launch.new_run import new_run
from hive.launch.starting import (
    abort_start,
    ask_to_end,
    began,
    clear_failure,
    connect,
    raise_failure,
    run_quietly,
)
from hive.records import RunDirectory, list_checkpoints, read_run_facts, write_checkpoint, write_crash, write_run_facts
from hive.runtime.actor.interrupted import Interrupted
from hive.runtime.process.stop_signals import DEFAULTS
from hive.runtime.run.control import PROTOCOL, OtherProtocol

if TYPE_CHECKING:
    from conftest import Place

NO_PID = 0  # of a supervisor that never marked the run as running

# --- runs that did not begin


def put_away(run: RunDirectory) -> RunDirectory:
    """Where the files of a start that failed lie, after its name was freed."""
    assert not run.path.exists()
    assert not run.path.with_name("latest").is_symlink()
    return RunDirectory.open(run.path.parent / ".failed" / run.name)


def test_the_supervisor_died_without_a_word(place: Place) -> None:
    run = place.never_begun()
    with pytest.raises(ActorFailed, match="the supervisor ended with code 7 before the run began") as caught:
        raise_failure(run, 7, NO_PID)
    assert caught.value.hint == f"its output is in {put_away(run).logs / 'supervisor.out'}"


def test_a_start_that_failed_names_the_last_line_of_the_output(place: Place) -> None:
    run = place.never_begun()
    (run.logs / "supervisor.out").write_text("Traceback ...\nOSError: [Errno 28] No space left on device: '/tmp/x'\n\n")
    with pytest.raises(ActorFailed, match=r"before the run began: OSError: \[Errno 28\] No space left on device"):
        raise_failure(run, 1, NO_PID)


def test_a_run_whose_directory_was_removed_ended_for_that_reason(place: Place) -> None:
    run = place.lost()
    shutil.rmtree(run.path)
    with pytest.raises(RecordError, match="was removed"):
        raise_failure(run, 1, NO_PID)


def test_a_run_whose_files_cannot_be_written_leaves_nothing(place: Place) -> None:
    config = place.config('[env]\nid = "CartPole-v1"\n' + f'options = {{text = "{"x" * 64_000}"}}\n')
    done = place.hive("up", config)
    assert done.code == 2
    assert done.err.startswith("error: the config with all its keys and comments has ")
    assert list(place.runs.iterdir()) == []


def test_a_start_that_failed_on_a_full_disk_without_a_word(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    run = place.never_begun()
    monkeypatch.setattr(module, "ROOM_BYTES", 1 << 60)
    with pytest.raises(ActorFailed, match=rf"before the run began: the disk of {place.runs} is full"):
        raise_failure(run, 1, NO_PID)


def test_a_start_that_failed_on_a_full_disk_names_the_cause_in_its_summary(place: Place) -> None:
    """The disk takes no failure.json; room for the summary is reserved."""
    run = place.ended(state="failed", stop_reason="it could not start", error="cannot write `run.json`: no space left")
    with pytest.raises(ActorFailed, match=r"^cannot write `run.json`: no space left"):
        raise_failure(run, 1, NO_PID)


def test_a_run_that_had_been_running_did_not_end_before_it_began(place: Place) -> None:
    run = place.live(starting())
    with pytest.raises(ActorFailed, match=rf"ended with code 9 without a summary; the run {run.name} is lost"):
        raise_failure(run, 9, read_run_facts(run).pid)


def test_an_actor_that_failed_before_all_had_begun_leaves_no_run(place: Place) -> None:
    first = place.ended(
        state="failed", env_steps=0, updates=0, error="collector-0 failed in `env`: bad\n\nhint: mend /x"
    )
    event(first, "started", "run cartpole-1")
    write_checkpoint(first.checkpoints, 0, tensors={}, parts={}, state={})  # of the initial weights
    assert not began(first)
    with pytest.raises(ActorFailed, match=r"^collector-0 failed in `env`: bad\n") as caught:
        raise_failure(first, 1, read_run_facts(first).pid)
    assert (caught.value.hint, put_away(first).path.exists()) == ("mend /x", True)
    again = place.never_begun()
    assert again.name == first.name  # the number is free, and the next failure replaces the files
    fail(again, ActorFailed("once more"))
    with pytest.raises(HiveError, match="once more"):
        raise_failure(again, 1, NO_PID)
    assert not put_away(again).summary_file.exists()


def test_an_environment_that_breaks_before_a_rollout_leaves_no_run(place: Place) -> None:
    nothing_sent = {"rollouts": {"produced": 0, "consumed": 0, "dropped": {}, "in_flight": 0}}
    run = place.ended(state="failed", env_steps=0, updates=0, error="it broke", channels=nothing_sent)
    event(run, "running", "4 actors in 3 processes")
    run.metrics_file.touch()
    assert not began(run)
    sent = {"rollouts": {"produced": 1, "consumed": 0, "dropped": {"run_ended": 1}, "in_flight": 0}}
    place.end(run, state="failed", env_steps=0, updates=0, error="it broke", channels=sent)
    assert began(run)


@pytest.mark.parametrize("what", ["running", "steps", "checkpoint", "metrics"])
def test_a_run_that_has_run_is_never_put_away(place: Place, what: str) -> None:
    run = place.ended(state="failed", env_steps=9 if what == "steps" else 0, updates=0, error="it broke")
    run.metrics_file.write_text('{"steps": 9}\n' if what == "metrics" else "")
    event(run, "running" if what == "running" else "started", "text")
    if what == "checkpoint":
        write_checkpoint(run.checkpoints, 5, tensors={}, parts={}, state={})
    assert began(run)
    fail(run, ActorFailed("it cannot be resumed"))
    assert not began(run)
    with pytest.raises(HiveError, match="it cannot be resumed"):
        raise_failure(run, 1, NO_PID)
    assert run.summary_file.exists()


def test_a_start_whose_files_cannot_be_put_away_still_tells_its_error(place: Place) -> None:
    run = place.never_begun()
    (place.runs / ".failed").write_text("in the way")
    fail(run, ActorFailed("no room"))
    with pytest.raises(HiveError, match="no room") as caught:
        raise_failure(run, 1, NO_PID)
    assert caught.value.hint == f"the files of this start are in {run.path}"


def test_prune_deletes_the_files_of_failed_starts(place: Place) -> None:
    run = place.never_begun()
    fail(run, ActorFailed("no room"))
    with pytest.raises(HiveError, match="no room"):
        raise_failure(run, 1, NO_PID)
    kept = put_away(run).path
    assert place.hive("ls").out.startswith("no run in ")
    assert place.hive("prune", "--yes").code == 0
    assert not kept.exists()


def test_a_run_to_begin_from_is_looked_up_before_the_new_run_exists(place: Place) -> None:
    config = place.config()
    done = place.hive("up", config, "-s", "run.init_from=nothing-7")
    assert (done.code, done.err) == (2, "error: no run matches `nothing-7`\n")
    assert not place.runs.exists() or list(place.runs.iterdir()) == []
    with pytest.raises(HiveError, match="no run in "):
        new_run(config, ["run.init_from=latest"])


def test_a_mistake_in_the_config_leaves_no_run(place: Place) -> None:
    run = place.never_begun()
    fail(run, ConfigError("1 problem in `a.toml`", hint="look at it"))
    with pytest.raises(HiveError, match="1 problem in") as caught:
        raise_failure(run, 2, NO_PID)
    assert (caught.value.exit_code, caught.value.hint) == (2, "look at it")
    assert not run.path.exists()


def test_a_mistake_in_resuming_does_not_cost_the_run(place: Place) -> None:
    run = place.ended(state="stopped")
    write_checkpoint(run.checkpoints, 5, tensors={}, parts={}, state={})
    fail(run, ConfigError("no environment `Pong`"))
    with pytest.raises(HiveError, match="no environment `Pong`"):
        raise_failure(run, 2, NO_PID)
    assert [checkpoint.update for checkpoint in list_checkpoints(run.checkpoints)] == [5]
    assert run.summary_file.exists()


@pytest.mark.parametrize("hint", ["", "look at line 3"])
def test_a_traceback_is_kept(place: Place, hint: str) -> None:
    run = place.never_begun()
    fail(run, ActorFailed("the topology cannot be built", hint=hint), "Traceback ...\nZeroDivisionError\n")
    with pytest.raises(HiveError, match="the topology cannot be built") as caught:
        raise_failure(run, 1, NO_PID)
    crash = put_away(run).crash_file("topology", 1)
    assert crash.read_text() == "Traceback ...\nZeroDivisionError\n"
    assert caught.value.exit_code == 1
    assert caught.value.hint == (hint or f"the traceback is in {crash}")


def test_a_failure_without_a_traceback(place: Place) -> None:
    run = place.never_begun()
    fail(run, ActorFailed("no room"))
    with pytest.raises(HiveError, match="no room"):
        raise_failure(run, 1, NO_PID)
    assert list(put_away(run).crashes.iterdir()) == []


@pytest.mark.parametrize("code", [1, 2])
def test_an_existing_crash_report_is_kept_and_no_second_is_written(place: Place, code: int) -> None:
    """User code raised while the topology was built, and the supervisor has already written the report."""
    run = place.never_begun()
    report = write_crash(run, "topology", error="mine.py:7 raised KeyError", traceback="the traceback")
    error = HiveError("mine.py:7 raised KeyError", hint=f"the traceback is in {report}")
    error.exit_code = code
    fail(run, error, "Traceback ...\n")
    with pytest.raises(HiveError, match=r"mine\.py:7 raised KeyError") as caught:
        raise_failure(run, code, NO_PID)
    kept = put_away(run)
    assert (caught.value.exit_code, caught.value.hint) == (code, f"the traceback is in {kept.crashes / report.name}")
    assert [path.name for path in kept.crashes.iterdir()] == ["topology-1.txt"]
    assert (kept.crashes / report.name).read_text().endswith("the traceback\n")
    assert "Traceback" in (kept.path / "failure.json").read_text()


# --- connecting


def test_connecting_waits_for_the_supervisor(place: Place) -> None:
    run = place.never_begun()
    process = FakeProcess(nothing, nothing, lambda: place.serve(run, starting()), nothing, nothing, nothing)
    client = connect(run, process)  # type: ignore[arg-type]
    assert client.status()["state"] == "starting"
    assert process.returncode is None
    client.close()


def test_connecting_to_a_supervisor_of_another_hive_is_refused(place: Place) -> None:
    run = place.never_begun()
    place.serve(run, starting())
    mine = read_run_facts(run)
    write_run_facts(
        run, dataclasses.replace(mine, pid=mine.pid + 1, protocol=PROTOCOL + 1)
    )  # facts of the run's earlier supervisor

    def begin() -> None:
        write_run_facts(run, dataclasses.replace(mine, protocol=PROTOCOL + 1))

    process = FakeProcess(nothing, nothing, begin, nothing)
    process.pid = mine.pid
    with pytest.raises(OtherProtocol):
        connect(run, process)  # type: ignore[arg-type]


def test_connecting_to_a_supervisor_that_dies_meanwhile(place: Place) -> None:
    run = place.never_begun()
    fail(run, ActorFailed("no room"))
    with pytest.raises(HiveError, match=r"(?m)^no room$"):
        connect(run, FakeProcess(nothing, nothing, code=1))  # type: ignore[arg-type]


def test_a_new_start_removes_the_old_failure(place: Place) -> None:
    run = place.never_begun()
    clear_failure(run)
    fail(run, ActorFailed("no room"))
    clear_failure(run)
    with pytest.raises(ActorFailed, match="the supervisor ended with code 7 before the run began"):
        raise_failure(run, 7, NO_PID)


def test_an_old_failure_that_cannot_be_taken_away(place: Place) -> None:
    run = place.never_begun()
    (run.path / "failure.json").mkdir()
    with pytest.raises(RecordError, match=r"cannot remove `.*failure\.json`"):
        clear_failure(run)


# --- giving up


def test_an_interrupt_is_deferred_until_the_process_is_stored() -> None:
    before, known = signal.getsignal(signal.SIGINT), []

    def interrupted() -> None:
        with deferred_interrupts():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            known.append("process")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert known == ["process"]
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(ZeroDivisionError), deferred_interrupts():
        raise ZeroDivisionError
    with deferred_interrupts():
        known.append("nobody interrupts")
    assert signal.getsignal(signal.SIGINT) is before


@pytest.fixture
def default_signals() -> Iterator[None]:
    """As of a command that a shell starts, whatever has started the tests."""
    before = {number: signal.signal(number, default) for number, default in DEFAULTS.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_signals_that_ask_a_command_to_end_are_raised_and_deferred_as_ctrl_c(
    number: int, code: int, default_signals: None
) -> None:
    before, known = signal.getsignal(number), []

    def interrupted() -> None:
        with deferred_interrupts():
            signal.raise_signal(number)
            known.append("process")

    with raising_interrupts():
        with pytest.raises(Interrupted) as caught:
            interrupted()
        assert (known, caught.value.exit_code, number_of(caught.value)) == (["process"], code, number)
    assert signal.getsignal(number) is before
    assert number_of(KeyboardInterrupt()) == signal.SIGINT


def test_ctrl_c_inside_exec_leaves_the_exit_code_to_the_command() -> None:
    """Imports run `exec`: dataclasses and named tuples do."""
    program = """
import signal, sys
from hive.launch.interrupts import raising_interrupts
with raising_interrupts():
    try:
        exec("signal.raise_signal(signal.SIGINT)")
    except KeyboardInterrupt as interrupt:
        sys.exit(interrupt.exit_code)
"""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background ignores it
    try:
        assert subprocess.run([sys.executable, "-P", "-c", program], check=False).returncode == 130
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_signal_that_is_ignored_stays_so() -> None:
    """As in `nohup hive up`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with raising_interrupts(), deferred_interrupts():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_request_to_end_goes_through_the_control_socket_with_its_count(place: Place) -> None:
    run, process, times = place.live(status()), FakeProcess(nothing), dict[int, int]()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
        ask_to_end(run, process, number, times)  # type: ignore[arg-type]
    (supervisor,) = place.supervisors
    assert supervisor.asked == [("SIGTERM", False), ("Ctrl-C", False), ("SIGTERM", True)]
    assert process.signals == []


def test_a_request_to_end_is_a_signal_where_no_supervisor_listens(place: Place) -> None:
    process = FakeProcess(nothing, nothing)
    for number in (signal.SIGTERM, signal.SIGHUP):
        ask_to_end(place.never_begun(), process, number, {})  # type: ignore[arg-type]
    assert process.signals == [signal.SIGTERM, signal.SIGTERM]  # the supervisor does nothing on SIGHUP


LINE = "stopping cartpole-1, which was still starting - Ctrl-C again to kill it\n"


def test_a_run_that_never_began_is_ended_and_leaves_nothing(place: Place) -> None:
    run, process = place.never_begun(), FakeProcess(nothing, nothing, code=-signal.SIGTERM)
    assert abort_start(run, process, KeyboardInterrupt()) == 130  # type: ignore[arg-type]
    assert process.signals == [signal.SIGINT]
    assert process.returncode is not None
    assert not run.path.exists()
    assert place.capture.readouterr() == ("", LINE)


def test_a_run_that_ended_in_order_is_kept(place: Place) -> None:
    run = place.never_begun()
    process = FakeProcess(nothing, lambda: place.end(run, state="stopped"))
    assert abort_start(run, process, KeyboardInterrupt()) == 130  # type: ignore[arg-type]
    assert process.signals == [signal.SIGINT]
    assert run.summary_file.exists()


def test_a_run_that_was_resumed_keeps_its_checkpoints(place: Place) -> None:
    run = place.lost()
    write_checkpoint(run.checkpoints, 5, tensors={}, parts={}, state={})
    assert abort_start(run, FakeProcess(code=-signal.SIGTERM), KeyboardInterrupt()) == 130  # type: ignore[arg-type]
    assert [checkpoint.update for checkpoint in list_checkpoints(run.checkpoints)] == [5]


def test_interrupted_again_it_is_killed(place: Place) -> None:
    run, process = place.never_begun(), FakeProcess(nothing, interrupt, nothing, code=-signal.SIGKILL)
    assert abort_start(run, process, KeyboardInterrupt()) == 130  # type: ignore[arg-type]
    assert process.signals == [signal.SIGINT, signal.SIGKILL]
    assert process.returncode == -signal.SIGKILL
    assert place.capture.readouterr() == ("", LINE)


def test_a_run_that_ends_while_ctrl_c_is_handled_is_not_lost(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was connected to once; a second connection would find nobody and call its start failed."""
    directory, process = place.never_begun(), FakeProcess(interrupt)
    connections = []

    def connect_once(_: RunDirectory, __: object) -> FakeClient:
        connections.append(1)
        assert len(connections) == 1
        return FakeClient()

    monkeypatch.setattr(module, "start", lambda _: process)
    monkeypatch.setattr(module, "connect", connect_once)
    monkeypatch.setattr(module, "ask_to_end", lambda *_: nothing())
    monkeypatch.setattr(module, "began", lambda _: True)
    run_quietly(directory, {})
    assert process.returncode == 0
