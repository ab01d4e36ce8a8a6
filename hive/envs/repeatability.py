"""Compares plays of environments, step by step: equal seeds and equal actions must give equal rows.

Bit-identical runs and exact resumes need this, twice: a reset with a seed must clear the state of an environment that
has played before, and two environments with one seed must agree, so that a restarted process repeats the lost one
(`hive.envs.look`). What is compared are the rows that a run would store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.envs.random_play import Player, play
from hive.envs.recipe import Recipe
from hive.envs.vectors.rows import StepRow
from hive.envs.vectors.seeding import seed_with_torch
from hive.envs.vectors.vector import vector_of_one

SEED = 1
AGAIN = "it failed when it was reset with a seed that had been used before: "
REMEDY = (
    "draw all random numbers from `self.np_random`, which `super().reset(seed=seed)` seeds, not from a generator "
    "without a seed such as `np.random.default_rng()`, and reset all state"
)

LATER = "observation after the end of an episode,"
CONTINUE = (
    "a reset without a seed, as after each episode, must continue the generator that the reset with one made, as "
    "`self.np_random` does after `super().reset(seed=seed)`, not make a new one"
)

PlayedStep = dict[str, NDArray[Any]]
"""What a step returned: "end", "observation" or, of the episode that then begins, LATER, and "reward"."""


def trace(recipe: Recipe, steps: int, limit_s: float) -> list[dict[str, str]]:
    """Return the digests of what the reset and each step of one environment gave, to compare processes.

    It makes at most `steps` steps of random actions in at most `limit_s` seconds, in which the first step is not
    counted. Raises the errors of `make_vector`.
    """
    seed_with_torch(SEED)
    vector = vector_of_one(replace(recipe, info=()))  # values of info are not compared
    try:
        player = Player(vector)
        played = [row_of(player.row) for _ in play([player], [SEED], actions=SEED, steps=steps, limit_s=limit_s)]
    finally:
        vector.close()
    return [{name: hashlib.sha256(value.tobytes()).hexdigest() for name, value in one.items()} for one in played]


def difference(first: Sequence[Mapping[str, Any]], again: Sequence[Mapping[str, Any]]) -> str:
    """Return what differs first, and where: "reward in step 7"; "" if nothing does."""
    for number, (mine, other) in enumerate(zip(first, again, strict=False)):
        for name, value in mine.items():
            if not np.array_equal(value, other[name]):
                return f"{name} in step {number}" if number else "first observation"
    return ""


def row_of(row: StepRow) -> PlayedStep:
    """Return a copy of what a run would store of a row."""
    ends = np.concatenate([row.terminated, row.truncated])
    return {"end": ends, LATER if ends.any() else "observation": row.observations.copy(), "reward": row.rewards.copy()}
