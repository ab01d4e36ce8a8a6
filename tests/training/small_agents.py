"""Small games of two agents: `same` earns by naming the bit that it sees, `other` by naming the other one."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

STEPS = 8  # of an episode, of each agent; the most that an agent can earn
BIT, GUESS = spaces.MultiBinary(1), spaces.Discrete(2)


class Together:
    """Both guess at once."""

    possible_agents = ["same", "other"]  # noqa: RUF012

    def observation_space(self, agent: str) -> Any:
        return BIT

    def action_space(self, agent: str) -> Any:
        return GUESS

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.at, self.agents = 0, [*self.possible_agents]
        self._draw()
        return self._seen(), {agent: {} for agent in self.agents}

    def _draw(self) -> None:
        self.bits = dict(zip(self.possible_agents, self.random.integers(2, size=2).tolist(), strict=True))

    def _seen(self) -> dict[str, Any]:
        return {agent: np.array([bit], np.int8) for agent, bit in self.bits.items()}

    def reward(self, agent: str, action: int) -> float:
        return float((int(action) == self.bits[agent]) == (agent == "same"))

    def step(self, actions: dict[str, Any]) -> Any:
        rewards = {agent: self.reward(agent, action) for agent, action in actions.items()}
        self.at += 1
        self._draw()
        over = dict.fromkeys(self.agents, self.at == STEPS)
        results = self._seen(), rewards, dict.fromkeys(self.agents, False), over, {agent: {} for agent in self.agents}
        self.agents = [] if self.at == STEPS else self.agents
        return results

    def close(self) -> None:
        pass


class Duel(Together):
    """What one earns the other loses; `info` says at the end whether an agent has named every bit."""

    def step(self, actions: dict[str, Any]) -> Any:
        right = {agent: float(int(action) == self.bits[agent]) for agent, action in actions.items()}
        self.named = [one and all(right.values()) for one in ([True] if self.at == 0 else self.named)]
        seen, _, ended, over, _ = super().step(actions)
        one, other = right
        rewards = {one: right[one] - right[other], other: right[other] - right[one]}
        return seen, rewards, ended, over, {agent: {"named": float(self.named[0])} for agent in right}


class InTurn(Together):
    """One guesses after the other; each learns what it has earned at its next turn."""

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed)
        self.agent_selection = self.agents[0]
        self.earned = dict.fromkeys(self.agents, 0.0)
        self.guesses = 0

    def agent_iter(self) -> Any:
        raise NotImplementedError

    def last(self) -> Any:
        agent = self.agent_selection
        return self._seen()[agent], self.earned[agent], False, self.guesses == 2 * STEPS, {}

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if action is None:
            self.agents.remove(agent)
        else:
            self.earned[agent] = self.reward(agent, action)
            self.guesses += 1
            self._draw()
        if self.agents:
            self.agent_selection = (
                self.agents[(self.agents.index(agent) + 1) % len(self.agents)]
                if (agent in self.agents)
                else self.agents[0]
            )


def honest(observation: Any) -> int:
    """A scripted policy: name the bit."""
    return int(observation[0])
