"""The head's end of a host: the actor that talks to it, and the actors that stand for its collectors.

All of them share one process, `host-<name>`, and one `HostLink`. The link is made when the topology is built, and only
its process opens sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hive import __version__
from hive.clock import Clock, RealClock
from hive.config import Config, resolved
from hive.envs.spaces.origins import may_need
from hive.envs.spaces.plain_specs import to_plain
from hive.errors import HostLost, UsageError, WireError
from hive.experience import steps_in
from hive.hosts.arriving_rollouts import ArrivingRollouts, Incoming
from hive.hosts.files import HeadKeys, keys_of, write_join_file
from hive.hosts.host_reports import TEXT_SHOWN, HostReports
from hive.hosts.messages import (
    PROTOCOL,
    RUN_ENDED,
    TO_HEAD,
    Accepted,
    ActorQuery,
    ActorReply,
    Attach,
    EndPart,
    Evaluated,
    Holds,
    HostEnded,
    HostLog,
    HostStatus,
    Join,
    Ping,
    PolicyBlock,
    Pong,
    Refused,
    RolloutSent,
)
from hive.hosts.requested_evaluations import RequestedEvaluations
from hive.hosts.shape import shape_of, without_hosts
from hive.printable import printable
from hive.records import RunDirectory
from hive.runtime import Actor, Bytes, SlotOutlet, Subscription, endpoint
from hive.runtime.memory.status import WAIT_IN
from hive.runtime.wire.arrays import Frames
from hive.runtime.wire.links import SOCKETS, KeyPair, Links, ServerEnd
from hive.runtime.wire.messages import Message, Tree, decode, encode
from hive.training import Blueprint
from hive.training.evaluate.evaluator_actor import EvaluatingActor
from hive.training.messages import Evaluation, EvaluationDue, RolloutReady, Weights
from hive.training.run_start import schedule_of
from hive.training.schedule import LATEST

LOOK_S = 0.1  # interval between two looks at the clock: short beside any sensible hosts.silence_s
FRESH_S = 2.0  # a host that was heard within this time is alive, so another one cannot take its place
LOOPBACK = "127.0.0.1"
GOODBYE_S = 1.5  # wait for the confirmation of an EndPart; a host that is away gives none
ANSWER_S = 2.5  # deadline of an answer of the agent


class HostLink:
    """What the actors of the process share: the connection to the host, and what travels on it.

    collectors, evaluators: those that run on the host. links: makes the end of the link.
    """

    clock: Clock = RealClock()  # its process sets that of its actors

    def __init__(
        self,
        name: str,
        blueprint: Blueprint,
        collectors: range,
        evaluators: range,
        directory: Path,
        links: Links = SOCKETS,
    ) -> None:
        self.name = name
        self.links = links
        self.blueprint = blueprint
        self.config: Config = blueprint.config
        self.collectors = collectors
        self.evaluators = evaluators
        self.ending: set[bytes] | None = None  # connections that have not confirmed the EndPart; None before it
        self.directory = directory
        self.rollouts: ArrivingRollouts = ArrivingRollouts(blueprint.rollout_layout, self._send_line)
        self.requests: RequestedEvaluations = RequestedEvaluations(self._send_line)
        self.reports: HostReports = HostReports(name, directory)
        self.server: ServerEnd | None = None
        self.address = ""  # at which the host reaches this process
        self.keys: HeadKeys | None = None
        self.agent: bytes | None = None  # identity of the agent's connection
        self.line: bytes | None = None  # identity of the link process's connection
        self.incarnation = 0
        self.heard_s = 0.0  # time of the last message
        self.lost = ""  # why the host is lost
        self.fault: Exception | None = None  # the first that was no fault of a message
        self.holds = -1  # newest version of the policy that the host has
        self.sent = -1  # newest version that was sent on this connection
        self.unheld: deque[int] = deque()  # versions that are on their way
        self.round_trip_s = 0.0
        self.waiting = 0
        self.late = 0  # messages of an earlier incarnation
        self.bad = 0  # messages that could not be read
        self.attached = asyncio.Event()
        self.changed = asyncio.Event()  # a Holds, a new connection, or the loss of the host
        self.note: Callable[..., None] = lambda kind, text, **fields: None
        self.numbers = itertools.count(1)
        self.asked: dict[int, asyncio.Future[ActorReply]] = {}

    def now_s(self) -> float:
        """Return the monotonic time in seconds."""
        return self.clock.now_ns() / 1e9

    # --- life

    def open(self) -> Path:
        """Listen, and write the file for `hive join`; return its path. Raises HiveError."""
        hosts, directory = self.config.hosts, RunDirectory.open(self.directory)
        keys = keys_of(directory, self.name)
        self._listen(keys, hosts.address or LOOPBACK)
        return write_join_file(directory, self.name, keys, self.address, hosts.silence_s)

    def admit(self, public: str, address: str) -> tuple[str, str]:
        """Listen for the host with this public key; return the address and the public key of this end.

        `address` is used if the config names none. The keys are new in each process, and only in its memory. A host
        that has joined with another key is lost.
        """
        if self.server is None:
            own = KeyPair.new()
            self._listen(HeadKeys(own.public, own.secret, public, ""), self.config.hosts.address or address)
        elif self.server.accepted != public.encode():
            if self.agent is None:
                self.server.accepted = public.encode()
            else:
                self.lose("its agent was started again")
        assert self.keys is not None
        return self.address, self.keys.public

    def _listen(self, keys: HeadKeys, address: str) -> None:
        hosts, self.keys = self.config.hosts, keys
        self.incarnation = 1 + int(1e9 * self.clock.wall())  # grows over restarts and resumed runs
        largest = max(self.blueprint.state.bytes, self.blueprint.rollout_layout.bytes)
        limit = 2 * largest + (1 << 20)
        self.server = self.links.server(self.keys.own, self.keys.host_public, limit, hosts.silence_s)
        self.server.report = lambda text: self.note("refused", text)
        index = list(hosts.cores).index(self.name)
        port = self.keys.port or (hosts.port + index if hosts.port else 0)
        where = "0.0.0.0" if hosts.listen_everywhere else address
        bound = self.server.bind(f"tcp://{where}:{port or '*'}", self.received)
        self.address = f"tcp://{address}:{bound.rpartition(':')[2]}"

    def lose(self, why: str) -> None:
        """The host is lost: its process on the head ends."""
        self.lost = self.lost or why
        self.changed.set()

    async def close(self, reason: str, rejoin: bool) -> None:
        """Tell the host that its part ends, and close the connection.

        It waits until both ends have confirmed: closing a connection from which something was not read yet makes the
        kernel reset it, and then the other end may lose what it has not read either.
        """
        if self.server is None:
            return
        ends = (client for client in (self.agent, self.line) if client is not None)
        self.ending = {client for client in ends if self.server.send(client, encode(EndPart(reason, rejoin)))}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_S):
                while self.ending:
                    self.changed.clear()
                    await self.changed.wait()
        self.server.close(linger_s=1.0)
        self.server = None

    def _send(self, client: bytes | None, message: Message, *frames: Any, stable: bool = False) -> bool:
        if self.server is None or client is None:
            return False
        return self.server.send(client, [*encode(message), *frames], stable=stable)

    def _send_line(self, message: Message, *frames: Any) -> bool:
        return self._send(self.line, message, *frames)

    # --- messages

    def received(self, client: bytes, frames: Frames) -> None:
        """Handle a message of the host. An invalid one is counted, logged and dropped; `check` raises other errors."""
        try:
            message = decode(frames[:1], TO_HEAD)
            if isinstance(message, Join):
                self._join(client, message)
            elif message.incarnation != self.incarnation:  # type: ignore[attr-defined]
                self._refuse_late(client, message)
            else:
                self.heard_s = self.now_s()
                if isinstance(message, HostStatus):
                    self.agent = client  # its connection may be a new one
                HANDLERS[type(message)](self, client, message, frames[1:])
        except WireError as error:
            self.bad += 1
            if self.bad.bit_count() == 1:  # 1, 2, 4, 8, ...: a flood takes a few lines
                self.note("bad message", f"dropped a bad message of host {self.name} ({self.bad} so far): {error}")
        except Exception as error:  # a fault of hive, not of the message: the loop, which calls this, would only log it
            self.fault = self.fault or error

    def check(self) -> None:
        """Raise HostLost if the host is lost, or what has failed while a message was handled."""
        if self.fault is not None:
            raise self.fault
        if self.lost:
            raise HostLost(f"host {self.name} is lost: {self.lost}")

    def _refuse_late(self, client: bytes, message: Message) -> None:
        self.late += 1
        if self.late.bit_count() == 1:
            kind = type(message).__name__
            self.note("late", f"refused a {kind} of an earlier incarnation of host {self.name} ({self.late} so far)")
        if isinstance(message, Attach | HostStatus | Ping):  # it does not know that it was given up
            self._send(client, EndPart("the head has given up this incarnation of the host", rejoin=True))

    def _join(self, client: bytes, message: Join) -> None:
        if (message.protocol, message.version) != (PROTOCOL, __version__):
            theirs, ours = (
                f"hive {v} (protocol {p})" for v, p in [(message.version, message.protocol), (__version__, PROTOCOL)]
            )
            self._send(client, Refused(f"this host has {printable(theirs, TEXT_SHOWN)}, and the head has {ours}", True))
        elif message.incarnation == self.incarnation:  # the same agent, by a new connection
            self.agent, self.heard_s = client, self.now_s()
        elif message.incarnation:
            self._refuse_late(client, Attach(message.incarnation, ""))
        elif self.agent is not None:
            if self.now_s() - self.heard_s < FRESH_S:
                self._send(client, Refused(f"host {self.name} has joined already, and is alive", final=False))
            else:
                self.lose("it has joined again")
        else:
            self.agent, self.heard_s = client, self.now_s()
            machine = printable(message.machine, TEXT_SHOWN)
            self.note("joined", f"host {self.name} has joined: {machine}, {message.cores} cores, process {message.pid}")
            self._send(client, Accepted(self.incarnation, resolved(without_hosts(self.config)).decode(), self._part()))

    def _part(self) -> dict[str, Any]:
        resume, environment = self.blueprint.resume, self.blueprint.environment
        return {
            "collectors": [self.collectors.start, len(self.collectors)],
            "evaluators": [self.evaluators.start, len(self.evaluators)],
            "first": [self.rollouts.incoming[number].lacks for number in self.collectors],
            "resume": {"update": resume.update, "state": resume.state, "replay": resume.has_replay} if resume else {},
            "environment": to_plain(environment) if may_need(environment.observation) else None,
        }

    def _attach(self, client: bytes, message: Attach, frames: Frames) -> None:
        if message.shape != shape_of(self.blueprint):
            self._send(
                client, EndPart(f"its rollouts differ from the head's: {_difference(self.blueprint, message)}", False)
            )
            self.lose("its environment or hive differs from the head's, so its rollouts do not fit")
            return
        self._begin(client)
        self.rollouts.acknowledge()

    def _begin(self, client: bytes) -> None:
        """The link process has a new connection: what was on its way may be lost."""
        self.line, self.sent = client, -1
        self.unheld.clear()
        self.requests.send_again()
        self.attached.set()
        self.changed.set()

    def _holds(self, client: bytes, message: Holds, frames: Frames) -> None:
        self.holds = max(self.holds, message.version)
        while self.unheld and self.unheld[0] <= self.holds:
            self.unheld.popleft()
        self.changed.set()

    def _ping(self, client: bytes, message: Ping, frames: Frames) -> None:
        self.round_trip_s, self.waiting = message.round_trip_ns / 1e9, message.waiting
        self._send(client, Pong(message.sent_ns))
        if not self.attached.is_set():
            return  # its Attach has yet to come
        if client != self.line:  # the last message of an older connection came after the Attach of this one
            self._begin(client)
        self.requests.send()
        self.rollouts.acknowledge()

    def _status(self, client: bytes, message: HostStatus, frames: Frames) -> None:
        self.agent = client  # the Join of a new connection may be lost
        self._send(client, Pong(0))  # the head is alive
        self.reports.status(message)

    def _ended(self, client: bytes, message: HostEnded, frames: Frames) -> None:
        if self.ending is not None:
            self.ending.discard(client)
            self.changed.set()
        else:
            self.lose(f"its part of the run has ended: {printable(message.reason, TEXT_SHOWN)}")

    def _answer(self, client: bytes, message: ActorReply, frames: Frames) -> None:
        future = self.asked.get(message.number)
        if future is not None and not future.done():
            future.set_result(message)

    # --- what the actors use

    async def ask(self, actor: str, *, stack: bool = False, kill: bool = False, by_hand: bool = False) -> ActorReply:
        """Ask the agent about an actor. Raises HostLost without an agent, or if it does not answer."""
        number = next(self.numbers)
        future: asyncio.Future[ActorReply] = asyncio.get_running_loop().create_future()
        self.asked[number] = future
        try:
            if not self._send(self.agent, ActorQuery(number, actor, stack, kill, by_hand)):
                raise HostLost(f"host {self.name} has not joined")
            answer = await asyncio.wait_for(future, ANSWER_S)
        except TimeoutError:
            raise HostLost(f"host {self.name} does not answer") from None
        finally:
            del self.asked[number]
        if answer.error:
            raise UsageError(printable(answer.error, TEXT_SHOWN))
        return answer

    def send_policy(self, version: int, block: np.ndarray[Any, Any]) -> bool:
        """Send a version of the policy, which is copied. Returns False without a connection, or if its queue is full.

        A version that the host has meanwhile is not sent.
        """
        if version > max(self.holds, self.sent):
            if not self._send(self.line, PolicyBlock(version), block.data):
                return False
            self.sent = version
            self.unheld.append(version)
        return True


HANDLERS: Mapping[type[Message], Callable[[HostLink, bytes, Any, Frames], None]] = {
    Attach: HostLink._attach,
    RolloutSent: lambda link, client, message, frames: link.rollouts.arrived(message, frames),
    Holds: HostLink._holds,
    Evaluated: lambda link, client, message, frames: link.requests.evaluated(message, frames),
    Ping: HostLink._ping,
    HostStatus: HostLink._status,
    HostLog: lambda link, client, message, frames: link.reports.log(message),
    HostEnded: HostLink._ended,
    ActorReply: HostLink._answer,
}


def _difference(blueprint: Blueprint, message: Attach) -> str:
    ours, theirs = shape_of(blueprint).split("\n"), message.shape.split("\n")
    pairs = [(a, b) for a, b in zip(ours, theirs, strict=False) if a != b]
    a, b = pairs[0] if pairs else ("", "")
    return printable(f"`{b}` there, `{a}` on the head", TEXT_SHOWN)


class HostActor(Actor):
    """Talks to one host: listens, accepts it, sends it each version of the policy, and notices when it is lost."""

    behaviour = Subscription(Weights, optional=True)

    def __init__(self, link: HostLink) -> None:
        self.link = link
        self.draining = False  # whether the run ends; else an exit of this process is a failure of one of its actors
        link.note = link.reports.note = self.note
        link.clock = self.clock
        self.schedule = schedule_of(link.blueprint)
        self.in_order = self.schedule.collection.behaviour_version(0) != LATEST
        self.waiting = self.status.phase(f"wait {link.name}"[:23], WAIT_IN)
        names = ("sent_bytes", "received_bytes", "round_trip_ms", "backlog", "refused", "late", "joined")
        self.counters = {name: self.status.counter(name) for name in names}

    async def setup(self) -> None:
        if self.link.config.hosts.launcher != "join":
            return  # the launcher calls `admit`
        path = self.link.open()
        self.note("waiting", f"host {self.link.name} has not joined: run there `hive join {path}`")

    @endpoint
    async def admit(self, public: str, address: str) -> list[Tree]:
        """Accept a host that a launcher has placed, see HostLink.admit."""
        return list(self.link.admit(public, address))

    @endpoint
    async def lost(self, public: str, why: str) -> None:
        """Give the host up at once: its launcher knows that the agent with this public key has exited."""
        link = self.link
        if link.agent is not None and link.server is not None and link.server.accepted == public.encode():
            link.lose(why)

    @endpoint
    async def inspect(self, actor: str, stack: bool) -> list[Tree]:
        """Return the stacks of an actor's process on the host, and the actor's history."""
        answer = await self.link.ask(actor, stack=stack)
        return [answer.stack, list(answer.transitions)]

    @endpoint
    async def kill(self, host: str, actor: str, by_hand: bool) -> None:
        """Kill the process of an actor of the host, which is then restarted there."""
        if host == self.name:
            await self.link.ask(actor, kill=True, by_hand=by_hand)

    async def run(self) -> None:
        self.status.enter(self.waiting)
        watching = asyncio.ensure_future(self._watch())
        sending = asyncio.ensure_future(self._send_policy())
        try:
            await asyncio.wait([watching, sending], return_when=asyncio.FIRST_COMPLETED)
            for task in (watching, sending):
                if task.done():
                    task.result()
        finally:
            watching.cancel()
            sending.cancel()

    async def _watch(self) -> None:
        """Raise HostLost when the host is silent, or its part has ended; and what has failed in the link."""
        link, limit_s = self.link, self.link.config.hosts.silence_s
        while True:
            await asyncio.sleep(LOOK_S)
            self._count()
            silent_s = link.now_s() - link.heard_s
            if link.agent is not None and silent_s > limit_s:
                link.lose(f"it has been silent for {silent_s:.0f} s")
            link.check()

    def _count(self) -> None:
        link, server = self.link, self.link.server
        if server is None:
            return
        values = [server.sent_bytes, server.received_bytes, 1e3 * link.round_trip_s, link.waiting]
        values += [server.refused, link.late, link.attached.is_set()]
        for index, value in zip(self.counters.values(), values, strict=True):
            self.status.set(index, float(value))

    async def _send_policy(self) -> None:
        """Send each version in order if collectors choose versions by number, otherwise the latest.

        In order, as many are on their way as rollouts may lag behind; otherwise the next follows when the host has the
        one before, so that a slow link is never more than one behind.
        """
        link = self.link
        if not self.behaviour.connected:  # the host has evaluators only
            await asyncio.get_running_loop().create_future()
        most = link.config.collection.max_lag + 1 if self.in_order else 1
        while True:
            await link.attached.wait()
            while len(link.unheld) >= most:
                link.changed.clear()
                await link.changed.wait()
            version, block = await self._next_policy()
            sent = link.send_policy(version, block)
            if sent:
                self.status.show_version(version, self.behaviour.latest - version)
            self.behaviour.unpin()
            if not sent:  # the connection is broken, or its queue full: wait for another one, or for room
                await asyncio.sleep(LOOK_S)

    async def _next_policy(self) -> tuple[int, Bytes]:
        """Pin the version to send next, once it is published. A new connection may change which one that is."""
        link, board = self.link, self.behaviour.board

        def pinned() -> int | None:
            wanted = max(link.holds, link.sent) + 1
            if self.in_order:
                return board.view.pin(board.reader, max(wanted, self._oldest_needed()))
            return board.view.pin(board.reader, LATEST) if board.latest >= wanted else None

        block = await board.waiter.until(pinned, board.phase, memory=True)
        return board.view.words.version(block), board.view.blocks[block]

    def _oldest_needed(self) -> int:
        """Return the oldest version that a rollout is made with which the head lacks."""
        lacking = [incoming.lacks for incoming in self.link.rollouts.incoming.values()]
        return min(self.schedule.collection.behaviour_version(number) for number in lacking)

    async def teardown(self) -> None:
        over = self.draining and not self.link.lost
        failed = self.link.lost or "the process on the head that talks to this host has failed"
        await self.link.close(RUN_ENDED if over else failed, rejoin=not over)

    async def drain(self) -> None:
        self.draining = True
        await super().drain()


class RemoteCollector(Actor):
    """Stands for a collector on another host: commits the rollouts that the host sends, in their order."""

    role = "collector"
    source = True
    rollouts = SlotOutlet(RolloutReady)
    behaviour = Subscription(Weights)  # the link reads it for all collectors of the host

    def __init__(self, link: HostLink) -> None:
        self.link = link
        self.waiting = self.status.phase(f"wait {link.name}"[:23], WAIT_IN)
        self.steps = self.status.counter("env_steps")

    async def setup(self) -> None:
        self.link.rollouts.incoming[self.index] = Incoming(self.rollouts.produced)

    async def run(self) -> None:
        while True:
            self.status.enter(self.waiting)
            frame = await self.link.rollouts.first(self.index)
            slot = await self.rollouts.reserve()
            slot.block[: len(frame)] = np.frombuffer(frame, np.uint8)
            self.status.add(self.steps, steps_in(slot.arrays))
            self.rollouts.commit(slot)
            self.link.rollouts.taken(self.index)


class RemoteEvaluator(EvaluatingActor):
    """Stands for an evaluator on another host: sends it the held weights, and passes its result on."""

    def __init__(self, link: HostLink) -> None:
        super().__init__(link.blueprint, link.directory)
        self.link = link

    async def _play(self, due: EvaluationDue, weights: Sequence[Bytes]) -> list[Evaluation]:
        with self.status(f"wait {self.link.name}"[:23], WAIT_IN):
            return [await self.link.requests.evaluate(due, weights[0])]
