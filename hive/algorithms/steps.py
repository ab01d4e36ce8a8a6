"""What an algorithm is: a schedule of steps from rollouts to gradients.

    for step in algorithm.steps(rollouts):        one gradient each
        outputs = network(step.inputs)            (policy [N, W], value [N])
        loss = step.loss(outputs)                 means over the samples
        loss.total.backward()

`loss` is a function of the outputs, so targets can depend on them (detached) without a second forward pass. The
algorithm owns exploration, inputs, targets and losses; it does not see processes, slots or versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from hive.networks import ActionDistribution
from hive.storage import Rollout

__all__ = ["Algorithm", "Loss", "Step"]


@dataclass(frozen=True)
class Loss:
    """`total` is a scalar with a graph: the mean over the step's samples. `statistics` in the algorithm's order."""

    total: Tensor
    statistics: tuple[float, ...]


@dataclass(frozen=True)
class Step:
    """One gradient: network inputs [N, ...], how many samples count, and the loss of the outputs."""

    inputs: Tensor
    samples: int
    loss: Callable[[tuple[Tensor, ...]], Loss]


class Algorithm(Protocol):
    """An algorithm for on-policy rollouts."""

    distribution: ActionDistribution
    statistics: tuple[str, ...]  # names of Loss.statistics

    def steps(self, rollouts: Sequence[Rollout]) -> Iterator[Step]:
        """The gradients to compute from one share of a round, in order."""
