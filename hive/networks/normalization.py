"""Normalisation of observations to mean 0 and deviation 1, with statistics stored in the network.

    gradient worker     moments_of(...)      count, means and sums of squared distances of a round's observations
    learner             merge(...)           adds them, worker after worker, to those of the previous version
    any forward pass    NormalizedNetwork    clip((observation - shift) * scale)

The statistics are buffers of the network, so they lie in the block of its version. Weights of version v are therefore
always used with the statistics of version v, and a checkpoint contains them. A forward pass changes none of them. All
sums are float64 in a fixed order, so merging the same round gives bit-identical results in every process.

Sums of several parts: Chan, Golub and LeVeque 1979. Clipping at 10 deviations and 1e-8 in the root, as in OpenAI's
Baselines and Stable-Baselines3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hive.errors import NetworkError
from hive.networks.spaces import InputSpec

__all__ = ["NormalizedNetwork", "Normalizer", "merge", "moments_of", "observed_elements"]

NORMALIZER = "normalizer."  # prefix of the names of its buffers
LIMIT = 10.0  # greatest distance from the mean, in deviations
EPSILON = 1e-8  # added to the variance, so that an element that never changes becomes 0 instead of 0 / 0

Moments = NDArray[np.float64]
"""[1 + 2 n]: the count of rows, then the n means, then the n sums of squared distances from them."""


class Normalizer(nn.Module):
    """Maps float32 [N, *shape] to normalised values of the same shape.

    Buffers: `seen`, the Moments of all observations, float64 [1 + 2 n]; `shift` and `scale`, which are computed from
    them, float32 [*shape].
    """

    seen: Tensor
    shift: Tensor
    scale: Tensor

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(1 + 2 * prod(shape), dtype=torch.float64))
        self.register_buffer("shift", torch.zeros(tuple(shape)))
        self.register_buffer("scale", torch.ones(tuple(shape)))

    def forward(self, observations: Tensor) -> Tensor:
        return observations.sub(self.shift).mul_(self.scale).clamp_(-LIMIT, LIMIT)


class NormalizedNetwork(nn.Module):
    """Calls `network` with normalised observations, float32 [N, *shape], and returns its outputs."""

    def __init__(self, observation: InputSpec, network: nn.Module) -> None:
        """Raises NetworkError for uint8 observations, which are scaled already."""
        super().__init__()
        if observation.dtype != "float32":
            raise NetworkError(
                f"observations of {observation.dtype} cannot be normalised",
                hint="uint8 is divided by 255 anyway: leave network.normalize_observations out",
            )
        self.normalizer = Normalizer(observation.shape)
        self.network = network

    def forward(self, observations: Tensor) -> Any:
        return self.network(self.normalizer(observations))


def observed_elements(shape: Sequence[int]) -> int:
    """Returns the length of the Moments of rows of this shape, 1 + 2 n."""
    return 1 + 2 * prod(shape)


def moments_of(rows: NDArray[Any], out: Moments) -> None:
    """Adds rows [N, ...] to the Moments `out`, float64 [1 + 2 n], in place."""
    if not len(rows):
        return
    values = rows.reshape(len(rows), -1).astype(np.float64)
    mean = values.mean(0)
    values -= mean
    values *= values
    # NumPy sums over the first axis row after row, so the bits do not depend on the alignment of the memory.
    _add(np.concatenate(([len(rows)], mean, values.sum(0))), out)


def merge(parts: Sequence[Moments], buffers: Mapping[str, NDArray[Any]]) -> None:
    """Adds Moments, in this order, to the buffers of a Normalizer, and updates `shift` and `scale`, in place.

    parts: each float64 [1 + 2 n]. buffers: arrays of a block, named as in a NormalizedNetwork.
    """
    seen: Moments = buffers[f"{NORMALIZER}seen"]
    parts = [part for part in parts if part[0]]
    for part in parts:
        _add(part, seen)
    if parts:
        count, elements = seen[0], len(seen) // 2
        shift, scale = (buffers[f"{NORMALIZER}{name}"] for name in ("shift", "scale"))
        shift[...] = seen[1 : 1 + elements].reshape(shift.shape)
        scale[...] = (1.0 / np.sqrt(seen[1 + elements :] / count + EPSILON)).reshape(scale.shape)


def _add(part: Moments, total: Moments) -> None:
    """Adds `part`, which has at least one row, to `total` in place."""
    elements = len(part) // 2
    before, more = total[0], part[0]
    count = before + more
    distance = part[1 : 1 + elements] - total[1 : 1 + elements]
    total[0] = count
    total[1 : 1 + elements] += distance * (more / count)
    total[1 + elements :] += part[1 + elements :] + distance * distance * (before * more / count)
