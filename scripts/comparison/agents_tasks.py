"""The tasks of `scripts/parity agents`: environments of several agents, and the settings that both trainers are given.

    spread     3 agents with equal spaces, which share one policy; each gives rows of its own
    speaker    2 agents with different spaces, so that each has a policy, which Stable-Baselines3 cannot train
    pong       2 agents that share a policy of images, in the form that wrappers of SuperSuit give them; few steps,
               because the environment alone makes about 100 a second

Steps count environments, not agents. The settings are the defaults of Stable-Baselines3 but for the sizes of rounds and
minibatches; nothing is normalized. No setting was tuned for either trainer.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from comparison.tasks import Task


@dataclass(frozen=True, slots=True)
class AgentsTask(Task):
    """An environment of several agents. agents: of each policy, in one environment. minibatch: rows of all its agents.

    wrappers: of the environment, each a function and its arguments. episodes: in which a policy is judged.
    trainers: those that can train it.
    """

    agents: int = 1
    wrappers: tuple[dict[str, Any], ...] = ()
    episodes: int = 200
    trainers: tuple[str, ...] = ("random", "hive")

    @property
    def keys(self) -> list[str]:
        """The keys of hive's config beside those of a task with one agent."""
        wrappers = ", ".join(
            "{ " + ", ".join(f"{key} = {_toml(one[key])}" for key in one) + " }" for one in self.wrappers
        )
        return [
            f"algorithm.minibatches={max(self.envs * self.agents * self.rollout // self.minibatch, 1)}",
            "collection.communication=synchronous",
            *([f"env.wrappers=[{wrappers}]"] if wrappers else []),
            *(f'env.options.{name}="{value}"' for name, value in OPTIONS.get(self.env, {}).items()),
        ]


def _toml(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


OPTIONS = {"pettingzoo.butterfly:cooperative_pong_v6": {"render_mode": "rgb_array"}}
"""Environment -> arguments of its constructor. Without a render mode, the agents of Pong see black images."""

ROUND: dict[str, Any] = {"envs": 8, "rollout": 128, "learning_rate": 3e-4}
IMAGE = (
    {"name": "supersuit:color_reduction_v0", "mode": "B"},
    {"name": "supersuit:resize_v1", "x_size": 84, "y_size": 84},
    {"name": "supersuit:frame_stack_v1", "stack_size": 4},
)

TASKS: dict[str, AgentsTask] = {
    task.name: task
    for task in (
        AgentsTask(
            *("spread", "mpe2:simple_spread_v3", "ppo"),
            **ROUND,
            steps=200_000,
            minibatch=512,
            agents=3,
            trainers=("random", "sb3", "hive", "sb3:bootstrap"),
        ),
        AgentsTask("speaker", "mpe2:simple_speaker_listener_v4", "ppo", **ROUND, steps=500_000, minibatch=256, seeds=3),
        AgentsTask(
            *("pong", "pettingzoo.butterfly:cooperative_pong_v6", "ppo"),
            envs=8,
            rollout=128,
            learning_rate=2.5e-4,
            entropy_weight=0.01,
            steps=6_000,
            minibatch=256,
            epochs=4,
            clip_range=0.1,
            layers=(),
            shared=True,
            agents=2,
            wrappers=IMAGE,
            episodes=10,
            seeds=1,
        ),
    )
}
"""Name -> task."""


def made(task: AgentsTask) -> Any:
    """Return a new environment, in which all agents act at once."""
    environment = importlib.import_module(task.env.replace(":", ".")).parallel_env(**OPTIONS.get(task.env, {}))
    for wrapper in task.wrappers:
        module, _, name = wrapper["name"].partition(":")
        arguments = {key: value for key, value in wrapper.items() if key != "name"}
        environment = getattr(importlib.import_module(module), name)(environment, **arguments)
    return environment
