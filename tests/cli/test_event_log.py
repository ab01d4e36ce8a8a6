"""The events that a foreground view prints, and when."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from event_lines import event, said

from hive.launch.event_log import EVENTS, NewEvents
from hive.monitor import StatusLine
from hive.records.run_warnings import RunWarning

if TYPE_CHECKING:
    from conftest import Place


def test_only_new_events_that_matter_are_shown(place: Place) -> None:
    run, out = place.never_begun(), io.StringIO()
    events, line = NewEvents(run), StatusLine(out)
    events.show(line)
    assert said(out) == []
    event(run, "started", "run cartpole-1")
    event(run, "running", "4 actors in 4 processes")
    events.show(line)
    events.show(line)
    event(run, "died", "collector-0 died: killed by SIGKILL", actor="collector-0")
    events.show(line)
    assert said(out) == [
        "supervisor         4 actors in 4 processes",
        "collector-0        collector-0 died: killed by SIGKILL",
    ]


def test_checkpoints_of_a_schedule_are_no_lines(place: Place) -> None:
    run, out = place.never_begun(), io.StringIO()
    events = NewEvents(run)
    event(run, "saved", "checkpoint 000040 at 10 steps", routine=True)
    event(run, "saved", "checkpoint 000050 at 20 steps", routine=False)
    event(run, "saved", "checkpoint 000060 already exists")
    events.show(StatusLine(out))
    assert said(out) == [
        "supervisor         checkpoint 000050 at 20 steps",
        "supervisor         checkpoint 000060 already exists",
    ]


def test_an_event_is_shown_once_it_is_whole(place: Place) -> None:
    run, out = place.never_begun(), io.StringIO()
    events, line = NewEvents(run), StatusLine(out)
    run.events_file.write_text('{"kind": "died", "te')
    events.show(line)
    assert said(out) == []
    with run.events_file.open("a") as file:
        file.write('xt": "who"}\n')
    events.show(line)
    assert said(out) == ["supervisor         who"]


def test_invalid_lines_are_ignored(place: Place) -> None:
    """A full disk leaves pieces of lines."""
    run, out = place.never_begun(), io.StringIO()
    events = NewEvents(run)
    run.events_file.write_bytes(b'{"kind": "di\n[1]\n\xff\n\n{"text": "of no kind"}\n')
    event(run, "lost", "a message is lost")
    events.show(StatusLine(out))
    assert said(out) == ["supervisor         a message is lost"]


@pytest.mark.parametrize("kind", EVENTS)
def test_each_kind_is_shown(place: Place, kind: str) -> None:
    run, out = place.never_begun(), io.StringIO()
    events = NewEvents(run)
    event(run, kind, "text")
    events.show(StatusLine(out))
    assert said(out) == ["supervisor         text"]


def test_events_from_before_a_resume_are_not_printed(place: Place) -> None:
    run, out = place.ended(state="stopped"), io.StringIO()
    event(run, "died", "collector-0 died the day before")
    events = NewEvents(run)
    event(run, "running", "4 actors in 4 processes")
    events.show(StatusLine(out))
    assert said(out) == ["supervisor         4 actors in 4 processes"]


def test_a_warning_is_shown_once_and_again_with_another_cause(place: Place) -> None:
    run, out = place.lost(), io.StringIO()
    entropy = RunWarning("entropy gone", "0.01 of 0.7", "entropy_weight", 5)
    event(run, **entropy.event)
    events, line = NewEvents(run), StatusLine(out)  # of a resumed run, in which that warning still holds
    unsaved = RunWarning("checkpoints not written", "no space", "free it", 7)  # a full disk keeps it out of the log
    events.show(line, [entropy])
    events.show(line, [entropy, unsaved, RunWarning("goal not judged", "10", "", 2, last_steps=3)])
    event(run, "recovered", "entropy gone", warning="entropy gone", steps=8)
    event(run, **RunWarning("entropy gone", "0.02 of 0.7", "entropy_weight", 9).event)  # other numbers only
    events.show(line, [entropy, unsaved])
    events.show(line, [RunWarning("checkpoints not written", "no such folder", "make it", 9)])
    assert said(out) == [
        "supervisor         warning: checkpoints not written: no space; free it",
        "supervisor         warning: checkpoints not written: no such folder; make it",
    ]


def test_the_worst_warnings_of_the_start_are_shown(place: Place) -> None:
    run, out = place.never_begun(), io.StringIO()
    for name in (
        "sink failed",
        "videos off",
        "random beginning",
        "episodes cut",
        "return constant",
        "no episode ended",
    ):
        event(run, **RunWarning(name, "it is so", "", 0).event)
    events, line = NewEvents(run), StatusLine(out)
    events.show(line)
    event(run, "running", "4 actors in 4 processes")
    events.show(line)
    event(run, **RunWarning("updates skipped", "all of them", "", 900).event)
    events.show(line)
    assert said(out) == [
        "supervisor         warning: episodes cut: it is so",  # which explains that none ended, and a constant return
        "supervisor         warning: random beginning: it is so",
        "supervisor         warning: sink failed: it is so",
        f"and 1 more: hive doctor {run.name}",
        "supervisor         4 actors in 4 processes",
        "supervisor         warning: updates skipped: all of them",
    ]


def test_a_log_that_is_begun_anew_is_read_from_its_start(place: Place) -> None:
    run, out = place.never_begun(), io.StringIO()
    event(run, "running", "4 actors in 4 processes")
    events = NewEvents(run)
    run.events_file.unlink()
    event(run, "lost", "gone")
    events.show(StatusLine(out))
    assert said(out) == ["supervisor         gone"]
