"""What a loaded policy remembers between two calls: its recurrent state, the last observations, or both.

    kind of policy                  its state, for one environment
    recurrent                       float32 [S]
    sees k observations             the k - 1 before the next one, [k - 1, *shape], as observations are stored
    both                            a tuple of the second and the first
    neither                         None

The states of B environments have one more axis, the first. All are zeros at the beginning of an episode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.envs import ObservationSpec


@dataclass(frozen=True)
class ActingState:
    """The states of the policies that see `observation` and whose network has a recurrent state of `width` elements."""

    observation: ObservationSpec
    width: int

    @property
    def kinds(self) -> list[tuple[tuple[int, ...], str]]:
        """Shape and dtype of each array in the state of one environment."""
        spec = self.observation
        frames = [((spec.stack - 1, *spec.shape), spec.dtype)] if spec.stack > 1 else []
        return frames + ([((self.width,), "float32")] if self.width else [])

    def initial(self, batch: int | None = None) -> Any:
        """Return the state at the beginning of an episode; batch: of so many environments."""
        leading = () if batch is None else (batch,)
        return self._given([np.zeros((*leading, *shape), dtype) for shape, dtype in self.kinds])

    def arrays(self, state: Any, count: int, *, single: bool) -> list[NDArray[Any]]:
        """Return the arrays of a state, [count, ...] each. Raises ValueError if it does not fit."""
        if state is None and self.kinds:
            raise ValueError(
                "this policy remembers: call `action, state = policy(observation, state)`, and begin each episode with "
                "policy.initial_state()"
            )
        if state is not None and not self.kinds:
            raise ValueError("this policy has no memory, so it takes no state")
        given = state if len(self.kinds) > 1 else [state]
        if not isinstance(given, tuple | list) or len(given) != max(len(self.kinds), 1):
            raise ValueError(f"got a state of type {type(state).__name__}, expected what initial_state() returns")
        return [self._array(one, *kind, count, single) for one, kind in zip(given, self.kinds, strict=False)]

    def after(self, arrays: list[NDArray[Any]], *, single: bool) -> Any:
        """Return the state that these arrays [B, ...] are."""
        return self._given([array[0] if single else array for array in arrays])

    @staticmethod
    def _array(given: Any, shape: tuple[int, ...], dtype: str, count: int, single: bool) -> NDArray[Any]:
        array = np.asarray(given, dtype)
        expected = shape if single else (count, *shape)
        if array.shape != expected:
            raise ValueError(f"got a state of shape {list(array.shape)}, expected {list(expected)}")
        return array.reshape(count, *shape).copy()

    @staticmethod
    def _given(arrays: list[NDArray[Any]]) -> Any:
        """Return arrays as users have them: None, one array, or a tuple."""
        return tuple(arrays) if len(arrays) > 1 else next(iter(arrays), None)
