"""What a loss is: a typed object that knows the inputs of a network and judges its outputs.

    loss = A2CLoss(inputs, ...)
    outputs = network(loss.inputs)            what `Approximation.reinforce(loss)` does
    value = loss(outputs)                     a scalar with a graph, and its statistics

A loss holds arrays and numbers, never the network, so the forward and backward pass can be made by torch, as here, or
by compiled code that knows the type of the loss. Targets may follow from the outputs of the same forward pass, as
constants: a loss that needs them takes a function from NumPy outputs to NumPy targets.
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

__all__ = ["Floats", "Loss", "LossValue", "acted_rows", "weighted_mean"]

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class LossValue:
    """`total`: a scalar with a graph, the mean over the samples. `statistics`: in the order of the loss's names."""

    total: Tensor
    statistics: tuple[float, ...] = ()


class Loss(Protocol):
    """A loss of the outputs of one forward pass over `inputs`, a tensor [N, ...] or what else the network takes."""

    @property
    def inputs(self) -> Any: ...

    def __call__(self, outputs: Any) -> LossValue:
        """The loss of these outputs of the network."""


def weighted_mean(terms: Sequence[Tensor], weights: Tensor, factors: tuple[float, ...]) -> LossValue:
    """The sum of the weighted means of the terms, each times its factor; the means are its statistics.

    terms: K times float32 [N]. weights: float32 [N], with the sum 1. factors: K numbers; 0 where a term is only
    reported, and such a term is better detached. One chain of operations for all terms costs less than one for each.
    """
    means = (torch.stack(list(terms)) * weights).sum(1)
    return LossValue(means.dot(_tensor(factors, means.dtype, means.device)), tuple(means.tolist()))


@functools.lru_cache(maxsize=64)  # more sets of weights than a program has at a time
def _tensor(factors: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(factors, dtype=dtype, device=device)


def acted_rows(outputs: Tensor, sizes: Sequence[int]) -> Tensor:
    """The rows of `outputs` [N, ...] in which an action was taken, [M, ...].

    sizes: how many rows were acted on, how many only bootstrap, how many were acted on, ...: two for each rollout.
    """
    if len(sizes) == 2:
        return outputs.narrow(0, 0, sizes[0])
    return torch.cat(outputs.split_with_sizes(list(sizes))[::2])
