"""Watching: finds the stopped and the stuck, and has them killed, for only then is their death confirmed.

What is slow or wasted it puts into the diary (hive.runtime.diagnostics).

    stopped     in state T, by a look at /proc
    stuck       neither progress nor pulse on its status page for `phase_limit_s`, while it does not wait for others

A slow environment makes progress at every step; one that waits for others, or awaits something that hive knows nothing
of while its event loop runs, is not judged.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hive.runtime.accounting import channel_accounts
from hive.runtime.diagnostics import Notice, Notices
from hive.runtime.status import read_status

if TYPE_CHECKING:
    from hive.runtime.membership import ProcessRecord
    from hive.runtime.supervisor import Supervisor

__all__ = ["WATCH_S", "watch"]

WATCH_S = 0.25  # a stopped process is found within half a second
ACCOUNTS_LOOKS = 20  # every so many looks the accounts are read, too: they take longer, and wait for nobody


async def watch(supervisor: Supervisor) -> None:
    """Looks at every process of the run until it is cancelled."""
    notices = Notices()
    for look in itertools.count():
        await asyncio.sleep(WATCH_S)
        for name in supervisor.processes.stopped():
            if supervisor.table[name].alive:
                supervisor.kill(supervisor.table[name], "it was stopped (SIGSTOP) and so was killed")
        await _see_actors(supervisor, notices)
        if look % ACCOUNTS_LOOKS == ACCOUNTS_LOOKS - 1:
            accounts = channel_accounts(supervisor.plan, supervisor.memory.views, supervisor.pages)
            _tell(supervisor, notices.of_channels(accounts, supervisor.clock.now_ns()))


async def _see_actors(supervisor: Supervisor, notices: Notices) -> None:
    """Kills the stuck, and tells what is slow."""
    limit_s, now_ns = supervisor.settings.phase_limit_s, supervisor.clock.now_ns()
    for process in [*supervisor.table.values()]:
        for actor in process.actors if process.alive and not process.why else ():
            status = read_status(supervisor.pages, actor)
            if process.opened(status):
                _tell(supervisor, notices.of_actor(status, now_ns))
            stuck_s = process.stuck_s(status, supervisor.machines[actor].state, now_ns)
            if stuck_s > limit_s:
                await _kill(supervisor, process, status.phase or "start", stuck_s)
                break


async def _kill(supervisor: Supervisor, process: ProcessRecord, where: str, stuck_s: float) -> None:
    if process.listening:  # where it is stuck is known only while it lives
        incarnation = process.incarnation
        process.stack = (await supervisor.processes.stacks([process.name])).get(process.name, "")
        if process.incarnation != incarnation or not process.alive:
            return  # it has died meanwhile
    supervisor.kill(process, f"no progress in `{where}` for {stuck_s:.0f} s and so was killed")


def _tell(supervisor: Supervisor, notices: Sequence[Notice]) -> None:
    for notice in notices:  # into the diary only: the last events of a report are those that led to a death
        supervisor.journal.event(notice.kind, notice.text, {"actor": notice.actor} if notice.actor else {})
