"""Calls: request and reply between actors, with a deadline.

    handle.method(1)  ->  Call  ->  the endpoint, in a task of its own  ->  Reply  ->  the value, or RemoteError here

A call waits for its actor to be there, so it survives a restart that falls within its deadline; for one that no plan
knows it does not wait. When its actor dies over it, nobody knows how much was done: the call fails and is not made
again. An answer that comes too late is dropped.
"""

from __future__ import annotations

import asyncio
import traceback
from typing import TYPE_CHECKING

from hive.errors import ActorFailed, RemoteError, TopologyError
from hive.runtime.actor import endpoints_of
from hive.runtime.messages import Tree, encode
from hive.runtime.protocol import SUPERVISOR, Call, EndpointFailed, Reply

if TYPE_CHECKING:
    from hive.runtime.node import Node

__all__ = ["Calls", "describe"]

NAMES_SHOWN = 20  # of those who are there, in an error: a few lines of a terminal
TEXT_CHARACTERS = 4_000  # of an error's own words: more than anybody reads, and far below what a message may carry
TRACE_CHARACTERS = 100_000  # of a traceback, its end: the deepest recursion prints more, and says it there


def describe(error: BaseException) -> tuple[str, str, str]:
    """Type, text and traceback of an error, short enough to travel."""
    text = str(error) or type(error).__name__
    return type(error).__name__, text[:TEXT_CHARACTERS], "".join(traceback.format_exception(error))[-TRACE_CHARACTERS:]


class _DiedMeanwhile(Exception):
    """The actor that was called is dead; the text says how."""


def _too_late(answer: asyncio.Future[Reply]) -> None:
    if not answer.done():
        answer.set_exception(TimeoutError())


class Calls:
    """The calls of one process's actors, both ways."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.waiting: dict[int, tuple[int, asyncio.Future[Reply]]] = {}  # whom it asks, and the answer to come
        self.made = 0  # calls so far: a number is never used twice, so a late answer is nobody else's

    async def call(self, caller: int, name: str, method: str, arguments: tuple[Tree, ...], deadline_s: float) -> Tree:
        """Calls an endpoint.

        Raises RemoteError when it raised, ActorFailed when its actor died over it, TimeoutError when no answer came in
        time, TopologyError for nobody.
        """
        number = self._number_of(name, method)
        loop = asyncio.get_running_loop()
        begun, waiter = loop.time(), self.node.waiters[caller]
        try:
            if number not in self.node.members:
                async with asyncio.timeout(deadline_s):
                    await waiter.until(lambda: number in self.node.members or None, waiter.status.runtime)
            self.made += 1
            key = self.made
            answer: asyncio.Future[Reply] = loop.create_future()
            self.waiting[key] = number, answer
            # asyncio.timeout would take twice the time of this timer.
            late = loop.call_later(begun + deadline_s - loop.time(), _too_late, answer)
            try:
                self._send_call(Call(key, caller, number, method, list(arguments)))
                reply = await answer
            finally:
                late.cancel()
                del self.waiting[key]
        except _DiedMeanwhile as died:
            raise ActorFailed(
                f"`{name}` died ({died}) before `{name}.{method}` was answered",
                hint="it may have done what it was asked to; call again where that does no harm",
            ) from None
        except TimeoutError:
            raise TimeoutError(f"`{name}.{method}` did not answer within {loop.time() - begun:.1f} s") from None
        if reply.error:
            pid = self.node.pages.snapshot(number)["pid"]
            raise RemoteError(
                f"[{name} pid {pid}] {reply.error}: {reply.text}",
                remote_type=reply.error,
                remote_traceback=reply.traceback,
            )
        return reply.value

    def _number_of(self, name: str, method: str) -> int:
        """Raises TopologyError for nobody."""
        number = self.node.plan.numbers.get(name)
        if number is not None:
            return number
        names = [*self.node.plan.numbers]
        others = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
        raise TopologyError(
            f"`{name}.{method}` is called, and there is no `{name}` in this run",
            hint=f"there are: {', '.join(names[:NAMES_SHOWN])}{others}",
        )

    def _send_call(self, call: Call) -> None:
        if call.actor in self.node.actors:
            self.received(call)
        else:
            self.node.post(call.actor, encode(call))

    def received(self, call: Call) -> None:
        """Answers in a task of its own. Raises KeyError for an actor that does not live here."""
        self.node.actors[call.actor]
        self.node.spawn(self._answer(call))

    async def _answer(self, call: Call) -> None:
        actor = self.node.actors[call.actor]
        try:
            if call.method not in endpoints_of(type(actor)):
                raise AttributeError(f"`{actor.name}` has no endpoint `{call.method}`")
            value = await getattr(actor, call.method)(*call.arguments)
            reply = Reply(call.call, call.caller, value, "", "", "")
            frames = encode(reply)
        except Exception as error:
            kind, text, trace = describe(error)
            reply = Reply(call.call, call.caller, None, kind, text, trace)
            frames = encode(reply)
        if call.caller == SUPERVISOR:
            if reply.error:
                self.node.tell(EndpointFailed(call.actor, call.method, f"{reply.error}: {reply.text}"))
        elif call.caller in self.node.actors:
            self.answered(reply)
        else:
            self.node.post(call.caller, frames)

    def answered(self, reply: Reply) -> None:
        _, answer = self.waiting.get(reply.call, (0, None))
        if answer is not None and not answer.done():
            answer.set_result(reply)

    def left(self, actor: int, how: str) -> None:
        """An actor died: whoever waits for its answer waits no longer."""
        for asked, answer in self.waiting.values():
            if asked == actor and not answer.done():
                answer.set_exception(_DiedMeanwhile(how))
