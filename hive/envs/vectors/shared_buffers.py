"""Finds single environments whose observations lie in the same memory, and copies these before the next one writes.

A screen of a C library, or an array or list of a module or a class, has the observation of the environment that was
stepped last. So observations are copied after each reset of all environments, for WATCHED_STEPS steps, and compared
with those of the others; then in steps 16, 32, 64 and so on, since memory may be shared from a later step on. They are
copied in each step only if two environments were seen to share memory.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from hive.envs.vectors.checks import as_array

WATCHED_STEPS = 16


class SharedBuffers:
    """Keeps the observations that environments return apart, by their number in a vector, and looks at their memory.

    count: how many there are. copies: whether those of the next step must be copied.
    """

    def __init__(self, count: int) -> None:
        self.are_shared = False
        self._count = count
        self.begin()
        self._returned: list[tuple[int, Any]] = []

    def begin(self) -> None:
        """Look at the first steps after a reset of all environments."""
        self.copies, self._steps = self._count > 1, 0

    def own(self, index: int, observation: Any) -> Any:
        """Return an observation that environment `index` has returned, or a copy."""
        if not self.copies:
            return observation
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

    def stepped(self) -> None:
        """Look at what has been returned since the last look."""
        self._steps += 1
        if self.copies:
            self.are_shared = self.are_shared or share_memory(self._returned)
            self._returned.clear()
        watched = self._steps < WATCHED_STEPS or self._steps & (self._steps - 1) == 0
        self.copies = self._count > 1 and (self.are_shared or watched)


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

    Each array is compared with the one that begins next to it; other objects, such as lists, must not be the same.
    """
    parts = [(index, part) for index, one in returned for part in _parts_of(one)]
    arrays = [(one.ctypes.data, index, one) for index, one in parts if isinstance(one, np.ndarray) and one.size]
    arrays.sort(key=lambda one: one[:2])
    owners: dict[int, int] = {}
    return any(
        mine != other and np.may_share_memory(one, next) for (_, mine, one), (_, other, next) in pairwise(arrays)
    ) or any(owners.setdefault(id(one), index) != index for index, one in parts)


def _parts_of(observation: Any) -> Iterator[Any]:
    """Yield the arrays of an observation of any form, and the other objects in it that can be written to."""
    if isinstance(observation, np.ndarray):
        yield observation
    elif isinstance(observation, Mapping | tuple | list):
        if not isinstance(observation, tuple):
            yield observation
        for part in observation.values() if isinstance(observation, Mapping) else observation:
            yield from _parts_of(part)
    elif hasattr(observation, "__array__") and not isinstance(observation, np.generic):
        yield as_array(observation)
