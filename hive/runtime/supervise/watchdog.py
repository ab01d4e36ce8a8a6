"""Decide which processes are stopped or stuck and must be killed, because only a killed process has a confirmed exit.

    stopped     in state T according to /proc
    stuck       neither progress nor pulse on its status page for a limit, and not waiting for other actors

The limit is `env.start_limit_s` until the actor is ready and wherever it constructs environments and resets them for
the first time (phase `start`), because simulators start in minutes; otherwise it is `supervision.phase_limit_s`.

A slow environment makes progress at every step. An actor that waits for others, or whose event loop runs while it
awaits a timer, a subprocess or a call, is never considered stuck. The watchdog also logs slow environments and
wasted messages (hive.runtime.supervise.diagnostics).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hive.runtime.memory.status import START, ActorStatus
from hive.runtime.supervise.actions import Action, Diagnose
from hive.runtime.supervise.diagnostics import Diagnostic
from hive.runtime.supervise.membership import ProcessRecord
from hive.runtime.supervise.supervisor_state import SupervisorState

WATCH_S = 0.25  # interval between checks: a stopped process is found within half a second
ACCOUNTS_EVERY = 20  # checks between two reads of the accounts, which take longer and are only needed for diagnostics


@dataclass(frozen=True)
class Stuck:
    """A process that has to be killed, after its stacks were read."""

    process: ProcessRecord
    incarnation: int
    why: str
    limit: str  # key of the limit


def kill_stopped(state: SupervisorState, names: Sequence[str]) -> list[Action]:
    """Kill the processes that the process table found in state T."""
    stopped = [state.table[name] for name in names if state.table[name].alive]
    return [process.kill("it was stopped (SIGSTOP) and so was killed") for process in stopped]


def watched(process: ProcessRecord) -> list[int]:
    """Return the actors whose pages are to be checked: none of a process that has exited or is being killed."""
    return process.actors if process.alive and not process.why else []


def slow_or_stuck(
    state: SupervisorState, process: ProcessRecord, statuses: Sequence[ActorStatus], now_ns: int
) -> tuple[list[Action], Stuck | None]:
    """Log slow environments of a process, and return it if it is stuck. `statuses`: the pages of `watched` actors."""
    found: list[Action] = []
    for actor, status in zip(watched(process), statuses, strict=True):
        if process.owns_page(status):
            found += _logged(state.diagnostics.of_actor(status, now_ns))
        stuck_s = process.stuck_s(status, state.machines[actor].state, now_ns)
        key, limit_s = process.limit_of(status, state.machines[actor].state, state.settings)
        if stuck_s > limit_s:
            phase = status.phase if process.owns_page(status) else ""
            why = f"no progress in `{phase or START}` for {stuck_s:.0f} s ({key} = {limit_s:g}) and so was killed"
            return found, Stuck(process, process.incarnation, why, key)
    return found, None


def kill_stuck(stuck: Stuck, stack: str) -> list[Action]:
    """Kill a stuck process whose stacks are `stack`, unless it exited while they were read."""
    process = stuck.process
    if process.incarnation != stuck.incarnation or not process.alive:
        return []
    process.stack, process.limit = stack, stuck.limit
    return [process.kill(stuck.why)]


def wasted(state: SupervisorState, accounts: Mapping[str, Mapping[str, Any]], now_ns: int) -> list[Action]:
    """Log channels that drop messages because they are too old."""
    return _logged(state.diagnostics.of_channels(accounts, now_ns))


def _logged(found: Sequence[Diagnostic]) -> list[Action]:
    return [Diagnose(entry.kind, entry.text, {"actor": entry.actor} if entry.actor else {}) for entry in found]
