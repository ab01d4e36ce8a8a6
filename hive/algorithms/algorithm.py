"""The interface of an algorithm: a generator of gradients from the rollouts of a share of a round.

    algorithm.connect(network, optimizer, target)          once: it makes its approximations
    for gradient in algorithm.gradients(rollouts, noise):  for each share: a fixed number of gradients

An algorithm holds objects of hive.learning and calls them directly or through `no_grad`, `eval` and `target`.
Each `yield` is one gradient: `yield self.model.reinforce(loss, samples=n)`, or `yield jointly(...)` for several
networks. A bare `yield` is a gradient of zero samples. Weights may change while the generator is suspended, so a graph
must not be used after a `yield`; arrays computed before it are constants after it.

In a run `optimizer` is a gradient slot, each `reinforce` fills it, and the learner updates. In a plain script it is an
OptimizerReceiver (hive.compat.autonomous), with which each `reinforce` is an update; the algorithm's code is the same.
Instead of a gradient it may also yield a request for moments:

    mean, deviation = yield Moments(n, sum, sum of squares)     over all workers of the round

The algorithm defines exploration, inputs, targets and losses; it does not see processes, slots or versions. `noise` is
a random stream of the round.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from torch import nn

from hive.experience import Rollout
from hive.learning import GradientReceiver, TargetNetwork
from hive.networks.act.distributions import ActionDistribution

AnyOptimizer: TypeAlias = GradientReceiver | None
"""The receiver of gradients, a gradient slot in a run, or None for networks that do not learn."""


@dataclass(frozen=True)
class Moments:
    """Count, sum and sum of squares of a quantity over this worker's samples.

    Yielding it requests mean and standard deviation over the whole round.
    """

    count: int
    total: float  # sum
    squares: float  # sum of squares


Gradients: TypeAlias = Generator[Any, Any, None]
"""The generator that `Algorithm.gradients` returns: it makes a gradient at each yield, or yields Moments."""


class Algorithm(Protocol):
    """Protocol of an algorithm for on-policy rollouts."""

    distribution: ActionDistribution  # reads actions from the network's first output
    statistics: tuple[str, ...]  # names of what its losses report
    gradients_per_round: int  # how often `gradients` yields for one share of a round, Moments included
    asks_for_moments: bool  # whether the first of them is Moments
    behaviour_log_probs: bool  # whether rollouts must hold log pi(a|s) of the policy that acted

    def connect(self, network: nn.Module, optimizer: AnyOptimizer = None, target: TargetNetwork | None = None) -> None:
        """Make the approximations. `network` ends in the algorithm's heads and returns a tuple of their outputs.

        optimizer: a GradientReceiver, or None for approximations that do not learn. target: the target network, if
        the algorithm uses one.
        """

    def gradients(self, rollouts: Sequence[Rollout], noise: np.random.Generator | None = None) -> Gradients:
        """Generate the gradients of one share of a round, in order. The share has at least one sample."""
