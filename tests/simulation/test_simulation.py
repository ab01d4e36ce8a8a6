"""Whole topologies in a simulated world: schedules that repeat themselves, deaths, stops, losses; and the judgement."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from hive import _native
from hive.errors import ActorFailed
from hive.runtime import Board, Messages, SlotInlet, SlotOutlet, Slots
from hive.runtime.actor.actor import Actor, Handle, endpoint
from hive.runtime.actor.ports import Inlet, Outlet, Publication, Subscription
from hive.runtime.carriers.messages import _Consumer
from hive.runtime.carriers.waiting import RESCAN_S
from hive.runtime.memory.segments import Layout, SlabView
from hive.runtime.supervise.accounting import holds
from hive.runtime.supervise.watchdog import WATCH_S
from hive.runtime.topology.topology import Topology
from hive.runtime.wire.messages import Message
from simulation import At, Faults, Simulation, simulate
from simulation.fakes import DyingPage
from simulation.simulated_process import current_process


class Rollout(Message):
    value: int


class Number(Message):
    value: int


class Progress(Message):
    pass


class Collector(Actor):
    """Commits rollout after rollout."""

    rollouts = SlotOutlet(Rollout)
    versions = Subscription(Progress)

    async def run(self) -> None:
        while True:
            slot = await self.rollouts.reserve()
            version, block = await self.versions.pin()
            assert set(block.tolist()) == {version % 256}
            slot.arrays["value"][()] = slot.sequence
            self.versions.unpin()
            self.rollouts.commit(slot)


class Worker(Actor):
    """Turns rollouts into numbers."""

    rollouts = SlotInlet(Rollout)
    numbers = Outlet(Number)

    async def run(self) -> None:
        while True:
            slot = await self.rollouts.claim()
            await self.numbers.send(Number(int(slot.arrays["value"])))
            self.rollouts.retire(slot)


class Sink(Actor):
    """Counts numbers; the count is a version that outlives it. At `total` of them the run is over."""

    numbers = Inlet(Number)
    versions = Publication(Progress)

    def __init__(self, total: int) -> None:
        self.total = total

    async def run(self) -> None:
        board = self.versions.board
        if board.latest < 0:
            self._publish(0)
        while board.latest < self.total:
            await self.numbers.receive()
            self._publish(board.latest + 1)
        self.end_run(f"{self.total} numbers")

    def _publish(self, version: int) -> None:
        self.versions.begin()[:] = version % 256
        self.versions.publish(version)


LAYOUT = Layout({"value": ("int64", ())})
WORLD = Faults(preempted=0.05)
DEADLY = replace(WORLD, deaths=4, after=400)


def topology(total: int = 60, *, shared: bool = False, patient: bool = True, **classes: type[Actor]) -> Topology:
    """Slabs, messages and a board in a circle. `shared`: two processes of several actors, woken by doorbells.

    Not `patient`: numbers that find no room are dropped. `classes` stand in for actors, by role.
    """
    t = Topology()
    worker = Worker if patient else type("Worker", (Worker,), {"numbers": Outlet(Number, pattern="broadcast")})
    collectors = t.add(
        classes.get("collector", Collector), group="collector", count=3, process="nest" if shared else None
    )
    workers = t.add(worker, group="worker", count=2, process="den" if shared else None)
    sink = t.add(classes.get("sink", Sink), group="sink", total=total)
    t.connect(collectors.rollouts, workers.rollouts, Slots(LAYOUT, slots=2))
    t.connect(workers.numbers, sink.numbers, Messages(window=4))
    t.connect(sink.versions, collectors.versions, Board(100))
    return t


def told(simulation: Simulation) -> tuple[Any, ...]:
    """Return the whole result of a simulation, except `since`, which is real time on a killed process's page."""
    events = [re.sub(r" after \d+\.\d s", "", event) for event in simulation.events]
    s = simulation
    return s.history, events, s.callbacks, s.virtual_s, s.outcome, s.wrong, [repr(error) for error in s.errors]


def finished(simulation: Simulation, reason: str = "60 numbers") -> Simulation:
    """That one, which must have come to its goal with every promise kept."""
    outcome = simulation.outcome
    assert outcome is not None
    assert (outcome.state, outcome.reason, simulation.wrong) == ("finished", reason, []), told(simulation)
    assert all(holds(account) and not account["in_flight"] for account in outcome.channels.values())
    return simulation


def killed(simulation: Simulation) -> list[str]:
    """Which incarnations were killed, in that order."""
    return [line.split()[2] for line in simulation.history if line.split()[1] == "killed"]


# --- a seed is a schedule


@pytest.mark.parametrize("faults", [Faults(), replace(DEADLY, stops=1, full=0.05, preempted=0.2)], ids=["calm", "wild"])
def test_the_same_seed_is_the_same_schedule_and_another_one_is_not(faults: Faults) -> None:
    stories = [told(simulate(topology(), seed, faults)) for seed in (5, 5, 6)]
    assert stories[0] == stories[1]
    assert stories[0] != stories[2]


class Ears(Actor):
    """Waits for two things at once."""

    numbers = Inlet(Number)
    rollouts = Inlet(Rollout)

    async def run(self) -> None:
        await asyncio.gather(self._hear(self.numbers), self._hear(self.rollouts))
        self.end_run("heard")

    async def _hear(self, inlet: Inlet[Any]) -> None:
        for _ in range(20):
            await inlet.receive()


class Speaker(Actor):
    numbers = Outlet(Number)
    rollouts = Outlet(Rollout)

    async def run(self) -> None:
        for value in range(20):
            await self.numbers.send(Number(value))
            await self.rollouts.send(Rollout(value))


def test_the_seed_decides_the_order_of_two_waits_of_one_actor_too() -> None:
    t = Topology()
    speaker, ears = t.add(Speaker), t.add(Ears)
    t.connect(speaker.numbers, ears.numbers, Messages(window=2))
    t.connect(speaker.rollouts, ears.rollouts, Messages(window=2))
    heaps: list[list[bytearray]] = []  # each run finds other memory free
    stories = []
    for number in range(40):
        heaps.append([bytearray(64 + 8 * (n * number % 61)) for n in range(number)])
        stories.append(told(simulate(t, 1, Faults(preempted=0.3))))
    assert all(story == stories[0] for story in stories)


@pytest.mark.parametrize("seed", range(20))
def test_full_mailboxes_lose_messages_and_block_no_process(seed: int) -> None:
    """Queries recover even the last message of a window and the one Ack of an empty queue, which are not repeated."""

    class Herald(Speaker):
        async def run(self) -> None:
            await super().run()
            self.end_run("all is said")

    class Patient(Ears):
        async def _hear(self, inlet: Inlet[Any]) -> None:
            async for _ in inlet:
                pass

    t = Topology()
    speaker, ears = t.add(Herald), t.add(Patient)
    t.connect(speaker.numbers, ears.numbers, Messages(window=2))
    t.connect(speaker.rollouts, ears.rollouts, Messages(window=2))
    simulation = simulate(t, seed, Faults(full=0.3), limit_s=60.0)
    assert simulation.wrong == []
    assert simulation.outcome is not None
    accounts = simulation.outcome.channels
    assert accounts["numbers"]["produced"] == accounts["rollouts"]["produced"] == 20
    assert simulation.virtual_s < 10


# --- deaths and stops


@pytest.mark.parametrize("seed", range(12))
def test_the_killed_come_back_and_everything_is_accounted_for(seed: int) -> None:
    simulation = finished(simulate(topology(), seed, DEADLY))
    outcome, gone = simulation.outcome, killed(simulation)
    assert outcome is not None
    assert gone
    assert len(set(gone)) == len(gone), "an incarnation dies once"
    assert not outcome.exact
    before_the_end = [
        name for name in gone if f" died: {name.rpartition('-')[0]} died in " in "\n".join(simulation.events)
    ]
    assert sum(outcome.restarts.values()) <= len(before_the_end)
    backs = [event for event in simulation.events if event.split()[1] == "restarted:"]
    assert backs or not sum(outcome.restarts.values())


def test_over_many_seeds_every_process_is_killed_in_all_ways() -> None:
    names: set[str] = set()
    ways: set[str] = set()
    for seed in range(40):
        simulation = finished(
            simulate(topology(total=30), seed, replace(DEADLY, stops=1, torn=0.5, after=250)), "30 numbers"
        )
        names |= {name.rpartition("-")[0] for name in killed(simulation)}
        ways |= {line.split()[1] for line in simulation.history}
    assert names == {*(f"collector-{n}" for n in range(3)), "worker-0", "worker-1", "sink-0"}
    assert ways == {"killed", "stopped", "torn"}


def test_a_death_may_wait_for_the_middle_of_an_entry_in_an_account() -> None:
    ways: Counter[str] = Counter()
    for seed in range(20):
        simulation = finished(simulate(topology(), seed, replace(DEADLY, torn=1.0)))
        ways.update(" ".join(line.split()[1:4]) for line in simulation.history if "torn" in line)
    assert ways.keys() == {"torn a transition", "torn an entry", "torn a store"}
    assert min(ways.values()) > 3


def test_an_unfinished_entry_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """If neither the supervisor nor the next incarnation finishes it, the account does not add up."""

    def add_one_by_one(page: Any, first: int, by: float, second: int, by_second: float) -> None:
        if page.dies():
            page.die(lambda counted: page.add(first, by) if counted else None)
        page.add(first, by)
        page.add(second, by_second)

    def wrong() -> list[str]:
        return [line for seed in range(20) for line in simulate(topology(), seed, replace(DEADLY, torn=1.0)).wrong]

    assert wrong() == []
    monkeypatch.setattr(DyingPage, "add_both", add_one_by_one)
    assert any("does not add up" in line for line in wrong())


class Deaf(Sink):
    """Receives nothing for a while."""

    async def run(self) -> None:
        if self.versions.latest < 0:
            self._publish(0)
        await asyncio.sleep(1)
        self.end_run("slept")


def test_a_stopped_process_is_found_killed_and_comes_back() -> None:
    for seed in range(20):
        simulation = finished(simulate(topology(sink=Deaf), seed, replace(WORLD, stops=1, after=150)), "slept")
        (when, what, who), (then, *killed_it) = (line.split() for line in simulation.history)
        assert (what, killed_it) == ("stopped", ["killed", who])
        assert 0 <= float(then) - float(when) <= WATCH_S + 0.001, "at the next look"
        name = who.rpartition("-")[0]
        died, running = (
            next(n for n, event in enumerate(simulation.events) if text in event)
            for text in (f"died: {name}", "running:")
        )
        assert "it was stopped (SIGSTOP) and so was killed; restart 1" in simulation.events[died]
        back = [n for n, event in enumerate(simulation.events) if f"restarted: {name} is back" in event]
        assert len(back) == (died > running), "before everybody runs nobody is back, but there"
        assert all(n > died for n in back)
        assert simulation.outcome is not None
        assert {actor for actor, times in simulation.outcome.restarts.items() if times} == {name}


def test_the_dead_do_and_say_nothing_more() -> None:
    """Its `finally`, its teardown and its last message are those of a process that is no more: there are none."""
    said: list[tuple[str, bool]] = []

    class Loud(Collector):
        role = "collector"

        async def run(self) -> None:
            try:
                await super().run()
            finally:
                place = current_process()
                said.append((str(place), place is not None and place.dead and not place.unwinding))

    victims: list[str] = []
    for seed in range(10):
        victims += killed(finished(simulate(topology(collector=Loud), seed, replace(DEADLY, torn=0.0))))
    assert any(name.startswith("collector") for name in victims)
    assert said, "those that lived ended in order"
    assert not any(dead for _, dead in said)


# --- losses


@pytest.mark.parametrize("shared", [False, True], ids=["notifiers", "doorbells"])
def test_with_every_notification_lost_a_run_still_ends(shared: bool) -> None:
    heard, deaf = (
        finished(simulate(topology(shared=shared), 2, Faults(preempted=0.0, slow=0.0, lost=lost)))
        for lost in (0.0, 1.0)
    )
    assert heard.virtual_s < RESCAN_S
    assert deaf.virtual_s > 5 * RESCAN_S, "by looking again every 50 ms"


@pytest.mark.parametrize("seed", range(5))
def test_full_mailboxes_lose_messages_and_no_account(seed: int) -> None:
    simulation = finished(simulate(topology(total=300, patient=False), seed, Faults(full=0.2)), "300 numbers")
    assert simulation.outcome is not None
    numbers = simulation.outcome.channels["numbers"]
    assert numbers["dropped"]["overflow"] > 10
    assert numbers["produced"] == numbers["consumed"] + sum(numbers["dropped"].values())


# --- how it ends


class Counts(Actor):
    """Ten numbers."""

    numbers = Outlet(Number)

    async def run(self) -> None:
        for value in range(10):
            await self.numbers.send(Number(value))


class Stays(Actor):
    """Lives on where one that shares its process is done."""

    async def run(self) -> None:
        await asyncio.sleep(1)


class TakesTen(Actor):
    numbers = Inlet(Number)

    async def run(self) -> None:
        for _ in range(10):
            await self.numbers.receive()
        self.end_run("ten numbers")


@pytest.mark.parametrize("shared", [False, True])
def test_news_of_an_end_that_are_faster_than_its_last_acknowledgements_lose_none(shared: bool) -> None:
    """They come from different processes."""
    for seed in range(100):
        t = Topology()
        counter, taker = t.add(Counts), t.add(TakesTen, process="den" if shared else None)
        t.add(Stays, process="den" if shared else None)
        t.connect(counter.numbers, taker.numbers)
        simulation = finished(simulate(t, seed, Faults(preempted=0.05, slow_s=0.05)), "ten numbers")
        assert simulation.outcome is not None
        account = simulation.outcome.channels["numbers"]
        assert account == {"produced": 10, "consumed": 10, "dropped": {}, "in_flight": 0}, seed


def test_a_run_that_does_not_end_is_stopped_at_its_limit() -> None:
    simulation = simulate(topology(total=1 << 40), 0, limit_s=0.5)
    assert simulation.outcome is not None
    assert (simulation.outcome.state, simulation.outcome.reason) == (
        "stopped",
        "it did not end within 0.5 virtual seconds",
    )
    assert 0.5 < simulation.virtual_s < 1
    assert simulation.wrong == []


# --- broken promises are found


class Miscounting(_native.Slab):
    """Retires without counting."""

    def counts(self) -> tuple[int, list[int], int]:
        produced, retired, in_flight = super().counts()
        return produced, [max(0, retired[0] - 1), *retired[1:]], in_flight


class Overcounting(_native.Slab):
    """Counts everything that it retires twice."""

    def counts(self) -> tuple[int, list[int], int]:
        produced, retired, in_flight = super().counts()
        return produced, [2 * retired[0], *retired[1:]], in_flight


class Crowded(_native.Slab):
    """Has more in flight than it has slots."""

    def counts(self) -> tuple[int, list[int], int]:
        produced, retired, in_flight = super().counts()
        return produced, retired, in_flight + self.slots + 1


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Puts SlabView.Words back."""
    monkeypatch.setattr(SlabView, "Words", SlabView.Words)
    return monkeypatch


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        (Miscounting, "the account of rollouts does not add up"),
        (Overcounting, "has retired more than was produced"),
        (Crowded, "in 2 slots"),
    ],
)
@pytest.mark.parametrize("faults", [Faults(), DEADLY], ids=["calm", "deadly"])
def test_an_account_that_does_not_add_up_is_wrong(
    broken: type[_native.Slab], text: str, faults: Faults, words: pytest.MonkeyPatch
) -> None:
    words.setattr(SlabView, "Words", broken)
    simulation = simulate(topology(), 0, faults)
    assert any(text in wrong for wrong in simulation.wrong), simulation.wrong
    assert SlabView.Words is broken, "its own words are back"


class BackAndForth(Sink):
    """Publishes an older version once, past the check that its board makes."""

    async def run(self) -> None:
        await asyncio.sleep(0.2)
        self._publish(7)
        await asyncio.sleep(0.2)
        self.versions.board.view.words.publish(6)
        await asyncio.sleep(0.2)
        self.end_run("back")


def test_a_version_that_goes_back_is_wrong() -> None:
    simulation = simulate(topology(sink=BackAndForth), 0)
    assert simulation.wrong == ["versions went back from 7 to 6"]


def test_a_queue_beyond_its_window_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    finished(simulate(topology(sink=Deaf), 0), "slept")
    monkeypatch.setattr(_Consumer, "room", property(lambda self: True))
    simulation = simulate(topology(sink=Deaf), 0)
    found = r"numbers of deaf-0 holds \d+ messages of \(\d, 0\), beyond its window"
    assert any(re.fullmatch(found, wrong) for wrong in simulation.wrong), simulation.wrong


# --- faults at known moments

CALM = Faults(preempted=0.0, slow=0.0, lost=0.0)


class Tells(Actor):
    """Says 0 ... 9, one a tenth of a virtual second."""

    numbers = Outlet(Number)

    async def run(self) -> None:
        for value in range(10):
            await self.numbers.send(Number(value))
            await asyncio.sleep(0.1)


class Hears(Actor):
    """Notes the numbers that it receives, and its incarnation."""

    numbers = Inlet(Number)

    async def run(self) -> None:
        async for number in self.numbers:
            self.note("heard", f"{number.value} in life {self.incarnation}")
            if number.value == 9:
                self.end_run("all of it")


def test_a_producer_that_is_killed_after_a_message_begins_anew() -> None:
    t = Topology()
    tells, hears = t.add(Tells), t.add(Hears)
    t.connect(tells.numbers, hears.numbers, Messages(window=16))
    simulation = finished(simulate(t, 0, CALM, at=[At("numbers", 4)]), "all of it")
    assert simulation.outcome is not None
    texts = [event.partition("heard: ")[2] for event in simulation.events if " heard: " in event]
    assert texts == [f"{value} in life 0" for value in (*range(4), *range(10))]
    account = simulation.outcome.channels["numbers"]
    assert (account["produced"], account["dropped"]) == (14, {"process_died": 1})  # it was heard, and could not be said


@pytest.mark.parametrize("number", [1, 2, 7])
def test_a_producer_of_slots_is_killed_after_a_commit(number: int) -> None:
    at = [At("rollouts", number)]
    simulation = finished(simulate(topology(60), 0, WORLD, at=at))
    assert simulation.outcome is not None
    assert sum(simulation.outcome.restarts.values()) == 1
    assert [line.split()[1] for line in simulation.history] == ["killed"]


# --- calls


class Oracle(Actor):
    """Reports each call; the first incarnation is killed by it."""

    asked = Outlet(Number)

    @endpoint
    async def ask(self) -> int:
        await self.asked.send(Number(self.incarnation))
        if self.incarnation == 0:
            await asyncio.Event().wait()
        return 42


class Asks(Actor):
    numbers = Inlet(Number)

    def __init__(self, oracle: Handle) -> None:
        self.oracle = oracle

    async def run(self) -> None:
        begun = asyncio.get_running_loop().time()
        try:
            await self.oracle.call("ask", deadline_s=60.0)
        except ActorFailed as error:
            early = asyncio.get_running_loop().time() - begun < 1.0
            self.note("first", f"{early} {error} ({error.hint})")
        self.note("second", f"{await self.oracle.ask()}")


def test_a_call_fails_when_its_actor_is_killed_and_the_next_is_answered() -> None:
    t = Topology()
    oracle = t.add(Oracle)
    asks = t.add(Asks, oracle=oracle.handle())
    t.connect(oracle.asked, asks.numbers, Messages(window=16))
    simulation = finished(simulate(t, 0, CALM, at=[At("asked", 1)]), "all actors are done")
    notes = [event for event in simulation.events if " first: " in event or " second: " in event]
    assert notes[0].partition("first: ")[2] == (
        "True `oracle-0` exited (killed by SIGKILL) before it replied to `oracle-0.ask` "
        "(the endpoint may have run in part; call it again only if that is harmless)"
    )
    assert notes[1].endswith("second: 42")
