#!/usr/bin/env python3
"""The ways that `bench channel` compares, each between two processes: `channel_ways.py WAY SECONDS` measures one.

    arrays/...   1 MB arrays, copied into shared memory by one process and out of it by the other; GB of arrays a second
    small/...    messages of an integer and a float; messages a second
    call/...     a call with an integer and its reply; the median of the round trips, in microseconds

The last line is a JSON object with `rate`, and for calls also `p50_us`. The ways that are not hive's do the bare
minimum: no supervision, no accounts, no check of messages.
"""

from __future__ import annotations

import json
import mmap
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgpack
import numpy as np
import uvloop
import zmq
import zmq.asyncio

import hive

MB, SLOTS = 1 << 20, 8
BATCH, WINDOW = 1000, 4000  # small messages per batch, and messages that may be in flight
WARM = 200  # round trips before the measured ones
PICTURE = hive.Layout({"data": ("uint8", (MB,))})


# --- hive


class Picture(hive.Message):
    """Arrays that are written and read in place."""


class Number(hive.Message):
    value: int
    score: float


class Artist(hive.Actor):
    pictures = hive.SlotOutlet(Picture)

    async def run(self) -> None:
        drawn = np.ones(MB, np.uint8)
        while True:
            slot = await self.pictures.reserve()
            np.copyto(slot.arrays["data"], drawn)
            self.pictures.commit(slot)


class Viewer(hive.Actor):
    pictures = hive.SlotInlet(Picture)

    def __init__(self, seconds: float = 1.0) -> None:
        self.seconds = seconds

    async def run(self) -> None:
        clock, count, copy = _Clock(self.seconds), 0, np.empty(MB, np.uint8)
        while not clock.over():
            slot = await self.pictures.claim()
            np.copyto(copy, slot.arrays["data"])
            self.pictures.retire(slot)
            count += 1
        self.end_run(json.dumps({"rate": count * MB / clock.took / 1e9}))


class Counter(hive.Actor):
    numbers = hive.Outlet(Number)

    def __init__(self, batch: int = BATCH) -> None:
        self.batch = batch

    async def run(self) -> None:
        while True:
            await self.numbers.send_many([Number(value, 0.5) for value in range(self.batch)])


class Adder(hive.Actor):
    numbers = hive.Inlet(Number)

    def __init__(self, seconds: float = 1.0, batch: int = BATCH) -> None:
        self.seconds, self.batch = seconds, batch

    async def run(self) -> None:
        seen, count = _Clock(self.seconds), 0
        while not seen.over():
            count += len(await self.numbers.receive_many(self.batch))
        self.end_run(json.dumps({"rate": count / seen.took}))


class Echo(hive.Actor):
    @hive.endpoint
    async def echo(self, value: int) -> int:
        return value


class Asker(hive.Actor):
    def __init__(self, echo: hive.Handle, seconds: float = 1.0) -> None:
        self.echo, self.seconds = echo, seconds

    async def run(self) -> None:
        async def ask(value: int) -> None:
            await self.echo.echo(value)

        self.end_run(json.dumps(await _round_trips(ask, self.seconds)))


def arrays(config: hive.Config) -> hive.Topology:
    t = hive.Topology()
    artist, viewer = t.add(Artist), t.add(Viewer)
    t.connect(artist.pictures, viewer.pictures, hive.Slots(PICTURE, SLOTS))
    return t


def small(config: hive.Config) -> hive.Topology:
    t = hive.Topology()
    counter, adder = t.add(Counter), t.add(Adder)
    t.connect(counter.numbers, adder.numbers, hive.Messages(window=WINDOW))
    return t


def call(config: hive.Config) -> hive.Topology:
    t = hive.Topology()
    t.add(Asker, echo=t.add(Echo).handle())
    return t


def _by_hive(topology: Callable[[hive.Config], hive.Topology], **custom: dict[str, Any]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HIVE_HOME"] = folder
        summary = hive.run(topology, {"custom": custom}, quiet=True)
        found: dict[str, float] = json.loads(summary.stop_reason)
        return found


# --- bare


class _Clock:
    """Counts `seconds` from the first call of `over`, because the other process may still be starting before that."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.start = 0.0
        self.took = 0.0

    def over(self) -> bool:
        now = time.perf_counter()
        self.start = self.start or now
        self.took = now - self.start
        return self.took >= self.seconds


async def _round_trips(ask: Callable[[int], Any], seconds: float) -> dict[str, float]:
    for value in range(WARM):
        await ask(value)
    clock, times = _Clock(seconds), list[int]()
    while not clock.over():
        begun = time.perf_counter_ns()
        await ask(len(times))
        times.append(time.perf_counter_ns() - begun)
    return {"rate": len(times) / clock.took, "p50_us": statistics.median(times) / 1e3}


@contextmanager
def _child(work: Callable[[], None]) -> Iterator[None]:
    """Run `work` in a forked process, which is killed at the end of the block."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(1)
    try:
        yield
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def _rate(receive: Callable[[], float], seconds: float) -> dict[str, float]:
    """Call `receive` for some seconds; return the sum of its amounts a second."""
    clock, total = _Clock(seconds), 0.0
    while not clock.over():
        total += receive()
    return {"rate": total / clock.took}


def bare_ring(seconds: float) -> dict[str, float]:
    """Measure a ring buffer of slots with two counters and both sides spinning: the limit of the memory itself."""
    shared = mmap.mmap(-1, (SLOTS + 1) * MB)
    words = np.frombuffer(shared, np.int64, 16)  # [0] slots written, [8] slots read: 64 bytes apart, two cache lines
    slots = np.frombuffer(shared, np.uint8, SLOTS * MB, offset=MB).reshape(SLOTS, MB)

    def write() -> None:
        drawn, count = np.ones(MB, np.uint8), 0
        while True:
            while count - words[8] >= SLOTS:
                os.sched_yield()
            np.copyto(slots[count % SLOTS], drawn)
            count += 1
            words[0] = count

    copy = np.empty(MB, np.uint8)

    def read() -> float:
        count = int(words[8])
        while words[0] <= count:
            os.sched_yield()
        np.copyto(copy, slots[count % SLOTS])
        words[8] = count + 1
        return MB / 1e9

    with _child(write):
        return _rate(read, seconds)


def zmq_stream(item: Any, amount: Callable[[Any], float], seconds: float) -> dict[str, float]:
    """Measure PUSH to PULL over ipc, one frame per message, blocking on both sides. item: an array, or a small message.

    amount: what one received frame counts for.
    """
    with tempfile.TemporaryDirectory() as folder:

        def push() -> None:
            socket = zmq.Context().socket(zmq.PUSH)
            socket.connect(f"ipc://{folder}/socket")
            while True:
                socket.send(item.data if isinstance(item, np.ndarray) else msgpack.packb(item))

        with _child(push):
            inbox = zmq.Context().socket(zmq.PULL)
            inbox.bind(f"ipc://{folder}/socket")
            rate = _rate(lambda: amount(inbox.recv()), seconds)
            inbox.close(linger=0)
            return rate


def queue_stream(item: Any, amount: Callable[[Any], float], seconds: float) -> dict[str, float]:
    """Measure multiprocessing.Queue. item, amount: see `zmq_stream`."""
    queue: multiprocessing.Queue[Any] = multiprocessing.get_context("fork").Queue(WINDOW)

    def put() -> None:
        while True:
            queue.put(item)

    with _child(put):
        return _rate(lambda: amount(queue.get()), seconds)


def _unpacked(frame: bytes) -> float:
    msgpack.unpackb(frame)
    return 1.0


def zmq_call(seconds: float) -> dict[str, float]:
    """Measure a ping-pong of zmq.asyncio sockets on uvloop."""

    async def answer(folder: str) -> None:
        socket = zmq.asyncio.Context().socket(zmq.REP)
        socket.connect(f"ipc://{folder}/socket")
        while True:
            await socket.send(await socket.recv())

    async def asked(folder: str) -> dict[str, float]:
        context = zmq.asyncio.Context()
        socket = context.socket(zmq.REQ)
        socket.bind(f"ipc://{folder}/socket")

        async def ask(value: int) -> None:
            await socket.send(msgpack.packb(value))
            msgpack.unpackb(await socket.recv())

        try:
            return await _round_trips(ask, seconds)
        finally:
            context.destroy(linger=0)

    with tempfile.TemporaryDirectory() as folder, _child(lambda: uvloop.run(answer(folder))):
        return uvloop.run(asked(folder))


DRAWN, SMALL = np.ones(MB, np.uint8), (7, 0.5)

WAYS: dict[str, Callable[[float], dict[str, float]]] = {
    "arrays/hive": lambda s: _by_hive(arrays, viewer={"seconds": s}),
    "arrays/bare ring": bare_ring,
    "arrays/pyzmq": lambda s: zmq_stream(DRAWN, lambda frame: len(frame) / 1e9, s),
    "arrays/multiprocessing.Queue": lambda s: queue_stream(DRAWN, lambda item: item.nbytes / 1e9, s),
    "small/hive": lambda s: _by_hive(small, adder={"seconds": s}),
    "small/hive, one by one": lambda s: _by_hive(small, adder={"seconds": s, "batch": 1}, counter={"batch": 1}),
    "small/pyzmq": lambda s: zmq_stream(SMALL, _unpacked, s),
    "small/multiprocessing.Queue": lambda s: queue_stream(SMALL, lambda item: 1.0, s),
    "call/hive": lambda s: _by_hive(call, asker={"seconds": s}),
    "call/zmq.asyncio": zmq_call,
}

if __name__ == "__main__":
    print(json.dumps(WAYS[sys.argv[1]](float(sys.argv[2]))))
