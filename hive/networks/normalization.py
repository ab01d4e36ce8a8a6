"""Normalised observations and rewards: statistics over all data so far, which travel with the network.

    gradient worker     moments_of(...)      count, means and sums of squared distances of a round's rows
    learner             merge(...)           adds them, worker after worker, to those of the version before
    observations        NormalizedNetwork    clip((observation - shift) * scale), in every forward pass
    rewards             scaled_rewards       clip(reward * scale), in the gradient worker, before any loss

Rewards keep their mean: only their scale changes, by the deviation of their discounted sum since the episode began, as
in Stable-Baselines3's VecNormalize and OpenAI's Baselines.

The statistics are buffers of the network, so they lie in the block of its version: who acts by version v normalises by
version v, a gradient of version v is exact for it, and a checkpoint holds them. A forward pass changes none. All sums
are float64 in a fixed order, so the same round gives the same bytes wherever it is merged.

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

__all__ = [
    "OBSERVATIONS",
    "REWARDS",
    "NormalizedNetwork",
    "Normalizer",
    "merge",
    "moments_of",
    "observed_elements",
    "scaled_rewards",
]

OBSERVATIONS, REWARDS = "normalizer.", "reward_normalizer."  # prefixes of the names of the buffers
LIMIT = 10.0  # deviations from the mean
EPSILON = 1e-8  # of the variance: what never changes stays 0

Moments = NDArray[np.float64]
"""[1 + 2 n]: the count of rows, then the n means, then the n sums of squared distances from them."""


class Normalizer(nn.Module):
    """float32 [N, *shape] -> the same, normalised. `seen` are the Moments that `shift` and `scale` follow from."""

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
    """A network with the statistics of observations, of rewards, or of both.

    observation: None if observations are not normalised. rewards: whether there are statistics of rewards.
    """

    def __init__(self, observation: InputSpec | None, network: nn.Module, rewards: bool = False) -> None:
        """Raises NetworkError for observations that are bytes, which are scaled already."""
        super().__init__()
        if observation is not None and observation.dtype != "float32":
            raise NetworkError(
                f"observations of {observation.dtype} cannot be normalised",
                hint="bytes are divided by 255 anyway: leave network.normalize_observations out",
            )
        self.normalizer = None if observation is None else Normalizer(observation.shape)
        self.reward_normalizer = Normalizer(()) if rewards else None
        self.network = network

    def forward(self, observations: Any) -> Any:
        return self.network(observations if self.normalizer is None else self.normalizer(observations))


def observed_elements(shape: Sequence[int]) -> int:
    """The length of Moments of rows of this shape."""
    return 1 + 2 * prod(shape)


def moments_of(rows: NDArray[Any], out: Moments) -> None:
    """Adds the rows [N, ...] to Moments."""
    if not len(rows):
        return
    values = rows.reshape(len(rows), -1).astype(np.float64)
    mean = values.mean(0)
    values -= mean
    values *= values
    _add(np.concatenate(([len(rows)], mean, values.sum(0))), out)  # row after row: no bit depends on where it lies


def scaled_rewards(rewards: NDArray[np.float32], seen: Moments, own: Moments) -> NDArray[np.float32]:
    """Rewards divided by the deviation of the discounted sums that `seen` counts, clipped to +-LIMIT.

    own: the Moments of these rewards' own discounted sums, used while nothing has been seen: in the first rounds.
    """
    moments = seen if seen[0] else own
    if not moments[0]:
        return rewards
    scale = np.float32(1.0 / np.sqrt(moments[2] / moments[0] + EPSILON))
    scaled: NDArray[np.float32] = np.clip(rewards * scale, -LIMIT, LIMIT, dtype=np.float32)
    return scaled


def merge(parts: Sequence[Moments], buffers: Mapping[str, NDArray[Any]], prefix: str = OBSERVATIONS) -> None:
    """Adds Moments, in this order, to the buffers of a Normalizer in a block, named as in a NormalizedNetwork.

    prefix: OBSERVATIONS or REWARDS.
    """
    seen: Moments = buffers[f"{prefix}seen"]
    parts = [part for part in parts if part[0]]
    for part in parts:
        _add(part, seen)
    if parts:
        count, elements = seen[0], len(seen) // 2
        shift, scale = (buffers[f"{prefix}{name}"] for name in ("shift", "scale"))
        shift[...] = seen[1 : 1 + elements].reshape(shift.shape)
        scale[...] = (1.0 / np.sqrt(seen[1 + elements :] / count + EPSILON)).reshape(scale.shape)


def _add(part: Moments, total: Moments) -> None:
    """Of no rows nothing is added. In place."""
    elements = len(part) // 2
    before, more = total[0], part[0]
    count = before + more
    distance = part[1 : 1 + elements] - total[1 : 1 + elements]
    total[0] = count
    total[1 : 1 + elements] += distance * (more / count)
    total[1 + elements :] += part[1 + elements :] + distance * distance * (before * more / count)
