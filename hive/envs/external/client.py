"""A program that hive has started or connected to: orders, which the caller waits for in steps, and its end."""

from __future__ import annotations

import secrets
import select
import socket
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn, Protocol

from hive.envs.context import EnvContext, filled
from hive.envs.external.address import Address, is_connected
from hive.envs.external.conversation import Conversation
from hive.envs.external.frames import Closed, Connection, Misbehaved, Reset
from hive.envs.external.hello import Hello
from hive.envs.external.process import Listener, ProgramProcess
from hive.envs.processes.ending import new_mark
from hive.envs.processes.output import Output
from hive.envs.processes.stepper import Activity, Doing
from hive.envs.recipe import Recipe
from hive.errors import EnvironmentFailed

PAUSE = 0  # yielded instead of an event of poll: try again after PAUSE_S
PAUSE_S = 0.01  # between two attempts to connect
EXIT_S = 0.5  # time for the exit of a program that has closed its connection: its status explains more
OUTPUT_S = 0.1  # interval between two looks at the size of its output
SECRET_BYTES = 16
LISTEN, CONNECT, SECRET = "HIVE_ENV_LISTEN", "HIVE_ENV_ADDRESS", "HIVE_ENV_SECRET"  # variables of a program
DURING = {"start": "before it had answered hello", "reset": "in reset", "step": "in step"}


class _Pollable(Protocol):
    def fileno(self) -> int: ...


class ProgramClient:
    """One program with its conversation. An order is a generator, as in `Conversation`; one is open at a time.

    output: the file for what it prints; None: in memory. After a failure no order may be given; after `end`, `start`
    starts it again.
    """

    def __init__(self, recipe: Recipe, *, output: Path | None = None) -> None:
        self.id = recipe.id
        self.said: Hello | None = None
        self._recipe = recipe
        self._file = output
        self._output: Output | None = None
        self._process: ProgramProcess | None = None
        self._listener: Listener | None = None
        self._connecting: socket.socket | None = None
        self._conversation: Conversation | None = None
        self._work: Generator[int, None, None] | None = None
        self._event = PAUSE
        self._failure: EnvironmentFailed | None = None
        self._doing = Doing("start", None, time.monotonic_ns())
        self._tail = ""
        self._looked_s = 0.0

    def start(self, contexts: Sequence[EnvContext]) -> None:
        """Start the program, or begin to connect to it, and ask it for the spaces of these environments."""
        self._failure, self._tail, self.said = None, "", None
        self._output = Output(self._file)
        self.order("start", lambda: self._start(contexts))

    def done(self, limit_s: float) -> bool:
        """Wait at most `limit_s` for the end of the open order; return whether it ended. Raises EnvironmentFailed."""
        until_s = time.monotonic() + limit_s
        while True:
            if self._advance():
                return True
            left_s = until_s - time.monotonic()
            has_exited = self._wait(max(left_s, 0.0))
            if has_exited and not self._advance():  # all that it had sent has been read by then
                self._fail(self._ending())
            if left_s <= 0 and not has_exited:
                return False

    def left(self, limit_s: float) -> bool:
        """Return whether nothing is to be waited for after an error: a program that fails is not asked to close."""
        return True

    def doing(self) -> Doing:
        """Return what the open order is about now."""
        return self._doing

    def pids(self) -> Sequence[int]:
        """Return the process that was started, if any."""
        return [self._process.pid] if self._process else []

    def tail(self) -> str:
        """Return the last lines of its output."""
        return self._output.tail() if self._output else self._tail

    def change(self) -> None:
        """Do nothing: a program has no attributes."""

    def bound(self) -> None:
        """Keep its output within a size."""
        if self._output is not None:
            self._output.bound()

    def close(self, limit_s: float = 0.0) -> bool:
        """Ask it to close its environments, unless an order is open for longer than `limit_s`: return False then."""
        if self._failure is None and self._conversation is not None and self.said is not None:
            try:
                if not self.done(limit_s):
                    return False
            except EnvironmentFailed:
                return True
            self.order(self._doing.activity, self._conversation.close)
        return True

    def end(self, limit_s: float) -> None:
        """Close the connection, wait at most `limit_s` for the exit after `close`, and kill it with all it started."""
        until_s = time.monotonic() + limit_s
        try:
            self.done(limit_s)
        except EnvironmentFailed:
            pass  # it is of no interest any more
        if self._work is not None:
            self._work.close()
            self._work = None
        for end in (self._conversation and self._conversation.connection, self._listener, self._connecting):
            if end is not None:
                end.close()
        self._conversation = self._listener = self._connecting = None
        if self._process is not None:
            self._process.end(until_s - time.monotonic())
            self._process = None
        if self._output is not None:
            self._tail = self._output.tail()
            self._output.close()
            self._output = None

    def talk(self) -> Conversation:
        """Return the conversation, for the work of an order."""
        assert self._conversation is not None, "the program was started"
        return self._conversation

    def order(self, activity: Activity, work: Callable[[], Generator[int, None, None]]) -> None:
        """Begin an order. A failure is raised by `done`."""
        assert self._work is None, "one order is open at a time"
        self._doing = Doing(activity, None, time.monotonic_ns())
        self._work = work()
        try:
            self._advance()
        except EnvironmentFailed:
            pass  # `done` raises it again

    def _opened(self, said: Hello) -> None:
        """Take the answer to `hello`. Raises Misbehaved and EnvironmentFailed."""

    def _now_doing(self, activity: Activity, environment: int | None) -> None:
        self._doing = Doing(activity, environment, time.monotonic_ns())

    def _advance(self) -> bool:
        """Continue the open order as far as possible; return whether it has ended. Raises EnvironmentFailed."""
        if self._failure is not None:
            raise self._failure
        if self._work is None:
            return True
        try:
            self._event = next(self._work)
            return False
        except StopIteration:
            self._work = None
            return True
        except Closed as closed:
            self._fail(self._ending() or str(closed))
        except Misbehaved as fault:
            self._fail(str(fault), permanent=self.said is None)  # what it says of itself does not change
        except EnvironmentFailed as failure:
            self._failure = failure
            raise

    def _wait(self, left_s: float) -> bool:
        """Wait for the event of the open order; return whether the program has exited."""
        poll = select.poll()
        if self._event != PAUSE:
            waits_for = self._connecting or self._listener or self.talk().connection
            poll.register(waits_for, self._event)
        if self._process is not None:
            poll.register(self._process.pidfd, select.POLLIN)
        ready = poll.poll(1e3 * (min(left_s, PAUSE_S) if self._event == PAUSE else self._until_look(left_s)))
        return self._process is not None and any(fd == self._process.pidfd for fd, _ in ready)

    def _until_look(self, left_s: float) -> float:
        """Bound the output, if it is time; return how long to wait until the next time."""
        now_s = time.monotonic()
        if now_s - self._looked_s >= OUTPUT_S and self._output is not None:
            self._looked_s = now_s
            self._output.bound()
        return min(left_s, OUTPUT_S)

    def _ending(self) -> str:
        """Return how the program has ended, waiting for it a moment; "" if it has not."""
        if self._process is None:
            return ""
        how = self._process.exited(EXIT_S)
        return how and f"{how} {DURING[self._doing.activity]}"

    def _fail(self, how: str, *, permanent: bool = False) -> NoReturn:
        hint = "see its output" if self._process is not None else ""
        self._failure = EnvironmentFailed(f"`{self.id}` {how}", hint=hint, permanent=permanent)
        raise self._failure

    def _start(self, contexts: Sequence[EnvContext]) -> Generator[int, None, None]:
        """Start the program if env.command is given, connect with it, and read its hello."""
        recipe, context = self._recipe, contexts[0]
        address = None if recipe.connect is None else Address(str(filled(recipe.connect, context)))
        secret = secrets.token_hex(SECRET_BYTES) if recipe.command else ""
        given = {**context.variables(), SECRET: secret}
        try:
            if address is None:
                self._listener = Listener()
                given[CONNECT] = self._listener.address
            else:
                given[LISTEN] = address.text
            if recipe.command:
                self._launch(context, given)
        except OSError as error:
            raise Misbehaved(f"cannot be started: {error}") from None
        options = [recipe.at(one).options for one in contexts]
        said = None
        while said is None:
            sock = yield from (self._accept() if address is None else self._connect(address))
            self._conversation = Conversation(Connection(sock))
            try:
                said = yield from self._conversation.hello(contexts, options, secret)
            except Reset:
                if address is None:
                    raise
                self._conversation.connection.close()  # nobody listens there yet, as behind a forwarded port
                yield PAUSE
        self._opened(said)
        self.said = said

    def _launch(self, context: EnvContext, given: Mapping[str, str]) -> None:
        assert self._output is not None, "start makes it"
        command = [str(one) for one in filled(self._recipe.command, context)]
        mark = new_mark(context.index, context.incarnation)
        self._process = ProgramProcess(command, given, mark, self._output.fd)

    def _accept(self) -> Generator[int, None, socket.socket]:
        assert self._listener is not None, "start makes it"
        while (sock := self._listener.accept()) is None:
            yield select.POLLIN
        self._listener = None
        return sock

    def _connect(self, address: Address) -> Generator[int, None, socket.socket]:
        while True:
            self._connecting = sock = address.attempt()
            if sock is not None:
                poll = select.poll()  # select.select has no descriptors above 1,023
                poll.register(sock, select.POLLOUT)
                while not poll.poll(0):
                    yield select.POLLOUT
                self._connecting = None
                if is_connected(sock):
                    return sock
                sock.close()
            yield PAUSE
