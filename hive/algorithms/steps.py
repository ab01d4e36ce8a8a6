"""What an algorithm is: a schedule of steps from the rollouts of a share of a round to gradients.

    steps = algorithm.steps(rollouts, noise)
    for step in steps:                            a fixed number of gradients per round, one a Step
        outputs = network(step.inputs)            (policy [N, W], value [N])
        loss = step.loss(outputs)                 means over the samples
        loss.total.backward()

`loss` is a function of the outputs, so targets can depend on them (detached) without a second forward pass. Two other
things may be yielded, and their answers come back as the value of the `yield`:

    Evaluate(inputs)        outputs of the present weights, without a gradient
    Moments(n, sum, sum of squares)   of this worker's advantages -> (mean, deviation) over all workers of the round;
                            takes the place of one gradient, of zero samples

The algorithm owns exploration, inputs, targets and losses; it does not see processes, slots or versions. `noise` is the
round's own random stream.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from hive.networks import ActionDistribution
from hive.storage import Rollout

__all__ = ["Algorithm", "Evaluate", "Loss", "Moments", "Step", "Steps"]


@dataclass(frozen=True)
class Loss:
    """`total` is a scalar with a graph: the mean over the step's samples. `statistics` in the algorithm's order."""

    total: Tensor
    statistics: tuple[float, ...]

    @classmethod
    def of_terms(cls, terms: Sequence[Tensor], weight: Tensor, factors: Tensor) -> Loss:
        """The loss that adds up the weighted means of its terms, each times its factor; the means are its statistics.

        terms: K times float32 [N]. weight: float32 [N], with the sum 1. factors: float32 [K]; 0 where a term is only
        shown, and that should be a detached one. One chain of operations for all costs less than one for each.
        """
        means = (torch.stack(list(terms)) * weight).sum(1)
        return cls(means.dot(factors), tuple(means.tolist()))


@dataclass(frozen=True)
class Step:
    """One gradient: network inputs [N, ...], how many samples count, and the loss of the outputs."""

    inputs: Tensor
    samples: int
    loss: Callable[[tuple[Tensor, ...]], Loss]


@dataclass(frozen=True)
class Evaluate:
    """Asks for the outputs of the network, without a graph."""

    inputs: Tensor


@dataclass(frozen=True)
class Moments:
    """Asks for the mean and deviation over the whole round of what this worker has `count` of."""

    count: int
    total: float
    squares: float


Steps: TypeAlias = Generator[Step | Evaluate | Moments, Any, None]


class Algorithm(Protocol):
    """An algorithm for on-policy rollouts."""

    distribution: ActionDistribution
    statistics: tuple[str, ...]  # names of Loss.statistics
    gradients_per_round: int  # Steps and Moments that `steps` yields for one share of a round
    asks_for_moments: bool  # whether the first of them is Moments
    behaviour_log_probs: bool  # whether rollouts must hold log pi(a|s) of the policy that acted

    def steps(self, rollouts: Sequence[Rollout], noise: np.random.Generator | None = None) -> Steps:
        """The gradients to compute from one share of a round that has at least one sample, in order."""
