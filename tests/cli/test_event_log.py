"""The events that a foreground view prints, and when."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from event_lines import event, said

from hive.cli.parts.event_log import SHOWN, NewEvents
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


@pytest.mark.parametrize("kind", SHOWN)
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


def test_a_warning_that_a_full_disk_keeps_out_of_the_log_is_shown_once(place: Place) -> None:
    run, out = place.never_begun(), io.StringIO()
    fields = {"warning": "entropy gone", "cause": "0.01", "advice": "entropy_weight", "steps": 5}
    event(run, "warning", "entropy gone: 0.01; entropy_weight", **fields)
    events, line = NewEvents(run), StatusLine(out)  # of a resumed run, in which that warning still holds
    entropy = RunWarning("entropy gone", "0.01", "entropy_weight", 5)
    unsaved = RunWarning("checkpoints not written", "no space", "free it", 7)
    constant = RunWarning("return constant", "10", "", 2, last_steps=3)
    events.show(line, [entropy])
    events.show(line, [entropy, unsaved, constant])
    events.show(line, [entropy, unsaved])
    event(run, "recovered", "entropy gone", warning="entropy gone", steps=8)
    event(run, "warning", "entropy gone: 0.01; entropy_weight", **fields)
    events.show(line, [entropy, unsaved])
    events.show(line, [entropy, unsaved])
    assert said(out) == [
        "supervisor         checkpoints not written: no space; free it",
        "supervisor         entropy gone",
        "supervisor         entropy gone: 0.01; entropy_weight",
    ]


def test_a_log_that_is_begun_anew_is_read_from_its_start(place: Place) -> None:
    run, out = place.never_begun(), io.StringIO()
    event(run, "running", "4 actors in 4 processes")
    events = NewEvents(run)
    run.events_file.unlink()
    event(run, "lost", "gone")
    events.show(StatusLine(out))
    assert said(out) == ["supervisor         gone"]
