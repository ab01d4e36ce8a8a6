"""Accounts of slabs and message channels, summed over producers, and an identity that can fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from hive import _native
from hive.runtime import Board, Slots
from hive.runtime.actor.actor import Actor
from hive.runtime.actor.ports import Inlet, Outlet, Publication, Subscription
from hive.runtime.memory.segments import REASONS, Layout, SlabView
from hive.runtime.memory.status import Status
from hive.runtime.process.processes import SharedMemory
from hive.runtime.supervise.accounting import channel_accounts, holds, output_of
from hive.runtime.topology.plan import Plan
from hive.runtime.topology.topology import Topology
from hive.runtime.wire.messages import Message


class Rollout(Message):
    rewards: np.ndarray


class Report(Message):
    text: str


class Weights(Message):
    pass


class Producer(Actor):
    rollouts = Outlet(Rollout)
    reports = Outlet(Report)
    weights = Subscription(Weights)


class Consumer(Actor):
    rollouts = Inlet(Rollout)
    reports = Inlet(Report)
    weights = Publication(Weights)


class Run:
    """A plan of two producers, one consumer, and a channel of each carrier, with its memory."""

    def __init__(self) -> None:
        t = Topology()
        producers, consumer = t.add(Producer, count=2), t.add(Consumer)
        t.connect(producers.rollouts, consumer.rollouts, Slots(Layout({"rewards": ("float32", (4,))}), slots=2))
        t.connect(producers.reports, consumer.reports)
        t.connect(consumer.weights, producers.weights, Board(64))
        self.plan: Plan = t.plan()
        self.memory = SharedMemory(self.plan)
        self.pages = _native.Status(self.memory.open("status"))
        self.status = [Status(self.pages.page(i), actor.name, 1, 0) for i, actor in enumerate(self.plan.actors)]

    def slab(self, producer: int) -> SlabView:
        return self.memory.views.slab(f"rollouts:producer-{producer}")

    @property
    def accounts(self) -> dict[str, dict[str, Any]]:
        return channel_accounts(self.plan, self.memory)


@pytest.fixture
def run() -> Iterator[Run]:
    run = Run()
    yield run
    run.memory.close()


def test_every_channel_except_boards_starts_with_an_empty_account(run: Run) -> None:
    empty = {"produced": 0, "consumed": 0, "dropped": {}, "in_flight": 0}
    assert run.accounts == {"rollouts": empty, "reports": empty}


def test_slabs_are_counted_by_their_words(run: Run) -> None:
    slabs, consumer = [run.slab(0), run.slab(1)], (2, 0)
    for producer in (0, 0, 1):
        words = slabs[producer].words
        words.commit(words.reserve(producer, 0), producer, 0)
    assert run.accounts["rollouts"] == {"produced": 3, "consumed": 0, "dropped": {}, "in_flight": 3}
    for producer, reason in ((0, "consumed"), (0, "stale"), (1, "run_ended")):
        words = slabs[producer].words
        words.retire(words.claim(*consumer, -1), *consumer, REASONS.index(reason))
    expected = {"produced": 3, "consumed": 1, "dropped": {"stale": 1, "run_ended": 1}, "in_flight": 0}
    assert run.accounts["rollouts"] == expected
    assert run.accounts["reports"]["produced"] == 0


def test_a_slot_that_is_still_being_filled_is_not_yet_produced(run: Run) -> None:
    run.slab(0).words.reserve(0, 0)
    assert run.accounts["rollouts"]["produced"] == 0
    assert holds(run.accounts["rollouts"])


def test_message_channels_are_counted_by_their_producers(run: Run) -> None:
    for name, delta in (("produced", 5), ("consumed", 2), ("overflow", 2), ("in_flight", 1)):
        run.status[0].count(f"reports:{name}", delta)
    for name, delta in (("produced", 4), ("consumed", 1), ("overflow", 1), ("consumer_died", 2)):
        run.status[1].count(f"reports:{name}", delta)
    run.status[2].count("reports:produced", 1000)  # a consumer's counter of that name is ignored
    account = run.accounts["reports"]
    assert account == {"produced": 9, "consumed": 3, "dropped": {"overflow": 3, "consumer_died": 2}, "in_flight": 1}
    assert holds(account)


def test_the_output_of_an_actor_grows_with_all_that_it_does(run: Run) -> None:
    def outputs() -> list[tuple[float, ...]]:
        return [output_of(run.plan, run.memory, actor) for actor in range(3)]

    def changed(act: Callable[[], object]) -> list[bool]:
        before = outputs()
        act()
        return [one != other for one, other in zip(before, outputs(), strict=True)]

    words = run.slab(0).words
    assert changed(lambda: words.commit(words.reserve(0, 0), 0, 0)) == [True, False, False]
    assert changed(lambda: words.retire(words.claim(2, 0, -1), 2, 0, 0)) == [False, False, True]
    assert changed(lambda: run.status[1].count("reports:produced")) == [False, True, False]
    assert changed(lambda: run.status[1].count("reports:in_flight")) == [False, False, False]
    assert changed(lambda: run.status[2].count("mine")) == [False, False, True]
    board = run.memory.views.board("weights").words

    def publish() -> None:
        board.seal(board.begin(), 0)
        board.publish(0)

    assert changed(publish) == [False, False, True]


def test_counters_outlive_their_actor(run: Run) -> None:
    run.status[0].count("reports:produced", 3)
    Status(run.pages.page(0), "producer-0", 2, 1)
    assert run.accounts["reports"]["produced"] == 3


@pytest.mark.parametrize(
    ("produced", "consumed", "dropped", "in_flight", "right"),
    [
        (0, 0, {}, 0, True),
        (6, 1, {"stale": 2, "overflow": 1}, 2, True),
        (6, 1, {"stale": 2, "overflow": 1}, 3, False),
        (6, 1, {"stale": 2}, 2, False),
        (7, 1, {"stale": 2, "overflow": 1}, 2, False),
        (6, 2, {"stale": 2, "overflow": 1}, 2, False),
    ],
)
def test_the_identity_can_fail(
    produced: int, consumed: int, dropped: dict[str, int], in_flight: int, right: bool
) -> None:
    account = {"produced": produced, "consumed": consumed, "dropped": dropped, "in_flight": in_flight}
    assert holds(account) is right


def test_accounts_are_plain_data_for_a_summary(run: Run) -> None:
    run.status[0].count("reports:produced", 2.0)
    for account in run.accounts.values():
        assert list(account) == ["produced", "consumed", "dropped", "in_flight"]
        assert all(type(account[key]) is int for key in ("produced", "consumed", "in_flight"))
