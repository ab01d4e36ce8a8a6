"""Tests whether an environment repeats itself: equal seeds and equal actions must give equal observations.

Bit-identical runs and exact resumes need this, twice: a reset with a seed must clear the state of an environment that
has played before, and two environments with one seed must agree, so that a restarted process repeats the lost one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hive.envs.make import make_environment
from hive.envs.seeding import seed_globals
from hive.envs.wrappers import WrapperConfig
from hive.runtime.actor.error_location import named

if TYPE_CHECKING:
    import gymnasium

__all__ = ["unrepeatable"]

SEED = 1
REMEDY = (
    "draw all random numbers from `self.np_random`, which `super().reset(seed=seed)` seeds, not from a generator "
    "without a seed such as `np.random.default_rng()`, and reset all state"
)


def unrepeatable(
    id: str,
    options: Mapping[str, Any],
    wrappers: Sequence[WrapperConfig] = (),
    preset: str = "none",
    *,
    steps: int,
    limit_s: float,
) -> str:
    """Return a sentence about the first difference between equally seeded environments; "" if there is none.

    Each plays at most `steps` steps with the same random actions, and all of them at most `limit_s` seconds. Raises the
    errors of `make_environment`.
    """
    end_s = time.monotonic() + limit_s
    one, other = (_built(id, options, wrappers, preset) for _ in range(2))
    try:
        first = _play(one, steps, time.monotonic() + limit_s / 3)
        for environment, who in ((one, "a second reset"), (other, "a second environment")):
            again = _play(environment, len(first) - 1, end_s)
            if found := _difference(first, again):
                return f"{who} with the same seed gave another {found}; {REMEDY}"
    except (Exception, SystemExit) as error:
        return f"it raised {named(error)} when it was reset with a seed that had been used before"
    finally:
        one.close()
        other.close()
    return ""


def _seed_globals() -> None:
    """Seed the global generators, as a run does before it builds environments and resets them with seeds."""
    seed_globals(SEED)
    if (torch := sys.modules.get("torch")) is not None:  # this layer does not import torch itself
        torch.default_generator.manual_seed(SEED)


def _built(
    id: str, options: Mapping[str, Any], wrappers: Sequence[WrapperConfig], preset: str
) -> gymnasium.Env[Any, Any]:
    _seed_globals()
    return make_environment(id, options, wrappers, preset)


def _play(environment: gymnasium.Env[Any, Any], steps: int, end_s: float) -> list[tuple[Any, ...]]:
    """Return (observation, reward, terminated, truncated) of the reset and of each step."""
    from hive.envs.masks import random_action  # its import takes that of gymnasium

    environment.action_space.seed(SEED)
    _seed_globals()
    played: list[tuple[Any, ...]] = [(environment.reset(seed=SEED)[0], 0.0, False, False)]
    while len(played) <= steps and time.monotonic() < end_s:
        observation, reward, terminated, truncated, _ = environment.step(random_action(environment, played[-1][0]))
        played.append((observation, reward, terminated, truncated))
        if terminated or truncated:
            played.append((environment.reset()[0], 0.0, False, False))
    return played


def _difference(first: list[tuple[Any, ...]], again: list[tuple[Any, ...]]) -> str:
    """Return what differs first, and where: "reward in step 7"; "" if nothing does."""
    from gymnasium.utils.env_checker import data_equivalence

    for number, (mine, other) in enumerate(zip(first, again, strict=False)):
        for name, one, two in zip(("observation", "reward", "end", "end"), mine, other, strict=True):
            if not data_equivalence(one, two):
                return f"{name} in step {number}" if number else "first observation"
    return ""
