"""The environments of benches: CartPole as Gymnasium's NumPy vector class, and three whose steps have a known cost."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

gymnasium.register(  # under an id of its own: `env.vector = "native"` of CartPole-v1 is hive's
    "Vector-v0",
    vector_entry_point="gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv",
    max_episode_steps=500,
)


class Synthetic(gymnasium.Env[Any, Any]):
    """Shows `frames` in turn and pays for the action that the step's number names. Not random."""

    episode_steps = 100

    def __init__(self, frames: Any, actions: int, high: float = 1.0) -> None:
        self.observation_space = spaces.Box(0 if high > 1.0 else -high, high, frames.shape[1:], frames.dtype.type)
        self.action_space = spaces.Discrete(actions)
        self.actions, self.frames, self.steps = actions, frames, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self.frames[0], {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        reward = float(action == self.steps % self.actions)
        return self.frames[self.steps % len(self.frames)], reward, False, self.steps >= self.episode_steps, {}


class Frames(Synthetic):
    """Synthetic Atari frames, 84 x 84 x 4 bytes, at no cost: what remains is the trainer's own work."""

    episode_steps = 1000

    def __init__(self) -> None:
        # 64 different ones, so that no cache holds them all
        super().__init__(np.random.default_rng(0).integers(0, 256, (64, 84, 84, 4), np.uint8), 6, 255)


class Busy(Synthetic):
    """A step keeps a core busy for 0.1 ms."""

    episode_steps = 200

    def __init__(self) -> None:
        super().__init__(np.zeros((1, 8), np.float32), 4)

    def step(self, action: Any) -> Any:
        end = time.perf_counter() + 1e-4
        while time.perf_counter() < end:
            pass
        return super().step(action)


class Sleeping(Synthetic):
    """A step sleeps, so that many collectors share few cores and the cores are not what limits them."""

    def __init__(self, step_s: float = 0.02) -> None:
        super().__init__(np.zeros((1, 4), np.float32), 2)
        self.step_s = step_s

    def step(self, action: Any) -> Any:
        time.sleep(self.step_s)
        return super().step(action)


class Timed(gymnasium.Env[Any, Any]):
    """4 numbers; a step takes `ms` milliseconds of a core if `busy`, else of time. Episodes have 1,000 steps."""

    observation_space = spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, ms: float = 0.1, busy: bool = True) -> None:
        self.step_s, self.busy = ms / 1e3, busy
        self.seen = np.zeros(4, np.float32)
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self.seen, {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.busy:
            end = time.thread_time() + self.step_s
            while time.thread_time() < end:
                pass
        else:
            time.sleep(self.step_s)
        return self.seen, 1.0, False, self.steps >= 1000, {}
