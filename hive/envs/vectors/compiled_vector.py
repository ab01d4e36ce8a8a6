"""Steps B compiled environments (hive/env.h) by one native call, which writes the whole row.

The rows are those of `PythonVector`: an environment whose episode ends is reset in the same step, the last observation
of a truncated episode goes to `finals`, and every step is valid. Actions are clipped to their bounds, or refused if
they are not among the choices. Python only runs again when something went wrong, to describe it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive import _native
from hive.envs.spaces.observation import ObservationSpec
from hive.envs.vectors.checks import Checks
from hive.envs.vectors.compiled import create
from hive.envs.vectors.rows import FinalObservations, StepRow

UNUSUAL = -2  # result of the native step for actions of another dtype or layout


class CompiledVector:
    """A `VectorEnvironment`, which documents `reset` and `step`, made of one compiled environment.

    dtype: that of stored actions, int64 or float32. Raises EnvironmentFailed if the environment cannot be created.
    """

    environments: Sequence[Any] = ()

    def __init__(
        self,
        id: str,
        environment: _native.CompiledEnvironment,
        options: Mapping[str, Any],
        count: int,
        observation: ObservationSpec,
        dtype: str,
    ) -> None:
        self.count = count
        self._vector = create(id, environment, options, count)
        self._checks = Checks(id, observation)
        self._dtype = dtype

    runs_python = False

    def reset(self, seeds: Sequence[int], observations: NDArray[Any]) -> None:
        """Start an episode in every environment, environment b with `seeds[b]`; write `observations` [B, ...]."""
        if not self._vector.reset(np.array([int(seed) for seed in seeds], np.uint64), observations):
            self._raise(observations, None)

    def step(self, actions: NDArray[Any], row: StepRow) -> None:
        """Step every environment once with stored `actions` [B, ...]; write `row`."""
        checks, finals = self._checks, row.finals
        checks.steps += 1
        count = self._vector.step(actions, row.native, finals.count)
        if count == UNUSUAL:
            count = self._vector.step(np.ascontiguousarray(actions, self._dtype), row.native, finals.count)
        if count < 0:
            self._raise(row.observations, row)
        finals.count = count

    def collect(
        self, acting: _native.Acting, rows: Sequence[StepRow], page: _native.StatusPage | None, phases: tuple[int, int]
    ) -> None:
        """Make all steps of the rollout that `acting` has begun, and write `rows`, which share their finals.

        page, phases: where a step enters the phases of its policy and its environments; page may be None.
        """
        steps, finals = self._vector.collect(acting, [row.native for row in rows], page, phases)
        self._checks.steps += min(steps + 1, len(rows))
        if steps < len(rows):
            self._raise(rows[steps].observations, rows[steps])
        rows[0].finals.count = finals

    def close(self) -> None:
        """Free nothing: the native vector ends with this one."""

    def _raise(self, observations: NDArray[Any], row: StepRow | None) -> None:
        """Raise EnvironmentFailed for what went wrong in the last call, as `PythonVector` does."""
        kind, index, text = self._vector.fault
        scratch = np.empty_like(observations)
        if kind == "reward" and row is not None:
            self._checks.rewards(row.rewards.copy(), row.rewards)
        elif kind == "observation":
            self._checks.observations(observations.copy(), scratch)
        elif kind == "final observation":
            self._checks.final(index, observations[index].copy(), FinalObservations(scratch))
        elif kind == "action":
            raise self._checks.refused_action(text, index)
        raise self._checks.failed(text, index if index >= 0 else None)
