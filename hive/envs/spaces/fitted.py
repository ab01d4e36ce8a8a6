"""Environments without parts of observations that only a critic sees (network.critic_parts), for a policy to act in.

A policy takes rows in which these parts have a place. An environment without them has shorter rows; its parts are
copied to their places, and the others are zeros, which the policy does not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.envs.spaces.observation import ObservationSpec
from hive.envs.vectors.rows import FinalObservations, StepRow
from hive.envs.vectors.seeding import runs_python
from hive.envs.vectors.vector import VectorEnvironment, let_play


def fitted_spec(policy: ObservationSpec, environment: ObservationSpec) -> ObservationSpec:
    """Return the policy's spec if rows of the environment fit it, with or without its hidden parts; else its own."""
    if not policy.hidden:
        return environment
    parts = {part.path: part for part in environment.parts}
    hidden = {part.path for part in policy.hidden}
    seen = all(part.path in parts and replace(parts[part.path], offset=part.offset) == part for part in policy.parts)
    more = parts.keys() - {part.path for part in policy.parts} - hidden
    masks = [mask and (mask.path, mask.choices) for mask in (policy.mask, environment.mask)]
    fits = seen and not more and masks[0] == masks[1] and policy.stack == environment.stack
    return policy if fits else environment


def fitted_vector(vector: VectorEnvironment, policy: ObservationSpec) -> VectorEnvironment:
    """Return a vector that writes rows of the policy's spec: `vector` itself if it does so."""
    environment: ObservationSpec | None = getattr(vector, "observation", None)
    if environment is None or not (policy.parts and environment.parts):
        return vector
    places = {part.path: part.offset for part in (*policy.parts, *policy.hidden)}
    same = policy.shape == environment.shape and all(places.get(p.path) == p.offset for p in environment.parts)
    return vector if same else _FittedVector(vector, environment, policy)


class _FittedVector:
    """A `VectorEnvironment`, which documents the methods. Final observations of episodes are not written."""

    def __init__(self, vector: VectorEnvironment, environment: ObservationSpec, policy: ObservationSpec) -> None:
        self.count = vector.count
        self.runs_python = runs_python(vector)
        self.observation = policy
        self._vector = vector
        self._row = StepRow.allocate(environment, vector.count)  # of the environment; its observations are copied
        places = {part.path: part for part in (*policy.parts, *policy.hidden)}
        self._pairs = [(part, places[part.path]) for part in environment.parts if part.path in places]
        self._masks = (environment.mask, policy.mask)

    def reset(self, seeds: Sequence[int], observations: NDArray[Any]) -> None:
        """Start an episode in every environment; write `observations` [B, ...]."""
        self._vector.reset(seeds, self._row.observations)
        self._copy(observations)

    def step(self, actions: NDArray[Any], row: StepRow) -> None:
        """Step every environment once with stored `actions` [B, ...]; write `row`."""
        finals = FinalObservations(self._row.finals.observations)
        self._vector.step(actions, replace(row, observations=self._row.observations, finals=finals))
        self._copy(row.observations)

    def play(self, episodes: NDArray[np.int64]) -> None:
        """Let each environment play so many more episodes."""
        let_play(self._vector, episodes)

    def close(self) -> None:
        """Close every environment."""
        self._vector.close()

    def _copy(self, observations: NDArray[Any]) -> None:
        for source, target in (*self._pairs, self._masks):
            if source is not None and target is not None:
                target.view(observations)[...] = source.view(self._row.observations)
