"""Calls: request and reply between actors, with a deadline.

    handle.method(1)  ->  Call  ->  the endpoint, in a separate task  ->  Reply  ->  the value, or RemoteError here

A call waits until its actor has joined, so it survives a restart within its deadline; a name that the plan lacks fails
at once. A call that was sent is not repeated when its actor's process exits, because the endpoint may have run in part:
the call fails. A reply after the deadline is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

from hive import _native
from hive.errors import ActorFailed, RemoteError, TopologyError
from hive.runtime.actor.actor import Actor, endpoints_of
from hive.runtime.actor.error_location import describe, is_own
from hive.runtime.process.channel_ends import ChannelEnds
from hive.runtime.topology.plan import Plan
from hive.runtime.wire.messages import Message, Tree, encode
from hive.runtime.wire.protocol import SUPERVISOR, Answered, Call, EndpointFailed, Reply

NAMES_SHOWN = 20  # maximum actor names in an error: a few lines of a terminal


class _CalleeExited(Exception):
    """The called actor's process has exited; the text says how."""


def _expire(reply: asyncio.Future[Reply]) -> None:
    if not reply.done():
        reply.set_exception(TimeoutError())


class CallHost(Protocol):
    """What a process offers to its calls."""

    plan: Plan
    pages: _native.Status
    actors: dict[int, Actor]
    ends: ChannelEnds

    def report(self, message: Message) -> None:
        """Send a message to the supervisor."""

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run a task beside the actors; its failure ends the process."""


class Calls:
    """Makes and answers the calls of one process's actors."""

    def __init__(self, node: CallHost) -> None:
        self.node = node
        self.waiting: dict[int, tuple[int, asyncio.Future[Reply]]] = {}  # call number -> (called actor, its reply)
        self.made = 0  # calls so far; numbers are never reused, so a late reply cannot match a newer call

    async def call(self, caller: int, name: str, method: str, arguments: tuple[Tree, ...], deadline_s: float) -> Tree:
        """Call endpoint `method` of actor `name` and return its value.

        Raises RemoteError when the endpoint raised, ActorFailed when the actor's process exited before it replied,
        TimeoutError when no reply arrived within `deadline_s`, TopologyError when the plan has no such actor.
        """
        number = self._number_of(name, method)
        loop = asyncio.get_running_loop()
        begun, waiter = loop.time(), self.node.ends.waiters[caller]
        try:
            if number not in self.node.ends.members:
                async with asyncio.timeout(deadline_s):
                    await waiter.until(lambda: number in self.node.ends.members or None, waiter.status.runtime)
            self.made += 1
            key = self.made
            future: asyncio.Future[Reply] = loop.create_future()
            # Registered before the call is sent: an actor in this process may reply before `_send_call` returns.
            self.waiting[key] = number, future
            # A plain timer, because asyncio.timeout costs twice as much per call.
            timer = loop.call_later(begun + deadline_s - loop.time(), _expire, future)
            try:
                self._send_call(Call(key, caller, number, method, list(arguments)))
                reply = await future
            finally:
                timer.cancel()
                del self.waiting[key]
        except _CalleeExited as exited:
            raise ActorFailed(
                f"`{name}` exited ({exited}) before it replied to `{name}.{method}`",
                hint="the endpoint may have run in part; call it again only if that is harmless",
            ) from None
        except TimeoutError:
            raise TimeoutError(f"`{name}.{method}` did not reply within {loop.time() - begun:.1f} s") from None
        if reply.error:
            pid = self.node.pages.snapshot(number)["pid"]
            raise RemoteError(
                f"[{name} pid {pid}] {reply.error}: {reply.text}",
                remote_type=reply.error,
                remote_traceback=reply.traceback,
            )
        return reply.value

    def _number_of(self, name: str, method: str) -> int:
        """Return the number of actor `name`. Raises TopologyError when the plan has no such actor."""
        number = self.node.plan.numbers.get(name)
        if number is not None:
            return number
        names = [*self.node.plan.numbers]
        others = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
        raise TopologyError(
            f"cannot call `{name}.{method}`: this run has no actor `{name}`",
            hint=f"its actors are: {', '.join(names[:NAMES_SHOWN])}{others}",
        )

    def _send_call(self, call: Call) -> None:
        if call.actor in self.node.actors:
            self.received(call)
        else:
            self.node.ends.post(call.actor, encode(call))

    def received(self, call: Call) -> None:
        """Answer a call in a separate task. Raises KeyError when its actor is in another process."""
        self.node.actors[call.actor]  # raises here, where the node counts it as a bad message, and not in the task
        self.node.spawn(self._answer(call))

    async def _answer(self, call: Call) -> None:
        actor = self.node.actors[call.actor]
        try:
            if call.method not in endpoints_of(type(actor)):
                raise AttributeError(f"`{actor.name}` has no endpoint `{call.method}`")
            value = await getattr(actor, call.method)(*call.arguments)
            reply = Reply(call.call, call.caller, value, "", "", "")
            frames = encode(reply)
        except BaseException as error:
            if not is_own(error):
                raise
            kind, text, trace = describe(error)
            reply = Reply(call.call, call.caller, None, kind, text, trace)
            frames = encode(reply)
        if call.caller == SUPERVISOR:
            if call.call:
                self.node.report(
                    Answered(call.call, reply.value, f"{reply.error}: {reply.text}" if reply.error else "")
                )
            elif reply.error:
                self.node.report(EndpointFailed(call.actor, call.method, f"{reply.error}: {reply.text}"))
        elif call.caller in self.node.actors:
            self.answered(reply)
        else:
            self.node.ends.post(call.caller, frames)

    def answered(self, reply: Reply) -> None:
        """Complete the call that `reply` answers; a reply to a call that has ended is dropped."""
        _, future = self.waiting.get(reply.call, (0, None))
        if future is not None and not future.done():
            future.set_result(reply)

    def left(self, actor: int, how: str) -> None:
        """Fail every call to `actor`, whose process has exited. `how` becomes part of the error."""
        for called, future in self.waiting.values():
            if called == actor and not future.done():
                future.set_exception(_CalleeExited(how))
