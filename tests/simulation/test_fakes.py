"""The simulator's seams: memory of this process, mailboxes that are late or lose, and slot words that tear."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hive import _native
from hive.runtime.memory.segments import PAGE, REASONS, Bytes, SlabPlan
from hive.runtime.wire.messages import Frames, Message, encode
from hive.runtime.wire.protocol import Ack, Deliver, Drain, Hello, Left, Notify, RunOver
from simulation.fakes import DyingPage, DyingSlab, Faults, Pages, SimulatedTransport
from simulation.simulated_process import Killed, SimulatedLoop, SimulatedProcess

QUIET = Faults(slow=0.0, lost=0.0)  # nothing goes wrong, nothing is late
RINGS = 4_000


# --- mailboxes


class Post:
    """A simulated transport, and who received what when: (address, virtual time, frames)."""

    def __init__(self, faults: Faults, seed: int = 0) -> None:
        chance = random.Random(seed)
        self.loop = SimulatedLoop(chance, 0.0, 0.0)  # type: ignore[abstract]  # it has what asyncio asks for
        self.transport = SimulatedTransport(self.loop, chance, faults)
        self.received: list[tuple[str, float, Frames]] = []

    def bind(self, address: str, place: SimulatedProcess | None = None) -> None:
        def receive(frames: Frames) -> None:
            self.received.append((address, self.loop.time(), frames))

        bind = self.transport.bind
        place.context.run(bind, address, receive) if place else bind(address, receive)

    def run(self, work: Callable[[], None], seconds: float = 1.0) -> None:
        async def main() -> None:
            work()
            await asyncio.sleep(seconds)

        self.loop.run_until_complete(main())

    def at(self, when: float, place: SimulatedProcess, function: Callable[..., Any], *arguments: Any) -> None:
        self.loop.call_at(when, function, *arguments, context=place.context)


def test_every_sender_keeps_its_order_to_every_address_and_delays_have_a_bound() -> None:
    faults = Faults(slow=0.5, slow_s=0.003, lost=0.0)
    post = Post(faults)
    senders = [SimulatedProcess("sender", number) for number in range(3)]
    addresses = ["simulated://a", "simulated://b"]

    def send(address: str, sender: int, number: int) -> None:
        frames: Frames = [bytes([sender, number]), repr(post.loop.time()).encode()]
        assert post.transport.post(address, frames)

    def work() -> None:
        for address in addresses:
            post.bind(address)
            for sender, place in enumerate(senders):
                for number in range(100):
                    post.at(number * 0.0005, place, send, address, sender, number)

    post.run(work)
    assert len(post.received) == 2 * 3 * 100
    for address in addresses:
        mine = [(when, frames) for to, when, frames in post.received if to == address]
        for sender in range(3):
            assert [frames[0][1] for _, frames in mine if frames[0][0] == sender] == list(range(100))
        delays = [when - float(bytes(frames[1])) for when, frames in mine]
        assert min(delays) == 0
        assert 0.002 < max(delays) <= faults.slow_s
        order = [frames[0][1] for _, frames in mine]
        assert order != sorted(order), "senders overtake each other"


def arrivals(faults: Faults, message: Message, count: int = RINGS) -> list[int]:
    """How many of each of `count` equal messages arrive."""
    post = Post(faults)
    post.bind("simulated://a")

    def work() -> None:
        for number in range(count):
            assert post.transport.post("simulated://a", [*encode(message), number.to_bytes(4, "big")])

    post.run(work)
    numbers = [int.from_bytes(bytes(frames[-1]), "big") for _, _, frames in post.received]
    assert numbers == sorted(numbers)
    return np.bincount(numbers, minlength=count).tolist() if numbers else [0] * count


def test_notifications_are_lost_or_duplicated_at_the_given_rate() -> None:
    came = arrivals(Faults(lost=0.1), Notify(3))
    shares = [came.count(times) / RINGS for times in range(3)]
    assert shares == pytest.approx([0.1, 0.85, 0.05], abs=0.02)  # four standard deviations
    assert sum(shares) == 1


MAY_BE_LOST = [Deliver(1, 2, 0, 3, 1), Ack(1, 2, 3, 0, 0, 5, 0, 16)]
NEVER_LOST = [Hello("learner", 0, 1, "simulated://x"), Left(1, 0, "x"), Drain("over"), RunOver(0, "goal")]


@pytest.mark.parametrize("message", [*MAY_BE_LOST, *NEVER_LOST], ids=lambda message: type(message).__name__)
def test_nothing_else_is_lost_where_no_mailbox_is_full(message: Message) -> None:
    assert set(arrivals(Faults(lost=1.0, full=0.0), message, 500)) == {1}


@pytest.mark.parametrize("message", MAY_BE_LOST, ids=lambda message: type(message).__name__)
def test_a_full_mailbox_loses_messages_of_channels_and_their_acknowledgements(message: Message) -> None:
    came = arrivals(Faults(full=0.2), message)
    assert came.count(0) / RINGS == pytest.approx(0.2, abs=0.025)
    assert came.count(2) == 0


@pytest.mark.parametrize("message", NEVER_LOST, ids=lambda message: type(message).__name__)
def test_a_full_mailbox_still_takes_what_life_and_death_depend_on(message: Message) -> None:
    assert set(arrivals(Faults(full=1.0, lost=1.0), message, 500)) == {1}


def test_killed_processes_post_nothing_and_unknown_addresses_fail() -> None:
    post = Post(QUIET)
    alive, dead = SimulatedProcess("alive", 0), SimulatedProcess("dead", 0)
    dead.dead = dead.unwinding = True  # a ghost runs, to be taken apart, and is not heard
    said: dict[str, bool] = {}

    def send(name: str, address: str = "simulated://a") -> None:
        said[name] = post.transport.post(address, [name.encode()])

    def work() -> None:
        post.bind("simulated://a")
        post.at(0, alive, send, "alive")
        post.at(0, dead, send, "dead")
        post.at(0, alive, send, "astray", "simulated://nobody")

    post.run(work)
    assert said == {"alive": True, "dead": False, "astray": False}
    assert [frames for _, _, frames in post.received] == [[b"alive"]]


def test_messages_arrive_in_the_process_that_bound_the_address() -> None:
    """A preempted process receives them when it gets the processor back, a dead one never."""
    post = Post(QUIET)
    here, away, dead = SimulatedProcess("here", 0), SimulatedProcess("away", 0), SimulatedProcess("dead", 0)
    away.preempted, dead.dead = True, True

    def work() -> None:
        for place in (here, away, dead):
            post.bind(f"simulated://{place}", place)
        for number in range(3):
            for place in (here, away, dead):
                post.transport.post(f"simulated://{place}", [bytes([number])])
        post.loop.call_at(0.5, post.loop.end_preemption, away)

    post.run(work)
    assert [(to, when, frames[0][0]) for to, when, frames in post.received] == [
        *(("simulated://here-0", 0.0, number) for number in range(3)),
        *(("simulated://away-0", 0.5, number) for number in range(3)),
    ]


# --- slot words that tear

SLOTS = 3
PRODUCER, CONSUMER = (5, 2), (9, 1)  # actor, incarnation
WRAP = 1 << 32  # sequences are kept modulo this
WHEN = pytest.mark.parametrize("counted", [False, True], ids=["not-counted", "counted"])
FIRSTS = pytest.mark.parametrize("first", [0, 41, WRAP - 3], ids=["new", "resumed", "before-the-wrap"])


class Torn(DyingSlab):
    """Dies in the transition after `armed` was set, counted or not."""

    armed = False
    counted = False

    def __init__(self, memory: Bytes) -> None:
        super().__init__(memory)
        self.dies = lambda: self.armed
        self.die = self.tear

    def tear(self, half: Callable[[bool], None]) -> None:
        half(self.counted)
        raise Killed


def slab_of(words: type[_native.Slab], first: int) -> tuple[_native.Slab, Bytes]:
    """A slab that has been in use: 4 messages went through it, one is claimed, one is full, one slot is free."""
    plan = SlabPlan(SLOTS, 8, first)
    memory = LocalSlab(plan).memory
    slab = words(memory[: plan.offset])
    for reason in (0, 0, 4, 0):
        slab.commit(slab.reserve(*PRODUCER), *PRODUCER)
        slab.retire(slab.claim(*CONSUMER), *CONSUMER, reason)
    for _ in range(2):
        slab.commit(slab.reserve(*PRODUCER), *PRODUCER)
    slab.claim(*CONSUMER)
    return slab, memory[: plan.offset]


class LocalSlab:
    """Aligned memory with a slab in it."""

    def __init__(self, plan: SlabPlan) -> None:
        room = np.zeros(plan.bytes + PAGE, np.uint8)
        start = -room.ctypes.data % PAGE
        self.memory: Bytes = room[start : start + plan.bytes]
        plan.format(self.memory)


Transition = Callable[[_native.Slab], None]


def commit(slab: _native.Slab) -> None:
    slab.commit(slab.reserve(*PRODUCER), *PRODUCER)


def retire(reason: int) -> Transition:
    def transition(slab: _native.Slab) -> None:
        held = next(i for i in range(SLOTS) if slab.state(i)[0] == 4)
        slab.retire(held, *CONSUMER, reason)

    return transition


TRANSITIONS = [
    pytest.param(commit, PRODUCER, id="commit"),
    *(pytest.param(retire(r), CONSUMER, id=f"retire-{name}") for r, name in enumerate(REASONS)),
]


@FIRSTS
@WHEN
@pytest.mark.parametrize(("transition", "dead"), TRANSITIONS)
def test_recovery_completes_a_torn_transition_to_the_very_bytes_of_a_whole_one(
    transition: Transition, dead: tuple[int, int], counted: bool, first: int
) -> None:
    whole, wanted = slab_of(_native.Slab, first)
    transition(whole)
    torn, memory = slab_of(Torn, first)
    assert isinstance(torn, Torn)
    torn.armed, torn.counted = True, counted
    with pytest.raises(Killed):
        transition(torn)
    assert memory.tobytes() != wanted.tobytes(), "a half state"
    torn.armed = False
    for _ in range(2):  # the second time there is nothing to do
        torn.recover(*dead, dead == PRODUCER, REASONS.index("consumer_died"))
        assert torn.counts() == whole.counts()
        assert memory.tobytes() == wanted.tobytes()


@FIRSTS
@WHEN
def test_half_a_commit_is_the_native_half_state(counted: bool, first: int) -> None:
    torn, _ = slab_of(Torn, first)
    assert isinstance(torn, Torn)
    before = torn.produced
    torn.armed, torn.counted = True, counted
    with pytest.raises(Killed):
        commit(torn)
    half = next(i for i in range(SLOTS) if torn.state(i)[0] == 2)
    assert torn.state(half) == (2, *PRODUCER, before % WRAP)
    assert torn.produced == before + counted
    produced, retired, in_flight = torn.counts()
    assert (produced, sum(retired), in_flight) == (6 + counted, 4, 3)
    assert torn.claim(*CONSUMER, before) == -1, "nobody gets it before it is complete"


@WHEN
@pytest.mark.parametrize("reason", range(len(REASONS)), ids=REASONS)
def test_half_a_retirement_is_the_native_half_state(counted: bool, reason: int) -> None:
    torn, memory = slab_of(Torn, 41)
    assert isinstance(torn, Torn)
    before = torn.counts()
    held = next(i for i in range(SLOTS) if torn.state(i)[0] == 4)
    torn.armed, torn.counted = True, counted
    with pytest.raises(Killed):
        torn.retire(held, *CONSUMER, reason)
    assert torn.state(held) == (5, *CONSUMER, 41 + 4)
    assert int(memory.view(np.uint64)[8 + 16 * held]) >> 56 == 5 + reason, "the half state names its tally"
    assert torn.counts()[0] == before[0]
    assert [after - b for after, b in zip(torn.counts()[1], before[1], strict=True)] == [
        int(counted and r == reason) for r in range(len(REASONS))
    ]
    assert torn.counts()[2] == before[2], "a half state is in flight"


# --- accounts that tear


class TornPage(DyingPage):
    """Dies in every entry, with its first change made or not."""

    counted = False

    def __init__(self, pages: Pages, index: int) -> None:
        super().__init__(pages, index)
        self.dies = lambda: True
        self.die = self.tear

    def tear(self, half: Callable[[bool], None]) -> None:
        half(self.counted)
        raise Killed


def page_of(kind: type[DyingPage]) -> tuple[DyingPage, int, int]:
    """The second of two pages, and those of its 64 counters that are to change: the first and the last."""
    memory = np.zeros(3 * PAGE, np.uint8)
    pages = Pages(memory[-memory.ctypes.data % PAGE :][: 2 * PAGE])
    page = kind(pages, 1)
    page.open("collector-1", 1, 0)
    counters = [page.counter(f"counter {number}") for number in range(64)]
    page.set(counters[0], 10.0)
    page.set(counters[-1], 5.0)
    return page, counters[0], counters[-1]


@WHEN
@pytest.mark.parametrize("finish", [lambda page: page.complete(), lambda page: page.open("collector-1", 2, 1)])
def test_an_entry_that_tears_is_finished_by_the_supervisor_or_a_successor(
    counted: bool, finish: Callable[[DyingPage], None]
) -> None:
    page, first, second = page_of(TornPage)
    page.counted = counted  # type: ignore[attr-defined]
    with pytest.raises(Killed):
        page.add_both(first, 2.0, second, -2.0)
    assert (page.get(first), page.get(second)) == (12.0 if counted else 10.0, 5.0), "half of it"
    for _ in range(2):
        finish(page)
        assert (page.get(first), page.get(second)) == (12.0, 3.0)
