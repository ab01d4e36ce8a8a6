"""Diagnostics: slow calls and stale messages are reported when first seen, then at most once per EVERY_S."""

from __future__ import annotations

from typing import Any

import pytest

from hive.runtime.memory.status import ActorStatus
from hive.runtime.supervise.diagnostics import EVERY_S, SLOW_S, Diagnostic, Diagnostics

SECOND = 1_000_000_000


def page(phase: str, since_s: float, now_s: float, name: str = "collector-0", incarnation: int = 0) -> ActorStatus:
    numbers: dict[str, Any] = dict.fromkeys(("pid", "pulse_ns", "progress", "version", "lag"), 0)
    times = {"since_ns": round(since_s * SECOND), "now_ns": round(now_s * SECOND)}
    return ActorStatus(name=name, phase=phase, incarnation=incarnation, spent_ns={}, counters={}, **times, **numbers)


def look(diagnostics: Diagnostics, now_s: float, phase: str, since_s: float, **more: Any) -> list[str]:
    return [found.text for found in diagnostics.of_actor(page(phase, since_s, now_s, **more), round(now_s * SECOND))]


def test_a_slow_call_is_reported_after_it_has_ended() -> None:
    diagnostics = Diagnostics()
    assert look(diagnostics, 10.5, "env", 10.0) == []
    assert look(diagnostics, 11.5, "env", 10.0) == []
    assert look(diagnostics, 11.9, "env", 10.0) == []
    assert look(diagnostics, 12.1, "policy", 12.0) == ["the environments of collector-0 took 1.9 s for one step"]
    assert look(diagnostics, 12.2, "policy", 12.0) == []


def test_one_slow_call_after_another_is_two() -> None:
    diagnostics = Diagnostics()
    look(diagnostics, 12.0, "env", 10.0)
    assert look(diagnostics, 14.0, "env", 12.5) == ["the environments of collector-0 took 2.0 s for one step"]


@pytest.mark.parametrize(("phase", "doing_s"), [("env", SLOW_S), ("policy", 99.0), ("gradient", 99.0), ("", 99.0)])
def test_nothing_else_is_slow(phase: str, doing_s: float) -> None:
    diagnostics = Diagnostics()
    assert look(diagnostics, 100.0, phase, 100.0 - doing_s) == []
    assert look(diagnostics, 101.0, "runtime", 101.0) == []


def test_repeated_slow_calls_are_counted_and_reported_once_per_interval() -> None:
    diagnostics, told = Diagnostics(), []
    for call in range(60):  # each takes 1.5 s of 2 s
        told += look(diagnostics, 2.0 * call + 2.5, "env", 2.0 * call + 1.0)
        told += look(diagnostics, 2.0 * call + 2.9, "policy", 2.0 * call + 2.8)
    assert EVERY_S == 60.0
    assert told == [
        "the environments of collector-0 took 1.5 s for one step",
        "the environments of collector-0 took 1.5 s for one step, 30 slow steps since the last report",
    ]


def test_actors_are_reported_separately() -> None:
    diagnostics = Diagnostics()
    for name in ("collector-0", "collector-1"):
        look(diagnostics, 3.0, "env", 1.0, name=name)
        assert look(diagnostics, 3.1, "policy", 3.1, name=name) == [
            f"the environments of {name} took 2.0 s for one step"
        ]


def accounts(**stale: int) -> dict[str, dict[str, Any]]:
    return {name: {"dropped": {"stale": count, "cut": 5} if count else {"cut": 5}} for name, count in stale.items()}


def test_stale_messages_are_reported_by_channel() -> None:
    diagnostics = Diagnostics()
    assert diagnostics.of_channels(accounts(rollouts=0, gradients=0), 0) == []
    (diagnostic,) = diagnostics.of_channels(accounts(rollouts=0, gradients=1_200), 5 * SECOND)
    assert diagnostic.kind == "stale"
    assert diagnostic.text.startswith("1,200 messages of `gradients` were older than max_lag allows and were dropped; ")
    assert diagnostics.of_channels(accounts(rollouts=0, gradients=1_205), 10 * SECOND) == []
    (diagnostic,) = diagnostics.of_channels(accounts(rollouts=0, gradients=1_207), 66 * SECOND)
    assert diagnostic.text.startswith("7 messages of `gradients` ")
    assert diagnostics.of_channels(accounts(rollouts=0, gradients=1_207), 200 * SECOND) == []
    assert [
        n.text.split("`")[1] for n in diagnostics.of_channels(accounts(rollouts=3, gradients=1_207), 201 * SECOND)
    ] == ["rollouts"]


def test_a_slow_call_that_ends_in_an_exit_is_not_reported() -> None:
    diagnostics = Diagnostics()
    look(diagnostics, 12.0, "env", 10.0)
    assert look(diagnostics, 14.0, "runtime", 13.9, incarnation=1) == []
    look(diagnostics, 16.0, "env", 14.0, incarnation=1)
    told = look(diagnostics, 16.1, "policy", 16.1, incarnation=1)
    assert told == ["the environments of collector-0 took 2.0 s for one step"]


def test_a_page_that_has_just_been_opened_has_no_diagnostics() -> None:
    diagnostics = Diagnostics()
    assert look(diagnostics, 56_472.2, "env", 0.0) == []
    assert look(diagnostics, 56_472.3, "runtime", 56_472.3) == []


def test_a_diagnostic_names_its_actor() -> None:
    diagnostics = Diagnostics()
    look(diagnostics, 3.0, "env", 1.0)
    text = "the environments of collector-0 took 2.0 s for one step"
    assert diagnostics.of_actor(page("policy", 3.0, 3.0), 3 * SECOND) == [Diagnostic("slow", text, "collector-0")]
