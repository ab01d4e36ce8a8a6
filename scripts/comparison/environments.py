"""Environments of the comparison that Gymnasium has not registered, the same classes for every trainer.

A task names one of them as "comparison.environments:Class", and CartPole without velocities, which is an example of
hive, as "cartpole_positions:CartPolePositions". The programs of all trainers import this module, so it needs Gymnasium
and NumPy alone; each class imports what it needs.
"""

from __future__ import annotations

import importlib
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

BRIGHTEST = 25  # factor of MiniGrid's codes, which are 0 to 10: images then use the range of 0 to 255
MOST_STEPS = 5_000  # of an episode of MinAtar, which has no limit: a policy that never loses the ball would not end


def made(name: str) -> gymnasium.Env[Any, Any]:
    """Return a new environment: "module:Class", or an id that Gymnasium knows."""
    module, _, attribute = name.rpartition(":")
    if not module:
        return gymnasium.make(name)
    found: gymnasium.Env[Any, Any] = getattr(importlib.import_module(module), attribute)()
    return found


class InvalidActions(gymnasium.Wrapper[Any, Any, Any, Any]):
    """SB3-Contrib's environment for MaskablePPO: 80 actions, of which 60 are forbidden in each of 100 steps.

    A reward of 1 is paid for the action that is the observation, which is always allowed. The mask, bool [80], is in
    info["action_mask"] for hive and is what `action_masks()` returns for SB3-Contrib.
    """

    def __init__(self) -> None:
        from sb3_contrib.common.envs import InvalidActionEnvDiscrete

        super().__init__(InvalidActionEnvDiscrete(dim=80, n_invalid_actions=60))

    def action_masks(self) -> NDArray[np.bool_]:
        return np.asarray(self.env.unwrapped.action_masks(), np.bool_)  # type: ignore[attr-defined]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:  # the environment itself draws from these, without seeding them
            self.action_space.seed(seed)
            np.random.seed(seed)  # noqa: NPY002
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, {**info, "action_mask": self.action_masks()}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated, {**info, "action_mask": self.action_masks()}


class DoorKey(gymnasium.ObservationWrapper[dict[str, Any], Any, Any]):
    """MiniGrid-DoorKey-5x5-v0 without the text of its mission, which never changes.

    Observations: image, uint8 [7, 7, 3], the codes of objects, colors and states times 25; direction, 0 to 3.
    """

    def __init__(self) -> None:
        importlib.import_module("minigrid")  # registers its environments
        super().__init__(gymnasium.make("MiniGrid-DoorKey-5x5-v0"))
        seen = self.env.observation_space
        assert isinstance(seen, spaces.Dict)
        self.observation_space = spaces.Dict({name: seen[name] for name in ("direction", "image")})

    def observation(self, observation: dict[str, Any]) -> dict[str, Any]:
        return {"direction": observation["direction"], "image": observation["image"] * np.uint8(BRIGHTEST)}


class CartPoleParts(gymnasium.ObservationWrapper[dict[str, Any], Any, Any]):
    """CartPole-v1 whose observations are a dictionary: positions and velocities, float32 [2] each."""

    PARTS: ClassVar = {"positions": [0, 2], "velocities": [1, 3]}  # columns of CartPole's observation

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        high: NDArray[np.float32] = self.env.observation_space.high  # type: ignore[attr-defined]
        self.observation_space = spaces.Dict({name: spaces.Box(-high[at], high[at]) for name, at in self.PARTS.items()})

    def observation(self, observation: NDArray[np.float32]) -> dict[str, Any]:
        return {name: observation[at] for name, at in self.PARTS.items()}


class MinAtarBreakout(gymnasium.ObservationWrapper[NDArray[np.float32], Any, Any]):
    """MinAtar/Breakout-v1 with episodes of at most MOST_STEPS. Observations: float32 [10, 10, 4], 0 or 1."""

    def __init__(self) -> None:
        super().__init__(minatar_breakout())
        shape = self.env.observation_space.shape
        assert shape is not None
        self.observation_space = spaces.Box(0.0, 1.0, shape, np.float32)

    def observation(self, observation: NDArray[np.bool_]) -> NDArray[np.float32]:
        return observation.astype(np.float32)


def minatar_breakout() -> gymnasium.Env[Any, Any]:
    """Return MinAtar's Breakout as its authors made it. Observations: bool [10, 10, 4]."""
    return _minatar("MinAtar/Breakout-v1")


def minatar_freeway() -> gymnasium.Env[Any, Any]:
    """Return MinAtar's Freeway as its authors made it. Observations: bool [10, 10, 7]."""
    return _minatar("MinAtar/Freeway-v1")


def _minatar(name: str) -> gymnasium.Env[Any, Any]:
    if name not in gymnasium.registry:
        importlib.import_module("minatar.gym").register_envs()
    return gymnasium.make(name, max_episode_steps=MOST_STEPS)


def windy_lander() -> gymnasium.Env[Any, Any]:
    """Return LunarLander with wind, for which there are no tuned settings."""
    return gymnasium.make("LunarLander-v3", enable_wind=True)


def fast_hopper() -> gymnasium.Env[Any, Any]:
    """Return MuJoCo's Hopper where it is rewarded twice for its speed and sees where it is."""
    return gymnasium.make("Hopper-v5", forward_reward_weight=2.0, exclude_current_positions_from_observation=False)
