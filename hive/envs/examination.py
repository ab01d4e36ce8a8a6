"""Plays an environment with random actions, by the code that collects rollouts, and reports what it did.

The environment is stepped by the vector that a run would step it with, so what ends a run is found here with the same
words: `failure`. What hive accepts but its author probably did not intend is a warning: observations outside of their
space; episodes that never end, without which there are no returns; and statistics that no checkpoint has. What only
costs time is a note: observations of another dtype or in lists, which are converted in every step.

The first reset and the first step, in which JAX and numba compile, are outside of the time limit and of all means.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hive.envs.context import EnvContext
from hive.envs.episode_ends import judge_ends
from hive.envs.loading import close
from hive.envs.look import Look, look
from hive.envs.make import limit_advice, limit_of_class, make_any
from hive.envs.random_play import OneVector, Player, play
from hive.envs.recipe import Recipe
from hive.envs.spaces.observation import at_path, leaves_of
from hive.envs.statistics import KEYS, RunningStatistics, Watched
from hive.envs.vectors.checks import as_array
from hive.envs.vectors.native_vector import NativeVector
from hive.envs.vectors.python_vector import PythonVector
from hive.envs.vectors.vector import vector_of_one
from hive.envs.wrappers import skip_of, step_limit_of
from hive.errors import EnvironmentFailed
from hive.records.run_warnings import EPISODES_CUT, MASK_NOT_USED, NO_EPISODE, OUTSIDE, RUNNING_STATISTICS, RunWarning

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.spaces import Box

SEVERAL = 10  # least episodes between two times at which a run begins all anew
REPEATED_STEPS = 200  # of an environment of several agents that is reset again with the same seed
OTHER_REWARDS = "resets with the same seed gave other rewards for the same actions, so runs are not repeatable"
FIRST_S = 0.5  # a first call of that length is named if it is also FIRST_TIMES as long as later ones
FIRST_TIMES = 10
BOUNDS = "bounds"  # kind of the problem of values outside of their space
ROUNDING = 1e-6  # share of a bound by which floats may be outside of it: a few roundings of float32, as of x / x.max()
LONGER = 10  # times the steps, at most, to see the end of a first episode; those of some tasks have thousands of steps


@dataclass
class Examination:
    """What an environment did in `steps` steps of random actions, in which `episodes` episodes ended.

    problems: sentence about a kind of problem, with its first case -> number of observations that have it.
    """

    steps: int = 0
    hurried: bool = False  # the time was up before all steps were made
    observations: int = 0  # those of steps and resets, where single environments are stepped
    episodes: int = 0
    problems: dict[str, int] = field(default_factory=dict)
    outside: list[str] = field(default_factory=list)  # those of them that are values outside of their space
    failure: EnvironmentFailed | None = None  # what ended it, and would end a run
    close_error: str = ""  # what `close` raised
    declared_limit: int | None = None  # max_episode_steps
    limit_advice: str = ""  # how to limit episodes
    frame_skip: int = 1  # frames per step
    begun_anew: int = 0  # steps after which a run begins all episodes anew, at scheduled checkpoints; 0: it does not
    rewards: list[float] = field(default_factory=list)  # of each step
    returns: list[float] = field(default_factory=list)  # of each episode that ended
    lengths: list[int] = field(default_factory=list)  # of each episode that ended, in steps
    truncated: list[bool] = field(default_factory=list)  # whether it was
    wrong_flags: tuple[str, str, str] | None = None  # a warning that they are probably wrong: name, cause and advice
    statistics: list[RunningStatistics] = field(default_factory=list)  # that the environment keeps
    unused_mask: tuple[str, str] | None = None  # why its mask forbids nothing, and what to do
    step_s: float = 0.0  # time of all steps but the first
    reset_s: float = 0.0  # time of all resets but the first
    make_s: float = 0.0  # time of the construction
    first_reset_s: float = 0.0
    first_step_s: float = 0.0
    agents: dict[str, str] = field(default_factory=dict)  # lines about them, of an environment of several
    noticed: list[RunWarning] = field(default_factory=list)  # warnings about them
    resets: int = 0
    looked: Look | None = None  # at two environments
    rebuilt: int = 0  # environments that a run constructs at each scheduled checkpoint (env.rebuild)

    @property
    def mean_step_s(self) -> float:
        """The mean time of a step after the first one; that of the first if there is no other."""
        return self.step_s / (self.steps - 1) if self.steps > 1 else self.first_step_s

    @property
    def mean_reset_s(self) -> float:
        """The mean time of a reset after the first one; that of the first if there is no other."""
        return self.reset_s / (self.resets - 1) if self.resets > 1 else self.first_reset_s

    @property
    def pace_s(self) -> float:
        """The mean time of a step with its share of resets, after the first of each."""
        return self.mean_step_s + (self.reset_s / self.steps if self.steps else 0.0)

    @property
    def first_s(self) -> float:
        """The time from the construction to the end of the first step."""
        return self.make_s + self.first_reset_s + self.first_step_s

    def first_calls(self) -> str:
        """Return how long the first reset and the first step took, if much longer than later ones; else ""."""
        reset_s = self.mean_reset_s if self.resets > 1 else self.mean_step_s
        calls = (("reset", self.first_reset_s, reset_s), ("step", self.first_step_s, self.mean_step_s))
        slow = [
            f"the first {what} took {first_s:.1f} s"
            for what, first_s, later_s in calls
            if first_s >= max(FIRST_S, FIRST_TIMES * later_s)
        ]
        return " and ".join(slow)

    @property
    def ends(self) -> str:
        """How episodes ended, as text: "40 terminated, 2 truncated at 500 steps"; "" where it is not known."""
        limit = self.declared_limit
        kinds = [
            "terminated" if not cut else f"truncated at {limit:,} steps" if length == limit else "truncated"
            for length, cut in zip(self.lengths, self.truncated, strict=False)
        ]
        return ", ".join(f"{kinds.count(kind):,} {kind}" for kind in sorted({*kinds}))

    def warnings(self, id: str) -> list[RunWarning]:
        """Return what is probably wrong with the results of a run, with the way out of each."""
        found = [
            RunWarning(OUTSIDE, f"`{id}`: {count:,} of {self.observations:,} {text}", "", 0)
            for text, count in self.problems.items()
            if text in self.outside
        ]
        found += self.noticed
        for one in self.statistics:
            cause, advice = statistics_text(one)
            found.append(RunWarning(RUNNING_STATISTICS, f"`{id}`: {cause}", advice, 0))
        if self.unused_mask is not None:
            found.append(RunWarning(MASK_NOT_USED, f"`{id}`: {self.unused_mask[0]}", self.unused_mask[1], 0))
        if self.wrong_flags is not None:
            kind, cause, advice = self.wrong_flags
            found.append(RunWarning(kind, f"`{id}`: {cause}", advice, 0))
        if self.looked is not None:
            found += self.looked.warnings(id)
        longest = max(self.declared_limit or 0, *self.lengths, 0)
        if self.begun_anew and longest > self.begun_anew:
            cause = (
                f"`{id}`: episodes of up to {longest:,} steps are never finished, because environments begin anew at "
                f"the checkpoints of checkpoint.every, here after {self.begun_anew:,} steps of each"
            )
            advice = f"make it {-(-SEVERAL * longest // self.begun_anew)} times as large"
            found.append(RunWarning(EPISODES_CUT, cause, advice, 0))
        if self.failure is None and not self.episodes and (self.declared_limit or 0) <= self.steps:
            seen = f"{self.steps:,} steps of random actions"
            if self.hurried:
                seen += ", all that there was time for; if none ever does, there is no return"
            else:
                seen += ", and without an end there is no return"
            advice = f"let `step` return terminated or truncated, or limit episodes: {self.limit_advice}"
            found.append(RunWarning(NO_EPISODE, f"`{id}`: no episode ended in {seen}", advice, 0))
        return found

    def notes(self, id: str) -> list[str]:
        """Return what hive puts right, or what only costs time, one sentence each."""
        found = [
            f"`{id}`: {count:,} of {self.observations:,} {text}"
            for text, count in self.problems.items()
            if text not in self.outside
        ]
        if self.looked is not None:
            found += self.looked.facts(id).values()
        if self.rebuilt:
            found.append(
                f"env.rebuild constructs {self.rebuilt:,} environments at each scheduled checkpoint; `{id}` takes "
                f"{self.make_s:.2g} s for one"
            )
        if self.close_error:
            found.append(
                f"`{id}`: its close raised {self.close_error}, which a run ignores: what it holds, such as windows and "
                "ports, may remain"
            )
        return found


def statistics_text(found: RunningStatistics) -> tuple[str, str]:
    """Return what is wrong with a running mean in an environment, and what to do instead."""
    values = found.of or "observations or rewards"
    harm = "so a loaded policy and evaluations see other numbers than the policy in training"
    if found.of == "rewards":
        harm = "so the mean return is that of scaled rewards, and each environment and evaluation has another scale"
    cause = f"`{found.layer}` keeps a running mean of {values} in each environment, which no checkpoint has, {harm}"
    keys = [KEYS[found.of]] if found.of else [*KEYS.values()]
    return cause, f"leave it out and set {' or '.join(f'{key} = true' for key in keys)}"


def examine(
    recipe: Recipe,
    steps: int,
    limit_s: float,
    *,
    several: bool = False,
    look_s: float = 0.0,
    environments: int = 1,
    beside: bool = False,
    begin: Callable[[str], object] = lambda call: None,
) -> Examination:
    """Play `steps` steps of one environment with random actions, or as many as fit into `limit_s` seconds.

    The first step is not part of them.

    If no episode has ended then and no limit is declared, play up to LONGER times as many steps, to see one end.

    The environment is seeded with 0, the actions are independent of it. several: whether it has several agents.
    look_s: seconds for a look at two of it (`hive.envs.look.look`, which documents `environments` and `beside`), which
    is left out where a construction alone takes longer.
    begin: called before each call of the environment with what it is: "construction", "reset", "step" or "close".
    Raises the errors of `make_vector`. An error of the environment is part of the result.
    """
    done, begun_s = Examination(), time.perf_counter()
    begin("construction")
    if several:
        _examine_agents(recipe, done, steps, limit_s, begin)
        return done
    vector = vector_of_one(recipe)
    done.make_s = time.perf_counter() - begun_s
    done.limit_advice = limit_advice(recipe)
    player, watched = Player(vector, len(recipe.info), begin), Watched(vector)
    if isinstance(vector, OneVector):
        (environment,) = vector.environments
        done.declared_limit, done.frame_skip = step_limit_of(environment), skip_of(environment)
    else:
        done.declared_limit = limit_of_class(vector.environments[0].spec)
    try:
        _play(player, done, steps, limit_s)
        done.statistics, done.unused_mask = watched.changed(), watched.unused_mask
        ends = [-length if cut else length for length, cut in zip(done.lengths, done.truncated, strict=True)]
        done.wrong_flags = judge_ends(player, ends, done.declared_limit, limit_s)
    except EnvironmentFailed as error:
        done.failure = error
    finally:
        begin("close")
        done.close_error = next(filter(None, map(close, vector.environments)), "")
    if done.failure is None and look_s and done.make_s <= look_s:
        done.looked = look(recipe, look_s, environments, beside=beside, begin=begin)
        if done.looked.second is not None:
            text, hint = done.looked.second
            done.failure = EnvironmentFailed(f"a second environment, beside the first: {text}", hint=hint)
    return done


def _examine_agents(
    recipe: Recipe, done: Examination, steps: int, limit_s: float, begin: Callable[[str], object]
) -> None:
    """Play an environment of several agents, twice with the same seed; fill `done`."""
    from hive.envs.agents.examining import PlayedTable, agent_facts, differs

    recipe, begun_s = recipe.at(EnvContext(0)), time.perf_counter()
    table = PlayedTable(recipe, make_any(recipe), begin)
    done.make_s = time.perf_counter() - begun_s
    try:
        played = table.play(steps, limit_s)
        left_s = max(limit_s - played.step_s, 0.0)
        again = table.play(min(played.steps, REPEATED_STEPS), left_s)
        if differs(played.rewards, again.rewards):
            done.problems[OTHER_REWARDS] = 1
            done.observations = 1
    except EnvironmentFailed as error:
        done.failure, played = error, table.played
    finally:
        begin("close")
        table.close()
    done.steps, done.episodes, done.hurried = played.steps, len(played.lengths), played.steps < steps
    done.first_reset_s, done.first_step_s, done.step_s = played.first_reset_s, played.first_step_s, played.step_s
    done.rewards, done.lengths, done.returns = played.rewards, played.lengths, played.returns
    done.limit_advice = "an argument of its constructor, such as max_cycles"
    done.agents, done.noticed = agent_facts(table, played), table.table.notices.warnings()


def _play(player: Player, done: Examination, steps: int, limit_s: float) -> None:
    """Play until the limits, and keep what the rows say."""
    row, judge = player.row, _Judge(player.vector, done)
    for number in play([player], [0], steps=LONGER * steps, limit_s=limit_s):
        judge(player.returned)
        ended = 0
        if number == 0:
            done.first_reset_s = player.resets_s
        else:
            ended = int(row.episode_lengths[0])
            done.first_step_s, done.step_s = (
                (player.step_s, 0.0) if number == 1 else (done.first_step_s, done.step_s + player.step_s)
            )
            done.reset_s += player.resets_s
            done.steps = number
            done.rewards.append(float(row.rewards[0]))
        if ended:
            done.episodes += 1
            done.lengths.append(ended)
            done.truncated.append(bool(row.truncated[0]))
            done.returns.append(float(row.episode_returns[0]))
        done.resets += number == 0 or ended > 0
        if number >= steps and (done.episodes or done.declared_limit is not None):
            return
    done.hurried = done.steps < LONGER * steps


class _Judge:
    """Counts the problems of all Boxes in the observations that an environment has returned."""

    def __init__(self, vector: NativeVector | PythonVector, done: Examination) -> None:
        self._space = vector.environments[0].observation_space
        self._done = done
        self._seen: dict[str, str] = {}  # kind of a problem -> its sentence

    def __call__(self, returned: Sequence[Any]) -> None:
        """Count those of further observations."""
        for observation in returned:
            self._done.observations += 1
            for kind, text in _problems_of(self._space, observation).items():
                sentence = self._seen.setdefault(kind, text)
                if kind.endswith(BOUNDS):
                    self._done.outside.append(sentence)
                self._done.problems[sentence] = self._done.problems.get(sentence, 0) + 1


def _problems_of(space: gymnasium.Space[Any], observation: Any) -> dict[str, str]:
    """Return kind -> sentence of each problem of an observation."""
    from gymnasium.spaces import Box

    found = {}
    for path, part in leaves_of(space):
        if isinstance(part, Box):
            with contextlib.suppress(LookupError, TypeError):  # a part that the last observation of an episode lacks
                for kind, text in _problems(part, at_path(path, observation)):
                    name = ".".join(map(str, path))
                    found[f"{name} {kind}"] = f"`{name}` of {text}" if name else text
    return found


def _problems(space: Box, observation: Any) -> list[tuple[str, str]]:
    """Return (kind, sentence) of each problem of an observation, or of a part of one."""
    array, dtype, found = as_array(observation), space.dtype, []
    if array.dtype.kind not in "biuf":  # the last observation of a terminated episode, which no run reads
        return []
    if not isinstance(observation, np.ndarray | np.generic):
        kind = type(observation).__name__
        text = f"observations are of type {kind}, and are converted in every step; return np.array(..., np.{dtype})"
        found.append(("type", text))
    elif array.dtype != dtype:
        text = f"observations are {array.dtype}, not {dtype} as their space, and are converted in every step"
        found.append(("dtype", f"{text}; return them with .astype(np.{dtype})"))
    if array.shape == space.shape:
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            return found
        values = array.astype(dtype, casting="unsafe")
        slack = _slack(space)
        outside = (values < space.low - slack) | (values > space.high + slack)
        if outside.any():
            found.append((BOUNDS, _outside(space, values, tuple(np.argwhere(outside)[0]))))
    return found


def _slack(space: Box) -> NDArray[Any]:
    """Return by how much each element of a space of floats may be outside of its bounds; 0 for integers."""
    if space.dtype.kind != "f":
        return np.zeros_like(space.low)
    low, high = (np.where(np.isfinite(bound), np.abs(bound), 0) for bound in (space.low, space.high))
    return ROUNDING * np.maximum(low, high)


def _outside(space: Box, values: np.ndarray[Any, Any], at: tuple[int, ...]) -> str:
    """Return the sentence of an observation that is outside of its bounds at the index `at`."""
    low, high = f"{space.low[at]:g}", f"{space.high[at]:g}"
    value = f"{values[at]:g}"
    if value in (low, high):  # it differs in later digits
        value = str(values[at])
    return (
        f"observations are outside of their space: observation{_index(at)} was {value}, expected {low} to {high}; "
        "correct observation_space, which wrappers and other trainers rely on"
    )


def _index(at: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, at))}]" if at else ""
