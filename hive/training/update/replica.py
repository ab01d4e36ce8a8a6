"""A replica is a gradient worker's copy of the learner's state (decentralized updates).

    gradients of all workers, read in their slots  ->  the same reduction, the same optimizer  ->  the replica's blocks

Every replica applies the same gradients in the same order as the learner, natively and out of place. So all replicas
are bit-identical after every turn, and no worker waits for the learner's weights between two minibatches. The learner
differs from a replica only in that it makes no gradients and owns the state that is published, saved and copied. In a
script a Trainer updates its own replica.

Why a gradient is never overwritten before all replicas have read it: message n of a worker lies in slot n mod S until
the worker begins message n + S. Let L be the lag in turns and K the gradients of each worker in a turn. A worker that
begins a gradient of turn u has applied all turns before u - L. So all workers had committed turn u - L - 1, and had
applied all turns before u - 2 L - 1. With S = (2 L + 2) K slots, the overwritten gradient belongs to such a turn.

Only the successor of a killed worker, which starts from the learner's state, may be overtaken. It detects this by the
number in each gradient and copies the learner's state again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hive.gradients import SEQUENCE
from hive.networks.weights.flat import ALIGNMENT
from hive.runtime.memory.segments import Arrays, Bytes
from hive.training.blueprint import Blueprint
from hive.training.run_start import write_first_state
from hive.training.update.learner import Learner, LearnerStep


def replica_slots(lag: int, per_turn: int) -> int:
    """Return the gradient slots per worker with which no replica is overtaken; derived in the module's docstring."""
    return (2 * lag + 2) * per_turn


class Replica:
    """Weights and optimizer state of turn `turn`, which is -1 before the first `copy` or `begin`.

    Turns alternate between two pairs of blocks, so bound `weights` stay unchanged until the turn after the next.
    """

    def __init__(self, learner: Learner, state_bytes: int) -> None:
        self.learner = learner
        self.turn = -1
        self._current, self._next = ((_block(state_bytes), _block(learner.layout.bytes)) for _ in range(2))

    @property
    def weights(self) -> Bytes:
        """uint8 [state_bytes]: the weights and the target of this turn."""
        return self._current[0]

    @property
    def optimizer_state(self) -> Bytes:
        """uint8 [layout.bytes]: the optimizer state of this turn."""
        return self._current[1]

    def begin(self, blueprint: Blueprint) -> None:
        """Start with the first weights and optimizer state of a run."""
        self.turn = write_first_state(blueprint, *self._current)

    def apply(self, gradients: Sequence[Arrays]) -> LearnerStep:
        """Make one turn of these gradients, whatever their numbers. `turn` only increases if it is an update."""
        step = self.learner.turn(gradients, *self._current, *self._next)
        self._current, self._next = self._next, self._current
        self.turn += step.applied
        return step

    def copy(self, turn: int, weights: Bytes, optimizer_state: Bytes) -> None:
        """Copy the learner's state of a turn."""
        self._current[0][:], self._current[1][:] = weights, optimizer_state
        self.turn = turn

    def advance(self, gradients: Sequence[Arrays], numbers: Sequence[int]) -> bool:
        """Apply the gradients of the next turn, in (worker, sequence) order.

        Return False, with the state unchanged, if a slot no longer contains the gradient of that number.
        """
        if not _have_numbers(gradients, numbers):
            return False
        self.learner.turn(gradients, *self._current, *self._next)
        # Check again: a slot overwritten during the turn would make this replica differ. `_next` is then discarded.
        if not _have_numbers(gradients, numbers):
            return False
        self._current, self._next = self._next, self._current
        self.turn += 1
        return True


def _have_numbers(gradients: Sequence[Arrays], numbers: Sequence[int]) -> bool:
    return all(g["header"].item(SEQUENCE) == number for g, number in zip(gradients, numbers, strict=True))


def _block(size: int) -> Bytes:
    """Return memory aligned like a block of a board, because alignment changes the bits of a matrix product."""
    memory = np.zeros(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]
