"""Fuzzed answers of a program: valid conversations with changed bits, lengths, values and types, by a seed.

python tests/envs/fuzzed_programs.py 1_000_000     prints the time and the memory before and after
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
import sys
import time
from collections import Counter
from typing import Any

import msgpack
import numpy as np

from hive.envs.context import EnvContext
from hive.envs.external.conversation import Conversation, Waiting
from hive.envs.external.frames import Connection, Misbehaved
from hive.envs.external.program import Program
from hive.envs.external.specs import specs_of
from hive.envs.recipe import Recipe
from hive.envs.vectors.rows import StepRow
from hive.errors import EnvironmentFailed

CONTEXTS = [EnvContext(0), EnvContext(1)]
PARTS = {
    "camera": {"type": "box", "dtype": "uint8", "shape": [2, 2, 3], "low": 0, "high": 255},
    "speed": {"type": "box", "dtype": "float64", "shape": [2], "low": bytes(16), "high": None},
    "gear": {"type": "discrete", "n": 3, "start": -1},
    "keys": {"type": "multi_binary", "shape": [3]},
    "tiles": {"type": "multi_discrete", "nvec": [3, 2000], "start": [0, 1]},
}
SEEN = {
    "camera": bytes(range(24)),
    "speed": np.array([[0.5, 1], [2, 3]], "<f8").tobytes(),
    "gear": np.array([-1, 1], "<i8").tobytes(),
    "keys": bytes([1, 0, 1, 0, 0, 1]),
    "tiles": np.array([[1, 1], [0, 7]], "<i8").tobytes(),
}
HELLO = {
    "version": 1,
    "number": 0,
    "secret": "",
    "name": "Fuzz",
    "observation": {"type": "dict", "parts": PARTS},
    "action": {"type": "box", "dtype": "float32", "shape": [2], "low": -1.0, "high": 1.0},
    "count": 2,
    "deterministic": True,
    "max_episode_steps": 100,
    "info": ["height", "won"],
    "renders": True,
}
STEP = {
    "observations": SEEN,
    "rewards": np.ones(2, "<f4").tobytes(),
    "terminated": bytes([0, 1]),
    "truncated": bytes([1, 0]),
    "info": {"height": np.ones(2, "<f4").tobytes(), "won": np.array([np.nan, 1], "<f4").tobytes()},
}
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 255, 256, 1 << 31, (1 << 64) - 1, -(1 << 63), 0.5, float("nan"), float("inf")),
    *("", "x", "x" * 300, "\x1b[2J", "\ud800", b"", b"\0", b"\xff" * 8, bytes(24), [], [[]], [0], [1, 2], {}, {"": 0}),
    *({"type": "discrete", "n": 2}, [2**24, 2**24], {"parts": {}}, msgpack.ExtType(5, b"x"), msgpack.Timestamp(1)),
    *([[[[[[[[[[0]]]]]]]]]], {1: 2}, {b"a": 1}, ["a", "a"], "box", "dict", "float64", "int8"),
)
MOST_TEXT = 2000  # characters of an error
LENGTHS = (0, 1, 3, 0x7F, 0xFFFF, 104_857_600, 0x7FFFFFFF, 0xFFFFFFFF)


def framed(message: Any) -> bytes:
    body = msgpack.packb(message, unicode_errors="surrogatepass")
    return struct.pack("<I", len(body)) + body


def confused(value: Any, draw: random.Random) -> Any:
    """Replace, add or remove something, at any depth."""
    if isinstance(value, dict) and value and draw.random() < 0.9:
        key = draw.choice([*value])
        changed = dict(value)
        how = draw.random()
        if how < 0.08:
            del changed[key]
        elif how < 0.14:
            changed[draw.choice(["extra", "", "a" * 100, 7])] = draw.choice(ODD)
        else:
            changed[key] = confused(value[key], draw)
        return changed
    if isinstance(value, bytes) and draw.random() < 0.6:
        data = bytearray(value or b"\0")
        data[draw.randrange(len(data))] = draw.randrange(256)
        return bytes(data[: draw.choice([len(data), len(data), draw.randrange(len(data) + 1)])])
    return draw.choice(ODD)


def fuzzed(message: dict[str, Any], draw: random.Random) -> bytes:
    """Return the frame of a message, changed in one of several ways; rarely as it is."""
    how = draw.random()
    if how < 0.5:
        for _ in range(draw.choice([1, 1, 2])):
            message = confused(message, draw)
        return framed(message)
    frame = bytearray(framed(message))
    if how < 0.75:
        for _ in range(draw.choice([1, 1, 2, 8])):
            frame[draw.randrange(4, len(frame))] ^= 1 << draw.randrange(8)
    elif how < 0.85:
        del frame[draw.randrange(len(frame)) :]
    elif how < 0.92:
        frame[:4] = struct.pack("<I", draw.choice((*LENGTHS, draw.randrange(1 << 32))))
    elif how < 0.97:
        frame[4:] = draw.randbytes(draw.randrange(1, 200))
        frame[:4] = struct.pack("<I", len(frame) - 4)
    return bytes(frame)


class Fuzz:
    """Reads fuzzed answers with the reading side of hive. outcomes: how each frame ended."""

    def __init__(self, seed: int) -> None:
        self.outcomes: Counter[str] = Counter()
        self._draw = random.Random(seed)
        self._recipe = Recipe("fuzz", info=("won",))
        ours, theirs = socket.socketpair()
        self._greeted = Conversation(Connection(ours))
        said = self._read(self._greeted.hello(CONTEXTS, [{}, {}], ""), theirs, framed(HELLO))
        ours.close()
        theirs.close()
        self._specs = specs_of(self._recipe, said)
        row = StepRow.allocate(self._specs[0], 2, 1)
        self._program = Program(self._recipe, row, np.zeros((2, 2), np.float32), *self._specs)
        self._program._opened(said)
        self._program._reset_options = [{}, {}]
        self._row = row

    def one(self) -> None:
        """Read one fuzzed frame, as the answer to one of the requests."""
        ours, theirs = socket.socketpair()
        connection = Connection(ours)
        how = "read"
        try:
            with np.errstate(over="ignore"):  # of a float64 that float32 does not hold, which is refused then
                self._answer(connection, theirs)
        except (Misbehaved, EnvironmentFailed) as error:
            how, text = type(error).__name__, str(error)
            if not text.isprintable() or len(text) > MOST_TEXT:
                raise
        finally:
            connection.close()
            theirs.close()
        self.outcomes[how] += 1

    def _answer(self, connection: Connection, theirs: socket.socket) -> None:
        draw, program = self._draw, self._program
        kind = draw.choice(["hello", *["reset"] * 2, *["step"] * 5, "render"])
        talk = Conversation(connection)
        if kind == "hello":
            said = self._read(talk.hello(CONTEXTS, [{}, {}], ""), theirs, fuzzed(HELLO, draw))
            Program(self._recipe, self._row, self._program.actions, *self._specs)._opened(said)
            return
        for name in ("_said", "_observations", "_actions", "_number"):
            setattr(talk, name, getattr(self._greeted, name))
        program._conversation = talk
        self._row.finals.count = 0
        if kind == "render":
            answer: dict[str, Any] = {"number": 1, "height": 2, "width": 2, "pixels": bytes(12)}
            self._read(talk.render(0), theirs, fuzzed(answer, draw))
        elif kind == "reset":
            self._read(program._reset([1, 2]), theirs, fuzzed({"number": 1, "observations": SEEN}, draw))
        else:
            following = framed({"number": 2, "observations": SEEN})
            work = program._step()
            self._read(work, theirs, fuzzed({"number": 1, **STEP}, draw), following)

    @staticmethod
    def _read(work: Waiting[Any], theirs: socket.socket, *frames: bytes) -> Any:
        """Send an answer for each request, and then close; return what was read."""
        left = [*frames]
        try:
            while True:
                next(work)
                if left:
                    with contextlib.suppress(BlockingIOError):  # the request was read before a cut answer
                        theirs.recv(1 << 16, socket.MSG_DONTWAIT)
                    with contextlib.suppress(BrokenPipeError):
                        theirs.sendall(left.pop(0))
                else:
                    theirs.shutdown(socket.SHUT_WR)
        except StopIteration as done:
            return done.value


def resident_bytes() -> int:
    """Return the memory of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main(count: int, seed: int = 1) -> None:
    fuzz = Fuzz(seed)
    for _ in range(count // 100):
        fuzz.one()
    before, start_s = resident_bytes(), time.monotonic()
    slowest_s = 0.0
    for _ in range(count - count // 100):
        one_s = time.monotonic()
        fuzz.one()
        slowest_s = max(slowest_s, time.monotonic() - one_s)
    print(f"{count:,} frames, seed {seed}: {time.monotonic() - start_s:.0f} s, slowest {slowest_s * 1e3:.0f} ms")
    print(f"resident memory: {before / 1e6:.1f} MB after 1 %, {resident_bytes() / 1e6:.1f} MB at the end")
    print(dict(fuzz.outcomes))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
