"""Plays an environment with random actions and reports what hive accepts but its author probably did not intend.

Errors such as a wrong shape or NaN end a run (hive.envs.checks), and are reported too. The rest only costs time or
learning: observations outside of their space, of another dtype or in lists, which are converted in every step, and
episodes that never end, without which there are no returns. `hive check` prints it.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hive.envs.checks import fault_of, store
from hive.envs.make import make_environment
from hive.envs.observation import ObservationSpec, at_path, leaves_of, observation_spec
from hive.envs.wrappers import WrapperConfig, limit_of, skip_of
from hive.runtime.actor.error_location import named

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.spaces import Box

__all__ = ["Examination", "examine"]


@dataclass
class Examination:
    """What an environment did in `steps` steps of random actions, in which `episodes` episodes ended.

    problems: sentence about a kind of problem, with its first case -> number of observations that have it.
    """

    steps: int = 0
    observations: int = 0  # those of steps and resets
    episodes: int = 0
    problems: dict[str, int] = field(default_factory=dict)
    failure: str = ""  # the exception that ended it
    declared_limit: int | None = None  # max_episode_steps
    frame_skip: int = 1  # frames per step
    rewards: list[float] = field(default_factory=list)  # of each step
    returns: list[float] = field(default_factory=list)  # of each episode that ended
    lengths: list[int] = field(default_factory=list)  # of each episode that ended, in steps
    step_s: float = 0.0  # time of all steps
    reset_s: float = 0.0  # time of all resets
    resets: int = 0

    def warnings(self, id: str) -> list[str]:
        """Return one sentence per problem, with its way out."""
        found = [f"`{id}`: {count:,} of {self.observations:,} {text}" for text, count in self.problems.items()]
        if wrong := [reward for reward in self.rewards if not math.isfinite(reward)]:
            found.append(
                f"`{id}`: {len(wrong):,} of {self.steps:,} rewards are not finite: the first was {wrong[0]}, which "
                "ends a run; look for a division by zero"
            )
        if self.failure:
            found.append(f"`{id}`: {self.failure}")
        elif not self.episodes and (self.declared_limit is None or self.declared_limit <= self.steps):
            found.append(
                f"`{id}`: no episode ended in {self.steps:,} steps of random actions, and without an end there is no "
                "return; let `step` return terminated or truncated, or wrap it in gymnasium.wrappers.TimeLimit"
            )
        return found


def examine(
    id: str,
    options: Mapping[str, Any],
    wrappers: Sequence[WrapperConfig] = (),
    preset: str = "none",
    *,
    steps: int,
    limit_s: float,
) -> Examination:
    """Play `steps` steps of one environment with random actions, or as many as fit into `limit_s` seconds.

    Actions and environment are seeded with 0. Raises the errors of `make_environment`. An exception in the environment
    is part of the result.
    """
    environment, done = make_environment(id, options, wrappers, preset), Examination()
    done.declared_limit, done.frame_skip = limit_of(environment), skip_of(environment)
    try:
        _play(environment, done, steps, time.monotonic() + limit_s)
        environment.close()
    except (Exception, SystemExit) as error:
        done.failure = f"it raised {named(error)} after {done.steps:,} steps of random actions"
    return done


def _play(environment: gymnasium.Env[Any, Any], done: Examination, steps: int, end_s: float) -> None:
    from hive.envs.masks import random_action  # its import takes that of gymnasium

    environment.action_space.seed(0)
    space, seen = environment.observation_space, dict[str, str]()  # kind of a problem -> its sentence
    spec = observation_spec(type(environment.unwrapped).__name__, space)
    observation = _reset(environment, done, seed=0)
    _judge(space, spec, observation, seen, done)
    begun = 0  # number of the open episode's first step
    while done.steps < steps and time.monotonic() < end_s:
        action, before = random_action(environment, observation), time.perf_counter()
        observation, reward, terminated, truncated, _ = environment.step(action)
        done.step_s += time.perf_counter() - before
        done.steps += 1
        done.rewards.append(float(reward))
        _judge(space, spec, observation, seen, done)
        if terminated or truncated:
            done.episodes += 1
            done.lengths.append(done.steps - begun)
            done.returns.append(sum(done.rewards[begun:]))
            begun = done.steps
            observation = _reset(environment, done)
            _judge(space, spec, observation, seen, done)


def _reset(environment: gymnasium.Env[Any, Any], done: Examination, seed: int | None = None) -> Any:
    """Reset the environment, count it and return the observation."""
    before = time.perf_counter()
    observation = environment.reset(seed=seed)[0]
    done.reset_s += time.perf_counter() - before
    done.resets += 1
    return observation


def _judge(
    space: gymnasium.Space[Any], spec: ObservationSpec, observation: Any, seen: dict[str, str], done: Examination
) -> None:
    """Count the problems of all Boxes in an observation or, without any, what else `hive.envs.checks` refuses in it."""
    from gymnasium.spaces import Box

    done.observations += 1
    found = dict[str, str]()  # kind of a problem -> its sentence
    for path, part in leaves_of(space):
        if isinstance(part, Box):
            with contextlib.suppress(LookupError, TypeError):  # a part that is missing, which is refused below
                for kind, text in _problems(part, at_path(path, observation)):
                    name = ".".join(map(str, path))
                    found[f"{name} {kind}"] = f"`{name}` of {text}" if name else text
    if not found and not store(spec, [observation], np.zeros((1, *spec.shape), spec.dtype)):
        found["refused"] = f"observations end a run: the first was {fault_of(spec, observation)[0]}"
    for kind, text in found.items():
        sentence = seen.setdefault(kind, text)
        done.problems[sentence] = done.problems.get(sentence, 0) + 1


def _problems(space: Box, observation: Any) -> list[tuple[str, str]]:
    """Return (kind, sentence) of each problem of an observation, or of a part of one."""
    array, dtype, found = np.asarray(observation), space.dtype, []
    if not isinstance(observation, np.ndarray | np.generic):
        kind = type(observation).__name__
        text = f"observations are of type {kind}, and are converted in every step; return np.array(..., np.{dtype})"
        found.append(("type", text))
    elif array.dtype != dtype:
        text = f"observations are {array.dtype}, not {dtype} as their space, and are converted in every step"
        found.append(("dtype", f"{text}; return them with .astype(np.{dtype})"))
    if array.shape == space.shape:
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            at = tuple(np.argwhere(~np.isfinite(array))[0])
            text = f"observations are not finite: observation{_index(at)} was {array[at]}, which ends a run"
            return [*found, ("finite", f"{text}; look for a division by zero or a number beyond 3.4e38")]
        values = array.astype(dtype, casting="unsafe")
        outside = (values < space.low) | (values > space.high)
        if outside.any():
            found.append(("bounds", _outside(space, values, tuple(np.argwhere(outside)[0]))))
    return found


def _outside(space: Box, values: np.ndarray[Any, Any], at: tuple[int, ...]) -> str:
    """Return the sentence of an observation that is outside of its bounds at the index `at`."""
    return (
        f"observations are outside of their space: observation{_index(at)} was {values[at]:g}, expected "
        f"{space.low[at]:g} to {space.high[at]:g}; correct observation_space, which wrappers and other trainers rely on"
    )


def _index(at: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, at))}]" if at else ""
