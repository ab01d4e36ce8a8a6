"""Environments whose agents all have the same policy, as one vector: a row of each agent is one of its B rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.envs.agents.parallel import ParallelVector
from hive.envs.vectors.rows import StepRow


class Alone:
    """A `VectorEnvironment`, which documents the methods, of a table with one seat. agents: rows of one environment."""

    def __init__(self, table: ParallelVector) -> None:
        (seat,) = table.seats
        self.table = table
        self.count = seat.count
        self.agents = len(seat.agents)
        self.environments, self.notices = table.environments, table.notices
        self.observation, self.action = seat.seat.spec.observation, seat.seat.spec.action

    @property
    def refused(self) -> str:
        """As of `hive.envs.vectors.resetting.Resets`."""
        return self.table.refused

    def reset(self, seeds: Sequence[int], observations: NDArray[Any]) -> None:
        """Start an episode in every environment, with the seed of its first row; write `observations` [B, ...]."""
        self.table.reset(seeds[:: self.agents], [observations])

    def step(self, actions: NDArray[Any], row: StepRow) -> None:
        """Step every environment once with stored `actions` [B, ...]; write `row`."""
        self.table.step([actions], [row])
        self.table.ended.clear()  # those that are in the row

    def play(self, episodes: NDArray[np.int64]) -> None:
        """Let each environment play until every agent has had so many more episodes, [B]."""
        self.table.play(episodes.reshape(-1, self.agents).max(axis=1))

    def set_attributes(self, values: Mapping[str, Any]) -> None:
        """Give every environment these values before its next reset."""
        self.table.set_attributes(values)

    def close(self) -> None:
        """Close every environment."""
        self.table.close()
