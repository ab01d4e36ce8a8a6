"""The interface of a loss: a typed object that holds the inputs of a network and maps its outputs to a scalar.

    loss = A2CLoss(inputs, ...)
    outputs = network(loss.inputs)            `Approximation.reinforce(loss)` makes these two calls
    value = loss(outputs)                     a scalar with a graph, and its statistics

A loss holds arrays and numbers, never the network. A loss with `differentiate(outputs) -> LossSlopes` computes itself
and the gradients of the outputs from NumPy arrays, where its property `is_native` is true; hive.networks.weights.dense
computes the gradients of the weights from these. Its results are those of the loss on tensors up to rounding: means are
float64 sums in the order of the rows.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class LossValue:
    """`total`: a scalar with a graph, the mean over the samples. `statistics`: in the order that the loss documents."""

    total: Tensor
    statistics: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class LossSlopes:
    """A loss without a graph. `slopes`: its gradients with respect to the outputs, float32 of their shapes."""

    total: float
    statistics: tuple[float, ...]
    slopes: tuple[Floats, ...]


class Loss(Protocol):
    """Protocol of a loss of one forward pass over `inputs`: a tensor [N, ...], or any other input of the network."""

    @property
    def inputs(self) -> Any: ...

    def __call__(self, outputs: Any) -> LossValue:
        """Return the loss of these outputs of the network."""


def weighted_mean(
    terms: Sequence[Tensor], weights: Tensor, factors: tuple[float, ...], further: tuple[float, ...] = ()
) -> LossValue:
    """Return the sum of the weighted means of the terms, each times its factor; the means are the statistics.

    terms: K tensors float32 [N]. weights: float32 [N], with the sum 1. factors: K numbers, 0 for a term that is only
    reported and should be detached. further: statistics that follow the means.

    All terms share one chain of operations, which is faster than one chain for each.
    """
    means = (torch.stack(list(terms)) * weights).sum(1)
    return LossValue(means.dot(_tensor(factors, means.dtype, means.device)), (*means.tolist(), *further))


@functools.lru_cache(maxsize=64)  # more sets of factors than a program uses
def _tensor(factors: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(factors, dtype=dtype, device=device)
