"""Random topologies in the simulator: each delivers as declared, accounts for every message, and ends.

A topology has layers of groups of actors, in dedicated or shared processes. Channels lead from a layer to later ones,
with every pattern, carrier, window and `when_full`. Sources send numbers, relays forward them, and every actor records
what it receives. With kills, delayed or lost messages, and without.
"""

from __future__ import annotations

import asyncio
import random
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hive.runtime import (
    Actor,
    Board,
    ChannelFull,
    Inlet,
    Layout,
    Message,
    Messages,
    Outlet,
    Publication,
    SlotInlet,
    SlotOutlet,
    Slots,
    Subscription,
    Topology,
    Zmq,
)
from simulation import Faults, Simulation, simulate

LAYOUT = Layout({"origin": ("int64", ()), "number": ("int64", ())})
QUIET_S = 3.0  # virtual: longer than anything takes to get through
LAYERS, GROUPS, MOST = 3, 2, 3
TOPOLOGIES = [50, pytest.param(300, marks=pytest.mark.full(reason="the same with more seeds", rotates=True))]


class Number(Message):
    origin: int  # the sender and its incarnation: sender * 1000 + incarnation
    number: int


class Level(Message):
    """A board's."""


@dataclass
class World:
    """What was sent and heard, by channel."""

    sent: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    heard: dict[str, dict[str, list[tuple[int, int]]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    levels: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))


class Node(Actor):
    """Sends `amount` numbers over each outlet without an input, forwards the numbers it receives, and records all."""

    role = "node"

    def __init__(
        self, world: World, ways: Mapping[str, tuple[str, bool]], amount: int, feeds: Mapping[str, str]
    ) -> None:
        self.world = world
        self.ways = ways  # port -> (channel, whether it has a layout)
        self.amount = amount
        self.feeds = feeds  # outlet -> the inlet whose messages it hands on
        self.origin = zlib.crc32(self.name.encode()) * 1000 + self.incarnation
        self.said: Counter[str] = Counter()  # by port

    async def run(self) -> None:
        jobs = [self._send(port) for port in self.ways if port[0] == "o" and port not in self.feeds]
        jobs += [self._hear(port) for port in self.ways if port[0] == "i"]
        jobs += [self._publish(port) for port in self.ways if port[0] == "p"]
        jobs += [self._follow(port) for port in self.ways if port[0] == "s"]
        await asyncio.gather(*jobs)

    async def _send(self, port: str) -> None:
        for number in range(self.amount):
            await self._say(port)
            if number % 3 == 0:
                await asyncio.sleep(0.001)

    async def _say(self, port: str) -> None:
        """The next number of this port, whatever it was that is handed on."""
        channel, layout = self.ways[port]
        message = Number(self.origin, self.said[port])
        self.said[port] += 1
        outlet: Any = getattr(self, port)
        if layout:
            slot = await outlet.reserve()
            slot.arrays["origin"][...], slot.arrays["number"][...] = message.origin, message.number
            self.world.sent[channel].append((message.origin, message.number))
            outlet.commit(slot)
            return
        try:
            self.world.sent[channel].append((message.origin, message.number))
            await outlet.send(message)
        except ChannelFull:
            self.world.sent[channel].pop()

    async def _hear(self, port: str) -> None:
        channel, layout = self.ways[port]
        inlet: Any = getattr(self, port)
        mine = self.world.heard[channel][f"{self.name}/{self.incarnation}"]
        while True:
            if layout:
                slot = await inlet.claim()
                message = Number(int(slot.arrays["origin"]), int(slot.arrays["number"]))
                inlet.lines.retire(slot)
            else:
                message = await inlet.receive()
            mine.append((message.origin, message.number))
            for outlet, source in self.feeds.items():
                if source == port:
                    await self._say(outlet)

    async def _publish(self, port: str) -> None:
        publication: Any = getattr(self, port)
        while (version := publication.board.latest + 1) < 8:
            publication.begin()[:] = version
            publication.publish(version)
            await asyncio.sleep(0.002)

    async def _follow(self, port: str) -> None:
        subscription: Any = getattr(self, port)
        seen = -1
        while seen < 7:
            version, block = await subscription.pin()
            assert set(block.tolist()) == {version}
            subscription.unpin()
            assert version >= seen
            seen = version
            self.world.levels[f"{self.name}/{self.incarnation}"].append(version)
            await asyncio.sleep(0.003)


class Notifier(Actor):
    """Ends the run when everything must have happened."""

    async def run(self) -> None:
        await asyncio.sleep(QUIET_S)
        self.end_run("quiet")


class Drawn:
    """A random topology. `promises`: channel -> (pattern, when_full)."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.world = World()
        self.promises: dict[str, tuple[str, str]] = {}
        self.unordered: set[str] = set()  # channels of Zmq with several consumers
        layers = [[f"l{n}g{g}" for g in range(chance.randint(1, GROUPS))] for n in range(chance.randint(2, LAYERS))]
        self.counts = {group: chance.randint(1, MOST) for layer in layers for group in layer}
        self.ports: dict[str, dict[str, Any]] = {group: {} for group in self.counts}
        self.ways: dict[str, dict[str, tuple[str, bool]]] = {group: {} for group in self.counts}
        self.feeds: dict[str, dict[str, str]] = {group: {} for group in self.counts}
        self.links: list[tuple[str, str, str, str, str, Any]] = []
        for place, layer in enumerate(layers[:-1]):
            for group in layer:
                for _ in range(chance.randint(1, 2)):
                    self._channel(group, chance.choice(chance.choice(layers[place + 1 :])))
        self._board()
        self.topology = self._built()

    def _channel(self, group: str, target: str) -> None:
        chance, number = self.chance, len(self.links)
        layout = chance.random() < 0.4
        pattern: Any = "balance" if layout else chance.choice(("balance", "broadcast"))
        full: Any = "wait" if layout else chance.choice(("wait", "wait", "drop_oldest", "fail"))
        name, out, inn = f"c{number}", f"o{number}", f"i{number}"
        self.ports[group][out] = (SlotOutlet if layout else Outlet)(Number, pattern=pattern, when_full=full)
        self.ports[target][inn] = (SlotInlet if layout else Inlet)(Number)
        self.ways[group][out] = self.ways[target][inn] = name, layout
        if heard := [port for port in self.ports[group] if port[0] == "i"]:
            self.feeds[group][out] = chance.choice(heard)
        in_place = (Zmq if chance.random() < 0.5 else Slots)(LAYOUT, slots=chance.randint(2, 4))
        self.links.append((group, out, target, inn, name, in_place if layout else Messages(chance.randint(1, 5))))
        self.promises[name] = pattern, full
        if layout and isinstance(in_place, Zmq) and self.counts[target] > 1:
            self.unordered.add(name)

    def _board(self) -> None:
        """Sometimes one, of a group of one actor."""
        writers = [group for group, count in self.counts.items() if count == 1]
        reader = self.chance.choice(list(self.counts))
        if self.chance.random() < 0.5 and writers and (writer := self.chance.choice(writers)) != reader:
            self.ports[writer]["p0"], self.ports[reader]["s0"] = Publication(Level), Subscription(Level)
            self.ways[writer]["p0"] = self.ways[reader]["s0"] = "level", False
            self.links.append((writer, "p0", reader, "s0", "level", Board(16)))

    def _built(self) -> Topology:
        t, groups = Topology(), {}
        for group, ports in self.ports.items():
            home = self.chance.choice((None, None, "den", f"{group}s"))
            cls = type(f"Node{group}", (Node,), {"role": group, **ports})
            given = {"world": self.world, "ways": self.ways[group], "feeds": self.feeds[group]}
            amount = self.chance.randint(1, 12)
            groups[group] = t.add(cls, group=group, count=self.counts[group], process=home, amount=amount, **given)
        t.add(Notifier)
        for source, out, target, inn, name, carrier in self.links:
            t.connect(getattr(groups[source], out), getattr(groups[target], inn), carrier, name=name)
        return t


def judged(drawn: Drawn, simulation: Simulation) -> Simulation:
    """Check that the run ended, accounts hold, and every consumer received messages in order and none twice."""
    outcome = simulation.outcome
    assert outcome is not None
    assert (outcome.state, outcome.reason, simulation.wrong) == ("finished", "quiet", []), simulation.errors
    for channel, hearers in drawn.world.heard.items():
        for heard in hearers.values():
            by_origin: dict[int, list[int]] = defaultdict(list)
            for origin, number in heard:
                by_origin[origin].append(number)
            for numbers in by_origin.values():
                assert len(numbers) == len(set(numbers)), channel  # nothing twice
                assert numbers == sorted(numbers) or channel in drawn.unordered, channel
        total = Counter(message for heard in hearers.values() for message in heard)
        assert total.keys() <= set(drawn.world.sent[channel]), channel
        if drawn.promises[channel][0] == "balance":
            assert set(total.values()) <= {1}, channel  # each to one of them
    for levels in drawn.world.levels.values():
        assert levels == sorted(levels)
    return simulation


def everything_arrives(seed: int) -> None:
    """A world in which nothing goes wrong."""
    drawn = Drawn(seed)
    simulation = judged(drawn, simulate(drawn.topology, seed, Faults(preempted=0.02)))
    assert simulation.outcome is not None
    assert set(simulation.outcome.restarts.values()) == {0}
    for channel, (pattern, full) in drawn.promises.items():
        account = simulation.outcome.channels[channel]
        hearers, sent = drawn.world.heard[channel], Counter(drawn.world.sent[channel])
        if full != "wait":
            continue
        assert account["dropped"] == {}, channel
        if pattern == "balance":
            assert Counter(message for heard in hearers.values() for message in heard) == sent, channel
        else:
            assert all(Counter(heard) == sent for heard in hearers.values()), channel


def everything_is_accounted_for(seed: int) -> None:
    """A world with deaths, and messages that come late or not at all."""
    drawn, chance = Drawn(seed), random.Random(seed)
    deaths, stops = chance.randint(0, 4), chance.randint(0, 1)
    faults = Faults(deaths=deaths, stops=stops, after=300, preempted=0.05, full=0.05)
    judged(drawn, simulate(drawn.topology, seed, faults))


@pytest.mark.parametrize("topologies", TOPOLOGIES)
def test_in_a_calm_world_everything_arrives(topologies: int) -> None:
    drawn_at_random(topologies)(everything_arrives)()


@pytest.mark.parametrize("topologies", TOPOLOGIES)
def test_in_a_deadly_world_everything_is_accounted_for(topologies: int) -> None:
    drawn_at_random(topologies)(everything_is_accounted_for)()


def drawn_at_random(topologies: int) -> Callable[[Callable[[int], None]], Callable[[], None]]:
    """Calls a test with so many seeds, always the same ones."""
    limits = settings(max_examples=topologies, deadline=None, derandomize=True)
    return lambda test: limits(given(st.integers(0, 1 << 30))(test))
