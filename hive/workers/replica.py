"""A replica: a gradient worker's own copy of the learner's state (decentralised updates).

    gradients of all workers, where they lie  ->  the same reduction, the same optimizer  ->  blocks of its own

Every replica applies the same gradients in the same order as the learner, natively and out of place, so all have the
same bytes after every turn, and no worker waits for the learner's weights between two minibatches. The learner is a
replica too, one without a gradient: it owns the state that is published, saved and copied from. In a script a GWorker
steps a replica of its own.

Why a gradient is still there when it is read. Message n of a worker lies in slot n mod S until it begins n + S. With a
lag of L turns and K gradients of each worker a turn, a worker that begins a gradient of turn u has applied all turns
before u - L, so everybody had committed turn u - L - 1, so everybody had applied all turns before u - 2 L - 1. With
S = (2 L + 2) K slots what it overwrites is older than that. Only the successor of a worker that died starts from
somewhere else, the learner's state, and may be overtaken: gradients carry their number, so it notices, and copies anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.gradients import SEQUENCE, Codec
from hive.networks import ALIGNMENT
from hive.workers.learner import Learner, LearnerStep

__all__ = ["Replica", "replica_slots"]

Arrays = Mapping[str, NDArray[Any]]
Block = NDArray[np.uint8]


def replica_slots(lag: int, per_turn: int) -> int:
    """Gradient slots per worker, so that no replica is overtaken: see the module."""
    return (2 * lag + 2) * per_turn


class Replica:
    """Weights and optimizer state of turn `turn`, -1 before the first `copy`. `weights` may be bound; the next turn
    writes another block, and the one after it the same again."""

    def __init__(self, learner: Learner, state_bytes: int) -> None:
        self.learner = learner
        self.turn = -1
        self._now, self._next = ((_block(state_bytes), _block(learner.layout.bytes)) for _ in range(2))

    @property
    def weights(self) -> Block:
        return self._now[0]

    @property
    def optimizer_state(self) -> Block:
        return self._now[1]

    def begin(self, initialize: Callable[[Block, Block], int]) -> None:
        """Starts with the weights and the optimizer state that `initialize` writes; it returns the turn."""
        self.turn = initialize(*self._now)

    def apply(self, gradients: Sequence[Arrays], codec: Codec) -> LearnerStep:
        """One turn of these gradients, whatever their numbers. Where nothing is applied, the turn does not count."""
        if codec != self.learner.codec:
            self.learner.use_codec(codec)
        made = self.learner.turn(gradients, *self._now, *self._next)
        self._now, self._next = self._next, self._now
        self.turn += made.applied
        return made

    def copy(self, turn: int, weights: Block, optimizer_state: Block) -> None:
        """Takes over the learner's state of a turn."""
        self._now[0][:], self._now[1][:] = weights, optimizer_state
        self.turn = turn

    def advance(self, gradients: Sequence[Arrays], numbers: Sequence[int]) -> bool:
        """Applies the gradients of the next turn, in (worker, sequence) order; False, and nothing done, when one of
        them is not the gradient of that number any more."""
        if not _are(gradients, numbers):
            return False
        self.learner.turn(gradients, *self._now, *self._next)
        if not _are(gradients, numbers):  # overwritten meanwhile
            return False
        self._now, self._next = self._next, self._now
        self.turn += 1
        return True


def _are(gradients: Sequence[Arrays], numbers: Sequence[int]) -> bool:
    return all(g["header"].item(SEQUENCE) == number for g, number in zip(gradients, numbers, strict=True))


def _block(size: int) -> Block:
    """Memory that starts where a block of a board does: alignment changes the bits of a matrix product."""
    memory = np.zeros(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]
