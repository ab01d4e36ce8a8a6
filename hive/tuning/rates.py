"""Predicts the environment steps per second of a placement from the costs of its parts and the cores at hand.

A round is one rollout of every collector. Its parts are done one after the other within a process and side by side in
different ones. Collecting and training overlap unless collection is synchronous or in the same processes. A round takes
as long as the longest chain of parts that wait for each other, and at least the work of all processes over the cores.
"""

from __future__ import annotations

from dataclasses import dataclass

from hive.config import Config
from hive.envs import WORTH_S, can_be_helped
from hive.tuning.costs import Costs
from hive.tuning.placement import Placement

# Overheads of the actors around the plain objects, from the table "How fast" of the guide. With 16 environments and
# rollouts of 32, a collector needs 2.56 ms for a rollout, and environments and policy alone 2.46 ms. One process needs
# 0.70 ms more, of which gradient and optimizer are some 0.6 ms. Short runs decide what these figures cannot.
ROLLOUT_S = 50e-6  # seconds of a rollout: slot, pins, accounts
TURN_S = 100e-6  # seconds of an update: slots, boards, records of the turn
WAKE_S = 60e-6  # seconds from a commit until the actor in another process that waits for it computes


@dataclass(frozen=True)
class Rate:
    """The prediction for one placement.

    steps_per_s: environment steps per second. collect, train: seconds of the two chains of a round. cores: seconds that
    its work would take at least on all cores. limit: which of these ends last.
    """

    placement: Placement
    steps_per_s: float
    collect: float
    train: float
    cores: float
    limit: str


def predict(config: Config, costs: Costs, placement: Placement, cores: int) -> Rate:
    """Return the predicted rate of the placement on this number of cores."""
    collect, collect_work = _collection(config, costs, placement, cores)
    train, train_work = _training(config, costs, placement, cores)
    together = placement.collection_workers == 0
    in_turns = together or config.collection.communication == "synchronous"
    work = (collect_work + train_work) / cores
    if in_turns:
        chain = collect + train
    else:  # rollout n needs the policy of round n - 1 - lag, which needs that rollout: a cycle over lag + 1 rounds
        chain = max(collect, train, (collect + train + WAKE_S) / (config.collection.max_lag + 1))
    seconds = max(chain, work)
    limit = "cores" if work > chain else "collect" if collect >= train else "train"
    steps = placement.collectors * placement.envs * config.collection.rollout
    return Rate(placement, steps / seconds, collect, train, work, limit)


def _collection(config: Config, costs: Costs, placement: Placement, cores: int) -> tuple[float, float]:
    """Return the seconds from the first to the last step of a round, and the work of all collectors."""
    from hive.training.gradient.threads import helpers_of  # its package imports torch

    steps, envs = config.collection.rollout, placement.envs
    environment, policy = costs.environment.at(envs), _policy(costs, placement)
    busy = environment * costs.busy
    helpers = helpers_of(config, placement.collectors, placement.gradient_workers, cores)
    shared = costs.environment.at(-(-envs // (min(helpers, envs - 1) + 1))) + WAKE_S
    if environment - shared > WORTH_S and can_be_helped(config.env):
        environment = shared
    apart = ROLLOUT_S + WAKE_S * (placement.collection_workers > 0)
    wall = steps * (environment + policy) + apart
    work = placement.collectors * (steps * (busy + policy) + apart)
    return max(wall, work / cores), work


def _policy(costs: Costs, placement: Placement) -> float:
    total = placement.collectors * placement.envs
    factor = costs.torch_policy / costs.policy.at(total) if placement.backend == "torch" and costs.torch_policy else 1.0
    return costs.policy.at(placement.envs) * factor


def _training(config: Config, costs: Costs, placement: Placement, cores: int) -> tuple[float, float]:
    """Return the seconds from the first gradient of a round to the published weights, and the work of all workers."""
    gradients, workers = config.gradients, max(placement.gradient_workers, 1)
    asynchronous = config.collection.communication == "asynchronous"
    # Without rounds, a gradient is made of one rollout, by any worker.
    share = 1 / placement.collectors if asynchronous else 1 / workers
    count = costs.gradients * (placement.collectors / workers if asynchronous else 1)  # gradients of each worker
    together = gradients.communication == "asynchronous"
    averaged = 1 if together else workers * gradients.bootstrap_rounds
    updates = count * workers / averaged
    gradient = costs.gradient.at(share)
    if placement.backend == "torch" and costs.torch_gradient:
        gradient *= costs.torch_gradient / costs.gradient.at(1.0)
    made = count * gradient
    applied = updates * (costs.update.at(averaged) + TURN_S) + costs.publish / config.collection.broadcast_interval
    crowded = max(1.0, workers / cores)
    if placement.decentralized:
        return (made + applied) * crowded + count * WAKE_S, (made + applied) * workers + applied
    if not placement.gradient_workers:
        return made + applied, made + applied
    waking = WAKE_S * updates  # once to the learner and once back, of which each side works about a half
    work = made * workers + applied + waking
    if gradients.communication == "synchronous":
        return made * crowded + applied + 2 * waking, work
    return max(made * crowded + WAKE_S * count, applied + waking), work
