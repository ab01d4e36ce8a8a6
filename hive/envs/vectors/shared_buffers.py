"""Finds single environments whose observations lie in the same memory, and copies these before the next one writes.

A screen of a C library, or an array of a module or a class, has the observation of the environment that was stepped
last. So observations are copied after each reset of all environments, for WATCHED_STEPS steps, and compared with those
of the others. They are copied further only if two environments were seen to share memory.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.envs.vectors.checks import as_array

WATCHED_STEPS = 16


class SharedBuffers:
    """Keeps the observations that environments return apart, by their number in a vector, and looks at their memory."""

    def __init__(self) -> None:
        self.are_shared = False
        self._steps = 0
        self._returned: list[tuple[int, Any]] = []

    def own(self, index: int, observation: Any) -> Any:
        """Return a copy of an observation that environment `index` has returned."""
        if not self.are_shared:
            self._returned.append((index, observation))
        return copied(observation)

    def keeper(self, results: list[Any]) -> Callable[[Any], None]:
        """Return what appends the result of the next environment's step to `results`, with its own observation."""

        def keep(result: Any) -> None:
            if isinstance(result, tuple) and result:
                result = (self.own(len(results), result[0]), *result[1:])
            results.append(result)

        return keep

    def needed_after_step(self) -> bool:
        """Look at what has been returned since the last look; return whether to copy in the next step, too."""
        self.are_shared = self.are_shared or share_memory(self._returned)
        self._returned.clear()
        self._steps += 1
        return self.are_shared or self._steps < WATCHED_STEPS


def copied(observation: Any) -> Any:
    """Return a copy of an observation of any form; itself if its class cannot be copied."""
    if isinstance(observation, np.ndarray):
        return observation.copy()
    try:
        return copy.deepcopy(observation)
    except Exception:  # any class of a user
        return observation


def share_memory(returned: Sequence[tuple[int, Any]]) -> bool:
    """Return whether observations of two environments lie in the same memory: (number of the environment, observation).

    Each array is compared with the one that begins next to it.
    """
    arrays = [(array.ctypes.data, index, array) for index, one in returned for array in _arrays_of(one) if array.size]
    arrays.sort(key=lambda one: one[:2])
    return any(
        mine != other and np.may_share_memory(one, next) for (_, mine, one), (_, other, next) in pairwise(arrays)
    )


def _arrays_of(observation: Any) -> Iterator[NDArray[Any]]:
    """Yield the arrays of an observation of any form."""
    if isinstance(observation, np.ndarray):
        yield observation
    elif isinstance(observation, Mapping | tuple | list):
        for part in observation.values() if isinstance(observation, Mapping) else observation:
            yield from _arrays_of(part)
    elif hasattr(observation, "__array__") and not isinstance(observation, np.generic):
        yield as_array(observation)
