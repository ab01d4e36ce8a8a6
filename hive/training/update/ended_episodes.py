"""The episodes that ended since the learner last reported them, for `episodes.jsonl` and callbacks.

They are added once the run counts them: with the turn of the gradients that carry them, or with the rollouts that a
replay memory takes. So their order and numbers are those of the mean return that ends a run, and follow from the seed
where the run does. They live in the learner's memory until `take`: a learner that is killed loses those that it has not
sent, although the run counts them. Their numbers are then missing, and none is there twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from hive.experience import Rollout
from hive.gradients import EPISODES
from hive.runtime.memory.segments import Arrays
from hive.training.messages import EpisodesEnded

NO_INFOS = [np.zeros(0, np.float32)]


class EndedEpisodes:
    """Collects episodes: `of_gradients` or `of_rollouts`, and `take`. infos: the number K of their values of `info`."""

    def __init__(self, infos: int) -> None:
        self._infos = infos
        self._parts: list[EpisodesEnded] = []
        self.held = 0
        """How many there are."""

    def of_gradients(self, gradients: Sequence[Arrays], totals: Mapping[str, float]) -> None:
        """Add what the gradient slots of a turn carry, in their order.

        totals: "episodes" of the run, with these, and its "updates", "env_steps" and "train_s" after the turn.
        """
        own = [(gradient, int(gradient["header"][EPISODES])) for gradient in gradients]
        if not any(count for _, count in own):
            return
        returns, lengths, columns = (
            np.concatenate([gradient[name][:count] for gradient, count in own])
            for name in ("episode_returns", "episode_lengths", "episode_columns")
        )
        infos = [gradient["episode_infos"][:count] for gradient, count in own] if self._infos else NO_INFOS
        self.of_arrays(returns, lengths, columns, np.concatenate(infos), totals)

    def of_rollouts(self, rollouts: Sequence[Rollout], totals: Mapping[str, float]) -> None:
        """Add the episodes that ended in the rollouts that a replay memory has taken together; as `of_gradients`."""
        ends = [rollout.episodes() for rollout in rollouts]
        if not any(len(returns) for returns, _ in ends):
            return
        columns = np.concatenate([rollout.episode_columns() for rollout in rollouts])
        infos = [rollout.episode_infos() for rollout in rollouts]
        returns, lengths = (np.concatenate(parts) for parts in zip(*ends, strict=True))
        self.of_arrays(returns, lengths, columns, np.concatenate(infos), totals)

    def take(self) -> EpisodesEnded | None:
        """Return the episodes since the last call in one message, and forget them; None if there are none."""
        parts, self._parts, self.held = self._parts, [], 0
        if len(parts) <= 1:
            return parts[0] if parts else None
        return EpisodesEnded(
            parts[0].first,
            *(
                np.concatenate([getattr(part, name) for part in parts])
                for name in ("returns", "lengths", "columns", "infos", "updates", "env_steps", "seconds")
            ),
        )

    def of_arrays(
        self,
        returns: NDArray[np.float32],
        lengths: NDArray[np.int32],
        columns: NDArray[np.int32],
        infos: NDArray[np.float32],
        totals: Mapping[str, float],
    ) -> None:
        """Add these [n] episodes; infos: [n K] in rows, and maybe further values of each."""
        count = len(returns)
        self.held += count
        self._parts.append(
            EpisodesEnded(
                int(totals["episodes"]) - count + 1,
                returns,
                lengths,
                columns,
                infos.reshape(count, -1)[:, : self._infos],
                np.full(count, totals["updates"], np.int64),
                np.full(count, totals["env_steps"], np.int64),
                np.full(count, totals["train_s"]),
            )
        )
