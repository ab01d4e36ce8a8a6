"""Make the snapshot of a live run from its supervisor's status document.

    status (pages, slots, boards; from the supervisor)  ──┐
    history (the documents before it: shares, rates)      ├──> snapshot_of ──> Snapshot
    files (returns, events) and /proc (cpu, memory)     ──┘

The supervisor reads its document from status pages, so a request costs the actors nothing. Differences between two
documents (shares of the last seconds, rates) come from a `History`, which a view keeps. Without one, shares cover the
time since an actor's incarnation started, and there are no rates.

`snapshot_of` is a function of its arguments: it reads no file, sends no request and reads no clock.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from hive.monitor.bound_by import bound_by
from hive.monitor.history import History
from hive.monitor.rows import ActorRow, BoardRow, ChannelRow, actor_row, helper_row, host_row
from hive.monitor.snapshot import Extras, Snapshot
from hive.records.run_warnings import RunWarning
from hive.records.standings import PolicyStanding
from hive.runtime.run.hosts_status import HOST
from hive.runtime.run.process_facts import ProcessFacts

INFO = "info/"  # begins the names of the counters of env.info
REPLAY = "replay/"  # begins the names of the counters of a replay memory


def snapshot_of(status: Mapping[str, Any], history: History | None = None, extras: Extras | None = None) -> Snapshot:
    """Make a snapshot from the supervisor's document, which must be the last one added to `history`, if that is given.

    Raises KeyError where the document lacks a part.
    """
    history, extras = history or History(), extras or Extras()
    reports = _exit_reports(extras.events)
    rows = tuple(
        actor_row(
            actor,
            history,
            extras.processes.get(actor["pid"]),
            reports.get(actor["name"], ""),
            () if actor.get("host") else extras.environments.get(actor["name"], ()),
        )
        for actor in status["actors"]
    )
    results = status.get("results", {})
    edges = status.get("edges", {})
    snapshot = Snapshot(
        run=status["run"],
        state=status["state"],
        reason=status.get("reason", ""),
        env_steps=int(results.get("env_steps", 0)),
        goal_steps=status["steps"],
        updates=int(results.get("updates", 0)),
        episodes=int(results.get("episodes", 0)),
        mean_return=_mean_return(results),
        restarts=sum({row.process or row.pid: row.restarts for row in rows}.values()),
        train_s=results.get("train_s", 0.0),
        actors=rows,
        channels={name: _channel(name, a, edges.get(name), history) for name, a in status["channels"].items()},
        t=extras.t,
        pid=status.get("pid", 0),
        started=status.get("started", 0.0),
        steps_per_s=history.rate("env_steps"),
        rates=history.rates() if history.documents else {},
        window_s=history.window_s,
        cores=extras.cores,
        cores_busy=extras.cores_busy,
        gpus=extras.gpus,
        results_actor=status.get("results_actor", ""),
        helpers=tuple(_helpers(status, extras.processes)),
        hosts=tuple(host_row(actor, history) for actor in status["actors"] if _talks_to_host(actor)),
        boards={
            name: BoardRow(edge["source"], tuple(edge["targets"]), edge["version"], history.channel_rate(name))
            for name, edge in edges.items()
            if edge["carrier"] == "board"
        },
        returns=extras.returns,
        policy_returns=extras.policy_returns,
        events=extras.events,
        warnings=tuple(RunWarning.of(warning) for warning in status.get("warnings", ())),
        policies=tuple(PolicyStanding(**policy) for policy in status.get("policies", ())),
        info=_named(results, INFO),
        replay=_named(results, REPLAY),
    )
    return dataclasses.replace(snapshot, bound_by=bound_by(snapshot))


def _mean_return(results: Mapping[str, float]) -> float | None:
    """Return the mean return of the last episodes; None before one has ended."""
    mean_return = results.get("mean_return_100", math.nan)
    return mean_return if results.get("episodes", 1) and math.isfinite(mean_return) else None


def _talks_to_host(actor: Mapping[str, Any]) -> bool:
    return bool(actor["name"] == actor.get("process", "") and actor["name"].startswith(HOST))


def _named(results: Mapping[str, float], prefix: str) -> dict[str, float]:
    """Return the finite results whose names begin with `prefix`, without it."""
    known = ((name, value) for name, value in results.items() if name.startswith(prefix) and math.isfinite(value))
    return {name.removeprefix(prefix): value for name, value in known}


def _channel(name: str, account: Mapping[str, Any], edge: Mapping[str, Any] | None, history: History) -> ChannelRow:
    edge = edge or {}
    return ChannelRow(
        produced=account["produced"],
        consumed=account["consumed"],
        dropped=account["dropped"],
        in_flight=account["in_flight"],
        carrier=edge.get("carrier", ""),
        source=edge.get("source", ""),
        targets=tuple(edge.get("targets", ())),
        capacity=edge.get("capacity", 0),
        rate=history.channel_rate(name),
    )


def _helpers(status: Mapping[str, Any], processes: Mapping[int, ProcessFacts]) -> list[ActorRow]:
    supervisor = {"name": "supervisor", "pid": status.get("pid", 0), "state": status["state"]}
    known = [supervisor, *status.get("helpers", ())]
    return [_helper(h, processes) for h in known]


def _helper(helper: Mapping[str, Any], processes: Mapping[int, ProcessFacts]) -> ActorRow:
    host = helper.get("host", "")
    here = processes.get(helper["pid"])
    facts = ProcessFacts("", helper.get("cpu"), helper.get("memory_bytes", 0)) if host else here
    return helper_row(helper["name"], helper["pid"], helper["state"], facts, host)


def _exit_reports(events: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the latest exit report of each actor that has one."""
    return {str(e.get("actor")): str(e.get("text", "")) for e in events if e.get("kind") == "died"}
