"""Pause, resume, and calls of endpoints by the supervisor, with the real supervisor and channels in one loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np
import pytest

from hive.errors import UsageError
from hive.runtime import Inlet, Messages, Outlet, SlotInlet, SlotOutlet, Slots
from hive.runtime.actor.actor import Actor, endpoint
from hive.runtime.memory.segments import Layout
from hive.runtime.supervise.accounting import holds
from hive.runtime.supervise.outcome import Outcome
from hive.runtime.supervise.pausing import POLL_S
from hive.runtime.supervise.states import RunState
from hive.runtime.supervise.supervisor import Supervisor
from hive.runtime.topology.topology import Topology
from hive.runtime.wire.messages import Message
from hive.testing import run_inline

LIMIT_S = 10.0
LAYOUT = Layout({"values": ("float32", (4,))})


class Number(Message):
    value: int


class Block(Message):
    values: np.ndarray


class Source(Actor):
    """A source of messages; the higher its number, the slower."""

    out = Outlet(Number)

    async def run(self) -> None:
        value = 0
        while True:
            for _ in range(self.index):
                await asyncio.sleep(0)
            await self.out.send(Number(value))
            value += 1


class Collector(Actor):
    """The same, with slots."""

    out = SlotOutlet(Block)

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
    """Takes one message of every producer per round."""

    inn = SlotInlet(Block)

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
    """Runs the script of a test against the supervisor, and ends the run."""

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
    while supervisor.state.run_machine.state is not state:
        await asyncio.sleep(0)


def produced(supervisor: Supervisor) -> dict[str, int]:
    accounts = supervisor.accounts()
    assert all(map(holds, accounts.values()))
    return {name: account["produced"] for name, account in accounts.items()}


def numbers(sources: int = 2) -> Topology:
    t = Topology()
    t.connect(t.add(Source, count=sources).out, t.add(Sink).inn)
    return t


def rounds(*, in_step: bool = True) -> Topology:
    t = Topology()
    t.connect(t.add(Collector, count=3).out, t.add(Rounds).inn, Slots(LAYOUT, slots=3, by_share=True, in_step=in_step))
    return t


@pytest.mark.parametrize("topology", [numbers, rounds])
def test_a_run_pauses_and_resumes(topology: Callable[[], Topology]) -> None:
    async def script(supervisor: Supervisor) -> None:
        for _ in range(3):
            while produced(supervisor)["out"] < 20:
                await asyncio.sleep(0)
            supervisor.pause()
            await until(supervisor, RunState.paused)
            assert supervisor.active_actors() == []
            before = produced(supervisor)
            for _ in range(1000):
                await asyncio.sleep(0)
            assert produced(supervisor) == before
            supervisor.resume()
            assert supervisor.state.run_machine.state is RunState.running
            while produced(supervisor)["out"] < before["out"] + 20:
                await asyncio.sleep(0)

    outcome, _ = directed(topology(), script)
    assert (outcome.state, outcome.reason, outcome.exact) == ("finished", "the script is over", True)
    assert all(map(holds, outcome.channels.values()))


def test_a_paused_run_has_whole_rounds() -> None:
    """A producer that is behind catches up with the others, so no round is left incomplete."""

    async def script(supervisor: Supervisor) -> None:
        for extra in range(5):
            begun = produced(supervisor)["out"]
            while produced(supervisor)["out"] < begun + 10 + extra:
                await asyncio.sleep(0)
            supervisor.pause()
            await until(supervisor, RunState.paused)
            account = supervisor.accounts()["out"]
            assert account["in_flight"] == 0
            assert account["produced"] == account["consumed"] > 0
            assert account["produced"] % 3 == 0
            supervisor.resume()

    directed(rounds(), script)


def test_a_pause_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    async def script(supervisor: Supervisor) -> None:
        supervisor.pause()
        await until(supervisor, RunState.paused)
        supervisor.resume()

    _, supervisor = directed(numbers(), script)
    told = [line.partition(" s ")[2] for line in supervisor.state.recent]
    assert told[1:3] == ["paused: at rest, 0 messages wait in their channels", "resumed: continues"]
    assert [line.split(" (")[0] for line in supervisor.state.run_machine.history] == [
        "starting -begin-> running",
        "running -pause-> paused",
        "paused -resume-> running",
        "running -drain-> draining",
        "draining -finish-> finished",
    ]


def test_a_pause_can_be_requested_twice_and_cancelled() -> None:
    async def script(supervisor: Supervisor) -> None:
        with pytest.raises(UsageError, match=r"(?m)^the run is not paused$"):
            supervisor.resume()
        supervisor.pause()
        supervisor.pause()
        supervisor.resume()  # before it has come to rest
        assert supervisor.state.run_machine.state is RunState.running
        begun = produced(supervisor)["out"]
        while produced(supervisor)["out"] < begun + 10:
            await asyncio.sleep(0)
        supervisor.pause()
        await until(supervisor, RunState.paused)
        supervisor.pause()
        assert supervisor.state.run_machine.state is RunState.paused

    _, supervisor = directed(numbers(), script)
    assert [line.split()[-1] for line in supervisor.state.recent if "paused" in line] == ["channels"]


def test_a_pause_requested_right_after_another_was_ended_is_one_pause() -> None:
    async def script(supervisor: Supervisor) -> None:
        for _ in range(3):
            supervisor.pause()
            await asyncio.sleep(0)
            supervisor.resume()
        supervisor.pause()
        await until(supervisor, RunState.paused)
        await asyncio.sleep(3 * POLL_S)

    outcome, supervisor = directed(numbers(), script)
    assert (outcome.state, outcome.error) == ("finished", "")
    assert [line.split()[-1] for line in supervisor.state.recent if "paused" in line] == ["channels"]


def test_a_paused_run_can_end() -> None:
    async def script(supervisor: Supervisor) -> None:
        supervisor.pause()
        await until(supervisor, RunState.paused)

    outcome, _ = directed(rounds(), script)
    assert outcome.state == "finished"
    assert all(account["in_flight"] == 0 for account in outcome.channels.values())


def test_a_run_that_ends_before_it_is_paused() -> None:
    async def script(supervisor: Supervisor) -> None:
        supervisor.pause()
        supervisor.request("enough")
        with pytest.raises(UsageError, match=r"(?m)^the run is not running$"):
            supervisor.pause()

    outcome, _ = directed(numbers(), script)
    assert (outcome.state, outcome.reason) == ("stopped", "enough")


class Last(Source):
    """Sends a last message when it is drained."""

    async def teardown(self) -> None:
        await self.out.send(Number(-1))


def test_a_drained_source_can_send_in_a_paused_run() -> None:
    async def script(supervisor: Supervisor) -> None:
        supervisor.pause()
        await until(supervisor, RunState.paused)
        before.update(produced(supervisor))

    before: dict[str, int] = {}
    t = Topology()
    t.connect(t.add(Last).out, t.add(Sink, last=True).inn)
    outcome, _ = directed(t, script)
    assert outcome.channels["out"]["produced"] == before["out"] + 1


class Answering(Actor):
    """Sends only in reply to a message."""

    inn = Inlet(Number)
    out = Outlet(Number, when_full="drop_oldest")

    async def run(self) -> None:
        async for number in self.inn:
            await self.out.send(number)


class Urged(Answering):
    """Has an inlet and sends unprompted."""

    source = True

    async def run(self) -> None:
        while True:
            await self.out.send(Number(0))
            await asyncio.sleep(0)


def test_which_actors_are_sources() -> None:
    assert [cls.is_source() for cls in (Source, Collector, Sink, Answering, Urged, Director)] == [
        *(True, True, False, False, True, False)
    ]


@pytest.mark.rotates
@pytest.mark.parametrize(("cls", "pauses"), [(Answering, False), (Urged, True)])
def test_a_run_without_sources_cannot_pause(cls: type[Actor], pauses: bool) -> None:
    async def script(supervisor: Supervisor) -> None:
        if pauses:
            supervisor.pause()
            await until(supervisor, RunState.paused)
            return
        with pytest.raises(UsageError, match=r"(?m)nothing would stop$") as caught:
            supervisor.pause()
        assert caught.value.hint.endswith("sends unprompted")

    t = Topology()
    one, other = t.add(cls, group="one"), t.add(cls, group="other")
    t.connect(one.out, other.inn, name="there")
    t.connect(other.out, one.inn, name="back")
    directed(t, script)


class Busy(Actor):
    """Stays busy until it is released."""

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


def test_busy_actors_are_named() -> None:
    async def script(supervisor: Supervisor) -> None:
        while supervisor.memory.pages.snapshot(1)["phase"] != "thinking":
            await asyncio.sleep(0)
        supervisor.pause()
        while supervisor.active_actors() != ["busy-0 (in thinking)"]:
            await asyncio.sleep(0)
        assert supervisor.state.run_machine.state is RunState.running
        free.set()
        await until(supervisor, RunState.paused)

    free = asyncio.Event()
    t = Topology()
    t.connect(t.add(Source, count=1).out, t.add(Busy, free=free).inn, Messages(window=1))
    directed(t, script)


# --- calls of the supervisor


class Tunable(Idle):
    """Stores changed keys; refuses an unknown key."""

    def __init__(self, told: list[tuple[str, int]]) -> None:
        self.told = told

    @endpoint
    async def update_algorithm_parameter(self, name: str, value: int) -> None:
        if name == "unknown":
            raise UsageError(f"no key `{name}`")
        self.told.append((self.name, value))


def test_the_supervisor_calls_all_actors_with_the_endpoint() -> None:
    async def script(supervisor: Supervisor) -> None:
        assert supervisor.change_key("rate", 3) == ["tunable-0", "tunable-1"]
        assert supervisor.call("another") == []
        while len(told) < 2:
            await asyncio.sleep(0)
        assert supervisor.state.changes == {"rate": 3}
        supervisor.change_key("unknown", 4)
        while not any("not done" in line for line in supervisor.state.recent):
            await asyncio.sleep(0)

    told: list[tuple[str, int]] = []
    t = Topology()
    t.add(Tunable, count=2, told=told)
    outcome, supervisor = directed(t, script)
    assert told == [("tunable-0", 3), ("tunable-1", 3)]
    assert outcome.exact is False
    assert any(line.endswith("of tunable-0: UsageError: no key `unknown`") for line in supervisor.state.recent)


def test_a_change_that_no_actor_accepts_has_no_effect() -> None:
    async def script(supervisor: Supervisor) -> None:
        assert supervisor.change_key("rate", 3) == []
        assert (supervisor.state.changes, supervisor.state.exact) == ({}, True)

    assert directed(numbers(), script)[0].exact is True
