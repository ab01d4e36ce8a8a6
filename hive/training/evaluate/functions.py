"""Lets a function from observations to actions play the episodes of an evaluation: that of another trainer, or a rule.

    model = stable_baselines3.PPO.load("pole")
    hive.evaluate(lambda observation: model.predict(observation, deterministic=True)[0], "CartPole-v1")

Each environment is inside a wrapper that asks the function, with the observation that the environment has returned, and
ignores the action that the evaluator gives to it. So it is the evaluator of policies, which plays the same episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.config import EnvConfig
from hive.envs import ActionSpec, EnvContext, VectorEnvironment, recipe_of
from hive.envs.vectors.vector import vector_of
from hive.errors import UsageError

Function = Callable[[Any], Any]

ACTING = "hive.envs.acting:Acting"  # the wrapper


def acting_vector(env: EnvConfig, function: Function, count: int, contexts: Sequence[EnvContext]) -> VectorEnvironment:
    """Build `count` environments whose actions the function chooses, in this process.

    Raises UsageError for keys of [env] that give a policy other observations than those of the environment, and the
    errors of `vector_of`.
    """
    kept = {"a program": env.is_program, "env.preset": env.preset != "none", "env.frame_stack": env.frame_stack > 1}
    if name := next((name for name, given in kept.items() if given), ""):
        raise UsageError(
            f"a function gets the observations of the environment itself, so {name} is not for it",
            hint="use wrappers of Gymnasium: env.wrappers, or a function that returns the wrapped environment",
        )
    recipe = recipe_of(env)
    wrapper = {"name": ACTING, "function": function, "id": env.id}
    return vector_of(replace(recipe, wrappers=(*recipe.wrappers, wrapper)), count, contexts=contexts)


class Bystander:
    """Stands in the place of a policy, with actions that are ignored: zeros."""

    remembers = False

    def __init__(self, action: ActionSpec) -> None:
        self._action = action

    def begin(self, count: int) -> None:
        """Act for `count` rows."""
        self._actions = np.zeros((count, *self._action.shape), self._action.dtype)

    def actions(self, observations: NDArray[Any], rows: object, noise: object) -> NDArray[Any]:
        """Return zeros [B, ...]."""
        return self._actions

    def bind(self, weights: object) -> None:
        """Ignore weights."""

    def see(self, observations: object, rows: object = None) -> None:
        """Ignore observations."""

    def forget(self, ended: object) -> None:
        """Remember nothing."""
