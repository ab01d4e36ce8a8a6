"""A topology of one's own, and a script that runs it: what a user writes who has no environment at all."""

from __future__ import annotations

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
