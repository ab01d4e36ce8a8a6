"""Wrappers for environments and functions of a calling program, which `hive.evaluate` plays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, SupportsFloat

import gymnasium
import numpy as np

from hive.errors import UsageError
from hive.runtime.actor.error_location import named


class Acting(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Takes its actions from a function of the last observation, and not from its caller. id: for errors."""

    def __init__(self, env: gymnasium.Env[Any, Any], function: Callable[[Any], Any], id: str) -> None:
        super().__init__(env)
        self._function = function
        self._id = id
        self._seen: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        self._seen, info = self.env.reset(seed=seed, options=options)
        return self._seen, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Make a step with the action of the function."""
        self._seen, *rest = self.env.step(self._chosen())
        return self._seen, *rest

    def _chosen(self) -> Any:
        """Return the action of the function. Raises UsageError if it raises, and for an action of another space."""
        space = self.env.action_space
        try:
            action = self._function(self._seen)
        except Exception as error:
            raise UsageError(f"the function that plays `{self._id}` raised {named(error)}") from error
        is_pair = isinstance(action, tuple) and len(action) == 2 and not isinstance(space, gymnasium.spaces.Tuple)
        if is_pair and action[1] is None:  # `predict` of other trainers: with the state of a policy that has none
            action = action[0]
        if isinstance(space, gymnasium.spaces.Box):
            fits = np.shape(action) == space.shape
        else:
            fits = bool(space.contains(action))
        if not fits:
            hint = "a function that remembers is not supported: it returns the action alone" if is_pair else ""
            raise UsageError(
                f"the function returned {action!r} for an observation, and the actions of `{self._id}` are {space}",
                hint=hint or "return an action as the environment takes it",
            )
        return action


class Kept(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment of the calling program, which is not closed."""

    def close(self) -> None:
        """Leave it open."""


def kept(environment: Any) -> Any:
    """Return an environment that exists so that its `close` does nothing."""
    return (Kept if isinstance(environment, gymnasium.Env) else KeptOther)(environment)


class KeptOther:
    """An environment of several agents, or a class without a base class, which is not closed."""

    def __init__(self, environment: Any) -> None:
        self._environment = environment

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def close(self) -> None:
        """Leave it open."""
