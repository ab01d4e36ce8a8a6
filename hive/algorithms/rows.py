"""The rows of a share of a round: from rollouts to one batch, and back.

The network sees all observations of all rollouts at once. For each rollout its inputs are

    rows 0..T-1 of B environments    [T * B]    the acted rows: an action was taken here
    row T                            [B]        only bootstraps
    final observations               [F]        only bootstrap, where an episode was truncated

and the outputs come in that order. Losses are over the acted rows of all rollouts, flat: [sum of T * B, ...];
`hive.losses.acted_rows` picks these from the outputs, by `sizes`.
It knows no loss and no returns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hive.storage import Rollout

__all__ = ["flat", "input_rows", "progress_of", "sizes", "unflat", "values_of", "weights"]

Floats = NDArray[np.float32]


def input_rows(rollouts: Sequence[Rollout]) -> Tensor:
    """All observations, [N, ...]. Those of a single rollout without final observations are not copied."""
    parts = []
    for rollout in rollouts:
        parts.append(_flat(rollout.observations))
        if len(rollout.final_observations):
            parts.append(rollout.final_observations)
    return torch.from_numpy(_joined(parts))


def sizes(rollouts: Sequence[Rollout]) -> list[int]:
    """How many inputs were acted on and how many only bootstrap, two numbers for each rollout: see `acted_rows`."""
    return [size for rollout in rollouts for size in _sizes(rollout)]


def progress_of(rollouts: Sequence[Rollout]) -> float:
    """The share of the run that is done with these rollouts, 0 to 1: their mean."""
    return sum(rollout.progress for rollout in rollouts) / len(rollouts)


def values_of(rollouts: Sequence[Rollout], values: Floats) -> Iterator[tuple[Rollout, Floats, Floats]]:
    """Cuts values [N] into each rollout's own and those of what followed, both [T, B].

    After a truncated step follows the true last observation of its episode, else row t+1. They may share memory.
    """
    start = 0
    for rollout in rollouts:
        end = start + sum(_sizes(rollout))
        final = end - len(rollout.final_observations)
        mine = np.ascontiguousarray(values[start:final]).reshape(-1, rollout.rewards.shape[1])
        following = mine[1:]
        if final < end:
            following = following.copy()
            cut = rollout.final_index >= 0
            following[cut] = values[final:end][rollout.final_index[cut]]
        yield rollout, mine[:-1], following
        start = end


def flat(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """[T, B, ...] of each rollout -> [sum of T * B, ...]. A single one is not copied."""
    return _joined([_flat(part) for part in parts])


def unflat(rollouts: Sequence[Rollout], rows: NDArray[Any]) -> list[NDArray[Any]]:
    """[sum of T * B] -> [T, B] of each rollout, as views."""
    ends = np.cumsum([rollout.rewards.size for rollout in rollouts])
    parts = zip(rollouts, np.split(rows, ends[:-1]), strict=True)
    return [part.reshape(rollout.rewards.shape) for rollout, part in parts]


def weights(rollouts: Sequence[Rollout], samples: int) -> Tensor:
    """What each acted row counts in a mean over the `samples` valid ones, [sum of T * B]: 1 / samples or 0."""
    valid = flat([rollout.valid for rollout in rollouts]).astype(bool)
    return torch.from_numpy(valid.astype(np.float32) / samples)


def _sizes(rollout: Rollout) -> tuple[int, int]:
    """How many acted rows a rollout has among the inputs, and how many others."""
    return rollout.rewards.size, rollout.rewards.shape[1] + len(rollout.final_observations)


def _flat(part: NDArray[Any]) -> NDArray[Any]:
    return part.reshape(-1, *part.shape[2:])


def _joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
