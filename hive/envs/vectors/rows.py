"""The arrays that one step of B environments writes.

Step t of a rollout of T steps writes into arrays that the caller owns, such as a slot in shared memory:

    observations    [T+1, B, ...]   step t writes row t + 1; row 0 comes from the reset or the previous rollout
    rewards, terminated, truncated, valid, episode_returns, episode_lengths, final_index
                    [T, B]          step t writes row t
    infos           [T, B, K]       step t writes row t
    finals          [T B, ...]      true last observations of truncated episodes, in the order in which they ended

A `StepRow` holds the views of one t. It is built once per slot, so that a step creates no views and the native pass
that writes most of them (`hive.envs.vectors.episodes`) need not check them again. `hive.envs.vectors.checks` checks the
values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive import _native
from hive.envs.spaces.observation import ObservationSpec


class FinalObservations:
    """The last observations of truncated episodes: the first `count` of `observations` [F, ...] are written.

    One step adds at most one per environment, so a rollout has room for one of every step. The caller of single steps
    sets `count` back before each.
    """

    __slots__ = ("count", "observations")

    def __init__(self, observations: NDArray[Any]) -> None:
        self.observations = observations
        self.count = 0

    def add(self, observation: NDArray[Any]) -> int:
        """Copy one observation [...] and return its index. Raises IndexError if there is no room."""
        index = self.count
        self.observations[index] = observation
        self.count = index + 1
        return index


NO_INFOS = np.zeros((0, 0), np.float32)


class _NativeRow:
    """The native pass's handle of a row's arrays. A base class, because `native` is not a field of the dataclass."""

    __slots__ = ("native",)
    native: _native.Row


@dataclass(frozen=True, slots=True, eq=False)
class StepRow(_NativeRow):
    """The views that one step of B environments writes.

    - `observations` [B, ...]: observations for the next actions. After the end of an episode, the first of the next
      one; in vectors that reset in the next step (`valid`), the last of the ended one.
    - `rewards` [B] float32; 0 where not valid.
    - `terminated`, `truncated` [B] uint8: never both; an episode that ends in both ways counts as terminated.
    - `valid` [B] uint8: 0 marks a step that only reset the environment and ignored its action.
    - `episode_returns` [B] float32, `episode_lengths` [B] int32: values of an episode that ended in this step, else 0.
    - `final_index` [B] int32: where truncated, the index of the true last observation in `finals`, else -1.
    - `infos` [B, K] float32: K chosen values of `info` of an episode that ended in this step, else NaN. Not written for
      a vector without chosen values.

    All but `observations` must be contiguous. Raises TypeError for a wrong dtype, and ValueError for a wrong shape or
    layout.
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
    infos: NDArray[np.float32] = field(default_factory=lambda: NO_INFOS)

    def __post_init__(self) -> None:
        flags = self.terminated, self.truncated, self.valid
        episodes = self.episode_returns, self.episode_lengths
        observations = self.observations, self.finals.observations
        native = _native.Row(self.rewards, *flags, *episodes, self.final_index, *observations)
        object.__setattr__(self, "native", native)

    @property
    def ended(self) -> NDArray[np.bool_]:
        """Whether the next observation begins an episode, or the step only reset its environment, [B], a new array.

        A policy's memory is cleared there.
        """
        ended: NDArray[np.bool_] = (self.terminated != 0) | (self.truncated != 0) | (self.valid == 0)
        return ended

    @classmethod
    def allocate(cls, spec: ObservationSpec, count: int, infos: int = 0) -> StepRow:
        """Allocate a row for `count` environments and `infos` values, with room for the finals of one step."""
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
            infos=np.full((count, infos), np.nan, np.float32),
        )
