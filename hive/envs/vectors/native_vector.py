"""Steps B copies of an environment with its own vectorized class, one call for all copies.

Gymnasium defines three modes for such a class to continue after an episode, in `metadata["autoreset_mode"]`:

    NextStep   the step that ends an episode returns its true last observation; the step after it ignores its
               action, resets and returns the first observation: written with valid = 0 and reward 0.
    SameStep   the step that ends an episode returns the first observation of the next one; the last one is in
               `info["final_obs"]`. Every step is valid.
    Disabled   the caller must reset. Not supported.

In both supported modes the last observation of a truncated episode goes to `finals`, as in `PythonVector`.

The class may use one random generator for all copies (as CartPole's does), so it gets one seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from hive.envs.loading import close
from hive.envs.spaces.actions import action_converter, action_spec
from hive.envs.spaces.declared import spaces_of
from hive.envs.spaces.observation import ObservationSpec, observation_spec
from hive.envs.spaces.origins import with_origins
from hive.envs.vectors.attributes import set_attribute
from hive.envs.vectors.checks import Checks, at
from hive.envs.vectors.episodes import Episodes
from hive.envs.vectors.infos import Infos
from hive.envs.vectors.rows import StepRow
from hive.envs.vectors.seeding import runs_python
from hive.errors import ConfigError

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv

FINALS = "final_obs", "final_observation"  # of a class that resets in the same step; the second one is of old classes
SAME_STEP = (
    'a class that resets in the same step must say so, metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}, and '
    "give the last observations as `final_obs`; one that resets in the next step has none"
)
SEED_BITS = 30
"""Seeds are truncated to this size: Atari's are signed 32-bit integers, and classes count up from the given seed."""


class NativeVector:
    """A `VectorEnvironment`, which documents `reset` and `step`, made of a vectorized Gymnasium class.

    info: the keys of `info` whose values at the ends of episodes are written to `StepRow.infos`. origins: as for
    `hive.envs.vectors.vector.vector_of`. Raises ConfigError if the class does not reset its environments itself.
    """

    def __init__(
        self,
        id: str,
        vector: VectorEnv[Any, Any, Any],
        info: Sequence[str] = (),
        origins: ObservationSpec | None = None,
    ) -> None:
        # Gymnasium 1.0 had only this mode and did not declare it. `step` refuses what shows the other one.
        mode = vector.metadata.get("autoreset_mode", "NextStep")
        mode = getattr(mode, "value", mode)
        if mode not in ("NextStep", "SameStep"):
            raise ConfigError(f"the vectorized class of `{id}` does not reset itself", hint='set env.vector = "python"')
        self.count = vector.num_envs
        self.runs_python = runs_python(vector)
        self.environments = [vector]
        self._vector = vector
        self._resets_in_next_step = mode == "NextStep"
        observations, actions = spaces_of(id, vector, "single_")
        self.observation, self.action = observation_spec(id, observations), action_spec(id, actions)
        self.observation = with_origins(self.observation, origins)
        self._checks = Checks(id, self.observation)
        self._infos = Infos(self._checks, info)
        self._convert = action_converter(self.action)
        self._episodes = Episodes(self._checks, self.count, resets_in_next_step=self._resets_in_next_step)

    def reset(self, seeds: Sequence[int], observations: NDArray[Any]) -> None:
        """Start an episode in every environment, seeded from `seeds[0]`; write `observations` [B, ...]."""
        try:
            result = self._vector.reset(seed=int(seeds[0]) % 2**SEED_BITS)
        except BaseException as error:
            raise self._checks.raised(error, "reset") from error
        if not isinstance(result, tuple) or len(result) != 2:
            raise self._checks.wrong_result(result, "reset")
        self._episodes.begin()
        self._checks.batches(_at_least_1d(result[0]), observations)

    def step(self, actions: NDArray[Any], row: StepRow) -> None:
        """Step every environment once with stored `actions` [B, ...]; write `row`."""
        self._checks.steps += 1
        try:
            result = self._vector.step(self._convert(actions))
        except BaseException as error:
            raise self._checks.raised(error, "step") from error
        if not isinstance(result, tuple) or len(result) != 5:
            raise self._checks.wrong_result(result, "step")
        observations, rewards = _at_least_1d(result[0]), result[1]
        ended, truncated = self._episodes.finish(rewards, np.asarray(result[2]), np.asarray(result[3]), row)
        if ended and self._resets_in_next_step and (last := next((name for name in FINALS if name in result[4]), "")):
            raise self._checks.violation(
                f"`{last}` in the info of a step that ended an episode", ended[0], hint=SAME_STEP
            )
        if self._infos.names:
            infos = result[4] if self._resets_in_next_step else result[4].get("final_info", {})
            self._infos.write({index: self._infos.of_vector(infos, index) for index in ended}, row.infos)
        self._checks.batches(observations, row.observations)
        if truncated:
            last = observations if self._resets_in_next_step else self._last_observations(result[4])
            for index in truncated:
                row.final_index[index] = self._checks.final(index, at(last, index), row.finals)

    def set_attributes(self, values: Mapping[str, Any]) -> None:
        """Give the vectorized class these values now: it resets its environments itself.

        By its `set_attr` (gymnasium.vector.VectorEnv), else as attributes of its own.
        """
        for name, value in values.items():
            try:
                cast(Any, self._vector).set_attr(name, value)
            except (AttributeError, NotImplementedError, TypeError):
                set_attribute(self._vector, name, value)

    def close(self) -> None:
        """Close the environment."""
        close(self._vector)

    def _last_observations(self, info: Any) -> Any:
        if "final_obs" not in info:
            raise self._checks.violation("no `final_obs` in the info of a truncated episode")
        return info["final_obs"]


def _at_least_1d(returned: Any) -> Any:
    """Return dictionaries and tuples of arrays as they are, others as arrays with at least one axis."""
    if isinstance(returned, dict | tuple) or (type(returned) is np.ndarray and returned.ndim):
        return returned
    return np.atleast_1d(returned)
