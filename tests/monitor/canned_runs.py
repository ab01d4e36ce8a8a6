"""Status documents of runs whose actors spend given shares of their time in given phases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from canned_status import account, actor, results, status

from hive.monitor import Extras, History, Snapshot, snapshot_of
from hive.monitor.rows import ProcessFacts
from hive.records.environments import EnvironmentRow

T = 1_795_223_557.0  # time of the first document
LOOKS_S = 4  # seconds from the first document to the last, one a second

KINDS = {"env": "busy", "policy": "busy", "gradient": "busy", "update": "busy", "runtime": "runtime"}


def edge(carrier: str, source: str, target: str, capacity: int = 0, version: int = -1) -> dict[str, Any]:
    """Return the edge of a channel or board."""
    return {"carrier": carrier, "source": source, "targets": [target], "capacity": capacity, "version": version}


EDGES = {
    "rollouts": edge("slots", "collectors", "gradient-workers", 6),
    "gradients": edge("slots", "gradient-workers", "learner", 2),
    "metrics": edge("messages", "learner", "recorder", 16),
    "behaviour": edge("board", "learner", "collectors", version=40),
    "weights": edge("board", "learner", "gradient-workers", version=41),
}

Shares = Mapping[str, float]

COLLECTING: Shares = {"env": 0.74, "policy": 0.18, "wait behaviour": 0.05, "wait rollouts:out": 0.01, "runtime": 0.02}
WAITING_FOR_ROLLOUTS: Shares = {"gradient": 0.2, "wait rollouts": 0.75, "runtime": 0.05}
WAITING_FOR_GRADIENTS: Shares = {"update": 0.04, "wait gradients": 0.94, "runtime": 0.02}
RECORDING: Shares = {"wait metrics": 1.0}


def working(name: str, group: str, shares: Shares, t: float = 10.0, **changes: Any) -> dict[str, Any]:
    """Return an actor after `t` seconds. A wait is for input; `wait x:out` is a wait for room in x."""
    phases = {phase.removesuffix(":out"): share * t for phase, share in shares.items()}
    kinds = {p.removesuffix(":out"): KINDS.get(p, "wait_out" if p.endswith(":out") else "wait_in") for p in shares}
    totals = {
        kind: sum(s / t for p, s in phases.items() if kinds[p] == kind) for kind in ("busy", "wait_in", "wait_out")
    }
    values = {"group": group, "process": name, "phases": phases, "kinds": kinds, "restart": True, "sent": {}}
    values |= {"activity": max(phases, key=lambda phase: phases[phase]), "since_s": 0.0}
    return actor(name, **(values | totals | changes))


def trainer(
    t: float = 10.0,
    *,
    collectors: Sequence[Shares] = (COLLECTING, COLLECTING),
    worker: Shares = WAITING_FOR_ROLLOUTS,
    learner: Shares = WAITING_FOR_GRADIENTS,
    changes: Mapping[str, Mapping[str, Any]] | None = None,
    **others: Any,
) -> dict[str, Any]:
    """Return the document of a trainer after `t` seconds; `changes` are values by the actor's name."""
    known = changes or {}
    counters = results(env_steps=int(5_000 * t), updates=int(20 * t), episodes=int(10 * t), train_s=t)
    rows = [
        working(f"collector-{n}", "collectors", shares, t, pid=100 + n, counters={"env_steps": 2_500.0 * t}, lag=n % 2)
        for n, shares in enumerate(collectors)
    ]
    sent = {"gradients": int(20 * t)}
    rows += [
        working("gradient-worker-0", "gradient-workers", worker, t, pid=1000, sent=sent),
        working("learner-0", "learner", learner, t, pid=1001, counters=counters),
        working("recorder", "recorder", RECORDING, t, pid=1002),
    ]
    rows = [row | {**known.get(row["name"], {})} for row in rows]
    channels = {
        "rollouts": account(int(40 * t)) | {"in_flight": 4},
        "gradients": account(int(20 * t)),
        "metrics": account(9),
    }
    return status(*rows, channels=channels, edges=EDGES, pid=99, started=T - 40.0) | others


def environment(index: int, **changes: Any) -> EnvironmentRow:
    """Return an environment that a process steps in 0.1 ms, and 4 ms once."""
    known = {"index": index, "pid": 200 + index, "incarnation": 0, "state": "running", "failures": 0, "steps": 9000}
    return EnvironmentRow(**(known | {"median_step_s": 1e-4, "worst_step_s": 4e-3} | changes))


KILLED = "killed by SIGSEGV while stepping"
# Collector 0 with a slow environment, collector 1 with one that is being restarted.
STEPPED = {
    "collector-0": (environment(0), environment(1), environment(2, median_step_s=5e-4, worst_step_s=0.4)),
    "collector-1": (
        environment(3),
        environment(4, state="starting", incarnation=2, failures=2, last_failure=KILLED),
        environment(5, failures=1, last_failure="took longer than env.step_limit_s"),
    ),
}


def looked_at(documents: Sequence[Mapping[str, Any]], extras: Extras | None = None) -> Snapshot:
    """Return the snapshot of the last of these documents, which are a second apart."""
    history = History()
    for second, document in enumerate(documents):
        history.add(document, T + second)
    return snapshot_of(documents[-1], history, extras or Extras(t=T + len(documents) - 1))


def snapshot(extras: Extras | None = None, **shape: Any) -> Snapshot:
    """Return the snapshot of a trainer after some seconds of documents."""
    return looked_at([trainer(10.0 + second, **shape) for second in range(LOOKS_S + 1)], extras)


def lively(**shape: Any) -> Snapshot:
    """Return that snapshot with all other data of a view: curve, events, cores, processes."""
    events = (
        {"t": T - 39.0, "kind": "running", "text": "5 actors in 5 processes"},
        {"t": T - 3.0, "kind": "died", "actor": "collector-1", "text": "collector-1 died in `env`: killed by SIGKILL"},
        {"t": T - 2.9, "kind": "restarted", "text": "collector-1 is back after 37 ms"},
    )
    returns = tuple((1_000.0 * n, 20.0 + 2.0 * n) for n in range(60))
    processes = {pid: ProcessFacts("S", 0.5, 190 << 20) for pid in (99, 100, 101, 1000, 1001, 1002)}
    return snapshot(Extras(T + LOOKS_S, processes, returns, events, 2, 1.4), **shape)
