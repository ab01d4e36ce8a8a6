"""Priorities of a replay memory: which rows are drawn, and how much each of them counts.

Prioritized replay (Schaul et al. 2016) draws row i with the probability p_i^alpha / sum_j p_j^alpha, where p_i = |TD
error| + epsilon, and multiplies its loss by (N P_i)^-beta, divided by the largest of these weights. Here p_i^alpha is
an integer, the *leaf* of the row: round(p_i^alpha * 2^20), from 1 to 2^32 - 1. A leaf of 0 is never drawn.

    leaves = np.zeros(1_000_000, np.uint32)
    tree = PriorityTree(leaves)
    tree.fill(first, count, value)                                 # new rows, all with the same leaf
    positions, drawn = tree.draw(replay_words(seed, 0, update, 512))
    weights = importance_weights(drawn, beta=0.4)
    values, saturated = priority_leaves(np.abs(td_errors) + 1e-6, alpha=0.6)
    tree.write(positions, values)

Sums of integers do not depend on the order of writes. A tree that is rebuilt from its leaves therefore equals one that
was written to, and draws the same rows for the same words. The leaves, 4 bytes a row, are all that a checkpoint needs.
The words come from a stream that is tied to the number of the update (hive.experience.streams). Leaves and weights have
the same bytes on every machine.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hive import _native
from hive.experience.streams import Purpose, stream

Draws = tuple[NDArray[np.int64], NDArray[np.uint32]]


class PriorityTree:
    """A sum tree over N leaves in the caller's memory. It keeps the sums itself, 0.6 bytes a leaf.

    leaves: uint32 [N], C-contiguous and writable, N from 1 to 2^32; the total then fits into 64 bits. Only the methods
        of this class may change them; after any other change call `rebuild`. Fastest if aligned to 64 bytes.

    One thread at a time may use a tree. The methods release the GIL. They raise TypeError for arrays of another dtype
    and ValueError for another shape, a read-only or overlapping array, and a position or value outside its range. An
    error changes nothing.
    """

    def __init__(self, leaves: NDArray[np.uint32]) -> None:
        self._tree = _native.PriorityTree(leaves)
        self._leaves = leaves

    @property
    def native(self) -> _native.PriorityTree:
        """The tree itself, for native code that draws and writes."""
        return self._tree

    def __len__(self) -> int:
        """The number of leaves, N."""
        return len(self._tree)

    @property
    def leaves(self) -> NDArray[np.uint32]:
        """The array of leaves that the tree is attached to, uint32 [N]."""
        return self._leaves

    @property
    def total(self) -> int:
        """The sum of all leaves."""
        return self._tree.total

    @property
    def sums(self) -> NDArray[np.uint64]:
        """The tree's sums of 16 leaves, of 8 of these sums, and so on: a read-only view, uint64 [S]."""
        return self._tree.sums

    def rebuild(self) -> None:
        """Compute all sums from the leaves, in about 0.2 ms a million."""
        self._tree.rebuild()

    def write(self, positions: NDArray[np.int64], values: NDArray[np.uint32]) -> None:
        """Set `leaves[positions[i]] = values[i]`, in order: of equal positions the last counts.

        positions: int64 [n], each from 0 to N - 1. values: uint32 [n]. Doing it twice is the same as once.
        """
        self._tree.write(positions, values)

    def fill(self, first: int, count: int, value: int) -> None:
        """Set `leaves[first : first + count] = value`, for rows that are admitted or evicted together.

        It reads the range once and costs a small part of as many writes. A range that wraps is two calls.
        """
        self._tree.fill(first, count, value)

    def draw(self, words: NDArray[np.uint64], out: Draws | None = None) -> Draws:
        """Draw n rows in proportion to their leaves; return (positions int64 [n], leaves uint32 [n]).

        words: uint64 [n], uniform, as from `replay_words`; n is at most 2^32.
        out: (positions, leaves) to write to, of these dtypes and shape; by default new arrays.

        The draws are stratified: the total is cut into n equal parts, and draw k falls into the k-th, so positions
        ascend. The arithmetic is exact, and no leaf of 0 is drawn. With a total of 0 nothing is drawn: both results
        have the length 0. Raises RuntimeError if it finds that other code changed the leaves.
        """
        positions, leaves = out or (np.empty(words.shape, np.int64), np.empty(words.shape, np.uint32))
        if not self._tree.draw(words, positions, leaves):
            return positions[:0], leaves[:0]
        return positions, leaves


def priority_leaves(priorities: NDArray[np.float32], alpha: float) -> tuple[NDArray[np.uint32], int]:
    """Return (leaves uint32 [n], number of them that were above the limit of 2^32 - 1).

    priorities: float32 [n], |TD error| + epsilon; priorities below 2^-126 count as 0.
    alpha: from 0 (all leaves are 2^20) to 1.

    Raises ValueError for a priority that is negative, NaN or infinite; the error names its index.
    """
    leaves = np.empty(np.shape(priorities), np.uint32)
    return leaves, _native.priority_leaves(priorities, alpha, leaves)


def importance_weights(leaves: NDArray[np.uint32], beta: float, least: int | None = None) -> NDArray[np.float32]:
    """Return (least / leaf)^beta, float32 [n]: the weights of Schaul et al. (2016), the largest of which is 1.

    leaves: uint32 [n], of drawn rows. beta: from 0 (all weights are 1) to 1.
    least: the least leaf of all rows that are drawn for one update; by default that of `leaves`.

    Raises ValueError for a leaf of 0, and for one below `least`.
    """
    weights = np.empty(np.shape(leaves), np.float32)
    if least is None:
        least = int(leaves.min()) if len(leaves) else 1
    _native.importance_weights(leaves, least, beta, weights)
    return weights


def replay_words(
    seed: int, worker: int, number: int, count: int, used: np.random.Generator | None = None
) -> NDArray[np.uint64]:
    """Return the random words of one update, uint64 [count], from the stream (seed, replay, worker, number).

    used: a generator that the caller no longer needs, which saves making one (hive.experience.stream).
    """
    return stream(seed, Purpose.replay, worker, number, used).bit_generator.random_raw(count)
