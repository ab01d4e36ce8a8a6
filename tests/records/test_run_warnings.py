"""Warnings folded from the entries of an event log."""

from __future__ import annotations

from typing import Any

import pytest

from hive.records.run_warnings import RunWarning, active, warnings_of


def began(kind: str, steps: Any, cause: str = "it is so") -> dict[str, Any]:
    return {"kind": "warning", "text": "...", "warning": kind, "cause": cause, "advice": "do that", "steps": steps}


def ended(kind: str, steps: Any) -> dict[str, Any]:
    return {"kind": "recovered", "text": "...", "warning": kind, "steps": steps}


def test_a_warning_holds_until_it_has_ended() -> None:
    log = [began("entropy gone", 100), {"kind": "saved", "steps": 120}, began("no episode ended", 150)]
    found = warnings_of(log)
    assert [*found.values()] == [
        RunWarning("entropy gone", "it is so", "do that", 100),
        RunWarning("no episode ended", "it is so", "do that", 150),
    ]
    assert active(found.values()) == [*found.values()]
    found = warnings_of([*log, ended("entropy gone", 200)])
    assert (found["entropy gone"].first_steps, found["entropy gone"].last_steps) == (100, 200)
    assert active(found.values()) == [found["no episode ended"]]


def test_one_that_begins_again_is_one_warning_with_the_newest_text() -> None:
    log = [began("entropy gone", 100, "once"), ended("entropy gone", 200), began("entropy gone", 300, "twice")]
    assert [*warnings_of(log).values()] == [RunWarning("entropy gone", "twice", "do that", 100)]


@pytest.mark.parametrize(
    "entry",
    [
        ended("entropy gone", 5),  # of a warning whose beginning is lost
        began("entropy gone", "soon"),
        {"kind": "warning", "text": "of an actor that names none", "steps": 7},
        {"kind": "slow", "warning": "entropy gone", "steps": 7},
        {},
    ],
)
def test_other_entries_change_nothing(entry: dict[str, Any]) -> None:
    assert warnings_of([entry]) == {}


def test_as_a_line_and_as_data() -> None:
    warning = RunWarning("entropy gone", "it is so", "do that", 100)
    assert warning.line == "entropy gone: it is so; do that"
    assert RunWarning("entropy gone", "it is so", "", 100).line == "entropy gone: it is so"
    assert RunWarning.of(warning.data | {"of a newer version": 1}) == warning
