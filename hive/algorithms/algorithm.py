"""What an algorithm is: a schedule of gradients from the rollouts of a share of a round.

    algorithm.connect(network, optimizer, target)          once: it makes its approximations
    for made in algorithm.gradients(rollouts, noise):      for each share: a fixed number of gradients

It holds objects of hive.approximation and calls them: `no_grad`, `eval`, `target`, or the network itself. Each `yield`
is one gradient: `yield self.model.reinforce(loss, samples=n)`, or `yield jointly(...)` for several networks. A bare
`yield` is a gradient of zero samples. Weights may change while the generator waits, so a graph does not survive a
`yield`: what is computed before it is used as a constant after it.

In a plain script `optimizer` is torch's, `target` is a FixedTarget or PolyakTarget, and each `reinforce` is an update.
In a run `optimizer` is the gradient worker, each `reinforce` fills a gradient slot, and the learner steps. The file of
the algorithm is the same. One other thing may be yielded, in the place of a gradient:

    mean, deviation = yield Moments(n, sum, sum of squares)     over all workers of the round

The algorithm owns exploration, inputs, targets and losses; it does not see processes, slots or versions. `noise` is the
round's own random stream.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from torch import nn
from torch.optim import Optimizer

from hive.approximation import GradientReceiver, TargetNetwork
from hive.networks import ActionDistribution
from hive.storage import Rollout

__all__ = ["Algorithm", "AnyOptimizer", "Gradients", "Moments"]

AnyOptimizer: TypeAlias = Optimizer | GradientReceiver | None


@dataclass(frozen=True)
class Moments:
    """Asks for the mean and deviation over the whole round of what this worker has `count` of."""

    count: int
    total: float
    squares: float


Gradients: TypeAlias = Generator[Any, Any, None]
"""What `Algorithm.gradients` gives: a gradient at each yield, or Moments."""


class Algorithm(Protocol):
    """An algorithm for on-policy rollouts."""

    distribution: ActionDistribution  # reads actions from the network's first output
    statistics: tuple[str, ...]  # names of what its losses report
    gradients_per_round: int  # how often `gradients` yields for one share of a round, Moments included
    asks_for_moments: bool  # whether the first of them is Moments
    behaviour_log_probs: bool  # whether rollouts must hold log pi(a|s) of the policy that acted

    def connect(self, network: nn.Module, optimizer: AnyOptimizer = None, target: TargetNetwork | None = None) -> None:
        """Makes the approximations. `network` ends in the algorithm's heads and returns a tuple of their outputs."""

    def gradients(self, rollouts: Sequence[Rollout], noise: np.random.Generator | None = None) -> Gradients:
        """The gradients of one share of a round that has at least one sample, in order."""
