"""Action masks: which actions an environment allows in its current state.

`env.action_mask` names where the environment says it: "info", under the key `action_mask` of the info of `reset` and
`step`, or a key of its dictionary of observations. Masked puts both into one form: a dictionary with the mask as one
of its entries, whose space names the entry (MaskedSpace). The mask is then stored with the observation, and the network
reads it there: see hive.envs.spaces.observation and hive.networks.rows.packed. It has an element for every value of
every discrete element of the action, in the order in which actions are stored (hive.envs.spaces.actions).
"""

from __future__ import annotations

import contextlib
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from hive.envs.context import EnvContext
from hive.envs.loading import close
from hive.envs.make import make_any, takes_native
from hive.envs.recipe import Recipe
from hive.envs.spaces.actions import action_spec, choices_of
from hive.envs.spaces.masked_space import MaskedSpace, masked_by_part, masked_choices
from hive.envs.spaces.observation import BESIDE_MASK, MASK_KEY
from hive.envs.vectors.resetting import begin
from hive.errors import EnvironmentFailed


class Masked(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Gives observations with the action mask that `source` names: "info" or a key of the observations.

    id: the environment's, for errors. Raises EnvironmentFailed if the actions are not discrete, and for a key that the
    observations do not have.
    """

    def __init__(self, environment: gymnasium.Env[Any, Any], source: str, id: str) -> None:
        super().__init__(environment)
        self._id = id
        self._from_info = source == "info"
        choices = masked_choices(id, environment.action_space)
        seen = environment.observation_space
        if self._from_info:
            mask = spaces.MultiBinary(sum(choices))
            self.observation_space = MaskedSpace({BESIDE_MASK: seen, MASK_KEY: mask}, (MASK_KEY,), choices)
            self._all = np.ones(sum(choices), np.int8)
            return
        self.observation_space = masked_by_part(id, seen, environment.action_space, source)

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode; return its first observation, with the mask, and the info."""
        result: Any = self.env.reset(**options)
        if not isinstance(result, tuple) or len(result) != 2:  # a dictionary of two parts would be unpacked too
            return result  # the vector names it
        return self._with_mask(*result, ended=False), result[1]

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment; return its results, the observation with the mask."""
        result: Any = self.env.step(action)
        if not isinstance(result, tuple) or len(result) != 5:
            return result
        observation, reward, terminated, truncated, info = result
        seen = self._with_mask(observation, info, ended=bool(terminated or truncated))
        return seen, reward, terminated, truncated, info

    def _with_mask(self, observation: Any, info: dict[str, Any], *, ended: bool) -> Any:
        if not self._from_info:
            return observation
        mask = info.get(MASK_KEY) if isinstance(info, dict) else None
        if mask is None and ended:  # no action follows the last observation
            mask = self._all
        if mask is None:
            raise EnvironmentFailed(
                f'`{self._id}` returned an info without "{MASK_KEY}", and env.action_mask is "info"',
                hint="put the mask into the info of reset and step, an array with 1 for every action that is allowed",
                permanent=True,
            )
        return {BESIDE_MASK: observation, MASK_KEY: mask}


def info_has_mask(recipe: Recipe) -> bool:
    """Whether the info of the environment's resets has a mask of its actions, if it has a single form."""
    if takes_native(recipe):
        return False
    recipe = recipe.at(EnvContext(0))
    environment = make_any(recipe)
    try:
        # What an environment raises, `hive check` and every run report.
        with contextlib.suppress(Exception):
            choices = choices_of(action_spec(recipe.id, environment.action_space)) or ()
            mask = begin(environment, 0, recipe.reset_options)[1].get(MASK_KEY)
            return mask is not None and np.size(mask) == sum(choices)
    finally:
        close(environment)
    return False
