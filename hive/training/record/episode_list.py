"""Makes the episodes that sinks and callbacks get of the learner's messages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.records.sinks.sinks import Episode
from hive.training.blueprint import Blueprint
from hive.training.messages import EpisodesEnded


@dataclass(frozen=True)
class EpisodeList:
    """Names the columns of a run. agents: the names of the rows of an environment, () for a single agent."""

    agents: tuple[str, ...]
    infos: tuple[str, ...]

    @classmethod
    def of(cls, blueprint: Blueprint) -> EpisodeList:
        return cls(tuple(agent.name for agent in blueprint.environment.agents), tuple(blueprint.config.env.info))

    def episodes(self, message: EpisodesEnded) -> list[Episode]:
        """Return the episodes of a message, in their order."""
        rows = len(self.agents) or 1
        infos = [shortest(row) for row in message.infos] if self.infos else [()] * len(message.returns)
        columns: list[Any] = [
            getattr(message, name).tolist() for name in ("updates", "env_steps", "seconds", "columns")
        ]
        return [
            Episode(
                number=number,
                steps=steps,
                updates=updates,
                seconds=seconds,
                environment=column // rows,
                agent=self.agents[column % rows] if self.agents else None,
                episode_return=returned,
                length=length,
                info={name: value for name, value in zip(self.infos, values, strict=True) if not math.isnan(value)},
            )
            for number, (updates, steps, seconds, column, returned, length, values) in enumerate(
                zip(*columns, shortest(message.returns), message.lengths.tolist(), infos, strict=True),
                start=message.first,
            )
        ]


def shortest(values: NDArray[Any]) -> list[float]:
    """Return float32 values as the shortest decimals that they are the nearest float32 of: 0.1 as 0.1."""
    found: list[float] = values.tolist()
    for at in np.flatnonzero(values != np.rint(values)).tolist():
        found[at] = float(str(values[at]))
    return found
