"""The interface of an algorithm that learns from a replay memory: a function from a batch of transitions to a gradient.

    algorithm.connect(network, optimizer, target)     once: it makes its approximations
    algorithm.gradient(batch)                         for each gradient: one call of `reinforce` or `jointly`

A gradient depends on its batch, on the bound weights and on its number alone, so a gradient worker that is killed at
any time leaves a run as it was. An algorithm that makes several gradients of each batch, one after the other, gets the
batch again for each of them. Its random numbers come from torch's generator, which is seeded for each gradient, or are
functions of that seed (`ActorWithCritics.draw`).

Everything else is as in hive.algorithms.algorithm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hive.algorithms.algorithm import AnyOptimizer
from hive.config import ReplayConfig
from hive.errors import TopologyError
from hive.experience import ReplayBatch
from hive.learning import TargetNetwork
from hive.networks.act.distributions import ActionDistribution


@dataclass(frozen=True)
class Batch:
    """N transitions, and the place for their errors.

    observations, next_observations: [N, ...] in the form of the network that `connect` got, normalized already with
    network.normalize_observations, as rewards are with network.normalize_rewards. Where `discounts` is 0 an episode has
    terminated, and the next observation is one of before: leave these rows out of a loss that reads it. actions:
    [N, ...], as stored. returns, discounts: float32 [N]; the target is returns + discounts * value of the next
    observation. importance: float32 [N], the weight of each loss, at most 1. errors: float32 [N], which the algorithm
    fills with absolute TD errors, the new priorities. number: the number of the gradient, from 0 on.
    """

    observations: Tensor
    actions: Tensor
    returns: Tensor
    discounts: Tensor
    next_observations: Tensor
    importance: Tensor
    errors: NDArray[np.float32]
    number: int = 0

    def __len__(self) -> int:
        return len(self.returns)


def batch_of(
    drawn: ReplayBatch, importance: NDArray[np.float32], errors: NDArray[np.float32], number: int = 0
) -> Batch:
    """Return gathered transitions as a Batch, without copying them. Arguments: see Batch."""
    of = torch.from_numpy
    steps = of(drawn.observations), of(drawn.actions), of(drawn.returns), of(drawn.discounts)
    return Batch(*steps, of(drawn.next_observations), of(importance), errors, number)


class ReplayAlgorithm(Protocol):
    """Protocol of an algorithm that learns from a replay memory."""

    distribution: ActionDistribution  # reads actions from the network's first output
    statistics: tuple[str, ...]  # names of what its losses report
    gradients_per_batch: int  # how many gradients are made of a batch, one after the other
    gradients_per_round: int  # how many gradients each worker makes for a round of new steps
    asks_for_moments: bool  # always False: batches are independent
    behaviour_log_probs: bool  # whether rollouts must hold log pi(a|s) of the policy that acted
    config: Any  # a ReplayConfig

    def connect(self, network: nn.Module, optimizer: AnyOptimizer = None, target: TargetNetwork | None = None) -> None:
        """Make the approximations; see Algorithm. The network has no normalizer: batches are normalized."""

    def gradient(self, batch: Batch) -> None:
        """Make one gradient of this batch, and fill its `errors`."""


def updates_in_round(config: ReplayConfig, round_steps: int) -> int:
    """Return the number of updates for the `round_steps` environment steps of a round.

    Raises TopologyError, which names the nearest possible values, if `updates_per_step` makes it a fraction.
    """
    updates = Fraction(config.updates_per_step) * round_steps
    if updates.denominator == 1:
        return int(updates)
    below, above = (Fraction(whole, round_steps) for whole in (math.floor(updates), math.ceil(updates)))
    legal = " or ".join(f'"{ratio}"' for ratio in (below, above) if ratio > 0)
    raise TopologyError(
        f"algorithm.updates_per_step = {config.updates_per_step} makes {float(updates):g} updates of a round of "
        f"{round_steps} environment steps",
        hint=f"set it to {legal}, or make a round a multiple of {updates.denominator * round_steps} steps "
        "(collection.workers x envs x rollout)",
    )


def warmup_rounds(config: ReplayConfig, round_steps: int) -> int:
    """Return the number of rounds before the first update, in which actions are uniformly drawn."""
    return -(-config.learning_starts // round_steps)
