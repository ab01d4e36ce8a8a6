"""The storage of a gradient worker in library mode: the rollouts of the round in progress, until its last gradient."""

from __future__ import annotations

from collections.abc import Sequence

from hive.workers.c_worker import CollectedRollout

__all__ = ["RoundStorage"]


class RoundStorage:
    """The rollouts of one round, in the order of their workers. `left`: gradients that are still to be made of it."""

    def __init__(self) -> None:
        self.rollouts: list[CollectedRollout] = []
        self.left = 0

    def insert(self, rollouts: Sequence[CollectedRollout], gradients: int) -> None:
        """A new round, of which so many gradients are made, takes the place of the last."""
        self.rollouts = list(rollouts)
        self.left = gradients

    @property
    def samples(self) -> int:
        """Steps that count."""
        return sum(one.n_samples for one in self.rollouts)
