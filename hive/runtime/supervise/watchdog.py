"""Find processes that are stopped or stuck and kill them, because only a killed process has a confirmed exit.

    stopped     in state T according to /proc
    stuck       neither progress nor pulse on its status page for `phase_limit_s`, and not waiting for other actors

A slow environment makes progress at every step. An actor that waits for others, or whose event loop runs while it
awaits a timer, a subprocess or a call, is never considered stuck. The watchdog also logs slow environments and
wasted messages (hive.runtime.supervise.diagnostics).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hive.runtime.memory.status import read_status
from hive.runtime.supervise.accounting import channel_accounts
from hive.runtime.supervise.diagnostics import Diagnostic, Diagnostics

if TYPE_CHECKING:
    from hive.runtime.supervise.membership import ProcessRecord
    from hive.runtime.supervise.supervisor import Supervisor

__all__ = ["WATCH_S", "watch"]

WATCH_S = 0.25  # interval between checks: a stopped process is found within half a second
ACCOUNTS_EVERY = 20  # checks between two reads of the accounts, which take longer and are only needed for diagnostics


async def watch(supervisor: Supervisor) -> None:
    """Check every process of the run until cancelled."""
    diagnostics = Diagnostics()
    for check in itertools.count():
        await asyncio.sleep(WATCH_S)
        for name in supervisor.processes.stopped():
            if supervisor.table[name].alive:
                supervisor.kill(supervisor.table[name], "it was stopped (SIGSTOP) and so was killed")
        await _check_actors(supervisor, diagnostics)
        if check % ACCOUNTS_EVERY == ACCOUNTS_EVERY - 1:
            accounts = channel_accounts(supervisor.plan, supervisor.memory)
            _log(supervisor, diagnostics.of_channels(accounts, supervisor.clock.now_ns()))


async def _check_actors(supervisor: Supervisor, diagnostics: Diagnostics) -> None:
    """Kill stuck processes and log slow environments."""
    limit_s, now_ns = supervisor.settings.phase_limit_s, supervisor.clock.now_ns()
    for process in [*supervisor.table.values()]:
        for actor in process.actors if process.alive and not process.why else ():
            status = read_status(supervisor.pages, actor)
            if process.owns_page(status):
                _log(supervisor, diagnostics.of_actor(status, now_ns))
            stuck_s = process.stuck_s(status, supervisor.machines[actor].state, now_ns)
            if stuck_s > limit_s:
                await _kill(supervisor, process, status.phase or "start", stuck_s)
                break


async def _kill(supervisor: Supervisor, process: ProcessRecord, where: str, stuck_s: float) -> None:
    if process.listening:  # it can write its stacks only while it runs, so read them before the kill
        incarnation = process.incarnation
        process.stack = (await supervisor.processes.stacks([process.name])).get(process.name, "")
        if process.incarnation != incarnation or not process.alive:
            return  # it exited while its stacks were read
    supervisor.kill(process, f"no progress in `{where}` for {stuck_s:.0f} s and so was killed")


def _log(supervisor: Supervisor, found: Sequence[Diagnostic]) -> None:
    # To the journal, not `supervisor.event`: diagnostics would displace the events that explain a crash in its report.
    for entry in found:
        supervisor.journal.event(entry.kind, entry.text, {"actor": entry.actor} if entry.actor else {})
