"""Runs a whole topology under the real supervisor, in one process and one event loop.

    outcome = hive.testing.run_inline(topology)

Transport and process table are the in-memory ones; slots, boards, ports, nodes and the supervisor are the real ones.
With `virtual=True` time jumps to the next timer instead of passing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hive.clock import VirtualClock, VirtualLoop
from hive.runtime.run.inline_run import InlineRun
from hive.runtime.supervise.membership import Settings
from hive.runtime.supervise.outcome import Outcome
from hive.runtime.supervise.supervisor import Supervisor
from hive.runtime.topology.topology import Topology


def run_inline(
    topology: Topology,
    *,
    virtual: bool = False,
    seconds: float | None = None,
    settings: Settings | None = None,
    watch: Callable[[Supervisor], None] | None = None,
) -> Outcome:
    """Run `topology` until it ends itself, or for `seconds`, and return the outcome. Raises an actor's exception.

    `watch` receives the supervisor before it starts, for tests that inspect it or request its end.
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
