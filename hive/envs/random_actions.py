"""Draws random actions in their stored form, as `hive check` plays them.

The generator is hive's own. A space's `sample` would draw from the environment's numbers where both are seeded alike or
the environment uses its space itself, and a game of guessing would then be won by chance alone.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.declared import is_bound
from hive.envs.spaces.actions import ActionSpec, Box, Composite, Discrete, MultiBinary, MultiDiscrete, choices_of
from hive.envs.spaces.observation import MaskPart


class RandomActions:
    """Uniform actions of a space; dimensions without bounds are normal, those with one bound exponential beside it.

    mask: where stored observations have the action mask; only actions that it allows are drawn. seed: of the draws.
    """

    def __init__(self, action: ActionSpec, mask: MaskPart | None, seed: int) -> None:
        self._action = action
        self._mask = mask
        self._draw = np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=(ord("a"),))))

    def __call__(self, observations: NDArray[Any]) -> NDArray[Any]:
        """Return an action [B, ...] for each of the stored observations [B, ...]."""
        if self._mask is None or (choices := choices_of(self._action)) is None:
            rows = [self._of(self._action) for _ in range(len(observations))]
        else:
            groups = [np.split(mask, np.cumsum(choices)[:-1]) for mask in self._mask.view(observations)]
            rows = [np.array([self._draw.choice(np.flatnonzero(one)) for one in group]) for group in groups]
        return np.stack(rows).astype(self._action.dtype).reshape(len(observations), *self._action.shape)

    def _of(self, action: ActionSpec) -> NDArray[Any]:
        """Return one action, flat."""
        match action:
            case Discrete():
                return self._draw.integers(action.n, size=1)
            case MultiDiscrete() | MultiBinary():
                return self._draw.integers(action.nvec)
            case Box():
                return self._of_box(np.array(action.low), np.array(action.high), prod(action.shape))
            case Composite():
                return np.concatenate([self._of(part) for part in action.parts])

    def _of_box(self, low: NDArray[Any], high: NDArray[Any], size: int) -> NDArray[Any]:
        share, tail, normal = self._draw.random(size), self._draw.exponential(size=size), self._draw.normal(size=size)
        below, above = (np.array([is_bound(one) for one in bounds.tolist()], bool) for bounds in (low, high))
        within = (
            low * (1.0 - share) + high * share
            if (below & above).all()
            else np.where(
                below & above, np.where(below, low, 0.0) * (1.0 - share) + np.where(above, high, 0.0) * share, normal
            )
        )
        return np.where(below & ~above, low + tail, np.where(above & ~below, high - tail, within))
