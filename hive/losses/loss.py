"""The interface of a loss: a typed object that holds the inputs of a network and maps its outputs to a scalar.

    loss = A2CLoss(inputs, ...)
    outputs = network(loss.inputs)            `Approximation.reinforce(loss)` makes these two calls
    value = loss(outputs)                     a scalar with a graph, and its statistics

A loss holds arrays and numbers, never the network. A loss with `differentiate(outputs) -> LossSlopes` computes itself
and the gradients of the outputs from NumPy arrays, where its property `is_native` is true; hive.networks.dense computes
the gradients of the weights from these. Its results are those of the loss on tensors up to rounding: means are float64
sums in the order of the rows.
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

from hive import _native

__all__ = ["VALUE_FIT", "Floats", "Loss", "LossSlopes", "LossValue", "acted_rows", "value_fit", "weighted_mean"]

Floats = NDArray[np.float32]

VALUE_FIT = ("explained_variance", "target_rms")
"""The names of the two statistics of `value_fit`."""


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


def value_fit(values: Tensor, targets: Floats, weights: Tensor) -> tuple[float, float]:
    """Return (explained variance, root mean square of the targets) of values that predict targets, each [M].

    weights: float32 [M], with the sum 1; rows of weight 0 are not read. The explained variance is
    1 - Var(targets - values) / Var(targets), as in OpenAI's baselines and Stable-Baselines3, but at least -1; NaN if
    all targets are equal.
    """
    return _native.value_fit(values.contiguous().numpy(), targets, weights.numpy())


def acted_rows(outputs: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return the rows of `outputs` [N, ...] in which an action was taken, [M, ...].

    sizes: two numbers for each rollout, its acted rows and its rows that only bootstrap.
    """
    if len(sizes) == 2:
        return outputs.narrow(0, 0, sizes[0])
    return torch.cat(outputs.split_with_sizes(list(sizes))[::2])
