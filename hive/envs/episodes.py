"""The episodes that a vector's environments are in: what a step returned becomes a row, and ends are counted.

All of a row but the observations is written by one native pass (native/include/hive/rows.hpp), which takes what
environments usually return and says None to anything else. Then NumPy converts it here, or `Checks` names what
is wrong with it, and the same pass follows. So there is one place that counts, and one that blames.

Whose last observation must be kept, and who has to be reset, is the vector's business: it gets the list of those
that ended.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive import _native
from hive.envs.checks import Checks
from hive.envs.rows import StepRow

__all__ = ["Episodes"]

Flags = tuple[Any, ...] | NDArray[Any]


class Episodes:
    """The open episodes of `count` environments, and which of them the next step only resets.

    `resets_in_next_step`: the step after an end ignores its action and resets (next-step autoreset). `limit`:
    an episode of so many steps is truncated with the last of them if it does not terminate; 0 for none.
    """

    __slots__ = ("_checks", "_count", "_native")

    def __init__(self, checks: Checks, count: int, *, resets_in_next_step: bool = False, limit: int = 0) -> None:
        self._checks = checks
        self._count = count
        self._native = _native.Episodes(count, resets_in_next_step, limit)

    def begin(self) -> None:
        """Every environment begins an episode. Open ones are dropped, uncounted."""
        self._native.reset()

    def finish(self, rewards: Any, terminated: Flags, truncated: Flags, row: StepRow) -> tuple[list[int], list[int]]:
        """Writes all of `row` but its observations and finals; returns who ended, and who of them truncated, in order.

        Tuples are of what single environments returned, whose flags count by their truth. Arrays [B] are a
        vectorised class's, whose flags must be bool. `final_index` is -1 everywhere. Raises EnvironmentFailed.
        """
        ended = self._native.finish(rewards, terminated, truncated, row.native)
        if ended is None:
            terminated, truncated = self._flags(terminated, "terminated"), self._flags(truncated, "truncated")
            self._checks.rewards(rewards if isinstance(rewards, tuple) else np.atleast_1d(rewards), row.rewards)
            ended = self._native.finish(row.rewards, terminated, truncated, row.native)
            assert ended is not None, "all of it is in the form that the native pass knows"
        return ended

    def _flags(self, flags: Flags, name: str) -> Flags:
        if isinstance(flags, tuple):
            return flags
        if flags.shape != (self._count,) or flags.dtype != np.bool_:
            raise self._checks.broke(f"`{name}` of {flags.dtype}{flags.shape}, expected bool({self._count},)")
        return np.array(flags, np.bool_)
