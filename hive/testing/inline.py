"""The testing kit: a whole topology in one process and one event loop, through the real supervisor.

    outcome = hive.testing.run_inline(topology)

Transport and process table are the in-memory ones; slots, boards, ports, nodes and the supervisor are the real ones.
With `virtual=True` time jumps instead of passing. What an actor raised is raised here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hive.clock import VirtualClock, VirtualLoop
from hive.runtime.inline import InlineRun
from hive.runtime.membership import Settings
from hive.runtime.outcome import Outcome
from hive.runtime.supervisor import Supervisor
from hive.runtime.topology import Topology

__all__ = ["run_inline"]


def run_inline(
    topology: Topology,
    *,
    virtual: bool = False,
    seconds: float | None = None,
    settings: Settings | None = None,
    watch: Callable[[Supervisor], None] | None = None,
) -> Outcome:
    """Runs `topology` until it ends itself, or for `seconds`; returns the outcome. Raises what an actor raised.

    `watch` is given the supervisor before it starts, for tests that look at it or ask it to end.
    """
    options = {"clock": VirtualClock, "loop_factory": VirtualLoop} if virtual else {}
    run = InlineRun(topology, settings=settings or Settings(), **options)

    def begin() -> None:
        if watch is not None:
            watch(run.supervisor)
        if seconds is not None:
            loop = asyncio.get_running_loop()
            loop.call_later(seconds, run.supervisor.request, f"{seconds:g} s are over")

    try:
        return run.finish(begin)
    finally:
        run.stop()
