"""A topology whose fork server is stopped once, when it has forked a successor of worker-0 and not said so yet.

The file named in STOPPED_ONCE says that it has happened. The workers send to each other what only a process can send
that has been told of the others.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import hive
from hive.runtime.process import fork_server


class Number(hive.Message):
    value: int


class Worker(hive.Actor):
    numbers = hive.Outlet(Number)

    async def run(self) -> None:
        value = 0
        while True:
            await self.numbers.send(Number(value))
            self.status.count("sent")
            value += 1
            await asyncio.sleep(0.05)


class Sink(hive.Actor):
    numbers = hive.Inlet(Number)

    async def run(self) -> None:
        async for _ in self.numbers:
            pass


def topology(config: hive.Config) -> hive.Topology:
    topology = hive.Topology()
    workers, sink = topology.add(Worker, count=1), topology.add(Sink)
    topology.connect(workers.numbers, sink.numbers)
    if not Path(os.environ["STOPPED_ONCE"]).exists():
        _stop_after_a_fork()
    return topology


def _stop_after_a_fork() -> None:
    real = fork_server._Server._fork_twice

    def fork_twice(self: fork_server._Server, request: fork_server.Fork) -> int:
        pid = real(self, request)
        if (request.process, request.incarnation) == ("worker-0", 1):
            Path(os.environ["STOPPED_ONCE"]).touch()
            os.kill(os.getpid(), signal.SIGSTOP)
        return pid

    fork_server._Server._fork_twice = fork_twice  # type: ignore[method-assign]
