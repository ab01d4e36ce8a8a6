"""The overview of a run: everything a view shows, as plain data, read from status pages and the supervisor's records.

Reading costs the actors nothing, and works when they hang.
"""

from __future__ import annotations

from hive.runtime.accounting import channel_accounts
from hive.runtime.messages import Tree
from hive.runtime.status import BUSY, RUNTIME, WAIT_IN, WAIT_OUT, read_status
from hive.runtime.supervisor import Supervisor

__all__ = ["overview"]


def overview(supervisor: Supervisor) -> dict[str, Tree]:
    """State, actors, helpers and channels; `hive ps --json` and snapshots are made of it."""
    plan, pages = supervisor.plan, supervisor.pages
    helpers = supervisor.processes.facts().items()
    return {
        "state": supervisor.run_machine.state.value,
        "reason": supervisor.reason,
        "actors": [_actor(supervisor, number) for number in range(len(plan.actors))],
        "helpers": [{"name": name, "pid": pid, "state": state} for name, (pid, state) in helpers],
        "results_actor": plan.results_actor,
        "channels": channel_accounts(plan, supervisor.memory.open, pages),
    }


def _actor(supervisor: Supervisor, number: int) -> dict[str, Tree]:
    planned, page = supervisor.plan.actors[number], read_status(supervisor.pages, number)
    process = supervisor.table[planned.process]
    return {
        "name": planned.name,
        "pid": process.pid,
        "state": supervisor.machines[number].state.value,
        "restarts": process.restarts,
        "incarnation": process.incarnation,
        "activity": page.phase,
        "since_s": page.doing_s,
        "busy": page.share(BUSY),
        "wait_in": page.share(WAIT_IN),
        "wait_out": page.share(WAIT_OUT),
        "runtime": page.share(RUNTIME),
        "version": page.version,
        "lag": page.lag,
        "phases": {name: ns / 1e9 for name, (_, ns) in page.spent_ns.items()},
        "counters": dict(page.counters),
    }
