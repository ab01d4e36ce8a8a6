"""Pausing, going on, and what the supervisor tells actors: the real supervisor and real channels in one loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np
import pytest

from hive.errors import UsageError
from hive.runtime.accounting import channel_accounts, holds
from hive.runtime.actor import Actor, endpoint
from hive.runtime.memory import Layout
from hive.runtime.messages import Message
from hive.runtime.outcome import Outcome
from hive.runtime.ports import Inlet, Outlet
from hive.runtime.states import RunState
from hive.runtime.supervisor import Supervisor
from hive.runtime.topology import Topology
from hive.testing import run_inline

LIMIT_S = 10.0
LAYOUT = Layout({"values": ("float32", (4,))})


class Number(Message):
    value: int


class Block(Message):
    values: np.ndarray


class Source(Actor):
    """Begins something again and again; the higher its number, the slower."""

    out = Outlet(Number)

    async def run(self) -> None:
        value = 0
        while True:
            for _ in range(self.index):
                await asyncio.sleep(0)
            await self.out.send(Number(value))
            value += 1


class Collector(Actor):
    """The same, in place."""

    out = Outlet(Block)

    async def run(self) -> None:
        while True:
            slot = await self.out.reserve()
            for _ in range(3 * self.index):
                await asyncio.sleep(0)
            self.out.commit(slot)


class Sink(Actor):
    inn = Inlet(Number)

    async def run(self) -> None:
        async for _ in self.inn:
            pass


class Rounds(Actor):
    """Takes what belongs together: the same message of every producer."""

    inn = Inlet(Block)

    async def run(self) -> None:
        number = 0
        while True:
            held = [await self.inn.claim(producer, number) for producer in self.inn.producers]
            for slot in held:
                self.inn.retire(slot)
            number += 1


class Idle(Actor):
    async def run(self) -> None:
        await asyncio.Event().wait()


class Director(Actor):
    """Does to the run what a test says, and ends it."""

    def __init__(self, seen: list[Supervisor], script: Callable[[Supervisor], Awaitable[None]]) -> None:
        self.seen = seen
        self.script = script

    async def run(self) -> None:
        async with asyncio.timeout(LIMIT_S):
            await self.script(self.seen[0])
        self.end_run("the script is over")


def directed(topology: Topology, script: Callable[[Supervisor], Awaitable[None]]) -> tuple[Outcome, Supervisor]:
    seen: list[Supervisor] = []
    topology.add(Director, seen=seen, script=script)
    return run_inline(topology, seconds=2 * LIMIT_S, watch=seen.append), seen[0]


async def until(supervisor: Supervisor, state: RunState) -> None:
    while supervisor.run_machine.state is not state:
        await asyncio.sleep(0)


def produced(supervisor: Supervisor) -> dict[str, int]:
    accounts = channel_accounts(supervisor.plan, supervisor.memory.views, supervisor.pages)
    assert all(map(holds, accounts.values()))
    return {name: account["produced"] for name, account in accounts.items()}


def numbers(sources: int = 2) -> Topology:
    t = Topology()
    t.connect(t.add(Source, count=sources).out, t.add(Sink).inn)
    return t


def rounds(*, in_step: bool = True) -> Topology:
    t = Topology()
    t.connect(t.add(Collector, count=3).out, t.add(Rounds).inn, layout=LAYOUT, slots=3, by_share=True, in_step=in_step)
    return t


@pytest.mark.parametrize("topology", [numbers, rounds])
def test_a_run_comes_to_rest_and_goes_on(topology: Callable[[], Topology]) -> None:
    async def script(supervisor: Supervisor) -> None:
        for _ in range(3):
            while produced(supervisor)["out"] < 20:
                await asyncio.sleep(0)
            supervisor.pausing.pause()
            await until(supervisor, RunState.paused)
            assert supervisor.pausing.active_actors() == []
            before = produced(supervisor)
            for _ in range(1000):
                await asyncio.sleep(0)
            assert produced(supervisor) == before
            supervisor.pausing.resume()
            assert supervisor.run_machine.state is RunState.running
            while produced(supervisor)["out"] < before["out"] + 20:
                await asyncio.sleep(0)

    outcome, _ = directed(topology(), script)
    assert (outcome.state, outcome.reason, outcome.exact) == ("finished", "the script is over", True)
    assert all(map(holds, outcome.channels.values()))


def test_it_rests_with_whole_rounds() -> None:
    """Whoever is behind makes what the others have made: nothing waits for its other half."""

    async def script(supervisor: Supervisor) -> None:
        for extra in range(5):
            begun = produced(supervisor)["out"]
            while produced(supervisor)["out"] < begun + 10 + extra:
                await asyncio.sleep(0)
            supervisor.pausing.pause()
            await until(supervisor, RunState.paused)
            account = channel_accounts(supervisor.plan, supervisor.memory.views, supervisor.pages)["out"]
            assert account["in_flight"] == 0
            assert account["produced"] == account["consumed"] > 0
            assert account["produced"] % 3 == 0
            supervisor.pausing.resume()

    directed(rounds(), script)


def test_the_diary_tells_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    async def script(supervisor: Supervisor) -> None:
        supervisor.pausing.pause()
        await until(supervisor, RunState.paused)
        supervisor.pausing.resume()

    _, supervisor = directed(numbers(), script)
    told = [line.partition(" s ")[2] for line in supervisor.recent]
    assert told[1:3] == ["paused: at rest, 0 messages wait in their channels", "resumed: continues"]
    assert [line.split(" (")[0] for line in supervisor.run_machine.history] == [
        "starting -begin-> running",
        "running -pause-> paused",
        "paused -resume-> running",
        "running -drain-> draining",
        "draining -finish-> finished",
    ]


def test_it_is_asked_twice_and_called_off() -> None:
    async def script(supervisor: Supervisor) -> None:
        with pytest.raises(UsageError, match=r"^the run is not paused$"):
            supervisor.pausing.resume()
        supervisor.pausing.pause()
        supervisor.pausing.pause()
        supervisor.pausing.resume()  # before it has come to rest
        assert supervisor.run_machine.state is RunState.running
        begun = produced(supervisor)["out"]
        while produced(supervisor)["out"] < begun + 10:
            await asyncio.sleep(0)
        supervisor.pausing.pause()
        await until(supervisor, RunState.paused)
        supervisor.pausing.pause()
        assert supervisor.run_machine.state is RunState.paused

    _, supervisor = directed(numbers(), script)
    assert [line.split()[-1] for line in supervisor.recent if "paused" in line] == ["channels"]


def test_a_paused_run_can_end() -> None:
    async def script(supervisor: Supervisor) -> None:
        supervisor.pausing.pause()
        await until(supervisor, RunState.paused)

    outcome, _ = directed(rounds(), script)
    assert outcome.state == "finished"
    assert all(account["in_flight"] == 0 for account in outcome.channels.values())


def test_a_run_that_ends_while_it_is_to_pause() -> None:
    async def script(supervisor: Supervisor) -> None:
        supervisor.pausing.pause()
        supervisor.request("enough")
        with pytest.raises(UsageError, match=r"^the run is not running$"):
            supervisor.pausing.pause()

    outcome, _ = directed(numbers(), script)
    assert (outcome.state, outcome.reason) == ("stopped", "enough")


class Last(Source):
    """Has something to say at the end."""

    async def teardown(self) -> None:
        await self.out.send(Number(-1))


def test_last_words_are_said_in_a_paused_run_too() -> None:
    async def script(supervisor: Supervisor) -> None:
        supervisor.pausing.pause()
        await until(supervisor, RunState.paused)
        before.update(produced(supervisor))

    before: dict[str, int] = {}
    t = Topology()
    t.connect(t.add(Last).out, t.add(Sink, last=True).inn)
    outcome, _ = directed(t, script)
    assert outcome.channels["out"]["produced"] == before["out"] + 1


class Answering(Actor):
    """Sends only what it was asked for."""

    inn = Inlet(Number)
    out = Outlet(Number, when_full="drop_oldest")

    async def run(self) -> None:
        async for number in self.inn:
            await self.out.send(number)


class Urged(Answering):
    """Has an inlet and sends of its own accord."""

    source = True

    async def run(self) -> None:
        while True:
            await self.out.send(Number(0))
            await asyncio.sleep(0)


def test_who_is_a_source() -> None:
    assert [cls.is_source() for cls in (Source, Collector, Sink, Answering, Urged, Director)] == [
        *(True, True, False, False, True, False)
    ]


@pytest.mark.parametrize(("cls", "pauses"), [(Answering, False), (Urged, True)])
def test_without_a_source_nothing_would_stop(cls: type[Actor], pauses: bool) -> None:
    async def script(supervisor: Supervisor) -> None:
        if pauses:
            supervisor.pausing.pause()
            await until(supervisor, RunState.paused)
            return
        with pytest.raises(UsageError, match=r"nothing would stop$") as caught:
            supervisor.pausing.pause()
        assert caught.value.hint.endswith("sends unprompted")

    t = Topology()
    one, other = t.add(cls, group="one"), t.add(cls, group="other")
    t.connect(one.out, other.inn, name="there")
    t.connect(other.out, one.inn, name="back")
    directed(t, script)


class Busy(Actor):
    """Works on, whatever is asked, until it is let go."""

    inn = Inlet(Number)

    def __init__(self, free: asyncio.Event) -> None:
        self.free = free

    async def run(self) -> None:
        await self.inn.receive()
        self.status.enter(self.status.phase("thinking"))
        await self.free.wait()
        self.status.enter(self.status.runtime)
        async for _ in self.inn:
            pass


def test_who_is_still_at_work_is_named() -> None:
    async def script(supervisor: Supervisor) -> None:
        while supervisor.pages.snapshot(1)["phase"] != "thinking":
            await asyncio.sleep(0)
        supervisor.pausing.pause()
        while supervisor.pausing.active_actors() != ["busy-0 (in thinking)"]:
            await asyncio.sleep(0)
        assert supervisor.run_machine.state is RunState.running
        free.set()
        await until(supervisor, RunState.paused)

    free = asyncio.Event()
    t = Topology()
    t.connect(t.add(Source, count=1).out, t.add(Busy, free=free).inn, window=1)
    directed(t, script)


# --- calls of the supervisor


class Tunable(Idle):
    """Keeps what it is told; refuses what it does not know."""

    def __init__(self, told: list[tuple[str, int]]) -> None:
        self.told = told

    @endpoint
    async def update_algorithm_parameter(self, name: str, value: int) -> None:
        if name == "unknown":
            raise UsageError(f"no key `{name}`")
        self.told.append((self.name, value))


def test_the_supervisor_calls_all_who_have_an_endpoint() -> None:
    async def script(supervisor: Supervisor) -> None:
        assert supervisor.change_key("rate", 3) == ["tunable-0", "tunable-1"]
        assert supervisor.call("another") == []
        while len(told) < 2:
            await asyncio.sleep(0)
        assert supervisor.changes == {"rate": 3}
        supervisor.change_key("unknown", 4)
        while not any("not done" in line for line in supervisor.recent):
            await asyncio.sleep(0)

    told: list[tuple[str, int]] = []
    t = Topology()
    t.add(Tunable, count=2, told=told)
    outcome, supervisor = directed(t, script)
    assert told == [("tunable-0", 3), ("tunable-1", 3)]
    assert outcome.exact is False
    assert any(line.endswith("of tunable-0: UsageError: no key `unknown`") for line in supervisor.recent)


def test_what_nobody_takes_is_no_change() -> None:
    async def script(supervisor: Supervisor) -> None:
        assert supervisor.change_key("rate", 3) == []
        assert (supervisor.changes, supervisor.exact) == ({}, True)

    assert directed(numbers(), script)[0].exact is True
