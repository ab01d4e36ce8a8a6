"""Requests to a program and its answers, one after the other, over a connection.

Each method is a generator: it yields the event of `select.poll` that it waits for, and may be resumed at any time. So
the caller alone decides how long to wait. An answer is read as a whole and checked before anything uses it.
"""

from __future__ import annotations

import select
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hive.envs.context import EnvContext
from hive.envs.external.batches import NAME_BYTES, Batches, array_of, flags_of
from hive.envs.external.frames import Connection, Misbehaved, packed
from hive.envs.external.hello import VERSION, Hello, check_version, read_hello
from hive.errors import EnvironmentFailed
from hive.printable import printable

HELLO_BYTES = 1 << 20  # of the answer to `hello`, and of a request with options
ANSWER_BYTES = 8192  # of an answer without its arrays: names of fields, or the text of an error
MOST_PIXELS = 1 << 22  # of a rendered image: 2048 x 2048
SHOWN = 1000  # characters of a program's error in hive's

T = TypeVar("T")
Waiting = Generator[int, None, T]
"""Yields POLLIN or POLLOUT, and returns a T."""


@dataclass(frozen=True)
class Answer:
    """The checked answer to `step`: arrays [B, ...]. info: name -> [B], NaN where an environment has no value."""

    observations: Any
    rewards: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    info: Mapping[str, NDArray[np.float32]]


class Conversation:
    """Everything that hive says to one program. Raises Misbehaved; the connection is of no use then."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._number = 0
        self._said: Hello | None = None
        self._observations: Batches | None = None
        self._actions: Batches | None = None

    def hello(
        self, contexts: Sequence[EnvContext], options: Sequence[Mapping[str, Any]], secret: str
    ) -> Waiting[Hello]:
        """Ask for the spaces of the environments of these contexts."""
        fields = {
            "count": len(contexts),
            "indices": [context.index for context in contexts],
            "seeds": [context.seed for context in contexts],
            "incarnation": contexts[0].incarnation,
            "run": contexts[0].run,
            "options": [dict(one) for one in options],
        }
        answer = yield from self._ask("hello", fields, HELLO_BYTES)
        said = read_hello(answer, len(contexts), secret)
        self._said = said
        self._observations = Batches(said.observation, "observations")
        self._actions = Batches(said.action, "actions")
        return said

    def reset(
        self, which: Sequence[int], seeds: Sequence[int] | None, options: Sequence[Mapping[str, Any]]
    ) -> Waiting[Any]:
        """Begin an episode in the environments `which`; return their first observations, arrays [n, ...].

        seeds: None to continue with their own generators.
        """
        fields = {
            "which": [*which],
            "seeds": None if seeds is None else [int(seed) for seed in seeds],
            "options": [dict(one) for one in options],
        }
        observations = self._known(self._observations)
        answer = yield from self._ask("reset", fields, ANSWER_BYTES + observations.limit(len(which)), {"observations"})
        return observations.read(answer.get("observations"), len(which))

    def step(self, actions: Any) -> Waiting[Answer]:
        """Step every environment with actions [B, ...] as the space has them."""
        said, observations = self._known(self._said), self._known(self._observations)
        count = said.count
        fields = {"actions": self._known(self._actions).written(actions)}
        limit = ANSWER_BYTES + observations.limit(count) + 6 * count + len(said.info) * (NAME_BYTES + 4 * count)
        known = {"observations", "rewards", "terminated", "truncated", "info"}
        answer = yield from self._ask("step", fields, limit, known)
        return Answer(
            observations.read(answer.get("observations"), count),
            array_of(answer.get("rewards"), np.dtype("<f4"), (count,), "rewards"),
            flags_of(answer.get("terminated"), count, "terminated"),
            flags_of(answer.get("truncated"), count, "truncated"),
            _info(answer.get("info"), said.info, count),
        )

    def render(self, environment: int) -> Waiting[NDArray[np.uint8]]:
        """Return an image of one environment, uint8 [height, width, 3]."""
        limit = ANSWER_BYTES + 3 * MOST_PIXELS
        answer = yield from self._ask("render", {"environment": environment}, limit, {"height", "width", "pixels"})
        height, width = answer.get("height"), answer.get("width")
        sizes = all(type(size) is int and size > 0 for size in (height, width))
        if not sizes or height * width > MOST_PIXELS:  # type: ignore[operator]
            sent = printable(f"{height!r} x {width!r}", 60)
            raise Misbehaved(f"sent an image of {sent} pixels, expected at most {MOST_PIXELS:,}")
        shape: tuple[int, ...] = (height, width, 3)  # type: ignore[assignment]
        return array_of(answer.get("pixels"), np.dtype("|u1"), shape, "pixels")

    def close(self) -> Waiting[None]:
        """Ask it to close its environments; it closes the connection after its answer, and exits if hive started it."""
        yield from self._ask("close", {}, ANSWER_BYTES, set())

    def _ask(
        self, request: str, fields: Mapping[str, Any], limit: int, known: set[str] | None = None
    ) -> Waiting[Mapping[str, Any]]:
        """Send a request and return the fields of its answer. known: those that it may have; None: that of hello."""
        number, self._number = self._number, self._number + 1
        version = {"version": VERSION} if request == "hello" else {}
        try:
            message = packed({**version, "request": request, "number": number, **fields})
        except (TypeError, OverflowError) as error:
            raise EnvironmentFailed(
                f"env.options or env.reset_options have values that a program cannot be told: {error}",
                hint="use numbers, texts, arrays and tables",
                permanent=True,
            ) from None
        if request != "step" and len(message) > HELLO_BYTES:
            raise Misbehaved(f"would get options of {len(message):,} bytes, at most {HELLO_BYTES:,} are allowed")
        connection = self.connection
        connection.order(message)
        while not connection.flush():
            yield select.POLLOUT
        while (answer := connection.receive(limit)) is None:
            yield select.POLLIN
        if known is None:
            check_version(answer)
        if type(answer.get("number")) is not int or answer["number"] != number:
            got = printable(repr(answer.get("number")), 20)
            raise Misbehaved(f"answered request {got}, and hive had sent request {number} ({request})")
        if "error" in answer:
            raise Misbehaved(f"failed in {request}: {_text(answer['error'])}")
        if known is not None and (unknown := answer.keys() - known - {"number"}):
            raise Misbehaved(f"sent an answer to {request} with the unknown field `{printable(min(unknown), 60)}`")
        return answer

    @staticmethod
    def _known(value: T | None) -> T:
        assert value is not None, "hello comes first"
        return value


def _info(info: Any, names: Sequence[str], count: int) -> dict[str, NDArray[np.float32]]:
    if info is None:
        return {}
    if not isinstance(info, dict):
        raise Misbehaved(f"sent `info` as {type(info).__name__}, expected a map")
    if unknown := info.keys() - {*names}:
        raise Misbehaved(f"sent `info` with `{printable(min(unknown), 60)}`, which its answer to hello does not name")
    arrays = {name: array_of(value, np.dtype("<f4"), (count,), f"info.{name}") for name, value in info.items()}
    if endless := [name for name, array in arrays.items() if np.isinf(array).any()]:
        raise Misbehaved(f"sent `info.{endless[0]}` with inf in it, expected numbers, or NaN for none")
    return arrays


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else f"an error that is {type(value).__name__}, not a text"
    return printable(" ".join(text.split()), SHOWN) or "an error without a text"
