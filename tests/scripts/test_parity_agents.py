"""`scripts/parity agents`: equal settings for both trainers, and the returns of every agent in whole episodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from comparison import agents_judge
from comparison.agents import AgentsRow, text_of
from comparison.agents_tasks import TASKS
from comparison.hive_cell import keys_of

from hive.config import PPOConfig, load_config


@pytest.mark.parametrize("name", list(TASKS))
def test_a_minibatch_has_the_rows_of_all_agents(name: str) -> None:
    task = TASKS[name]
    config = load_config("cell.toml", [*keys_of(task.settings, 0), *task.keys], text="")
    assert isinstance(config.algorithm, PPOConfig)
    rows = config.collection.envs * config.collection.rollout * task.agents
    assert rows == (config.algorithm.minibatches or 0) * task.minibatch
    assert (config.collection.max_lag, config.algorithm.normalize_over) == (0, "minibatch")
    assert (config.network.normalize_observations, config.network.normalize_rewards) == (False, False)
    assert [*config.env.wrappers] == [*task.wrappers]


class Counting:
    """Two agents, one of which dies after its first step; a step pays each as much as its action."""

    possible_agents = ("left", "right")

    def __init__(self) -> None:
        self.agents: list[str] = []
        self.seeds: list[int] = []

    def reset(self, seed: int) -> tuple[dict[str, int], dict[str, Any]]:
        self.agents = [*self.possible_agents]
        self.seeds.append(seed)
        return dict.fromkeys(self.agents, 0), {}

    def step(self, actions: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int], None, None, None]:
        assert [*actions] == self.agents
        self.agents = ["right"] if len(self.agents) == 2 else []
        return dict.fromkeys(self.agents, 0), dict(actions), None, None, None

    def close(self) -> None:
        """Nothing is open."""


def test_a_score_is_the_mean_of_all_agents_and_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = Counting()
    monkeypatch.setattr(agents_judge, "made", lambda task: environment)
    task = replace(TASKS["spread"], episodes=3)
    pays = {"left": 1, "right": 2}
    assert agents_judge.judge(task, lambda seen: {agent: pays[agent] for agent in seen}) == 2.5
    assert environment.seeds == [1_000_000, 1_000_001, 1_000_002]


def test_the_table_compares_hive_with_each_peer() -> None:
    digest = TASKS["spread"].digest
    rows = [
        AgentsRow(trainer, "spread", seed, digest, 100, 1.5, 200.0, value, value - 1, 0.1, "abc", "torch=2")
        for trainer, value in (("random", -30.0), ("sb3", -20.0), ("sb3:bootstrap", -10.0), ("hive", -10.0))
        for seed in (range(1) if trainer == "random" else range(3))
    ]
    compared = [line.split("|")[-2].strip() for line in text_of(rows).splitlines()[2:]]
    assert compared == [
        "",
        "+1.000 (+1.000 to +1.000), better; +1.000 (+1.000 to +1.000), better",
        "",
        "+0.000 (+0.000 to +0.000), not worse; +0.000 (+0.000 to +0.000), not worse",
    ]
