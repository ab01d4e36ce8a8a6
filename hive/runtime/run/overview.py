"""Collect the data that views show of a run, from the status pages and the supervisor's records.

Reading a page costs the actors nothing, and works when they hang.
"""

from __future__ import annotations

from hive.runtime.carriers.carrier import PlanChannel
from hive.runtime.memory.status import BUSY, RUNTIME, WAIT_IN, WAIT_OUT, read_status
from hive.runtime.supervise.supervisor import Supervisor
from hive.runtime.wire.messages import Tree

KINDS = ("busy", "wait_in", "wait_out", "runtime")  # kinds of phase, indexed by their number on the page


def overview(supervisor: Supervisor) -> dict[str, Tree]:
    """Return state, actors, helpers, channels and edges of a run; `hive ps --json` and snapshots are built from it."""
    plan = supervisor.state.plan
    helpers = supervisor.processes.facts().items()
    sent = _sent(supervisor)
    return {
        "state": supervisor.state.run_machine.state.value,
        "reason": supervisor.state.end.reason,
        "actors": [_actor(supervisor, number) | {"sent": sent[number]} for number in range(len(plan.actors))],
        "helpers": [{"name": name, "pid": pid, "state": state} for name, (pid, state) in helpers],
        "results_actor": plan.results_actor,
        "results": {**supervisor.results()},
        "channels": supervisor.accounts(),
        "edges": {channel.name: _edge(supervisor, channel) for channel in plan.channels},
    }


def counters_of(supervisor: Supervisor) -> dict[str, dict[str, float]]:
    """Return the counters of every actor, by its name."""
    actors, pages = supervisor.state.plan.actors, supervisor.memory.pages
    return {planned.name: dict(read_status(pages, number).counters) for number, planned in enumerate(actors)}


def _edge(supervisor: Supervisor, channel: PlanChannel) -> dict[str, Tree]:
    """Describe a channel: its groups, its capacity in messages (0 for a board), a board's version (-1 before any)."""
    carrier = channel.description
    return {
        "carrier": channel.carrier,
        "source": channel.source.partition(".")[0],
        "targets": list(dict.fromkeys(target.partition(".")[0] for target in channel.targets)),
        "capacity": carrier.capacity(channel),
        "version": carrier.version(channel, supervisor.memory),
    }


def _actor(supervisor: Supervisor, number: int) -> dict[str, Tree]:
    planned, page = supervisor.state.plan.actors[number], read_status(supervisor.memory.pages, number)
    process = supervisor.state.table[planned.process]
    return {
        "name": planned.name,
        "group": planned.group,
        "process": planned.process,
        "restart": planned.restart,
        "pid": process.pid,
        "state": supervisor.state.machines[number].state.value,
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
        "kinds": {name: KINDS[kind] for name, (kind, _) in page.spent_ns.items()},
        "counters": dict(page.counters),
    }


def _sent(supervisor: Supervisor) -> list[dict[str, Tree]]:
    """Return, for each actor, channel -> the number of messages it has sent; boards are left out."""
    sent: list[dict[str, Tree]] = [{} for _ in supervisor.state.plan.actors]
    for channel in supervisor.state.plan.channels:
        produced = channel.description.produced(channel, supervisor.memory)
        for producer, count in zip(channel.producers, produced, strict=bool(produced)):
            sent[producer][channel.name] = count
    return sent
