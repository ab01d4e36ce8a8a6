"""Counts the open episodes of a vector's environments, and writes the results of a step into a row.

One native pass (native/include/hive/rows.hpp) writes everything in a row but the observations. It handles the types
that environments usually return, and returns None for others. Then NumPy converts them here, or `Checks` raises an
error, and the same pass follows. So only the native pass counts, and only `Checks` raises errors.

The vector receives the environments whose episodes ended. It keeps their last observations and resets them, apart from
those that have played all their episodes (`play`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive import _native
from hive.envs.vectors.checks import Checks, short
from hive.envs.vectors.rows import StepRow

Flags = tuple[Any, ...] | NDArray[Any]


class Episodes:
    """The open episodes of `count` environments, and which of these the next step only resets.

    resets_in_next_step: the step after the end of an episode ignores its action and resets (next-step autoreset).
    limit: number of steps after which an episode is truncated; 0 for no limit.
    """

    __slots__ = ("_checks", "_count", "_left", "_native")

    def __init__(self, checks: Checks, count: int, *, resets_in_next_step: bool = False, limit: int = 0) -> None:
        self._checks = checks
        self._count = count
        self._native = _native.Episodes(count, resets_in_next_step, limit)
        self._left: NDArray[np.int64] | None = None  # [B]: as of `play`

    def begin(self) -> None:
        """Start an episode in every environment. Open episodes are dropped and not counted."""
        self._native.reset()
        self._left = None

    def play(self, episodes: NDArray[np.int64]) -> None:
        """Let each environment play so many more episodes [B]; as of `hive.envs.vectors.vector.let_play`."""
        self._left = episodes.copy()

    @property
    def resting(self) -> list[int]:
        """The environments that have played all their episodes, which the vector must neither step nor reset."""
        return [] if self._left is None else np.flatnonzero(self._left == 0).tolist()

    def finish(self, rewards: Any, terminated: Flags, truncated: Flags, row: StepRow) -> tuple[list[int], list[int]]:
        """Write all of `row` but its observations and finals. `final_index` becomes -1 everywhere.

        rewards, terminated, truncated: tuples of B values from single environments, whose flags may be of any type with
            a truth value; or arrays [B] from a vectorized class, whose flags must be bool.

        Returns the indices of environments whose episodes ended, and of those that were truncated, in ascending order.
        Raises EnvironmentFailed.
        """
        try:
            ended = self._native.finish(rewards, terminated, truncated, row.native)
        except Exception:  # of a truth value
            self._check_truth(terminated, "terminated")
            self._check_truth(truncated, "truncated")
            raise
        if ended is None:
            terminated, truncated = self._flags(terminated, "terminated"), self._flags(truncated, "truncated")
            self._checks.rewards(rewards if isinstance(rewards, tuple) else np.atleast_1d(rewards), row.rewards)
            ended = self._native.finish(row.rewards, terminated, truncated, row.native)
            assert ended is not None, "the converted values have the types that the native pass handles"
        return ended if self._left is None else self._without_resting(*ended, row)

    def _without_resting(self, ended: list[int], cut: list[int], row: StepRow) -> tuple[list[int], list[int]]:
        """Make the columns of resting environments invalid; count the episodes of the others. Return both lists."""
        assert self._left is not None
        rest = self.resting
        for column in (row.valid, row.rewards, row.terminated, row.truncated, row.episode_returns, row.episode_lengths):
            column[rest] = 0
        ended, cut = [[one for one in each if one not in rest] for each in (ended, cut)]
        self._left[ended] -= self._left[ended] > 0
        return ended, cut

    def _check_truth(self, flags: Flags, name: str) -> None:
        """Raise EnvironmentFailed for a flag that is neither true nor false, as an array of two is."""
        for index, flag in enumerate(flags):
            try:
                bool(flag)
            except Exception as error:
                raise self._checks.violation(f"`{name}` {short(flag)}, expected True or False", index) from error

    def _flags(self, flags: Flags, name: str) -> Flags:
        if isinstance(flags, tuple):
            return flags
        if flags.shape != (self._count,) or flags.dtype != np.bool_:
            raise self._checks.violation(f"`{name}` of {flags.dtype}{flags.shape}, expected bool({self._count},)")
        return np.array(flags, np.bool_)
