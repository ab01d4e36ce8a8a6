"""Runs inside a running event loop: blocking, awaited at the same time, cancelled, and of a notebook's cells."""

from __future__ import annotations

import asyncio
import linecache
from pathlib import Path

from own_topology import topology

import hive

CELL = Path(__file__).with_name("own_topology.py").read_text().partition("if __name__")[0]


def cell() -> dict[str, object]:
    """Execute a cell as IPython does, and return its namespace."""
    linecache.cache["/tmp/ipykernel_7/1.py"] = (len(CELL), None, CELL.splitlines(keepends=True), "")
    namespace: dict[str, object] = {"__name__": "__main__"}
    exec(compile(CELL, "/tmp/ipykernel_7/1.py", "exec", dont_inherit=True), namespace)
    return namespace


async def cancelled() -> str:
    run = asyncio.create_task(hive.train_async({"env": {"id": "CartPole-v1"}}, name="endless", quiet=True))
    await asyncio.sleep(0)  # lets the call begin
    run.cancel()
    try:
        await run
    except asyncio.CancelledError:
        return "cancelled"
    return "not cancelled"


async def main() -> None:
    hundred = {"custom": {"counter": {"amount": 100}, "sum": {"amount": 100}}}
    print(hive.run(topology, quiet=True).stop_reason)
    runs = await asyncio.gather(hive.run_async(topology, hundred), hive.run_async(topology, quiet=True))
    print(*(run.stop_reason for run in runs))
    print(hive.run(cell()["topology"], quiet=True).stop_reason)  # type: ignore[arg-type]
    print(await cancelled())


if __name__ == "__main__":
    asyncio.run(main())
