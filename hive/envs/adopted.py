"""Gives a class that has the interface of `gymnasium.Env`, but not the base class, that class."""

from __future__ import annotations

from typing import Any

import gymnasium


def has_interface(environment: Any) -> bool:
    """Whether an object that is no gymnasium.Env is an environment: it has `reset` and `step`, and is not a vector."""
    methods = (getattr(environment, name, None) for name in ("reset", "step"))
    return not isinstance(environment, type) and all(map(callable, methods)) and not hasattr(environment, "num_envs")


DECLARED = ("observation_space", "action_space", "spec", "metadata", "render_mode", "np_random")
"""Attributes that the base class declares."""


class Adopted(gymnasium.Env[Any, Any]):
    """An environment of a class without the base class. Every attribute is that of `env`, also one that is set."""

    def __init__(self, env: Any) -> None:
        self.env = env

    def __getattribute__(self, name: str) -> Any:
        if name in DECLARED and (name.endswith("_space") or hasattr(self.env, name)):
            return getattr(self.env, name)
        return super().__getattribute__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        own = name == "env" or (hasattr(Adopted, name) and name not in DECLARED)  # its methods, which call those of env
        super().__setattr__(name, value) if own else setattr(self.env, name, value)

    def __getattr__(self, name: str) -> Any:
        if name == "env":  # before the constructor has set it
            raise AttributeError(name)
        return getattr(self.env, name)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin an episode."""
        return self.env.reset(seed=seed) if options is None else self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        """Make a step."""
        return self.env.step(action)

    def render(self) -> Any:
        """Draw a picture."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment, if it can be."""
        if callable(close := getattr(self.env, "close", None)):
            close()
