"""Describes the lag of a config for `hive check`: how old the policy that acts and the weights of gradients are.

    lag 1: rollouts are made by a policy that is 1 round old (16,384 steps, 1.6 % of run.steps)
         this can cost PPO sample efficiency, most with long rounds (guide, "What lag costs")
         collection.communication = "synchronous" removes it, and collectors then wait for the learner

The number is the lag that the monitor and `hive ps` show: in behaviour versions for rollouts, in updates for gradients.
Ages are in rounds or updates and in environment steps. In asynchronous modes they are the largest that are used.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from hive.config import Config
from hive.envs import can_be_helped
from hive.errors import TopologyError
from hive.runtime import Topology

# Name of an algorithm -> what the lag of its rollouts means for it. Nothing is known about user-defined ones. Measured
# costs are those of rounds of thousands of steps: shorter rounds lost no return that the seeds could show.
COSTS = {
    "a2c": 'this can cost A2C sample efficiency, most with long rounds (guide, "What lag costs")',
    "ppo": 'this can cost PPO sample efficiency, most with long rounds (guide, "What lag costs")',
    "impala": "V-trace corrects for it",
}


@dataclass(frozen=True)
class Lag:
    """The age of a policy or of weights.

    of: "rollouts" or "gradients". lag: in versions. age: in units of `unit`, "round" or "update". steps: environment
    steps in this time. varies: whether the age is the largest of several. removed_by: settings that remove it.
    """

    of: str
    lag: int
    age: int
    unit: str
    steps: int
    share: float  # steps / run.steps
    varies: bool
    removed_by: tuple[str, ...]


def lags_of(topology: Topology) -> list[Lag] | None:
    """Return the lags of the built-in trainer, [] if all use the newest weights; None for other topologies.

    Rollout r uses version r // interval - max_lag, which contains the updates of the rounds before version * interval.
    """
    from hive.schemes import blueprint_of  # imports torch, without which the command line loads

    try:
        blueprint = blueprint_of(topology)
    except TopologyError:
        return None
    collection, gradients, total = blueprint.config.collection, blueprint.config.gradients, blueprint.config.run.steps
    interval, workers = collection.broadcast_interval, blueprint.gradient_workers
    loose, apart = (table.communication == "asynchronous" for table in (collection, gradients))
    age = collection.max_lag * interval + interval - 1
    removal = ['collection.communication = "synchronous"'] * (collection.max_lag > 0)
    removal += ["collection.broadcast_interval = 1"] * (interval > 1)
    steps = age * blueprint.round_steps
    varies = interval > 1 or loose
    rollouts = Lag("rollouts", collection.max_lag, age, "round", steps, steps / total, varies, tuple(removal))
    # Steps in one gradient's share of a round, which is one rollout if collection is asynchronous.
    share = collection.envs * collection.rollout if loose else blueprint.round_steps // workers
    steps = gradients.max_lag * share * gradients.bootstrap_rounds * (1 if apart else workers)
    steps //= blueprint.gradients_per_round
    removal, lag = ['gradients.communication = "synchronous"'], gradients.max_lag
    weights = Lag("gradients", lag, lag, "update", steps, steps / total, apart, tuple(removal))
    return [one for one in (rollouts, weights) if one.age]


def lag_lines(lags: list[Lag], config: Config) -> list[str]:
    """Return the lines that `hive check` prints."""
    if not lags:
        return ["lag 0: rollouts and gradients use the newest weights"]
    lines = []
    for lag in lags:
        what = {"rollouts": "made by a policy that is", "gradients": "computed with weights that are"}[lag.of]
        age = f"{'up to ' * lag.varies}{lag.age} {lag.unit}{'s' * (lag.age > 1)} old"
        lines.append(
            f"lag {lag.lag}: {lag.of} are {what} {age} ({lag.steps:,} steps, {100 * lag.share:.2g} % of run.steps)"
        )
        if lag.of == "rollouts" and config.algorithm.name in COSTS:
            lines.append(f"     {COSTS[config.algorithm.name]}")
        waits = {"rollouts": "collectors then wait for the learner", "gradients": "they then wait for each update"}
        verb = "removes" if len(lag.removed_by) == 1 else "remove"
        lines.append(f"     {' and '.join(lag.removed_by)} {verb} it, and {waits[lag.of]}")
    return lines


def helper_line(config: Config, topology: Topology | None = None) -> list[str]:
    """Return the line about helpers of collectors, or about processes of environments; [] if there are none."""
    from hive.training.gradient.threads import helpers_of  # imports torch

    if config.env.is_apart:
        number = config.env.processes_for(config.collection.envs)
        what = ("program", "programs") if config.env.is_program else ("process", "processes")
        return [f"environments: {number} {what[number > 1]} beside each collector (env.processes)"]
    number = min(helpers_of(config), config.collection.envs - 1)
    # The agents of several policies are stepped by one process.
    has_table = topology is not None and "crew" in topology["collectors"].parameters
    if number < 1 or has_table or not can_be_helped(config.env):
        return []
    steps = "1 process steps" if number == 1 else f"{number} processes step"
    where = "" if config.collection.helpers is not None else ", where hive measures that this pays"
    return [f"helpers: {steps} environments beside each collector{where} (collection.helpers; same bytes)"]


def device_line(config: Config) -> list[str]:
    """Return the line about the device of gradients; [] on the CPU. Raises TopologyError for one that is not there."""
    from hive.training.gradient.devices import chosen_device  # imports torch

    if config.gradients.device == "cpu":
        return []
    device = chosen_device(config.gradients.device)
    where = f"{device}" if device is not None else "the CPU, as there is no GPU that torch can use"
    return [f"device: gradients are computed on {where} (gradients.device)"]


def lag_data(lags: list[Lag]) -> dict[str, Any]:
    """Return the lags for JSON: "rollouts" or "gradients" -> the fields of its Lag."""
    return {lag.of: dataclasses.asdict(lag) for lag in lags}


def host_lines(config: Config) -> list[str]:
    """Return a line for each other host: what runs there; [] for a run on one machine."""
    lines, nothing = [], range(0)
    for name, cores in config.hosts.cores.items():
        parts = {
            "collector": config.placement.get(name, nothing),
            "evaluator": config.evaluator_placement.get(name, nothing),
        }
        work = [
            f"{kind}-{part[0]} to {kind}-{part[-1]}" if len(part) > 1 else f"{kind}-{part[0]}"
            for kind, part in parts.items()
            if part
        ]
        lines.append(f"host {name} ({cores} core{'s'[: cores != 1]}): {', '.join(work) or 'nothing'}")
    return lines


def hidden_line(config: Config, round_trip_s: float, updates: int, train_s: float) -> str:
    """Say which `collection.max_lag` hides a round trip to another host.

    A collector there begins rollout r + lag + 1 when it has finished rollout r + lag, and needs the version that
    rollout r is part of. That takes a round trip, and the update on the head. So the least lag is
    (round trip + update) / rollout. The trial, where one process does both in turn, gives their sum; each is taken as
    half of it.
    """
    trip = f"a round trip of {1e3 * round_trip_s:g} ms"
    if updates < 2 or not train_s:
        return f"{trip}: the trial was too short to say which collection.max_lag hides it"
    half_s = train_s / (updates - 1) / 2
    least = math.ceil((round_trip_s + half_s) / half_s)
    now = config.collection.max_lag
    verdict = "is enough" if now >= least else f"is too low: collectors on other hosts wait. Set it to {least}"
    return f"{trip}, rollouts of about {1e3 * half_s:.3g} ms: collection.max_lag = {now} {verdict}"
