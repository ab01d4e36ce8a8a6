"""A relay of tcp connections that delays, stalls or parts them, where the kernel has no `tc netem`.

    async with relay(port, delay_s=0.01) as link:
        ...                       # connect to link.port instead
        link.parted = True        # nothing is carried, and no end is told, as when a cable is pulled

Each direction is delayed by `delay_s`. A lost packet of tcp shows as a stall until it is sent again, so `loss` is the
share of portions after which the direction stalls for RESEND_S, the least time that Linux waits for an acknowledgement.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

__all__ = ["Relay", "RunningRelay", "relay", "relay_in_thread"]

RESEND_S = 0.2
PORTION = 1 << 16
POLL_S = 0.01


class Relay:
    def __init__(self, target: int, delay_s: float, loss: float, seed: int) -> None:
        self.target = target
        self.delay_s = delay_s
        self.loss = loss
        self.chance = random.Random(seed)
        self.parted = False
        self.port = 0
        self.connections = 0
        self.writers: set[asyncio.StreamWriter] = set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            there_reader, there = await asyncio.open_connection("127.0.0.1", self.target)
            self.writers |= {writer, there}
            await asyncio.gather(self.carry(reader, there), self.carry(there_reader, writer))
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[tuple[float, bytes]](maxsize=1000)
        sending = asyncio.ensure_future(self.send(queue, writer))
        try:
            due = 0.0
            while data := await reader.read(PORTION):
                stall = RESEND_S if self.chance.random() < self.loss else 0.0
                due = max(due, loop.time() + self.delay_s) + stall
                await queue.put((due, data))
            await queue.put((due, b""))
            await sending
        except OSError:
            sending.cancel()
        finally:
            writer.close()

    async def send(self, queue: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, data = await queue.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            while self.parted:
                await asyncio.sleep(POLL_S)
            if not data:
                return
            writer.write(data)
            await writer.drain()

    def break_off(self) -> None:
        """Break all connections; new ones are accepted."""
        for writer in self.writers:
            writer.transport.abort()
        self.writers.clear()


@asynccontextmanager
async def relay(target: int, *, delay_s: float = 0.0, loss: float = 0.0, seed: int = 1) -> AsyncIterator[Relay]:
    link = Relay(target, delay_s, loss, seed)
    server = await asyncio.start_server(link.accept, "127.0.0.1", 0)
    link.port = server.sockets[0].getsockname()[1]
    try:
        yield link
    finally:
        server.close()
        link.break_off()


@dataclass
class RunningRelay:
    """A relay in a thread of its own."""

    relay: Relay
    loop: asyncio.AbstractEventLoop

    def call(self, function: Callable[[], None]) -> None:
        self.loop.call_soon_threadsafe(function)


@contextmanager
def relay_in_thread(target: int, *, delay_s: float = 0.0, loss: float = 0.0) -> Iterator[RunningRelay]:
    ready, over = threading.Event(), asyncio.Event()
    made: list[RunningRelay] = []

    async def serve() -> None:
        async with relay(target, delay_s=delay_s, loss=loss) as link:
            made.append(RunningRelay(link, asyncio.get_running_loop()))
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(10.0)
    try:
        yield made[0]
    finally:
        made[0].call(over.set)
        thread.join(10.0)
