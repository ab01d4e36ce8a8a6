"""Run the actors of one forked process: open the shared memory, run the node on uvloop, return the exit code.

Exit codes: 0 all actors are done, 1 an actor raised (its report has been sent to the supervisor).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from pathlib import Path

import uvloop

from hive import _native
from hive.clock import RealClock
from hive.records.logs import open_log
from hive.runtime.memory.segments import Bytes, Segment
from hive.runtime.process.channel_ends import NodeContext
from hive.runtime.process.node import Node
from hive.runtime.process.output import keep_output
from hive.runtime.process.stop_signals import do_nothing
from hive.runtime.process.user_code.setup import set_up
from hive.runtime.process.views import Views
from hive.runtime.topology.plan import Plan
from hive.runtime.topology.topology import Topology
from hive.runtime.wire.sockets import ZmqTransport

REMOVED_S = 1.0  # interval between two looks whether the file of the output was removed
OWN = "hive."  # begins the modules of hive's actors
LINGER_S = 1.0  # time limit for sending the last messages; the supervisor reads at once, so it takes microseconds


def host(
    topology: Topology,
    plan: Plan,
    process: str,
    incarnation: int,
    address: str,
    supervisor_address: str,
    supervisor: int,
    segments: dict[str, int],
    log_folder: Path,
    secret: bytes,
) -> int:
    """Run one process of the plan and return its exit code.

    `secret` is that of the run's sockets. `supervisor` is the supervisor's pid and `segments` maps names to its
    descriptors, which this process opens.
    """

    def open_segment(name: str) -> Bytes:
        return Segment.open(supervisor, segments[name]).memory

    def log_of(name: str) -> logging.Logger:
        return open_log(log_folder / f"{name}.log", name)

    def check_output() -> None:
        keep_output(log_folder / f"{process}.out")
        do_nothing()  # again: environments may have set handlers, and the supervisor alone ends the run
        asyncio.get_running_loop().call_later(REMOVED_S, check_output)

    async def main() -> int:
        check_output()
        transport = ZmqTransport(secret)
        context = NodeContext(
            topology=topology,
            plan=plan,
            process=process,
            incarnation=incarnation,
            pid=os.getpid(),
            address=address,
            supervisor=supervisor_address,
            dedicated=True,
            transport=transport,
            clock=RealClock(),
            pages=_native.Status(open_segment("status")),
            views=Views(plan, open_segment),
            open_log=log_of,
        )
        try:
            await Node(context).main()
        except Exception:
            logging.getLogger("hive.runtime").debug("exits after an error that was already reported", exc_info=True)
            return 1
        finally:
            transport.close(LINGER_S)
        return 0

    _prepare(topology, plan.processes[process])
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def _prepare(topology: Topology, actors: Sequence[int]) -> None:
    """Take the cores and threads of these actors; call run.setup before a user's actor is built.

    hive's own actors call it where they build what users have defined.
    """
    topology.actor_of(actors[0])[0].resources.apply()
    if not all(topology.actor_of(number)[0].cls.__module__.startswith(OWN) for number in actors):
        set_up()
