"""Converts the rollouts of a share of a round to one batch of rows, and results of the batch back to rollouts.

The network evaluates all observations of all rollouts at once. Each rollout contributes these inputs, in order:

    rows 0..T-1 of B environments    [T * B]    the acted rows: an action was taken here
    row T                            [B]        only bootstraps
    final observations               [F]        only bootstrap, where an episode was truncated

and the outputs are in the same order. The rows of a recurrent policy also say which of them follow each other
(`hive.algorithms.batches.fragments`). Losses are over the acted rows of all rollouts, flat: [sum of T * B, ...].
`hive.algorithms.losses.actor_critic.acted_rows` selects them from the outputs, given `row_counts`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hive.algorithms.batches.fragments import ActedFragments, input_sequences
from hive.algorithms.batches.frames import StackedRows, stacked_rows
from hive.algorithms.losses.actor_critic import acted_rows
from hive.algorithms.parameters import Progress
from hive.experience import Rollout
from hive.learning.loss import Floats
from hive.networks.rows.inputs import Sequences
from hive.networks.weights.device import copy_to_device

CPU = torch.device("cpu")

# Rows evaluated at once on a device: 2 GB of layers for Atari frames, and far more than a kernel needs to be worth it.
ROWS_ON_DEVICE = 8192
STACKS = 512  # stacks evaluated at once: 14 MB of Atari frames, of which the layers make 200 MB


def input_rows(rollouts: Sequence[Rollout], device: torch.device = CPU) -> Tensor | StackedRows:
    """Return all observations, [N, ...], without a copy for a single rollout that has no final observations.

    Of a policy that sees several observations, return the stacks, which are not yet put together. device: where the
    network computes, to which each rollout is copied once.
    """
    if rollouts[0].history is not None:
        frames, numbers = stacked_rows(rollouts)
        return StackedRows(rows_on(device, frames), numbers)
    parts = []
    for rollout in rollouts:
        parts.append(_flat(rollout.observations))
        if len(rollout.final_observations):
            parts.append(rollout.final_observations)
    return rows_on(device, parts)


def rows_on(device: torch.device, parts: Sequence[NDArray[Any]]) -> Tensor:
    """Return arrays [n, ...] one after the other as a tensor [N, ...]; in host memory a single one is not copied.

    On another device the caller leaves the arrays as they are until a result of the rows has arrived from there.
    """
    if device.type == "cpu":
        return torch.from_numpy(parts[0] if len(parts) == 1 else np.concatenate(parts))
    first = torch.from_numpy(parts[0][:0])
    rows = torch.empty((sum(map(len, parts)), *first.shape[1:]), dtype=first.dtype, device=device)
    for part, target in zip(parts, rows.split_with_sizes(list(map(len, parts))), strict=True):
        copy_to_device(part, target)
    return rows


def network_input(rollouts: Sequence[Rollout], rows: Tensor | StackedRows) -> Tensor | Sequences:
    """Return the network's input for all input rows, [N, ...]: these, or with a recurrent policy Sequences of them."""
    return input_sequences(rollouts, together(rows)) if remembers(rollouts) else together(rows)


def together(rows: Tensor | StackedRows) -> Tensor:
    """Return input rows as one tensor, stacks put together."""
    return rows.tensor() if isinstance(rows, StackedRows) else rows


def evaluated(
    function: Callable[[Any], tuple[Tensor, ...]], rollouts: Sequence[Rollout], rows: Tensor | StackedRows
) -> list[NDArray[np.float32]]:
    """Return the tensors of `function(input)`, [N, ...] each, for all input rows.

    Only some stacks are made at once, and on a device only some rows are evaluated at once.
    """
    if remembers(rollouts) or (isinstance(rows, Tensor) and rows.device.type == "cpu"):
        return [found.detach().numpy() for found in function(network_input(rollouts, rows))]
    if isinstance(rows, Tensor):
        parts = [function(part) for part in rows.split(ROWS_ON_DEVICE)]
    else:
        parts = [function(rows.index_select(0, part)) for part in torch.arange(len(rows)).split(STACKS)]
    return [np.concatenate([part.detach().numpy() for part in column]) for column in zip(*parts, strict=True)]


def acted_inputs(rows: Tensor | StackedRows, sizes: Sequence[int]) -> Tensor | StackedRows:
    """Return the rows in which an action was taken, as `hive.algorithms.losses.actor_critic.acted_rows`."""
    if isinstance(rows, StackedRows):
        return StackedRows(rows.frames, acted_rows(rows.numbers, sizes))
    return acted_rows(rows, sizes)


class Batches:
    """The minibatches of a round, in order: the numbers of the rows of each, and the network's input for them.

    numbers: int64 [M] each, or None for all rows in order. input_of: returns the network's input for these.
    """

    def __init__(
        self, numbers: Iterator[Tensor | None], input_of: Callable[[Tensor | None], tuple[Tensor | None, Any]]
    ) -> None:
        self._numbers = numbers
        self._input_of = input_of

    def __iter__(self) -> Iterator[tuple[Tensor | None, Tensor | Sequences]]:
        return self

    def __next__(self) -> tuple[Tensor | None, Tensor | Sequences]:
        return self._input_of(next(self._numbers))

    def take(self, most: int) -> list[Tensor | None]:
        """Take up to `most` minibatches and return their numbers, without the network's input."""
        return list(itertools.islice(self._numbers, most))

    def put_back(self, numbers: Sequence[Tensor | None]) -> None:
        """Put minibatches that `take` returned back to the front."""
        self._numbers = itertools.chain(numbers, self._numbers)


def batches(
    rollouts: Sequence[Rollout],
    observations: Tensor | StackedRows,
    epochs: int,
    parts: int,
    noise: np.random.Generator | None = None,
) -> Batches:
    """Return the minibatches of `epochs` epochs.

    observations: those of all valid acted rows, which the numbers count. A minibatch is a random part of them, or with
    a recurrent policy all of them in a random part of the environments. Other arguments: as for `minibatches`.
    """
    if remembers(rollouts):
        fragments = ActedFragments(rollouts)

        def sequences(columns: Tensor | None) -> tuple[Tensor, Sequences]:
            assert columns is not None
            return fragments.sequences(observations, columns.numpy())

        return Batches(iter(minibatches(fragments.columns, epochs, parts, noise)), sequences)
    if parts == 1:  # their order has no influence
        everything = together(observations)
        return Batches(itertools.repeat(None, epochs), lambda rows: (None, everything))
    numbers = minibatches(len(observations), epochs, parts, noise)
    return Batches(iter(numbers), lambda rows: (rows, picked(observations, cast(Tensor, rows))))


def picked(rows: Tensor | StackedRows, numbers: Tensor) -> Tensor:
    """Return some rows [M, ...], by their numbers, int64 [M], in host memory."""
    return rows.index_select(0, numbers.to(rows.device))


def minibatches(count: int, epochs: int, parts: int, noise: np.random.Generator | None = None) -> Iterator[Tensor]:
    """Yield the indices of each minibatch, int64: `epochs` permutations of `count` rows, each in `parts` parts.

    Parts differ by at most one row, and are empty if there are fewer rows. noise: draws the permutations; None: a
    generator with a fixed seed.
    """
    generator = noise or np.random.default_rng(0)
    for _ in range(epochs):
        for rows in np.array_split(generator.permutation(count), parts):
            yield torch.from_numpy(rows)


def row_counts(rollouts: Sequence[Rollout]) -> list[int]:
    """Return two numbers for each rollout, as `acted_rows` takes them: its acted rows, and rows that only bootstrap."""
    return [size for rollout in rollouts for size in _row_counts(rollout)]


def progress_of(rollouts: Sequence[Rollout]) -> Progress:
    """Return how much of the run is done with these rollouts: their mean."""
    shares, env_steps = [rollout.progress for rollout in rollouts], [rollout.run_steps for rollout in rollouts]
    return Progress(sum(shares) / len(rollouts), sum(env_steps) / len(rollouts))


def values_of(rollouts: Sequence[Rollout], values: Floats) -> Iterator[tuple[Rollout, Floats, Floats]]:
    """Split values [N] into V(s_t) and V(s_t+1) of each rollout, both float32 [T, B].

    After a truncated step, s_t+1 is the true last observation of its episode, otherwise row t+1. The arrays may share
    memory.
    """
    start = 0
    for rollout in rollouts:
        end = start + sum(_row_counts(rollout))
        final = end - len(rollout.final_observations)
        current = np.ascontiguousarray(values[start:final]).reshape(-1, rollout.rewards.shape[1])
        following = current[1:]
        if final < end:
            following = following.copy()
            truncated = rollout.final_index >= 0
            following[truncated] = values[final:end][rollout.final_index[truncated]]
        yield rollout, current[:-1], following
        start = end


def flat(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Concatenate [T, B, ...] of each rollout to [sum of T * B, ...]. A single array is not copied."""
    return _joined([_flat(part) for part in parts])


def unflat(rollouts: Sequence[Rollout], rows: NDArray[Any]) -> list[NDArray[Any]]:
    """Split [sum of T * B] into [T, B] of each rollout, as views."""
    ends = np.cumsum([rollout.rewards.size for rollout in rollouts])
    parts = zip(rollouts, np.split(rows, ends[:-1]), strict=True)
    return [part.reshape(rollout.rewards.shape) for rollout, part in parts]


def weights(rollouts: Sequence[Rollout], samples: int) -> Tensor:
    """Return the weight of each acted row in a mean over the `samples` valid steps, float32 [sum of T * B].

    The weight is 1 / samples for a valid step and 0 for any other.
    """
    valid = flat([rollout.valid for rollout in rollouts]).astype(bool)
    return torch.from_numpy(valid.astype(np.float32) / samples)


def remembers(rollouts: Sequence[Rollout]) -> bool:
    """Return whether a recurrent policy acted in these rollouts."""
    return rollouts[0].state is not None


def _row_counts(rollout: Rollout) -> tuple[int, int]:
    """Return the number of a rollout's acted rows, and of its rows that only bootstrap."""
    return rollout.rewards.size, rollout.rewards.shape[1] + len(rollout.final_observations)


def _flat(part: NDArray[Any]) -> NDArray[Any]:
    return part.reshape(-1, *part.shape[2:])


def _joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
