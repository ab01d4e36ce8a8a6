"""A topology of one's own, and a script that runs it: what a user writes who has no environment at all."""

from __future__ import annotations

import asyncio
import os

import hive


class Number(hive.Message):
    value: int


class Counter(hive.Actor):
    numbers = hive.Outlet(Number)

    def __init__(self, amount: int = 10) -> None:
        self.amount = amount

    async def run(self) -> None:
        for value in range(self.amount):
            await self.numbers.send(Number(value))


class Sum(hive.Actor):
    numbers = hive.Inlet(Number)

    def __init__(self, amount: int = 10) -> None:
        self.amount = amount

    async def run(self) -> None:
        total = 0
        for _ in range(self.amount):
            total += (await self.numbers.receive()).value
        self.end_run(f"the sum is {total}")


def topology(config: hive.Config) -> hive.Topology:
    t = hive.Topology()
    counter, total = t.add(Counter), t.add(Sum)
    t.connect(counter.numbers, total.numbers)
    return t


class Idler(hive.Actor):
    """Awaits what hive knows nothing of, for longer than an actor may be without progress; and another only answers."""

    def __init__(self, number: hive.Handle) -> None:
        self.number = number

    async def run(self) -> None:
        await asyncio.sleep(1.5)
        self.end_run(f"the number is {await self.number.tell()}")


class Teller(hive.Actor):
    @hive.endpoint
    async def tell(self) -> int:
        return 7


def idle(config: hive.Config) -> hive.Topology:
    t = hive.Topology()
    t.add(Idler, number=t.add(Teller).handle())
    return t


class Placed(hive.Actor):
    async def run(self) -> None:
        import torch

        cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
        self.end_run(f"{self.device} on {cores} with {torch.get_num_threads()}")


def placed(config: hive.Config) -> hive.Topology:
    t = hive.Topology()
    t.add(Placed, cores=[max(os.sched_getaffinity(0))], threads=1, device="cuda:1")
    return t


def no_topology(config: hive.Config) -> int:
    return 3


def raises(config: hive.Config) -> hive.Topology:
    raise KeyError("mine")


if __name__ == "__main__":
    hundred = {"amount": 100}
    print(hive.run(topology, quiet=True).stop_reason)
    print(hive.run(topology, {"custom": {"counter": hundred, "sum": hundred}}, quiet=True).stop_reason)
    print(hive.run(lambda config: topology(config), inline=True, name="here").stop_reason)
    try:
        hive.run(no_topology, quiet=True)
    except hive.errors.HiveError as error:
        print(error)
