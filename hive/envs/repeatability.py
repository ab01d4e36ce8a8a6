"""Tests whether an environment repeats itself: equal seeds and equal actions must give equal observations.

Bit-identical runs and exact resumes need this, twice: a reset with a seed must clear the state of an environment that
has played before, and two environments with one seed must agree, so that a restarted process repeats the lost one.
What is compared are the rows that a run would store.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.envs.random_play import Player, play
from hive.envs.recipe import Recipe
from hive.envs.vectors.rows import StepRow
from hive.envs.vectors.seeding import seed_with_torch
from hive.envs.vectors.vector import vector_of_one
from hive.errors import EnvironmentFailed

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


def unrepeatable(recipe: Recipe, steps: int, limit_s: float) -> str:
    """Return a sentence about the first difference between equally seeded environments; "" if there is none.

    Each plays at most `steps` steps with the same random actions, in at most `limit_s` seconds, in which the first step
    is not counted. Raises the errors of `make_vector`.
    """
    with _one(recipe) as player:
        try:
            first = _played(player, steps, limit_s / 3)
            found, who = difference(first, _played(player, len(first) - 1, limit_s / 3)), "a second reset"
        except EnvironmentFailed as error:
            return AGAIN + str(error)
    if not found:
        with _one(recipe) as player:  # now: it is the same environment of a run, and may open the same port
            try:
                found, who = difference(first, _played(player, len(first) - 1, limit_s / 3)), "a second environment"
            except EnvironmentFailed as error:
                return AGAIN + str(error)
    remedy = CONTINUE if found.startswith(LATER) else REMEDY
    return f"{who} with the same seed gave another {found}; {remedy}" if found else ""


def trace(recipe: Recipe, steps: int, limit_s: float) -> list[dict[str, str]]:
    """Return the digests of what the reset and each step of one environment gave, to compare processes.

    The parameters are those of `unrepeatable`.
    """
    with _one(recipe) as player:
        played = _played(player, steps, limit_s)
    return [{name: hashlib.sha256(value.tobytes()).hexdigest() for name, value in one.items()} for one in played]


def difference(first: Sequence[Mapping[str, Any]], again: Sequence[Mapping[str, Any]]) -> str:
    """Return what differs first, and where: "reward in step 7"; "" if nothing does."""
    for number, (mine, other) in enumerate(zip(first, again, strict=False)):
        for name, value in mine.items():
            if not np.array_equal(value, other[name]):
                return f"{name} in step {number}" if number else "first observation"
    return ""


@contextlib.contextmanager
def _one(recipe: Recipe) -> Iterator[Player]:
    """Build one environment, and close it at the end."""
    seed_with_torch(SEED)
    vector = vector_of_one(replace(recipe, info=()))  # values of info are not compared
    try:
        yield Player(vector)
    finally:
        vector.close()


def _played(player: Player, steps: int, limit_s: float) -> list[PlayedStep]:
    """Return the rows of the reset and of each step."""
    return [_copy(player.row) for _ in play([player], [SEED], actions=SEED, steps=steps, limit_s=limit_s)]


def _copy(row: StepRow) -> PlayedStep:
    ends = np.concatenate([row.terminated, row.truncated])
    return {"end": ends, LATER if ends.any() else "observation": row.observations.copy(), "reward": row.rewards.copy()}
