"""A vector of environments with one agent as a table with one seat, so that what plays at tables plays in it, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.envs.agents.seats import EndedEpisode
from hive.envs.processes.process_vector import ProcessVector
from hive.envs.spaces.fitted import fitted_vector
from hive.envs.spaces.observation import ObservationSpec
from hive.envs.vectors.rows import StepRow
from hive.envs.vectors.seeding import runs_python
from hive.envs.vectors.vector import VectorEnvironment, let_play

LONE = ""
"""The name of the only agent."""


@dataclass(frozen=True)
class LoneSeat:
    """The seat of the only agent, with a column of each environment."""

    count: int
    observation: ObservationSpec
    info: Sequence[str]
    agents: tuple[str, ...] = (LONE,)


class LoneTable:
    """A table, as `hive.envs.agents.playable.Table` describes it, of a vector. observation: that the policy sees.

    info: the names of the values of `info` in the vector's rows.
    """

    def __init__(self, vector: VectorEnvironment, observation: ObservationSpec, info: Sequence[str] = ()) -> None:
        self.vector = fitted_vector(vector, observation)
        self.count = vector.count
        self.seats = (LoneSeat(self.count, observation, info),)
        self.runs_python = runs_python(vector)
        self.ended: list[EndedEpisode] = []
        self.processes = vector if isinstance(vector, ProcessVector) else None
        self._lengths, self._returns = np.zeros(self.count, np.int64), np.zeros(self.count)  # [B]: of running episodes

    def seed_processes(self, seed: int) -> None:
        """Seed the global generators of the environments' own processes, if they have some."""
        if self.processes is not None:
            self.processes.seed_globals(seed)

    def reset(self, seeds: Sequence[int], observations: Sequence[NDArray[Any]]) -> None:
        """Start an episode in every environment; write its first observation."""
        self.vector.reset(seeds, observations[0])
        self._lengths[:], self._returns[:] = 0, 0.0

    def play(self, episodes: NDArray[np.int64]) -> None:
        """Let each environment play so many more episodes."""
        let_play(self.vector, episodes)

    def turns(self, seat: int) -> None:
        """Return None: every column acts in each step."""

    def step(self, actions: Sequence[NDArray[Any]], rows: Sequence[StepRow]) -> None:
        """Step every environment once."""
        (row,) = rows
        self.vector.step(actions[0], row)
        self._lengths[row.valid == 0], self._returns[row.valid == 0] = 0, 0.0  # an episode that failed is none
        self._lengths += row.valid
        self._returns += row.rewards
        for number in np.flatnonzero(row.episode_lengths).tolist():
            names, values = self.seats[0].info, row.infos[number].tolist() if self.seats[0].info else ()
            infos = {name: value for name, value in zip(names, values, strict=True) if np.isfinite(value)}
            returned, length = float(row.episode_returns[number]), int(row.episode_lengths[number])
            self.ended.append(EndedEpisode(number, {LONE: returned}, length, False, {LONE: infos}))
            self._lengths[number], self._returns[number] = 0, 0.0

    def cut(self, number: int) -> None:
        """End the running episode of an environment, with its return so far. It waits for the next reset."""
        returned, length = float(np.float32(self._returns[number])), int(self._lengths[number])
        self.ended.append(EndedEpisode(number, {LONE: returned}, length, True, {}))
        self._lengths[number], self._returns[number] = 0, 0.0

    @property
    def steps(self) -> NDArray[np.int64]:
        """Steps of each running episode, [count]."""
        return self._lengths

    def close(self) -> None:
        """Close every environment."""
        self.vector.close()
