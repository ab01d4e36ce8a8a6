"""A host's end of a link: the two actors of its process `link`, which take the places of the rest of the run.

    RolloutExporter   claims the rollouts of all collectors here and sends them; retires them when the head has them
    PolicyImporter    publishes the versions that the head sends, and ends this part of the run when the head is silent

Both share a `RunLink`, and their process has two actors, so that its event loop runs while they wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np

from hive.clock import Clock, RealClock
from hive.errors import WireError
from hive.hosts.files import HostFacts
from hive.hosts.messages import (
    TO_HOST,
    Attach,
    EndPart,
    Evaluate,
    Evaluated,
    Holds,
    HostEnded,
    Ping,
    PolicyBlock,
    Pong,
    RolloutSent,
    Taken,
)
from hive.hosts.shape import shape_of
from hive.records import process_start_time
from hive.runtime import Actor, Inlet, Outlet, Publication, Slot, SlotInlet
from hive.runtime.memory.status import WAIT_IN
from hive.runtime.wire.arrays import Frames
from hive.runtime.wire.links import SOCKETS, ClientEnd, Links
from hive.runtime.wire.messages import Message, decode, encode, type_set
from hive.training import Blueprint
from hive.training.messages import Evaluation, EvaluationDue, RolloutReady, Weights

PING_S = 0.25  # interval of pings: several in any sensible hosts.silence_s


class RunLink:
    """The connection of this host's actors to the head. `links` makes the end of the link."""

    clock: Clock = RealClock()  # its process sets that of its actors

    def __init__(self, facts: HostFacts, blueprint: Blueprint, links: Links = SOCKETS) -> None:
        self.facts = facts
        self.links = links
        self.shape = shape_of(blueprint)
        self.block_bytes = blueprint.flat.block_bytes
        self.state_bytes = blueprint.state.bytes
        self.client: ClientEnd | None = None
        self.attached = False  # whether the head has answered on this connection
        self.unsent: deque[Slot] = deque()
        self.untaken: dict[int, deque[Slot]] = {}  # collector -> claimed rollouts that the head may lack, oldest first
        self.lacks: dict[int, int] = {}  # collector -> the first rollout that the head lacks
        self.policies: deque[tuple[int, Frames]] = deque()
        self.requests: deque[tuple[EvaluationDue, Frames]] = deque()
        self.evaluated: dict[int, tuple[Message, Frames]] = {}  # evaluator -> its last result, as it was sent
        self.begun: dict[int, int] = {}  # evaluator -> the turn that it was last given, and has not answered
        self.unsent_results: set[int] = set()  # evaluators whose last result found no room
        self.requested: dict[int, int] = {}  # evaluator -> the turn that it was last asked to evaluate
        self.arrived = asyncio.Event()
        self.heard_s = 0.0  # time of the last message
        self.round_trip_ns = 0
        self.ended = ""  # why this part of the run ends
        self.holds = -1
        self.retire: Callable[[Slot], None] = lambda slot: None
        self.bad = 0

    def now_s(self) -> float:
        """Return the monotonic time in seconds."""
        return self.clock.now_ns() / 1e9

    def agent_exited(self) -> bool:
        """Return whether the agent of this host has exited."""
        return process_start_time(self.facts.agent) != self.facts.agent_start

    def open(self) -> None:
        limit = 2 * max(self.block_bytes, self.state_bytes) + (1 << 20)
        self.heard_s = self.now_s()
        self.client = self.links.client(self.facts.keys, self.facts.head, limit, self.facts.silence_s)
        self.client.connect(self.facts.address, self._received, self._connected)

    def close(self) -> None:
        if self.client is not None:
            self.client.close()
            self.client = None

    def _connected(self) -> None:
        """Begin anew on a new connection: what was on its way may be lost."""
        self.attached = False
        self.send(Attach(self.facts.incarnation, self.shape))
        self.send(Holds(self.facts.incarnation, self.holds))
        for result, frames in self.evaluated.values():
            self.send(result, *frames)

    def send(self, message: Message, *frames: Any) -> bool:
        if self.client is None:
            return False
        return self.client.send([*encode(message), *frames], stable=bool(frames))

    def ping(self) -> None:
        """Show that this end is alive, and repeat what may not have been sent because a queue was full."""
        if not self.attached:
            self.send(Attach(self.facts.incarnation, self.shape))
        self.send(Holds(self.facts.incarnation, self.holds))
        for evaluator in [*self.unsent_results]:
            result, frames = self.evaluated[evaluator]
            if self.send(result, *frames):
                self.unsent_results.discard(evaluator)
        waiting = sum(map(len, self.untaken.values()))
        self.send(Ping(self.facts.incarnation, self.clock.now_ns(), self.round_trip_ns, waiting))

    # --- rollouts

    def add(self, collector: int, slot: Slot) -> None:
        """Send a claimed rollout, and keep it until the head has it."""
        if slot.sequence < self.lacks.get(collector, 0):  # sent by an exporter that was killed before it retired it
            self.retire(slot)
            return
        self.untaken.setdefault(collector, deque()).append(slot)
        self.unsent.append(slot)
        self.send_rollouts()

    def send_rollouts(self) -> None:
        """Send what was not sent on this connection, as far as there is room."""
        while self.attached and self.unsent:
            slot = self.unsent[0]
            collector = self.facts.collectors[0] + slot.producer
            if not self.send(RolloutSent(self.facts.incarnation, collector, slot.sequence), slot.contents.data):
                return
            self.unsent.popleft()

    def _taken(self, message: Taken, frames: Frames) -> None:
        self.lacks[message.collector] = max(message.first, self.lacks.get(message.collector, 0))
        untaken = self.untaken.get(message.collector, deque())
        while untaken and untaken[0].sequence < message.first:
            slot = untaken.popleft()
            if slot in self.unsent:
                self.unsent.remove(slot)
            self.retire(slot)
        if not self.attached:
            self.attached = True
            self.unsent = deque(slot for slots in self.untaken.values() for slot in slots)
        self.send_rollouts()

    # --- everything else

    def _received(self, frames: Frames) -> None:
        self.heard_s = self.now_s()
        try:
            message = decode(frames[:1], TO_HOST)
            HANDLERS[type(message)](self, message, frames[1:])
        except (WireError, IndexError, KeyError) as error:
            self.bad += 1
            if self.bad.bit_count() == 1:
                self.warn(f"dropped a bad message of the head ({self.bad} so far): {error}")

    warn: Callable[[str], None] = staticmethod(lambda text: None)

    def _policy(self, message: PolicyBlock, frames: Frames) -> None:
        if len(frames) != 1 or len(frames[0]) != self.block_bytes:
            raise WireError(f"version {message.version} of the policy does not have {self.block_bytes} bytes")
        self.policies.append((message.version, frames))
        self.arrived.set()

    def _evaluate(self, message: Evaluate, frames: Frames) -> None:
        due = cast(EvaluationDue, decode(frames[:1], DUE))
        if len(frames) != 2 or len(frames[1]) != self.state_bytes:
            raise WireError(f"the weights of turn {message.turn} do not have {self.state_bytes} bytes")
        if self.requested.get(message.evaluator, -1) < message.turn:
            self.requested[message.evaluator] = message.turn
            self.requests.append((due, frames[1:]))
            self.arrived.set()

    def evaluation(self, evaluator: int, turn: int, made: Evaluation | None) -> None:
        """Send a result, None if it was lost, and keep it for a new connection."""
        result, frames = Evaluated(self.facts.incarnation, evaluator, turn), encode(made) if made else []
        self.evaluated[evaluator] = result, frames
        if self.begun.get(evaluator) == turn:
            del self.begun[evaluator]
        if not self.send(result, *frames):
            self.unsent_results.add(evaluator)

    def _pong(self, message: Pong, frames: Frames) -> None:
        self.round_trip_ns = max(1, self.clock.now_ns() - message.sent_ns)

    def _end(self, message: EndPart, frames: Frames) -> None:
        self.ended = message.reason
        self.send(HostEnded(self.facts.incarnation, message.reason))
        self.arrived.set()


DUE = type_set([EvaluationDue])
HANDLERS: Mapping[type[Message], Callable[[RunLink, Any, Frames], None]] = {
    Taken: RunLink._taken,
    PolicyBlock: RunLink._policy,
    Evaluate: RunLink._evaluate,
    Pong: RunLink._pong,
    EndPart: RunLink._end,
}


class RolloutExporter(Actor):
    """Claims the rollouts of all collectors of this host, and receives its evaluations, and sends them to the head."""

    numbered = False
    rollouts = SlotInlet(RolloutReady, optional=True)
    evaluations = Inlet(Evaluation, optional=True)

    def __init__(self, link: RunLink) -> None:
        self.link = link

    async def run(self) -> None:
        await asyncio.gather(self._send_rollouts(), self._send_evaluations())

    async def _send_rollouts(self) -> None:
        if not self.rollouts.connected:
            return
        self.link.retire = self.rollouts.retire
        self.link.send_rollouts()
        first = self.link.facts.collectors[0]
        while True:
            slot = await self.rollouts.claim()
            self.link.add(first + slot.producer, slot)

    async def _send_evaluations(self) -> None:
        if not self.evaluations.connected:
            return
        asked = self.link.requested
        async for made in self.evaluations:
            evaluator = next((index for index, turn in asked.items() if turn == made.turn), None)
            if evaluator is not None:
                self.link.evaluation(evaluator, made.turn, made)


class PolicyImporter(Actor):
    """Publishes the versions of the policy that the head sends, and the weights that it wants evaluated."""

    numbered = False
    behaviour = Publication(Weights, optional=True)
    weights = Publication(Weights, optional=True)
    due = Outlet(EvaluationDue, pattern="broadcast", when_full="wait", optional=True)

    def __init__(self, link: RunLink) -> None:
        self.link = link
        link.warn = self.log.warning
        link.clock = self.clock
        self.waiting = self.status.phase("wait head", WAIT_IN)

    @classmethod
    def private_bytes(cls, parameters: Mapping[str, Any]) -> int:
        """Return the bytes of the initial weights, which all processes share, and of a version that arrives."""
        link: RunLink = parameters["link"]
        return 2 * max(link.block_bytes, link.state_bytes)

    async def setup(self) -> None:
        if self.behaviour.connected:
            self.link.holds = self.behaviour.latest
        self.link.open()

    async def run(self) -> None:
        watching = asyncio.ensure_future(self._watch())
        try:
            while not self.link.ended:
                self.status.enter(self.waiting)
                self.link.arrived.clear()
                while self.link.policies:
                    self._publish(*self.link.policies.popleft())
                while self.link.requests:
                    await self._request(*self.link.requests.popleft())
                if not self.link.ended:
                    await self.link.arrived.wait()
        finally:
            watching.cancel()
        self.end_run(self.link.ended)

    def _publish(self, version: int, frames: Frames) -> None:
        if version > self.behaviour.latest:
            self.behaviour.begin()[:] = np.frombuffer(frames[0], np.uint8)
            self.behaviour.publish(version)
            self.status.show_version(version, 0)
        self.link.holds = self.behaviour.latest
        self.link.send(Holds(self.link.facts.incarnation, self.link.holds))

    async def _request(self, due: EvaluationDue, frames: Frames) -> None:
        """Publish the weights of a turn, hold them for the evaluator, and tell it."""
        if due.turn > self.weights.latest:
            self.weights.begin()[:] = np.frombuffer(frames[0], np.uint8)
            self.weights.publish(due.turn)
        self.weights.board.hold(due.evaluator - self.link.facts.evaluators[0], due.turn)
        self.link.begun[due.evaluator] = due.turn
        await self.due.send(due)

    def _find_lost(self, suspected: set[int]) -> set[int]:
        """Report evaluations whose evaluator has been killed: nothing holds their weights, and no result came.

        suspected: the evaluators that held nothing a moment ago, whose result may still be on its way. Returns those of
        now.
        """
        first, board, link = self.link.facts.evaluators[0], self.weights, self.link
        idle = {each for each in link.begun if not board.board.view.words.pinned(each - first)}
        for evaluator in sorted(idle & suspected):
            link.evaluation(evaluator, link.begun[evaluator], None)
        return idle - suspected

    async def _watch(self) -> None:
        """Ping the head; return when it is silent, or this host's agent has exited."""
        facts, suspected = self.link.facts, set[int]()
        while not self.link.ended:
            self.link.ping()
            suspected = self._find_lost(suspected)
            await asyncio.sleep(PING_S)
            silent_s = self.link.now_s() - self.link.heard_s
            if silent_s > facts.silence_s:
                self.link.ended = f"the head has been silent for {silent_s:.0f} s"
            elif self.link.agent_exited():
                self.link.ended = "the agent of this host has exited"
        self.link.arrived.set()

    async def teardown(self) -> None:
        self.link.close()
