"""The sizes of a replay memory, from which the layouts of its rows and of its plans follow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class ReplaySize:
    """The sizes of a replay memory.

    sources, envs, steps: collectors, their environments, and the steps of a rollout. kept: rows of each collector that
    can be drawn. rounds_ahead: rounds that may be appended while a plan is in use. stack: observations that the network
    sees. n_step: of a transition. workers: gradient workers. batch: rows drawn for each of them.
    """

    sources: int
    envs: int
    steps: int
    kept: int
    rounds_ahead: int
    stack: int
    n_step: int
    workers: int
    batch: int

    @property
    def rows(self) -> int:
        """R: rows of each ring. Each rollout may need one more row, the seam before it."""
        return self.kept + (self.rounds_ahead + 1) * (self.steps + 1) + self.n_step + self.stack + 1

    @property
    def saved(self) -> int:
        """Rows of each collector in a checkpoint: those that can be drawn, and those that these need on both sides."""
        return self.kept + self.n_step + self.stack - 2

    def first_rows(self, written: NDArray[np.int64]) -> list[int]:
        """Return the first row of each collector in a checkpoint."""
        return [max(0, rows - self.saved) for rows in written.tolist()]
