"""Small environments of several agents with pictures: all act at once, or one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

SPACES = spaces.Box(-np.inf, np.inf, (1,), np.float32), spaces.Discrete(2)
SEEN = np.ones(1, np.float32)


class AtOnce:
    """Three steps; `left` earns 1 in each, `right` -0.5. Its picture is as bright as its step number."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012
    possible_agents = ["left", "right"]  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> Any:
        return SPACES[0]

    def action_space(self, agent: str) -> Any:
        return SPACES[1]

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.at, self.agents = 0, [*self.possible_agents]
        return self._each(SEEN), self._each({})

    def step(self, actions: dict[str, Any]) -> Any:
        self.at += 1
        over = self.at == 3
        results = self._each(SEEN), {"left": 1.0, "right": -0.5}, self._each(over), self._each(False), self._each({})
        self.agents = [] if over else self.agents
        return results

    def _each(self, value: Any) -> dict[str, Any]:
        return dict.fromkeys(self.possible_agents, value)

    def render(self) -> Any:
        assert self.render_mode == "rgb_array"
        return np.full((4, 6, 3), self.at, np.uint8)

    def close(self) -> None:
        pass


class Blind(AtOnce):
    """Without pictures."""

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012


class InTurn(AtOnce):
    """Two turns each; the last of `right` wins: 1 for it, and -1 for `left`."""

    def agent_iter(self) -> Any:
        raise NotImplementedError  # only says that the agents act in turn

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.at, self.agents = 0, [*self.possible_agents]
        self.agent_selection = "left"
        self.rewards, self.over = self._each(0.0), False

    def last(self) -> Any:
        return SEEN, self.rewards[self.agent_selection], self.over, False, {}

    def step(self, action: Any) -> Any:
        if action is None:
            self.agents.remove(self.agent_selection)
        else:
            self.at += 1
            self.over = self.at == 4
            self.rewards = {"left": -1.0, "right": 1.0} if self.over else self.rewards
        others = [agent for agent in self.agents if agent != self.agent_selection]
        self.agent_selection = others[0] if others else self.agent_selection


class Folded(InTurn):
    """It is over at once if `left` folds, by action 1."""

    def step(self, action: Any) -> None:
        self.at = 3 if action == 1 and self.agent_selection == "left" else self.at
        super().step(action)


class Folder:
    """Folds in every second episode."""

    episodes = 0

    def begin(self, seed: int | None) -> None:
        self.episodes += 1

    def __call__(self, observation: Any) -> int:
        return int(self.episodes % 2 == 0)
