"""Where one step of B environments is written.

Step t of a rollout of T steps writes into arrays that somebody else owns, such as a slot in shared memory:

    observations    [T+1, B, ...]   step t writes row t + 1; row 0 comes from the reset or the rollout before
    rewards, terminated, truncated, valid, episode_returns, episode_lengths, final_index
                    [T, B]          step t writes row t
    finals          [F, ...]        the true last observations of truncated episodes, in the order they ended

A `StepRow` holds the views of one t, built once per slot, so that a step makes no views and the native pass that
writes most of them (`hive.envs.episodes`) need not look at them again. What environments return is not checked
here, but by `hive.envs.checks` on its way in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive import _native
from hive.envs.spec import ObservationSpec

__all__ = ["FinalObservations", "StepRow"]


class FinalObservations:
    """The last observations of truncated episodes: `observations` [F, ...], of which the first `count` are
    written.

    One step adds at most one for each environment. Whoever collects ends a rollout early, which is legal,
    while `room` is smaller than the number of environments; an observation that comes when there is no room
    is left out.
    """

    __slots__ = ("count", "observations")

    def __init__(self, observations: NDArray[Any]) -> None:
        self.observations = observations
        self.count = 0

    @property
    def room(self) -> int:
        """How many more fit."""
        return len(self.observations) - self.count

    def add(self, observation: NDArray[Any]) -> int:
        """Copies one observation in and returns its index, or -1 where there was no room."""
        index = self.count
        if index == len(self.observations):
            return -1
        self.observations[index] = observation
        self.count = index + 1
        return index


class _NativeRow:
    """A row's arrays as the native pass has them. Apart, since it is no field of a row."""

    __slots__ = ("native",)
    native: _native.Row


@dataclass(frozen=True, slots=True, eq=False)
class StepRow(_NativeRow):
    """The views that one step of B environments writes.

    - `observations` [B, ...]: what the next action is chosen for. After an end: of the next episode, except
      in vectors that reset in the step after (`valid`), where the ended episode's last.
    - `rewards` [B] float32; 0 where not valid.
    - `terminated`, `truncated` [B] uint8: never both; an episode that did both at once is terminated.
    - `valid` [B] uint8: 0 marks a step that only reset the environment. Its action was ignored.
    - `episode_returns` [B] float32, `episode_lengths` [B] int32: of the episode that ended here, else 0.
    - `final_index` [B] int32: where truncated, the index of the true last observation in `finals`, else -1.

    All but `observations` are contiguous: TypeError for another dtype, ValueError for another shape or layout.
    """

    observations: NDArray[Any]
    rewards: NDArray[np.float32]
    terminated: NDArray[np.uint8]
    truncated: NDArray[np.uint8]
    valid: NDArray[np.uint8]
    episode_returns: NDArray[np.float32]
    episode_lengths: NDArray[np.int32]
    final_index: NDArray[np.int32]
    finals: FinalObservations

    def __post_init__(self) -> None:
        flags = self.terminated, self.truncated, self.valid
        episodes = self.episode_returns, self.episode_lengths
        object.__setattr__(self, "native", _native.Row(self.rewards, *flags, *episodes, self.final_index))

    @classmethod
    def allocate(cls, spec: ObservationSpec, count: int) -> StepRow:
        """A row of its own memory for `count` environments, with room for the finals of one step."""
        return cls(
            observations=np.zeros((count, *spec.shape), spec.dtype),
            rewards=np.zeros(count, np.float32),
            terminated=np.zeros(count, np.uint8),
            truncated=np.zeros(count, np.uint8),
            valid=np.zeros(count, np.uint8),
            episode_returns=np.zeros(count, np.float32),
            episode_lengths=np.zeros(count, np.int32),
            final_index=np.full(count, -1, np.int32),
            finals=FinalObservations(np.zeros((count, *spec.shape), spec.dtype)),
        )
