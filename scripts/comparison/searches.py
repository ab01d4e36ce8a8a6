"""The searches of `scripts/search`: an example's config, the values that are tried, and how many settings are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DRAWS_SEED = 17  # of the generator that draws settings: the same settings whenever a search is repeated


@dataclass(frozen=True, slots=True)
class Search:
    """Settings that compete for the fewest environment steps to an example's goal.

    example: the file's name without ".toml". choices: key of the config -> the values that may be drawn. most_steps:
    budget of one run; a run that has not reached the goal by then counts as one that never does.
    """

    example: str
    choices: Mapping[str, Sequence[Any]]
    most_steps: int
    settings: int = 20

    @property
    def config(self) -> Path:
        return EXAMPLES / f"{self.example}.toml"

    def drawn(self) -> list[dict[str, Any]]:
        """The settings: first the example as it is ({}), then `settings - 1` different draws."""
        generator = np.random.default_rng(DRAWS_SEED)
        found: list[dict[str, Any]] = [{}]
        while len(found) < self.settings:
            one = {key: values[int(generator.integers(len(values)))] for key, values in self.choices.items()}
            if one not in found:
                found.append(one)
        return found


RATES = (7e-4, 1e-3, 2e-3, 3e-3, 4e-3)
ACTOR_CRITIC: dict[str, Sequence[Any]] = {
    "algorithm.learning_rate": RATES,
    "algorithm.learning_rate_schedule": ("constant", "linear"),
    "algorithm.gae_lambda": (0.8, 0.9, 0.95),
    "algorithm.discount": (0.98, 0.99),
    "algorithm.clip_gradients": (0.5, 10.0),
    "algorithm.value_loss_weight": (0.5, 1.0),
    "collection.rollout": (8, 16, 32),
}
EPOCHS = {**ACTOR_CRITIC, "algorithm.epochs": (4, 8, 10, 20), "algorithm.minibatches": (1, 2)}

SEARCHES: dict[str, Search] = {
    search.example: search
    for search in (
        Search("cartpole-ppo", {**EPOCHS, "collection.rollout": (16, 32, 64)}, 150_000),
        Search("cartpole", ACTOR_CRITIC, 200_000),
        Search("cartpole-impala", ACTOR_CRITIC, 250_000),
        Search("cartpole-a3c", {**ACTOR_CRITIC, "algorithm.learning_rate": (5e-4, 7e-4, 1e-3, 2e-3)}, 400_000),
        Search("cartpole-dd-ppo", EPOCHS, 200_000),
        Search("cartpole-rapid", EPOCHS, 200_000),
        Search(
            "cartpole-nstep-q",
            {
                "algorithm.learning_rate": (1e-3, 2e-3, 3e-3, 5e-3),
                "algorithm.n_step": (8, 16, 32),
                "algorithm.target_interval": (10, 20, 40),
                "algorithm.exploration_steps": (50_000, 100_000, 200_000),
                "collection.rollout": (16, 32),
                "algorithm.clip_gradients": (1.0, 10.0),
            },
            400_000,
        ),
        Search(
            "acrobot",
            {**ACTOR_CRITIC, "network.normalize_observations": (False, True), "algorithm.entropy_weight": (0.0, 0.01)},
            250_000,
        ),
        Search(
            "pendulum",
            {
                "algorithm.learning_rate": (1e-3, 2e-3, 3e-3, 5e-3),
                "algorithm.gae_lambda": (0.8, 0.9, 0.95),
                "algorithm.epochs": (10, 20),
                "algorithm.minibatches": (4, 8, 16),
                "collection.envs": (4, 8, 16),
                "collection.rollout": (64, 128, 256),
                "algorithm.clip_gradients": (0.5, 10.0),
            },
            100_000,
        ),
    )
}
"""Name of an example -> its search."""
