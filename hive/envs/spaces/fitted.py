"""Environments without parts of observations that only a critic sees (network.critic_parts), for a policy to act in.

A policy takes rows in which these parts have a place. An environment without them has shorter rows; its parts are
copied to their places, and the others are zeros, which the policy does not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from hive.envs.spaces.observation import ObservationSpec
from hive.envs.vectors.rows import FinalObservations, StepRow
from hive.envs.vectors.seeding import runs_python
from hive.envs.vectors.vector import VectorEnvironment


def fitted_spec(mine: ObservationSpec, found: ObservationSpec) -> ObservationSpec:
    """Return `mine` if the rows of an environment fit it with or without its hidden parts, otherwise `found`."""
    if not mine.hidden:
        return found
    its = {part.path: part for part in found.parts}
    hidden = {part.path for part in mine.hidden}
    seen = all(part.path in its and replace(its[part.path], offset=part.offset) == part for part in mine.parts)
    more = its.keys() - {part.path for part in mine.parts} - hidden
    masks = [None if one is None else (one.path, one.choices) for one in (mine.mask, found.mask)]
    fits = seen and not more and masks[0] == masks[1] and mine.stack == found.stack
    return mine if fits else found


def fitted_vector(vector: VectorEnvironment, mine: ObservationSpec) -> VectorEnvironment:
    """Return a vector that writes rows of `mine`: `vector` itself if it does so."""
    found: ObservationSpec | None = getattr(vector, "observation", None)
    if found is None or not (mine.parts and found.parts):
        return vector
    places = {part.path: part.offset for part in (*mine.parts, *mine.hidden)}
    same = mine.shape == found.shape and all(places.get(part.path) == part.offset for part in found.parts)
    return vector if same else _FittedVector(vector, found, mine)


class _FittedVector:
    """A `VectorEnvironment`, which documents the methods. Final observations of episodes are not written."""

    def __init__(self, vector: VectorEnvironment, found: ObservationSpec, mine: ObservationSpec) -> None:
        self.count = vector.count
        self.runs_python = runs_python(vector)
        self.observation = mine
        self._vector = vector
        self._own = StepRow.allocate(found, vector.count)
        places = {part.path: part for part in (*mine.parts, *mine.hidden)}
        self._pairs = [(part, places[part.path]) for part in found.parts if part.path in places]
        self._masks = (found.mask, mine.mask)

    def reset(self, seeds: Sequence[int], observations: NDArray[Any]) -> None:
        """Start an episode in every environment; write `observations` [B, ...]."""
        self._vector.reset(seeds, self._own.observations)
        self._copy(observations)

    def step(self, actions: NDArray[Any], row: StepRow) -> None:
        """Step every environment once with stored `actions` [B, ...]; write `row`."""
        finals = FinalObservations(self._own.finals.observations)
        self._vector.step(actions, replace(row, observations=self._own.observations, finals=finals))
        self._copy(row.observations)

    def close(self) -> None:
        """Close every environment."""
        self._vector.close()

    def _copy(self, observations: NDArray[Any]) -> None:
        for its, mine in self._pairs:
            mine.view(observations)[...] = its.view(self._own.observations)
        found, mask = self._masks
        if found is not None and mask is not None:
            mask.view(observations)[...] = found.view(self._own.observations)
