"""The rows of rollouts as sequences, for recurrent policies.

Each environment of each rollout is one column, numbered over all rollouts. It begins with the state that the rollout
stores, and with zeros after each episode end. The network's outputs have the order of all other rows
(hive.algorithms.batches.rows), so advantages and losses do not depend on the policy's memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hive.algorithms.batches.frames import StackedRows
from hive.experience import Rollout
from hive.networks.rows.inputs import Fragments, Sequences


def input_sequences(rollouts: Sequence[Rollout], rows: Tensor) -> Sequences:
    """Return all input rows [N, ...] of the rollouts as Sequences.

    A final observation follows the last row of its episode.
    """
    parts, finals, parents = [], [], []
    row = column = 0
    for rollout in rollouts:
        starts = rollout.starts()
        parts.append(Fragments.between(starts, row, column))
        count = len(rollout.final_observations)
        step, env = np.nonzero(rollout.final_index >= 0)
        finals.append(row + starts.size + rollout.final_index[step, env].astype(np.int64))
        parents.append(row + step * starts.shape[1] + env)
        row, column = row + starts.size + count, column + starts.shape[1]
    follow = np.concatenate(finals), np.concatenate(parents)
    return Fragments.joined(parts).sorted().sequences(rows, _states(rollouts), follow if len(follow[0]) else None)


class ActedFragments:
    """The valid acted rows of rollouts, without the others, for minibatches of whole columns.

    columns: their number. Rows are counted among the valid acted rows of all rollouts. A row that is not valid ends the
    fragment before it, also where its episode goes on in the next rollout: the rows that an agent left unused, which
    acts in turn. So leaving these rows out cuts no fragment.
    """

    def __init__(self, rollouts: Sequence[Rollout]) -> None:
        valid = np.concatenate([rollout.valid.reshape(-1) for rollout in rollouts]) != 0
        parts = []
        row = self.columns = 0
        for rollout in rollouts:
            cuts = rollout.starts()[:-1] | (rollout.valid == 0)
            parts.append(Fragments.between(cuts, row, self.columns))
            row, self.columns = row + rollout.valid.size, self.columns + rollout.valid.shape[1]
        fragments = Fragments.joined(parts)
        self._fragments = fragments.where(valid[fragments.first])
        self._number = np.cumsum(valid) - 1
        self._states = _states(rollouts)

    def sequences(self, observations: Tensor | StackedRows, columns: NDArray[np.int64]) -> tuple[Tensor, Sequences]:
        """Return the rows of some columns, int64 [M], and these rows as Sequences.

        observations: those of all valid acted rows.
        """
        chosen = np.zeros(self.columns, np.bool_)
        chosen[columns] = True
        fragments = self._fragments.where(chosen[self._fragments.column]).sorted()
        packed, sizes = fragments.packed()
        rows = torch.from_numpy(self._number[packed])
        state = fragments.initial(self._states)
        return rows, Sequences(
            observations.index_select(0, rows.to(observations.device)), state, torch.from_numpy(sizes)
        )


def _states(rollouts: Sequence[Rollout]) -> Tensor:
    """Return the stored states of all columns, float32 [C, S]."""
    states = [rollout.state for rollout in rollouts if rollout.state is not None]
    return torch.from_numpy(states[0] if len(states) == 1 else np.concatenate(states))
