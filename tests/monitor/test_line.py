from __future__ import annotations

import dataclasses
import io
import json
import os
import sys
import time
from typing import Any

import pytest
from canned_status import account, actor, results, starting, status, warned
from emulated import lines_on_screen

from hive.monitor import History, Snapshot, StatusLine, event_text, line, snapshot_of
from hive.monitor.line import SnapshotLines, live_text, plain_text


class Stream(io.StringIO):
    """A stream that may be a terminal. `flushed` holds the text that was flushed."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal
        self.flushed = ""

    def isatty(self) -> bool:
        return self.terminal

    def flush(self) -> None:
        self.flushed = self.getvalue()

    def screen(self) -> list[str]:
        """The lines that a terminal shows."""
        return lines_on_screen(self.flushed)


class Time:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


def document(*, state: str = "running", restarts: int = 0, lag: int = 1, **counters: float) -> dict[str, Any]:
    rows = [actor("collector-0", lag=lag, restarts=restarts, pid=1), actor("learner-0", counters=results(**counters))]
    return status(*rows, state=state, channels={"rollouts": account(40, run_ended=1_200)})


def snapshot(**parts: Any) -> Snapshot:
    return snapshot_of(document(**parts))


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Stream:
    monkeypatch.setenv("COLUMNS", "200")
    return Stream(terminal=True)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()
    monkeypatch.setattr(line, "time", clock)
    return clock


# --- what it says


def test_the_line_of_a_terminal() -> None:
    assert live_text(snapshot(env_steps=184_320), 71_204.4, keys=True) == (
        "▐ 184,320/500,000 steps 37% │ 71,204/s │ return 131.6 │ lag 1 │ dropped 1,200 "
        "│ left 4.4 s │ d detach  w monitor │ ? keys"
    )


def test_unknown_values_are_dashes() -> None:
    text = live_text(snapshot(env_steps=0, episodes=0), 0.0)
    assert text == "▐ 0/500,000 steps 0% │ 0/s │ return – │ lag 1 │ dropped 1,200 │ left –"


def test_the_rate_of_the_last_minute_goes_first_where_there_is_no_room() -> None:
    whole = live_text(snapshot(), 71_204.4, minute=65_000.2)
    assert "│ 71,204/s │ 1 min 65,000/s │" in whole
    assert live_text(snapshot(), 71_204.4, len(whole) - 1, minute=65_000.2) == live_text(snapshot(), 71_204.4)


def test_means_of_info_follow_the_return_and_go_first_where_there_is_no_room() -> None:
    found = snapshot(**{"info/is_success": 0.375, "info/score": 12.0})
    text = live_text(found, 1000.0)
    assert " │ return 131.6 │ is_success 0.375 │ score 12 │ lag 1 │ " in text
    shorter = live_text(found, 1000.0, len(text) - 1)
    assert "is_success 0.375 │ lag 1" in shorter
    assert "score" not in shorter


def test_restarts_are_shown_once_there_are_any() -> None:
    assert "restarts" not in live_text(snapshot(), 1.0)
    assert "│ restarts 3 │" in live_text(snapshot(restarts=3), 1.0)


def test_warnings_that_hold_are_named() -> None:
    once = warned("return collapsed", last_steps=20_000)
    one, two = (snapshot_of(status(warnings=[once, *([warned()] * n)])) for n in (1, 2))
    assert "│ warning: entropy gone │" in live_text(one, 1.0)
    assert "│ warning: entropy gone +1 │" in live_text(two, 1.0)
    assert "│ warning: entropy gone │" in plain_text(one, 1.0)
    over = snapshot_of(status(warnings=[once]))
    assert "warning" not in live_text(over, 1.0) + plain_text(over, 1.0)


@pytest.mark.parametrize("state", ["draining", "paused", "starting", "finished"])
def test_the_state_replaces_the_time_left_unless_the_run_is_running(state: str) -> None:
    text = live_text(snapshot(state=state), 1_000.0, keys=True)
    assert text.endswith(f"│ {state}")
    assert "left" not in text
    assert "detach" not in text


@pytest.mark.parametrize(
    ("env_steps", "rate", "left"),
    [
        (499_999, 10.0, "0.1 s"),
        (499_000, 10.0, "1 min 40 s"),
        (464_010, 10.0, "59 min 59 s"),
        (464_000, 10.0, "1 h"),
        (0, 1.0, "5 d 18 h"),
        (500_000, 10.0, "0.0 s"),
        (500_512, 10.0, "0.0 s"),  # the last rollouts went beyond the goal
    ],
)
def test_the_time_left(env_steps: int, rate: float, left: str) -> None:
    assert live_text(snapshot(env_steps=env_steps), rate).endswith(f"│ left {left}")


def test_the_line_of_a_file_is_that_of_a_terminal_without_keys() -> None:
    assert plain_text(snapshot(restarts=2), 5_120.4) == (
        "20,480/500,000 steps 4% │ 5,120/s │ return 131.6 │ lag 1 │ dropped 1,200 │ restarts 2 │ left 1 min 33 s"
    )
    assert "│ return – │" in plain_text(snapshot(episodes=0), 0.0)


# --- on a terminal


def test_it_is_redrawn_in_place(terminal: Stream) -> None:
    view = StatusLine(terminal)
    first, second = (dataclasses.replace(snapshot(env_steps=n), steps_per_s=2_000.0) for n in (1_000, 3_000))
    view.draw(first)
    view.draw(second)
    assert terminal.screen() == [live_text(second, 2_000.0)]


def test_messages_are_printed_above_the_line(terminal: Stream) -> None:
    view = StatusLine(terminal)
    view.say("before")
    view.draw(snapshot())
    view.say("between")
    view.say("after")
    assert terminal.screen() == ["before", "between", "after", live_text(snapshot(), 0.0)]


def test_an_erased_line_does_not_come_back(terminal: Stream) -> None:
    view = StatusLine(terminal)
    view.draw(snapshot())
    view.say("one")
    view.erase()
    assert terminal.screen() == ["one", "", ""]
    view.say("two")
    assert terminal.screen() == ["one", "two", ""]


def test_nothing_is_erased_where_nothing_was_drawn(terminal: Stream) -> None:
    StatusLine(terminal).erase()
    assert terminal.getvalue() == ""


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (10, "▐ 20,480/"),
        (40, "▐ 20,480/500,000 steps 4% │ left –"),
        (60, "▐ 20,480/500,000 steps 4% │ 0/s │ return 131.6 │ left –"),
        (80, "▐ 20,480/500,000 steps 4% │ 0/s │ return 131.6 │ left – │ ? keys"),
        (100, "▐ 20,480/500,000 steps 4% │ 0/s │ return 131.6 │ left – │ d detach  w monitor │ ? keys"),
    ],
)
def test_it_never_wraps_and_keeps_what_matters_most(
    terminal: Stream, monkeypatch: pytest.MonkeyPatch, columns: int, text: str
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    view = StatusLine(terminal)
    view.keys = True
    view.draw(snapshot())
    assert terminal.screen() == [text]


def test_the_bottleneck_is_shown() -> None:
    def text(sentence: str, state: str = "running") -> str:
        return live_text(dataclasses.replace(snapshot(state=state), bound_by=sentence), 0.0)

    assert "│ bound by learner │ left" in text("learner (update 71 % of its time) - gradients.bootstrap_rounds")
    assert "bound by" not in text("nothing yet") + text("") + text("learner (update 71 %)", "draining")


# --- for programs


def test_snapshots_are_lines_of_json(clock: Time) -> None:
    out = Stream(terminal=False)
    view = SnapshotLines(out)
    for second in range(12):
        clock.now = 100.0 + second
        view.draw(snapshot(env_steps=second))
    view.draw(snapshot(state="finished", env_steps=12), last=True)
    told = [json.loads(line) for line in out.flushed.splitlines()]
    assert [each["env_steps"] for each in told] == [0, 5, 10, 12]
    assert {"run", "state", "steps_per_s", "bound_by", "actors", "channels"} <= {*told[0]}


def test_snapshots_go_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    SnapshotLines().draw(snapshot(), last=True)
    out, err = capsys.readouterr()
    assert (json.loads(out)["state"], err) == ("running", "")


def test_a_terminal_sees_a_run_that_has_not_been_built(terminal: Stream) -> None:
    StatusLine(terminal).draw(snapshot_of(starting()))
    (shown,) = terminal.screen()
    assert shown.startswith("▐ 0/500,000 steps 0% │ 0/s │ return – ")
    assert shown.endswith("│ starting")


# --- elsewhere


def test_lines_of_a_file_are_plain_and_few(clock: Time) -> None:
    """Their rate is that of the views, which counts the time in which rollouts are awaited."""
    out, history = Stream(terminal=False), History()
    view = StatusLine(out)
    for second in range(0, 78, 6):
        clock.now = 100.0 + second
        made = document(train_s=0.01 * second, env_steps=100 * (second + 1))
        history.add(made, clock.now)
        view.draw(snapshot_of(made, history))
    lines = out.flushed.splitlines()
    assert [part.split(" │ ")[0] for part in lines] == [
        "700/500,000 steps 0%",
        "3,700/500,000 steps 1%",
        "6,700/500,000 steps 1%",
    ]
    assert [part.split(" │ ")[1] for part in lines] == ["100/s", "100/s", "100/s"]
    assert "\x1b" not in out.getvalue()
    assert "\r" not in out.getvalue()


def test_a_file_gets_no_line_before_the_first_update(clock: Time) -> None:
    out = Stream(terminal=False)
    view = StatusLine(out)
    view.draw(snapshot_of(starting()))
    view.draw(snapshot(updates=0))
    view.draw(snapshot())  # its rate would be that of the start
    clock.now += 4.9
    view.draw(snapshot())
    assert out.getvalue() == ""
    clock.now += 0.1
    view.draw(snapshot())
    assert out.flushed.startswith("20,480/500,000 steps 4% │ ")


def test_a_message_to_a_file_is_a_line(clock: Time) -> None:
    out = Stream(terminal=False)
    view = StatusLine(out)
    view.say("run cartpole-1")
    view.draw(snapshot())
    clock.now += 5.0
    view.draw(snapshot())
    view.say("left")
    view.erase()
    assert out.flushed == f"run cartpole-1\n{plain_text(snapshot(), 0.0)}\nleft\n"


def test_it_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    view = StatusLine()
    assert view.out is sys.stderr
    view.say("talk")
    assert capsys.readouterr() == ("", "talk\n")


def test_a_terminal_can_be_given_plain_lines(terminal: Stream, clock: Time) -> None:
    """With `--json`, snapshots may go to the same terminal."""
    view = StatusLine(terminal, live=False)
    view.draw(snapshot())
    clock.now += 5.0
    view.draw(snapshot())
    assert terminal.flushed == f"{plain_text(snapshot(), 0.0)}\n"


class Closed(Stream):
    """A pipe whose reader has gone."""

    descriptor = -1

    def write(self, text: str) -> int:
        raise BrokenPipeError

    def fileno(self) -> int:
        return self.descriptor


def test_lines_go_on_to_stderr_when_the_reader_of_stdout_is_gone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C in `hive up ... | tee` also ends `tee`, and the result is still to come."""
    ours, theirs = os.pipe()
    os.close(ours)
    stdout = Closed(terminal=False)
    stdout.descriptor = theirs
    monkeypatch.setattr(sys, "stdout", stdout)
    view = StatusLine(sys.stdout)
    view.say("stopping")
    view.say("stopped")
    assert capsys.readouterr().err == "stopping\nstopped\n"
    os.write(theirs, b"what Python still holds when it exits")  # raises no BrokenPipeError
    os.close(theirs)


def test_a_closed_stderr_is_an_error() -> None:
    with pytest.raises(BrokenPipeError):
        StatusLine(Closed(terminal=False)).say("stopping")


def test_a_terminal_is_recognised() -> None:
    ours, theirs = os.openpty()
    with os.fdopen(ours, "rb", buffering=0) as reader, os.fdopen(theirs, "w") as out:
        view = StatusLine(out)
        assert view.live
        view.say("hello")
        assert reader.read(100) == b"hello\r\n"


# --- events


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (
            {"kind": "died", "text": "collector-1 died: killed by SIGKILL", "actor": "collector-1"},
            "collector-1        collector-1 died: killed by SIGKILL",
        ),
        ({"kind": "running", "text": "4 actors in 4 processes"}, "supervisor         4 actors in 4 processes"),
        ({"kind": "odd"}, "supervisor         "),
        (
            {"text": "x", "actor": "an-actor-with-a-very-long-name"},
            "an-actor-with-a-very-long-name x",
        ),
    ],
)
def test_an_event_is_time_who_and_what(event: dict[str, Any], expected: str) -> None:
    moment = 1_795_223_557.221
    clock = time.strftime("%H:%M:%S", time.localtime(moment))
    assert event_text({"t": moment, **event}) == f"{clock} {expected}"


def test_an_event_without_a_time_is_shown() -> None:
    assert event_text({"text": "hello"}).endswith(" supervisor         hello")


def test_the_return_of_each_of_several_policies() -> None:
    policies = [
        {"name": name, "agents": [], "algorithm": "ppo", "updates": 1, "mean_return": mean}
        for name, mean in (("cross", 0.25), ("circle", None))
    ]
    text = plain_text(snapshot_of(document() | {"policies": policies}), 0.0)
    assert " │ return cross 0.25, circle – │ " in text
