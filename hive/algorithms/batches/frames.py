"""Stacks of the last k observations, put together from rollouts that store each observation once.

A stack is k numbers of frames. No stack reaches over the beginning of an episode: what is missing is frame 0, zeros.
The last observation of a truncated episode follows the k - 1 observations before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hive.experience import Rollout


@dataclass(frozen=True, eq=False)
class StackedRows:
    """N stacks, which are copied from their frames only when they are needed.

    frames: [M, *shape], without repetition, on any device; frame 0 is zeros. numbers: int64 [N, k], the frames of each
    stack, in host memory.
    """

    frames: Tensor
    numbers: Tensor

    @property
    def device(self) -> torch.device:
        """The device of the numbers that select stacks."""
        return self.numbers.device

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, rows: Tensor | slice) -> StackedRows:
        """Return some of the stacks."""
        return StackedRows(self.frames, self.numbers[rows])

    def index_select(self, dim: int, rows: Tensor) -> Tensor:
        """Return the stacks with these numbers, [len(rows), k, *shape], as Tensor.index_select does."""
        chosen = self.numbers.index_select(dim, rows)
        stacks = self.frames.index_select(0, chosen.reshape(-1).to(self.frames.device))
        return stacks.view(*chosen.shape, *self.frames.shape[1:])

    def tensor(self) -> Tensor:
        """Return all stacks, [N, k, *shape]."""
        return self.index_select(0, torch.arange(len(self)))


def stacked_rows(rollouts: Sequence[Rollout]) -> tuple[list[NDArray[Any]], Tensor]:
    """Return the parts of `StackedRows.frames`, and its numbers, for all input rows of the rollouts.

    The order is that of hive.algorithms.batches.rows.
    """
    frames, numbers, begin = [np.zeros_like(rollouts[0].observations[:1, 0])], [], 1
    for rollout in rollouts:
        assert rollout.history is not None
        history, observations, finals = rollout.history, rollout.observations, rollout.final_observations
        frames += [part.reshape(-1, *part.shape[2:]) for part in (history, observations)] + [finals]
        numbers.append(_numbers(rollout, begin))
        begin += history.shape[0] * history.shape[1] + observations.shape[0] * observations.shape[1] + len(finals)
    return frames, torch.from_numpy(np.concatenate(numbers))


def _numbers(rollout: Rollout, begin: int) -> NDArray[np.int64]:
    """Return the frames of each stack of one rollout, [(T + 1) * B + F, k]; its history begins with frame `begin`."""
    assert rollout.history is not None
    before, envs = rollout.history.shape[:2]
    rows = np.arange(len(rollout.observations))[:, None]
    starts = rollout.starts()
    first = np.maximum.accumulate(np.where(starts, rows, -before), axis=0)  # [T+1, B]: where the row's episode begins
    place = rows + np.arange(-before, 1)  # [T+1, k]: row of each frame; the history has negative rows
    frame = begin + (before + place)[:, None, :] * envs + np.arange(envs)[None, :, None]
    numbers = np.where(place[:, None, :] >= first[:, :, None], frame, 0)
    finals = np.zeros((len(rollout.final_observations), before + 1), np.int64)
    step, env = np.nonzero(rollout.final_index >= 0)
    index = rollout.final_index[step, env]
    finals[index, :-1] = numbers[step, env, 1:]
    finals[index, -1] = begin + (before + len(rows)) * envs + index
    return np.concatenate([numbers.reshape(-1, before + 1), finals])
