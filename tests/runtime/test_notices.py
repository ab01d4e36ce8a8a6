"""Notices: what is slow or wasted is said when it is first seen, and then now and then."""

from __future__ import annotations

from typing import Any

import pytest

from hive.runtime.notices import EVERY_S, SLOW_S, Notice, Notices
from hive.runtime.status import ActorStatus

SECOND = 1_000_000_000


def page(phase: str, since_s: float, name: str = "collector-0") -> ActorStatus:
    names = ("pid", "incarnation", "pulse_ns", "now_ns", "progress", "version", "lag")
    numbers: dict[str, Any] = dict.fromkeys(names, 0)
    return ActorStatus(name=name, phase=phase, since_ns=round(since_s * SECOND), spent_ns={}, counters={}, **numbers)


def look(notices: Notices, now_s: float, phase: str, since_s: float, name: str = "collector-0") -> list[str]:
    return [notice.text for notice in notices.of_actor(page(phase, since_s, name), round(now_s * SECOND))]


def test_a_slow_call_is_told_when_it_is_over() -> None:
    notices = Notices()
    assert look(notices, 10.5, "env", 10.0) == []
    assert look(notices, 11.5, "env", 10.0) == []
    assert look(notices, 11.9, "env", 10.0) == []
    assert look(notices, 12.1, "policy", 12.0) == ["collector-0 was in one call of `env` for 1.9 s"]
    assert look(notices, 12.2, "policy", 12.0) == []


def test_one_slow_call_after_another_is_two() -> None:
    notices = Notices()
    look(notices, 12.0, "env", 10.0)
    assert look(notices, 14.0, "env", 12.5) == ["collector-0 was in one call of `env` for 2.0 s"]


@pytest.mark.parametrize(("phase", "doing_s"), [("env", SLOW_S), ("policy", 99.0), ("gradient", 99.0), ("", 99.0)])
def test_nothing_else_is_slow(phase: str, doing_s: float) -> None:
    notices = Notices()
    assert look(notices, 100.0, phase, 100.0 - doing_s) == []
    assert look(notices, 101.0, "runtime", 101.0) == []


def test_what_happens_again_is_counted_and_told_once_in_a_while() -> None:
    notices, told = Notices(), []
    for call in range(60):  # each takes 1.5 s of 2 s
        told += look(notices, 2.0 * call + 1.5, "env", 2.0 * call)
        told += look(notices, 2.0 * call + 1.9, "policy", 2.0 * call + 1.8)
    assert EVERY_S == 60.0
    assert told == [
        "collector-0 was in one call of `env` for 1.5 s",
        "collector-0 was in one call of `env` for 1.5 s, 30 times since this was last said",
    ]


def test_every_actor_is_told_of_on_its_own() -> None:
    notices = Notices()
    for name in ("collector-0", "collector-1"):
        look(notices, 2.0, "env", 0.0, name)
        assert look(notices, 2.1, "policy", 2.1, name) == [f"{name} was in one call of `env` for 2.0 s"]


def accounts(**stale: int) -> dict[str, dict[str, Any]]:
    return {name: {"dropped": {"stale": count, "cut": 5} if count else {"cut": 5}} for name, count in stale.items()}


def test_stale_drops_are_told_by_channel() -> None:
    notices = Notices()
    assert notices.of_channels(accounts(rollouts=0, gradients=0), 0) == []
    (notice,) = notices.of_channels(accounts(rollouts=0, gradients=1_200), 5 * SECOND)
    assert notice.kind == "stale"
    assert notice.text.startswith("1,200 of `gradients` were older than max_lag allows and dropped; ")
    assert notices.of_channels(accounts(rollouts=0, gradients=1_205), 10 * SECOND) == []
    (notice,) = notices.of_channels(accounts(rollouts=0, gradients=1_207), 66 * SECOND)
    assert notice.text.startswith("7 of `gradients` ")
    assert notices.of_channels(accounts(rollouts=0, gradients=1_207), 200 * SECOND) == []
    assert [n.text.split("`")[1] for n in notices.of_channels(accounts(rollouts=3, gradients=1_207), 201 * SECOND)] == [
        "rollouts"
    ]


def test_a_run_that_goes_on_with_fewer_begins_to_count_again() -> None:
    """A new stage has new accounts."""
    notices = Notices()
    notices.of_channels(accounts(gradients=9), 0)
    assert notices.of_channels(accounts(gradients=2), 100 * SECOND) == []
    (notice,) = notices.of_channels(accounts(gradients=12), 200 * SECOND)
    assert notice.text.startswith("10 of `gradients` ")


def test_a_notice_names_its_actor() -> None:
    notices = Notices()
    notices.of_actor(page("env", 0.0), 2 * SECOND)
    text = "collector-0 was in one call of `env` for 2.0 s"
    assert notices.of_actor(page("policy", 2.0), 2 * SECOND) == [Notice("slow", text, "collector-0")]
