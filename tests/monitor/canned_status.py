"""Made-up status documents of a supervisor (`Supervisor.status`), for tests of views."""

from __future__ import annotations

import os
from typing import Any

PID = os.getpid()  # pid of all actors: a process that exists


def actor(name: str, **changes: Any) -> dict[str, Any]:
    """Return an actor that works; `changes` replace its values."""
    return {
        "name": name,
        "pid": PID,
        "state": "running",
        "restarts": 0,
        "incarnation": 1,
        "activity": "step",
        "since_s": 0.25,
        "busy": 0.9,
        "wait_in": 0.06,
        "wait_out": 0.04,
        "runtime": 0.0,
        "version": 12,
        "lag": 0,
        "phases": {"step": 9.0, "wait": 1.0},
        "counters": {},
    } | changes


def results(**changes: float) -> dict[str, float]:
    """Return the counters of the results actor."""
    counters = {"updates": 40, "env_steps": 20_480, "episodes": 7, "train_s": 4.0, "mean_return_100": 131.6}
    return counters | changes


def account(produced: int = 0, **dropped: int) -> dict[str, Any]:
    """Return a channel's account."""
    gone = sum(dropped.values())
    return {"produced": produced, "consumed": produced - gone, "dropped": dropped, "in_flight": 0}


def status(*actors: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return the document of a run of one collector and a learner, or of `actors`."""
    document = {
        "run": "cartpole-1",
        "pid": PID,
        "started": 1.7e9,
        "steps": 500_000,
        "state": "running",
        "reason": "",
        "actors": list(actors) or [actor("collector-0", lag=1), actor("learner-0", counters=results())],
        "helpers": [{"name": "fork-server", "pid": PID, "state": "running"}],
        "results_actor": "learner-0",
        "channels": {"rollouts": account(40)},
    } | changes
    named = (one["counters"] for one in document["actors"] if one["name"] == document["results_actor"])
    return {"results": next(named, {})} | document


def warned(kind: str = "entropy gone", last_steps: int | None = None) -> dict[str, Any]:
    """Return a warning of a run, as a status document and a summary hold it."""
    advice = "raise algorithm.entropy_weight"
    return {"kind": kind, "text": "it is so", "advice": advice, "first_steps": 10_000, "last_steps": last_steps}


def starting() -> dict[str, Any]:
    """Return the document of a run whose topology is not built yet."""
    nothing = {"state": "starting", "actors": [], "helpers": [], "channels": {}}
    missing = ("reason", "results_actor", "results")
    return {key: value for key, value in (status() | nothing).items() if key not in missing}
