"""The actor of one callback: it receives one event after another, calls the user's methods, and answers.

The methods run in a thread of their own, so that the process can still be stopped, asked for its stack, and take the
limit of `run.callback_limit_s`. In a run `inline` they run in its only thread, where breakpoints work. A callback that
raises, takes longer or asks for something invalid is not called again: the run continues without it, logs one warning,
and is not exact. With `supervision.strict` the run fails instead.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any

from hive.config import calls_user_code, load_reference
from hive.errors import HiveError, TopologyError
from hive.experience import Purpose
from hive.plain_data import pack, read_content, unpack, write_content
from hive.records.run_warnings import CALLBACK_FAILED, WARNING
from hive.runtime import START, Actor, SlotOutlet, Subscription
from hive.runtime.actor.error_location import explained
from hive.runtime.memory.status import WAIT_IN
from hive.runtime.process.user_code.setup import set_up
from hive.training.blueprint import Blueprint
from hive.training.callbacks.calling import Answer, ForwardingCallback, call, checked, restore, state_of
from hive.training.callbacks.events import Following, check_methods, takes_event
from hive.training.callbacks.messages import ANSWER_BYTES, CallbackAnswer, CallbackEvents, Entry, entries_of, state_key
from hive.training.collect.collector import seed_all_globals

END_LIMIT_S = 5.0  # of `on_end` where a run is stopped: within the time that a stop may take (supervision.drain_s)


class UserThread:
    """Runs one function after another in a daemon thread, which a function that never returns does not outlive."""

    def __init__(self, name: str) -> None:
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any], asyncio.AbstractEventLoop]]
        self._work = queue.SimpleQueue()
        threading.Thread(target=self._follow, name=name, daemon=True).start()

    async def run(self, function: Callable[[], Any], limit_s: float) -> Any:
        """Return what the function returns. Raises what it raises, and TimeoutError."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._work.put((function, future, loop))
        return await asyncio.wait_for(asyncio.shield(future), limit_s)

    def _follow(self) -> None:
        while True:
            function, future, loop = self._work.get()
            try:
                result, error = function(), None
            except BaseException as raised:  # also SystemExit: a callback must not end its process
                result, error = None, raised
            try:
                loop.call_soon_threadsafe(_settle, future, result, error)
            except RuntimeError:  # the loop has ended
                return


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(
            error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
        )
        future.exception()  # a limit may have passed: then nothing awaits it


class CallbackActor(Actor):
    """Calls the callback `run.callbacks[index]`."""

    role = "callback"
    events = Subscription(CallbackEvents)
    answers = SlotOutlet(CallbackAnswer)

    def __init__(self, blueprint: Blueprint, *, may_change: bool = True) -> None:
        """may_change: whether it may change environments and keys, which several policies share."""
        self.blueprint = blueprint
        self.may_change = may_change
        self.config = blueprint.config
        self.entry: Entry = entries_of(self.config)[self.index]
        self.callback: Any = None
        self.failed = ""
        self.last: Mapping[str, Any] = {}  # counts of the last event
        self.has_ended = False
        self.lost: list[str] = []  # names of attributes that are no plain data
        self.thread: UserThread | None = None

    async def setup(self) -> None:
        """Make the callback, so that one whose constructor raises ends the run before it begins."""
        with self.status(START):
            self.thread = UserThread(self.name) if self.forked else None
            self.callback = await self._run(self._make_callback, self.config.start_limit_s)

    @calls_user_code("run.callbacks")
    def _make_callback(self) -> Any:
        set_up()
        target, arguments = load_reference(self.entry.name), self.entry.arguments
        made = Following(target, arguments) if takes_event(target, arguments) else target(**arguments)
        if not isinstance(made, ForwardingCallback):
            check_methods(made, self.entry.name)
        return made

    async def run(self) -> None:
        first = True
        while True:
            slot = await self.answers.reserve()
            _, block = await self.events.pin(slot.sequence)
            event = unpack(read_content(block))
            self.events.unpin()
            if first:
                self._continue_from(event["states"].get(self.entry_key, b""))
                first = False
            answer = await self._answer(slot.sequence, event)
            write_content(answer.packed(), slot.arrays["content"])
            self.answers.commit(slot)

    @property
    def shown(self) -> str:
        """What errors call this callback."""
        return getattr(self.callback, "shown", "") or self.entry.name

    @property
    def entry_key(self) -> str:
        """The name of this callback's state."""
        return state_key(self.index, self.entry)

    def _continue_from(self, state: bytes) -> None:
        """Continue from the state before the first event of this process, that of a predecessor or a checkpoint."""
        if state:
            self.failed = unpack(state).get("failed", "")
        if state and not self.failed:
            restore(self.callback, state, self.entry.arguments)

    async def _answer(self, number: int, event: Mapping[str, Any]) -> Answer:
        self.last = event["data"]
        self.has_ended = event["kind"] == "end"
        if self.failed:
            return Answer()
        # So that a callback that draws from them repeats. Others of this process seed them before they draw.
        seed_all_globals(self.config.run.seed, Purpose.callback, self.index, number)
        limit_s = self.config.run.callback_limit_s
        try:
            with self.status("call back", WAIT_IN):  # with a limit of its own
                answer: Answer = await self._run(lambda: self._call(event["kind"], event["data"]), limit_s)
        except TimeoutError:
            return self._drop(event, f"took more than {limit_s:g} s (run.callback_limit_s)")
        except Exception as error:
            return self._drop(event, f"failed: {_text(error)}", error)
        self._name_lost()
        if len(packed := answer.packed()) > ANSWER_BYTES:
            return self._drop(event, f"answered with {len(packed) >> 10} KiB")
        return answer

    async def _run(self, function: Callable[[], Any], limit_s: float) -> Any:
        """Return what the function returns: in the thread, or in a shared process at once, where breakpoints work."""
        return function() if self.thread is None else await self.thread.run(function, limit_s)

    def _call(self, kind: str, data: Mapping[str, Any]) -> Answer:
        actions = call(self.callback, self.entry.handlers, kind, data, list(self.config.env.info))
        state, self.lost = state_of(self.callback, self.entry.arguments)
        changes = checked(actions, self.config, may_change=self.may_change)
        return Answer(actions.stop, actions.log, changes, state)

    def _drop(self, event: Mapping[str, Any], what: str, error: Exception | None = None) -> Answer:
        """Call this callback no more, and say so."""
        where = f"{event['kind']} at {int(event['data']['env_steps']):,} steps"
        self.failed = f"the callback `{self.shown}` {what} ({where})"
        if self.config.supervision.strict:
            fault = TopologyError(self.failed, hint="without supervision.strict the run goes on without this callback")
            fault.permanent = True
            raise fault from error
        advice = "the run goes on without it and is not exact; a resumed run calls it again"
        steps = int(event["data"]["env_steps"])
        details = {"warning": CALLBACK_FAILED, "cause": self.failed, "advice": advice}
        self.note(WARNING, f"{CALLBACK_FAILED}: {self.failed}; {advice}", **details, steps=steps)
        return Answer(state=pack({"failed": self.failed}))

    def _name_lost(self) -> None:
        """Say once which attributes a restart does not keep."""
        if self.lost:
            names = ", ".join(f"`{name}`" for name in self.lost)
            text = f"{names} of the callback `{self.shown}` is no plain data: a restart or resume makes it anew"
            self.note("callback", text)
            self._name_lost = lambda: None  # type: ignore[method-assign]

    async def teardown(self) -> None:
        """Call `on_end` of a run that is stopped from outside, and leave an object of another process."""
        await self._end()
        if isinstance(self.callback, ForwardingCallback):
            self.callback.close()

    async def _end(self) -> None:
        if self.has_ended or self.failed or not self.last or "on_end" not in self.entry.handlers:
            return
        data = {**self.last, "reason": "", "finished": False}
        try:
            await self._run(lambda: self._call("end", data), END_LIMIT_S)
        except Exception as error:
            self.log.warning("on_end of `%s`: %s", self.entry.name, _text(error))


def _text(error: Exception) -> str:
    """Return the error in one line, with the line of user code that raised it."""
    return " ".join(str(error).split()) if isinstance(error, HiveError) else explained(error)
