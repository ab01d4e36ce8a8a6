from __future__ import annotations

import io
import json
import os
import signal
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from canned_status import actor, results, starting, status, warned
from event_lines import Out, event, said
from fake_process import FakeClient, FakeProcess, fail, interrupt, nothing

from hive.config import load_config, render
from hive.errors import ActorFailed, ConfigError, HiveError
from hive.launch import foreground as launch
from hive.launch.event_log import NewEvents
from hive.launch.foreground import Foreground, detached, read_keys
from hive.launch.run_report import report_end
from hive.monitor import StatusLine
from hive.monitor.terminal import app as monitor_terminal
from hive.records import JsonlWriter, RunDirectory, home_folder, replace_best, write_checkpoint

if TYPE_CHECKING:
    from conftest import Place


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits between two looks."""
    monkeypatch.setattr(launch, "POLL_S", 0.0)


@pytest.fixture
def start(place: Place, monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeProcess]:
    """Makes `hive up` start the process given, with a supervisor that says `now` unless it is None."""

    def begin(process: FakeProcess, now: dict[str, Any] | None) -> FakeProcess:
        def pretend(directory: RunDirectory) -> FakeProcess:
            if now is not None:
                place.serve(directory, now)
            return process

        monkeypatch.setattr(launch, "start", pretend)
        return process

    return begin


# --- runs that could not start before


@pytest.fixture
def failed_before(place: Place) -> RunDirectory:
    """A stopped run whose last resume could not start."""
    run = place.ended(state="stopped")
    write_checkpoint(run.checkpoints, 5, tensors={}, parts={}, state={"scheduled": True})
    fail(run, ActorFailed("no room"))
    return run


@pytest.mark.parametrize("words", [("resume", "cartpole-1"), ("up", "--resume", "cartpole-1")])
def test_a_new_start_of_a_run_removes_the_old_failure(
    place: Place, failed_before: RunDirectory, start: Callable[..., FakeProcess], words: tuple[str, ...]
) -> None:
    start(FakeProcess(*[nothing] * 9), status())
    done = place.hive(*words, "-d")
    assert (done.code, done.out) == (0, "cartpole-1\n")
    assert not (failed_before.path / "failure.json").exists()


def test_an_old_failure_is_not_reported_again(
    place: Place, failed_before: RunDirectory, start: Callable[..., FakeProcess]
) -> None:
    start(FakeProcess(nothing, code=9), None)
    done = place.hive("resume", "cartpole-1")
    assert done.code == 1
    assert "error: the supervisor ended with code 9 before the run began\n" in done.err


def test_an_old_failure_is_gone_before_an_inline_run_too(
    place: Place, failed_before: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_inline(directory: RunDirectory) -> int:
        assert not (directory.path / "failure.json").exists()
        place.end(directory, state="stopped")
        return 0

    monkeypatch.setattr("hive.runtime.run.execute.run_inline", run_inline)
    assert place.hive("resume", "cartpole-1", "--inline").code == 0


# --- the report at the end


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {},
            "finished: 500,000 steps, 976 updates · return 471.5 · "
            "50 s of training at 10,000 steps/s, 1 min 1 s in all · ",
        ),
        (
            {"state": "stopped", "stop_reason": "hive down", "mean_return_100": None, "train_s": 0.0},
            "stopped by hive down at 500,000 steps; nothing was saved, 976 updates · return – · 1 min 1 s · ",
        ),
        (
            {"updates": 0, "mean_return_100": None, "train_s": 0.0},
            "finished: 500,000 steps, no updates · return – · 1 min 1 s · ",
        ),
        (
            {"stop_reason": "the sum is 45", "env_steps": 0, "updates": 0, "mean_return_100": None, "train_s": 0.0},
            "finished: the sum is 45 · 1 min 1 s · ",
        ),
        (
            {"state": "failed", "stop_reason": "learner-0", "error": "learner-0 died\n\nhint: look"},
            "error: learner-0 died\n\nhint: look\nfailed: learner-0 · 500,000 steps, 976 updates · ",
        ),
    ],
)
def test_the_last_words_of_a_run(
    place: Place, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], words: str
) -> None:
    run = place.ended(**changes)
    assert report_end(run, 5) == 5
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(words)
    assert err.endswith(f"{run.path}\n")


@pytest.mark.parametrize(("by", "words"), [("evaluation", "an evaluation"), ("training", "100 training episodes")])
def test_the_report_names_the_best_policy(
    place: Place, capsys: pytest.CaptureFixture[str], by: str, words: str
) -> None:
    best = {"checkpoint": "best/000480", "mean_return": 498.25, "by": by, "steps": 61_440, "updates": 480}
    report_end(place.ended(best=best), 0)
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"best policy: mean return 498.2 of {words}, at 61,440 steps · to measure it: hive eval cartpole-1 --which best"
    )


def test_the_best_of_many_evaluations_has_its_spread(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    best = {"checkpoint": "best/000480", "mean_return": 70.0, "by": "evaluation", "steps": 61_440, "updates": 480}
    run = place.ended(best=best)

    def line(deviation: float) -> str:
        found = {"turn": 480, "steps": 61_440, "mean_return": 70.0, "episodes": 5, "deviation": deviation}
        run.evaluations_file.write_text(
            json.dumps({"turn": 240, "mean_return": 50.0}) + "\n" + json.dumps(found) + "\n"
        )
        report_end(run, 0)
        return capsys.readouterr().err.splitlines()[-1]

    assert line(20.0).startswith(
        "best policy: mean return 70.0 ± 19.6 of the best of 2 evaluations, at 61,440 steps · "
    )
    assert line(0.0).startswith("best policy: mean return 70.0 of an evaluation, at 61,440 steps · ")
    replace_best(run.best, 480, tensors={}, state={"mean_return": 70.0, "best_by": "info/won", "value": 0.9})
    assert line(0.0).startswith("best policy: won 0.9, mean return 70.0 of an evaluation, at 61,440 steps · ")
    replace_best(run.best, 480, tensors={}, state={"mean_return": 0.0, "balanced": True})
    assert line(0.0).startswith("best policy: the newest one that was judged, at 61,440 steps, because ")


def test_the_report_names_a_goal_that_was_not_reached_and_lost_evaluations(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    run = place.ended(started=1.7e9)
    run.resolved_file.write_text(
        render(load_config("a.toml", ["run.stop_at_return=475"], text='[env]\nid = "CartPole-v1"\n'))
    )
    write_jsonl = JsonlWriter(run.events_file)
    for at in (1.6e9, 1.7e9 + 1):
        write_jsonl.write({"t": at, "kind": "unfinished", "text": f"1 evaluation had not ended ({at:.0f})"})
    report_end(run, 0)
    assert capsys.readouterr().err.splitlines()[1:] == [
        "not reached: run.stop_at_return = 475; the run came to 471.5",
        "1 evaluation had not ended (1700000001)",
    ]
    for changes in ({"state": "stopped"}, {"mean_return_100": 480.0}, {"env_steps": 900, "stop_reason": "a callback"}):
        place.end(run, started=1.7e9 + 9, **changes)
        report_end(run, 0)
        assert "not reached" not in capsys.readouterr().err


def test_warnings_are_repeated_at_the_end(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    run = place.ended(warnings=[warned(), warned("return collapsed", last_steps=20_000)])
    report_end(run, 0)
    assert capsys.readouterr().err.splitlines()[1:] == [
        "warning: entropy gone: it is so; raise algorithm.entropy_weight",
    ]
    many = ("updates skipped", "sink failed", "callback failed", "episodes cut")
    report_end(place.ended(warnings=[warned(name) for name in many]), 0)
    *_, last = lines = capsys.readouterr().err.splitlines()[1:]
    assert [line.split(": ")[1] for line in lines[:-1]] == ["updates skipped", "episodes cut", "callback failed"]
    assert last.startswith("and 1 more: hive doctor ")


def test_the_report_of_a_stopped_run_names_the_resume_command(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    run = place.ended(state="stopped", stop_reason="hive down")
    report_end(run, 0)
    assert "resume" not in capsys.readouterr().err  # there is nothing to go on from
    write_checkpoint(run.checkpoints, 40, tensors={}, parts={}, state={})
    report_end(run, 0)
    assert capsys.readouterr().err.endswith("\nto continue it: hive resume cartpole-1\n")


@pytest.mark.parametrize(
    ("saved", "words"),
    [
        (13_440, "stopped by Ctrl-C; saved at 13,440 steps, 105 updates · "),
        (12_800, "stopped by Ctrl-C at 13,440 steps; last saved at 12,800 steps, 105 updates · "),
    ],
)
def test_a_stopped_run_says_what_is_saved(
    place: Place, capsys: pytest.CaptureFixture[str], saved: int, words: str
) -> None:
    run = place.ended(state="stopped", stop_reason="Ctrl-C", env_steps=13_440, updates=105)
    write_checkpoint(run.checkpoints, 105, tensors={}, parts={}, state={"env_steps": saved})
    report_end(run, 0)
    assert capsys.readouterr().err.startswith(words)


def test_a_checkpoint_of_a_topology_that_counts_no_steps(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    run = place.ended(state="stopped", stop_reason="Ctrl-C", env_steps=0)
    write_checkpoint(run.checkpoints, 105, tensors={}, parts={}, state={})
    report_end(run, 0)
    assert capsys.readouterr().err.startswith("stopped by Ctrl-C; saved at update 105, ")


# --- the foreground


def watch(run: RunDirectory, process: FakeProcess, *now: dict[str, Any]) -> tuple[int, list[str]]:
    out = Out()
    view = Foreground(run, process, FakeClient(*now), StatusLine(out), NewEvents(run))  # type: ignore[arg-type]
    return view.watch(), said(out)


@pytest.mark.parametrize(("number", "slow"), [(0, 0), (10, 0), (12, 1)])
def test_slow_updates_are_said_once(place: Place, number: int, slow: int) -> None:
    run = place.never_begun()
    now = status(actor("learner-0", counters={**results(), "rounds": float(number)}))
    _, lines = watch(run, FakeProcess(nothing, nothing, nothing, lambda: place.end(run)), now, now, now)
    assert sum(line.startswith("rounds: updates one by one (network: ") for line in lines) == slow
    assert sum("rounds: " in line for line in lines) == slow


def test_a_run_is_watched_to_its_end(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hive.monitor.line.FIRST_PLAIN_S", 0.0)
    run = place.never_begun()

    def work() -> None:
        event(run, "running", "4 actors in 4 processes")

    process = FakeProcess(
        nothing, work, nothing, lambda: (event(run, "draining", "500,000 steps"), place.end(run)), code=3
    )
    code, lines = watch(run, process, starting(), status(), status())
    assert code == 3
    assert lines[:3] == [
        f"run cartpole-1  ({run.path})",
        "look at it: hive monitor cartpole-1 · stop it: hive down cartpole-1",
        "supervisor         4 actors in 4 processes",
    ]
    assert lines[3].startswith("20,480/500,000 steps 4% │ ")
    assert lines[4] == "supervisor         500,000 steps"
    assert [line.partition(" · ")[0] for line in lines[5:]] == ["finished: 500,000 steps, 976 updates"]


def test_a_run_that_never_got_going_is_not_greeted(place: Place) -> None:
    run = place.never_begun()
    fail(run, ConfigError("1 problem in `a.toml`"))
    with pytest.raises(HiveError, match="1 problem"):
        watch(run, FakeProcess(nothing, nothing, code=2), starting(), starting())


def test_a_supervisor_that_was_killed_lost_the_run(place: Place) -> None:
    run = place.live(None, pid=1)  # that of a FakeProcess
    with pytest.raises(
        ActorFailed, match=r"(?m)^the supervisor was killed \(SIGKILL\); the run cartpole-1 is lost$"
    ) as e:
        watch(run, FakeProcess(nothing, code=-signal.SIGKILL), status())
    assert e.value.hint == f"to continue it: hive resume {run.name}; its files are in {run.path}"
    with pytest.raises(ActorFailed, match=r"^the supervisor was killed \(signal 40\)"):  # which Python has no name for
        watch(run, FakeProcess(nothing, code=-40), status())


@pytest.mark.parametrize(("number", "again"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")])
def test_the_first_interrupt_drains_and_the_second_is_passed_on(place: Place, number: int, again: str) -> None:
    run = place.never_begun()

    def interrupt() -> None:
        signal.raise_signal(number)

    before = signal.getsignal(number)
    process = FakeProcess(nothing, interrupt, interrupt, lambda: place.end(run, state="stopped"), code=130)
    code, lines = watch(run, process, status(), status(), status(), status())
    assert code == 130
    assert process.signals == [number, number]  # the run names the signal as the reason of its end
    assert lines.count(f"stopping: saving the state - {again} again to stop at once") == 1
    assert signal.getsignal(number) is before


def test_actors_that_delay_the_end_are_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hive.launch.control.REPORT_S", 0.0)
    run = place.never_begun()

    def interrupt() -> None:
        signal.raise_signal(signal.SIGINT)

    process = FakeProcess(nothing, interrupt, nothing, lambda: place.end(run, state="stopped"), code=0)
    _, lines = watch(run, process, status(), status(), status(), status())
    late = [line for line in lines if line.startswith("still waiting for ")]
    assert late
    assert all(line.endswith(" - Ctrl-C again to stop at once") for line in late)
    assert "learner-0 (in " in late[0]
    assert lines.index(late[0]) > lines.index("stopping: saving the state - Ctrl-C again to stop at once")


@pytest.fixture
def hangup() -> Iterator[None]:
    """Let SIGHUP end the process, as in a terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hangup")
def test_a_terminal_that_goes_away_leaves_the_run_alone(place: Place) -> None:
    run, before = place.never_begun(), signal.getsignal(signal.SIGHUP)
    process = FakeProcess(nothing, lambda: signal.raise_signal(signal.SIGHUP), *[nothing] * 9)
    code, lines = watch(run, process, *[status()] * 9)
    assert code == 0
    assert lines[-1] == "left cartpole-1 running · inspect: hive ps cartpole-1 · stop: hive down cartpole-1"
    assert (process.signals, process.returncode) == ([], 0)
    assert signal.getsignal(signal.SIGHUP) is before


def test_leaving_a_run_that_ends_this_moment_is_its_end(place: Place) -> None:
    run = place.ended()
    code, lines = watch(run, FakeProcess(lambda: signal.raise_signal(signal.SIGHUP), code=0), status())
    assert code == 0
    assert not any("left" in line for line in lines)


# --- keys


@contextmanager
def terminal() -> Iterator[io.FileIO]:
    """Makes stdin and stderr a terminal; gives the end at which a person sits.

    Not a fixture: between fixtures and test, pytest puts its own streams there.
    """
    ours, theirs = os.openpty()
    with (
        pytest.MonkeyPatch.context() as patch,
        io.FileIO(ours, "r+") as person,
        os.fdopen(theirs, "r") as stdin,
        os.fdopen(os.dup(theirs), "w") as stderr,
    ):
        patch.setattr(sys, "stdin", stdin)
        patch.setattr(sys, "stderr", stderr)
        yield person


def test_keys_come_singly_and_without_echo() -> None:
    with terminal() as person:
        before = termios.tcgetattr(sys.stdin)
        with read_keys() as keys:
            assert keys
            assert not termios.tcgetattr(sys.stdin)[tty.LFLAG] & (termios.ECHO | termios.ICANON)
            person.write(b"x")
            assert os.read(sys.stdin.fileno(), 1) == b"x"
        assert termios.tcgetattr(sys.stdin) == before


def test_a_terminal_is_as_before_when_something_breaks() -> None:
    with terminal():
        before = termios.tcgetattr(sys.stdin)
        with pytest.raises(ZeroDivisionError), read_keys():
            raise ZeroDivisionError
        assert termios.tcgetattr(sys.stdin) == before


@pytest.mark.parametrize(("name", "stream"), [("stderr", io.StringIO()), ("stdin", io.StringIO()), ("stdin", None)])
def test_keys_are_not_read_without_a_terminal(name: str, stream: io.StringIO | None) -> None:
    with terminal(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, name, stream)
        with read_keys() as keys:
            assert not keys


def test_d_leaves(place: Place) -> None:
    with terminal() as person:
        process = FakeProcess(nothing, lambda: person.write(b"xd"), *[nothing] * 9)
        code, lines = watch(place.never_begun(), process, *[status()] * 9)
    assert (code, process.returncode, process.signals) == (0, 0, [])
    assert lines[-1].startswith("left cartpole-1 running")


def test_keys_are_not_read_where_lines_are_plain(place: Place) -> None:
    run, out = place.never_begun(), Out()
    with terminal() as person:
        person.write(b"d")
        process = FakeProcess(nothing, nothing, lambda: place.end(run), code=0)
        client = FakeClient(*[status()] * 3)
        Foreground(run, process, client, StatusLine(out, live=False), NewEvents(run)).watch()  # type: ignore[arg-type]
    assert not any(line.startswith(("left ", "leave ")) for line in said(out))


@pytest.mark.parametrize("key", [b"?", b"h"])
def test_the_keys_are_listed(place: Place, key: bytes) -> None:
    run = place.never_begun()
    with terminal() as person:
        keys = [nothing, lambda: person.write(key), nothing, lambda: person.write(b"d")]
        _, lines = watch(run, FakeProcess(nothing, *keys, *[nothing] * 9), *[status()] * 12)
    assert any(line.startswith("leave it running: d, or close the terminal · ") for line in lines)
    assert [line.split()[0] for line in lines if line.startswith(("d  ", "w  ", "Ctrl-C  "))] == ["d", "w", "Ctrl-C"]
    assert any(line.endswith("down cartpole-1") for line in lines)


def test_w_opens_the_monitor_and_comes_back(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[RunDirectory] = []
    monkeypatch.setattr(monitor_terminal, "watch", opened.append)
    run = place.never_begun()
    with terminal() as person:
        keys = [lambda: person.write(b"w"), nothing, lambda: person.write(b"d")]
        code, lines = watch(run, FakeProcess(nothing, *keys, *[nothing] * 9), *[status()] * 12)
    assert (code, opened) == (0, [run])
    assert lines[-1].startswith("left cartpole-1 running")


def test_w_waits_until_there_is_something_to_see(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[RunDirectory] = []
    monkeypatch.setattr(monitor_terminal, "watch", opened.append)
    with terminal() as person:
        keys = [lambda: person.write(b"w"), lambda: person.write(b"d")]
        watch(place.never_begun(), FakeProcess(nothing, *keys, *[nothing] * 9), *[starting()] * 12)
    assert opened == []


def test_a_script_keeps_its_stdout(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    run = place.never_begun()
    process = FakeProcess(nothing, nothing, lambda: place.end(run))
    code, _ = watch(run, process, *[status()] * 3)
    assert (code, capsys.readouterr().out) == (0, "")


# --- up


def test_up_makes_a_run_of_a_config(place: Place, start: Callable[..., FakeProcess]) -> None:
    start(FakeProcess(*[nothing] * 9), status())
    path = place.config('[run]\nseed = 3\n[env]\nid = "CartPole-v1"\n')
    done = place.hive("up", path, "-d", "--seed", "7", "--name", "quiet", "-s", "collection.envs=4")
    assert (done.code, done.out, done.err) == (0, "quiet-1\n", "")
    run = RunDirectory.open(home_folder() / "quiet-1")
    assert run.config_file.read_bytes() == path.read_bytes()
    given = load_config(path, ["collection.envs=4", "run.seed=7", 'run.name="quiet"'])
    assert run.resolved_file.read_text() == render(given)
    assert load_config(run.resolved_file) == given
    for n in (1, 2):
        start(FakeProcess(*[nothing] * 9), status())
        assert place.hive("up", path, "-d").out == f"cartpole-ppo-{n}\n"


def test_up_in_the_foreground(place: Place, start: Callable[..., FakeProcess], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hive.monitor.line.FIRST_PLAIN_S", 0.0)

    def finish() -> None:
        place.end(RunDirectory.open(place.runs / "cart-1"))

    start(FakeProcess(nothing, nothing, finish), status())
    done = place.hive("up", place.config())
    assert done.code == 0
    assert done.out == ""
    lines = done.err.splitlines()
    assert lines[0] == f"run cart-1  ({place.runs.resolve() / 'cart-1'})"
    assert any(line.startswith("20,480/500,000 steps 4% │ ") for line in lines)
    assert lines[-1].startswith("finished: 500,000 steps, 976 updates · ")


def test_up_in_a_pipe_prints_short_lines_there(place: Place, start: Callable[..., FakeProcess]) -> None:
    """`hive up ... | tee`: what is printed once also goes through the pipe, and nothing is printed twice."""

    def finish() -> None:
        place.end(RunDirectory.open(place.runs / "cart-1"))

    start(FakeProcess(nothing, nothing, finish), status())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.stderr, "isatty", lambda: True)
        done = place.hive("up", place.config())
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].startswith("run cart-1  (")
    assert lines[-1].startswith("finished: 500,000 steps, 976 updates · ")
    assert "{" not in done.out
    assert "\x1b" not in done.out
    assert max(len(line) for line in lines) < 160


def test_up_with_json_is_for_programs(place: Place, start: Callable[..., FakeProcess]) -> None:
    def finish() -> None:
        place.end(RunDirectory.open(place.runs / "cart-1"))

    start(FakeProcess(nothing, nothing, finish), status())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.stderr, "isatty", lambda: True)
        done = place.hive("up", place.config(), "--json")
    assert (done.code, "\x1b" in done.err) == (0, False)  # stdout may be the same terminal
    told = [json.loads(line) for line in done.out.splitlines()]
    assert [snapshot["state"] for snapshot in told] == ["running", "finished"]
    assert (told[0]["env_steps"], told[1]["env_steps"]) == (20_480, 500_000)
    assert done.err.splitlines()[-1].startswith("finished: 500,000 steps, 976 updates · ")


@pytest.mark.parametrize("words", [("-d",), ("--seeds", "1..2")])
def test_json_needs_one_run_in_the_foreground(place: Place, words: tuple[str, ...]) -> None:
    done = place.hive("up", place.config(), "--json", *words)
    assert (done.code, done.out) == (2, "")
    assert "--json" in done.err
    assert not place.runs.exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--name", "a/b"], "run.name"),
        (["--name", 'a"b'], "run.name"),
        (["--seed", "-1"], "run.seed"),
        (["-s", "collection.evns=1"], "did you mean"),
    ],
)
def test_up_of_a_wrong_config_makes_nothing(place: Place, words: list[str], told: str) -> None:
    done = place.hive("up", place.config(), *words)
    assert (done.code, done.out) == (2, "")
    assert told in done.err
    assert not place.runs.exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--seed", "3"), "--seeds cannot be combined with --seed"),
        (("-d", "--inline"), "--seeds cannot be combined with --detach and --inline"),
        (("--resume", "cartpole-1"), "a resumed run keeps its seed"),
    ],
)
def test_options_that_cannot_be_combined_with_seeds(place: Place, words: tuple[str, ...], told: str) -> None:
    """It would be left out without a word."""
    done = place.hive("up", str(place.config()), "--seeds", "1..2", *words)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: {told}\n\nhint: ")
    assert not place.runs.exists()


def test_up_of_a_supervisor_that_dies_at_once(place: Place, start: Callable[..., FakeProcess]) -> None:
    start(FakeProcess(nothing, nothing, code=9), None)
    done = place.hive("up", place.config(), "-d")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(
        "error: the supervisor ended with code 9 before the run began\n\nhint: its output is in "
    )


# --- up --detach


def test_detaching_waits_until_the_run_runs(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    run, process, client = place.never_begun(), FakeProcess(), FakeClient(starting(), starting(), status(), status())
    assert detached(run, process, client) == 0  # type: ignore[arg-type]
    assert len(client.said) == 1
    assert process.returncode == 0  # or Python would complain that it still runs
    assert capsys.readouterr() == ("cartpole-1\n", "")


def test_detaching_from_a_run_that_cannot_start(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    run = place.never_begun()
    fail(run, ConfigError("no environment `Pong`", hint="install it"))
    with pytest.raises(HiveError, match="no environment `Pong`"):
        detached(run, FakeProcess(code=2), FakeClient(starting()))  # type: ignore[arg-type]
    assert capsys.readouterr().out == ""


def test_detaching_from_a_run_that_is_over(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    run = place.ended(state="failed", error="learner-0 died")
    assert detached(run, FakeProcess(code=1), FakeClient(starting())) == 1  # type: ignore[arg-type]
    assert capsys.readouterr().err.startswith("error: learner-0 died\nfailed: ")


# --- interrupted at the start

WAS_STARTING = "stopping cart-1, which was still starting - Ctrl-C again to kill it\n"


@pytest.mark.parametrize("words", [(), ("-d",)])
def test_an_interrupt_while_it_connects_ends_the_run(
    place: Place, start: Callable[..., FakeProcess], words: tuple[str, ...]
) -> None:
    process = start(FakeProcess(nothing, interrupt, nothing, code=-signal.SIGTERM), None)
    done = place.hive("up", place.config(), *words)
    assert (done.code, done.out, done.err) == (130, "", WAS_STARTING)
    assert process.signals == [signal.SIGINT]
    assert process.returncode == -signal.SIGTERM
    assert not (place.runs / "cart-1").exists()


def test_an_interrupt_while_the_supervisor_is_started_ends_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    process = FakeProcess(nothing, code=-signal.SIGTERM)

    def begin(directory: RunDirectory) -> FakeProcess:
        signal.raise_signal(signal.SIGINT)
        return process

    monkeypatch.setattr(launch, "start", begin)
    done = place.hive("up", place.config())
    assert (done.code, done.out, done.err) == (130, "", WAS_STARTING)
    assert process.signals == [signal.SIGINT]


def test_an_interrupt_while_a_detached_run_starts_ends_it(
    place: Place, start: Callable[..., FakeProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "connect", lambda directory, process: FakeClient(starting(), starting(), ctrl_c=True))
    process = start(FakeProcess(nothing, code=0), None)
    done = place.hive("up", place.config(), "-d")
    assert (done.code, done.out, done.err) == (130, "", WAS_STARTING)
    assert process.signals == [signal.SIGINT]


def test_an_interrupt_never_ends_a_detached_run_that_runs(
    place: Place, start: Callable[..., FakeProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes between the last look and the name."""

    class Terminal(io.StringIO):
        def write(self, text: str) -> int:
            return interrupt() or 0

    monkeypatch.setattr(launch, "connect", lambda directory, process: FakeClient(starting(), status()))
    process = start(FakeProcess(*[nothing] * 9), None)
    monkeypatch.setattr(sys, "stdout", Terminal())
    done = place.hive("up", place.config(), "-d")
    assert (done.code, done.err) == (130, "")
    assert process.signals == []


# --- up --inline


def test_inline_runs_here(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = threading.active_count()

    def run_inline(directory: RunDirectory) -> int:
        assert threading.current_thread() is threading.main_thread()
        place.serve(directory, status(actor("learner-0", counters=results())))
        event(directory, "running", "4 actors in 1 process")
        place.end(directory, mean_return_100=None)
        return 0

    monkeypatch.setattr("hive.runtime.run.execute.run_inline", run_inline)
    done = place.hive("up", place.config(), "--inline")
    assert (done.code, done.out) == (0, "")
    lines = done.err.splitlines()
    assert lines[0] == f"run cart-1  ({place.runs.resolve() / 'cart-1'}), inline"
    assert [line[9:] for line in lines].count("supervisor         4 actors in 1 process") == 1
    assert lines[-1].startswith("finished: ")
    assert threading.active_count() == threads + len(place.supervisors)


def test_inline_with_json(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_inline(directory: RunDirectory) -> int:
        place.end(directory)
        return 0

    monkeypatch.setattr("hive.runtime.run.execute.run_inline", run_inline)
    done = place.hive("up", place.config(), "--inline", "--json")
    assert done.code == 0
    assert json.loads(done.out.splitlines()[-1])["state"] == "finished"


@pytest.mark.parametrize(("error", "kept"), [(ConfigError("a mistake"), False), (ActorFailed("it died"), True)])
def test_inline_that_fails(place: Place, monkeypatch: pytest.MonkeyPatch, error: HiveError, kept: bool) -> None:
    threads = threading.active_count()

    def run_inline(directory: RunDirectory) -> int:
        raise error

    monkeypatch.setattr("hive.runtime.run.execute.run_inline", run_inline)
    done = place.hive("up", place.config(), "--inline")
    assert done.code == error.exit_code
    files = place.runs / ".failed" / "cart-1"
    hint = f"\nhint: the files of this start are in {files}\n" if kept else ""
    assert done.err.endswith(f"error: {error}\n{hint}")
    assert (not (place.runs / "cart-1").exists(), files.exists()) == (True, kept)
    assert threading.active_count() == threads
