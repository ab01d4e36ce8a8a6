"""Looks at two environments of one process, alone and in turn: whether they repeat, begin anew and share anything.

    A alone, twice      the same after a second reset with the same seed?
    A without seeds     short episodes that begin without a seed: all alike, or unrepeatable?
    B alone             constructed beside A: the same as A with the same seed?
    A and B in turn     each the same as alone? If not, they share an attribute of the class, a file, or a robot

What is compared are the rows that a run would store, after equal actions. Each play has a share of the time, so slow
environments are looked at for fewer steps. Nothing is judged that does not repeat where it is played alone.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

import numpy as np

from hive.envs.context import EnvContext
from hive.envs.make import ONE_A_PROCESS, check_new, differs_by_environment, innermost, takes_native
from hive.envs.random_play import OneVector, Player, play
from hive.envs.recipe import Recipe
from hive.envs.repeatability import AGAIN, CONTINUE, LATER, REMEDY, SEED, PlayedStep, difference, row_of
from hive.envs.shared_names import shared_values
from hive.envs.vectors.checks import short
from hive.envs.vectors.seeding import changed_generators, globals_state, seed_with_torch
from hive.envs.vectors.shared_buffers import share_memory
from hive.envs.vectors.vector import vector_of_one
from hive.errors import EnvironmentFailed
from hive.records.run_warnings import DISTURBED, SPACES_CHANGE, STARTS_REPEAT, RunWarning

LOOK_S = 1.0  # of the look of `hive check CONFIG`, and of the start of a run
STEPS, FEW_STEPS = 200, 64  # of each play; before a run
STARTS, START_STEPS = 12, 5  # episodes that begin without a seed, and their steps
LEAST_STARTS = 8  # of them that must be alike: with two equally probable starts, one time in 128 they are by chance
SHARES = 8  # plays of STEPS for which there is time

NOTHING = np.zeros(0)

SHARED = "an attribute of their class, a global of a module, or a file, window or device outside"
MOST_NAMES = 3  # of what is shared
APART = (
    'keep all state in `self`; env.processes = "each" parts what lies within a process, and collection.envs = 1 with '
    "one collector leaves what lies outside to one environment"
)
DRAW = "let `reset` draw from `self.np_random`, which `super().reset(seed=seed)` seeds only where there is a seed"
KEEP = "declare the largest space in the constructor and keep it, with a mask of the allowed actions (env.action_mask)"
OLD = "first observations were the last ones of the episode before: does `reset` return an old one?"
SHOWS = "which draws each step; leave it out: `hive play` shows a policy"
NAME = (
    "which hive seeds by run.seed, so two runs draw the same: name folders and ports by {run} and {index} in "
    "env.options, by `env_context`, or by uuid.uuid4()"
)


@dataclass
class Look:
    """What was found, with an environment of `environments` of a run. steps: of each play. hurried: those of others.

    differs: how the same seed gave other results. second: error and hint of a construction beside the first one.
    disturbed: what differs where two are stepped in turn. drew: global generators that a constructor draws from.
    names: attributes of the class and globals that change while one is played. shared: whether observations of both lie
    in the same memory. old: first observations that were the last ones before. draws: whether each step is drawn.
    """

    environments: int = 1
    steps: int = 0
    hurried: bool = False
    differs: str = ""
    second: tuple[str, str] | None = None
    disturbed: str = ""
    starts: str = ""
    spaces: str = ""
    drew: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    shared: bool = False
    old: int = 0
    draws: bool = False

    @property
    def scope(self) -> str:
        """How much was looked at, as text."""
        return f"{self.steps:,} steps of two environments, alone and in turn" + ", as they are slow" * self.hurried

    @property
    def shared_names(self) -> str:
        """What environments of a process share by its names, as text."""
        return ", ".join(f"`{name}`" for name in self.names[:MOST_NAMES]) + ", ..." * (len(self.names) > MOST_NAMES)

    def warnings(self, id: str) -> list[RunWarning]:
        """Return what is probably wrong with the results of a run, with the way out of each."""
        disturbed = f"where two environments are stepped in turn, the {self.disturbed} is not that of one alone"
        disturbed += f": they share {SHARED}" + f"; here {self.shared_names} changes" * bool(self.names)
        found = [
            (DISTURBED, disturbed * bool(self.disturbed), APART),
            (STARTS_REPEAT, self.starts, DRAW),
            (SPACES_CHANGE, self.spaces, KEEP),
        ]
        return [RunWarning(kind, f"`{id}`: {cause}", advice, 0) for kind, cause, advice in found if cause]

    def facts(self, id: str) -> dict[str, str]:
        """Return what is only worth knowing: name -> sentence."""
        common = f"; all environments of a process share {self.shared_names}, which changes" * bool(self.names)
        drawn = "its constructor draws from the global generator of " + " and ".join(f"`{one}`" for one in self.drew)
        found = {
            "same seed": f"{self.differs}, or runs are not repeatable{common}" * bool(self.differs),
            "constructor draws": f"{drawn}, {NAME}" * bool(self.drew),
            "shared memory": "its environments return observations in one memory, which a run copies" * self.shared,
            "old observations": f"all {self.old} {OLD}" * bool(self.old),
            "render mode": f'its `render_mode` is "human", {SHOWS}' * self.draws,
        }
        return {name: f"`{id}`: {text}" for name, text in found.items() if text}


def look(
    recipe: Recipe,
    limit_s: float,
    environments: int,
    *,
    beside: bool,
    steps: int = STEPS,
    begin: Callable[[str], object] = lambda call: None,
) -> Look:
    """Look at an environment for about `limit_s` seconds, its first calls not counted.

    steps: of each play. environments: of the run. beside: whether a process may have several; then the second is
    constructed beside the first. begin: as of `hive.envs.examination.examine`. Raises the errors of `make_vector`, but
    for a second one beside the first.
    """
    recipe = replace(recipe, info=())  # its values are not compared
    looking = _Looking(recipe, limit_s, Look(environments), begin, beside=beside and not takes_native(recipe))
    try:
        looking.alone(steps)
        looking.without_seeds()
        looking.second()
    finally:
        looking.close()
    return looking.found


def look_of_run(
    recipe: Recipe, environments: int, *, beside: bool, begin: Callable[[str], object]
) -> list[tuple[str, str, str]]:
    """Return what a look before a run finds: name, cause and advice of warnings; name and text of facts.

    environments, beside, begin: as of `look`, which documents the errors.
    """
    found = look(recipe, LOOK_S, environments, beside=beside, steps=FEW_STEPS, begin=begin)
    facts = found.facts(recipe.id) | ({"look": found.scope} if found.hurried else {})
    warnings = [(one.kind, one.text, one.advice) for one in found.warnings(recipe.id)]
    return [*warnings, *((name, text, "") for name, text in facts.items())]


class _Looking:
    """The environments of a look, and what was found of them. Arguments: those of `look`."""

    def __init__(
        self, recipe: Recipe, limit_s: float, found: Look, begin: Callable[[str], object], *, beside: bool
    ) -> None:
        self.found = found
        self._beside = beside
        self._recipe = recipe
        self._limit_s = limit_s
        self._begin = begin
        self._vectors: list[Any] = []
        self._first = self._made(EnvContext(0))
        self._is_single = isinstance(self._first.vector, OneVector)
        self._played: list[PlayedStep] = []
        self._end_s = time.monotonic() + limit_s

    def alone(self, steps: int) -> None:
        """Play the first environment twice with the same seed."""
        environment = self._first.vector.environments[0]
        self.found.draws = getattr(environment, "render_mode", None) == "human"
        before, values = _spaces_of(environment), shared_values(innermost(environment))

        def watch(number: int) -> None:
            if not self.found.spaces:
                self.found.spaces = _changed_space(before, environment, number)

        try:
            (self._played,) = self._play([self._first], [SEED], steps, watch)
            self._compare(self._again(self._first), "a second reset")
        except EnvironmentFailed as error:
            self.found.differs = AGAIN + str(error)
        now = shared_values(innermost(environment))
        self.found.names = [name for name, value in values.items() if now.get(name) != value]
        self.found.steps = max(len(self._played) - 1, 0)
        self.found.hurried = self.found.steps < steps

    def without_seeds(self) -> None:
        """Play short episodes that begin without a seed, and three of them again; judge how they begin."""
        if not self._is_single or self._is_over():
            return
        try:
            first, again = self._episodes(STARTS), self._episodes(2)
            (other,) = self._play([self._first], [SEED + 1], START_STEPS)
        except EnvironmentFailed:  # it may refuse to be reset in mid-episode
            return
        self._name_old(first)
        if self.found.differs:
            return
        whole = takewhile(lambda both: len(both[0]) == len(both[1]), zip(first, again, strict=False))
        if any(difference(*both) for both in whole):
            self.found.differs = (
                f"a second reset with the same seed gave other episodes after the first one; {CONTINUE}"
            )
        elif difference(first[0], other):  # seeds matter
            self._name_starts(*first)

    def _name_old(self, episodes: Sequence[Sequence[PlayedStep]]) -> None:
        """Note first observations that are the last ones of the episode before."""
        firsts = [one[0]["observation"] for one in episodes]
        lasts = [one[-1].get("observation", NOTHING) for one in episodes]  # NOTHING: an episode has ended
        if not np.array_equal(firsts[0], lasts[0]) and all(map(np.array_equal, firsts[1:], lasts)):
            self.found.old = len(episodes) - 1

    def _name_starts(self, seeded: Sequence[PlayedStep], *unseeded: Sequence[PlayedStep]) -> None:
        """Note that all episodes that begin without a seed are alike."""
        if len(unseeded) < LEAST_STARTS or any(difference(unseeded[0], one) for one in unseeded):
            return
        begun = f"all {len(unseeded)} resets without a seed, as after each episode, began the same episode"
        is_one = bool(difference(seeded, unseeded[0]))
        whose = "whatever the seed before, so training sees one start"
        if not is_one:
            whose = f"that of the seed before, so training sees {self.found.environments:,} starts"
        self.found.starts = f"{begun}, {whose}"

    def second(self) -> None:
        """Play a second environment: beside the first one, or in its place; then both in turn."""
        if self._is_over():
            return
        beside = self._beside
        if not beside:
            self.close()
        differ = bool(differs_by_environment(self._recipe))
        try:
            other = self._made(EnvContext(1 if differ and beside else 0))
            check_new(self._recipe.id, [vector.environments[0] for vector in self._vectors])
        except EnvironmentFailed as error:
            if not beside:
                raise
            self.found.second = str(error), error.hint if error.permanent else ONE_A_PROCESS
            return
        try:
            if not (differ or self.found.differs or (beside and self.found.drew)):
                self._compare(self._again(other), "a second environment")
            if beside and not self.found.differs:
                self._in_turn(other)
        except EnvironmentFailed as error:
            self.found.differs = AGAIN + str(error)

    def close(self) -> None:
        """Close the environments."""
        self._begin("close")
        while self._vectors:
            self._vectors.pop().close()

    def _in_turn(self, other: Player) -> None:
        """Step both environments in turn; each must do what it does alone."""
        players, seeds = [self._first, other], [SEED, SEED + 1]
        (alone,) = self._play([other], [SEED + 1])

        def look(number: int) -> None:
            if not self.found.shared:
                pairs = enumerate(player.returned for player in players)
                self.found.shared = share_memory([(index, one) for index, returned in pairs for one in returned])

        def differs() -> str:
            mine, its = self._play(players, seeds, each=look)
            return difference(self._played, mine) or difference(alone, its)

        if (found := differs()) and not difference(self._again(self._first), self._again(self._first)) and differs():
            self.found.disturbed = found

    def _compare(self, again: Sequence[PlayedStep], who: str) -> None:
        """Note how a further play with the same seed differs from the first one."""
        if found := difference(self._played, again):
            remedy = CONTINUE if found.startswith(LATER) else REMEDY
            self.found.differs = f"{who} with the same seed gave another {found}; {remedy}"

    def _made(self, context: EnvContext) -> Player:
        """Build an environment, and note from which global generators its constructor draws."""
        if not self._beside:  # else both would draw the same
            seed_with_torch(SEED)
        self._begin("construction")
        before = globals_state()
        self._vectors.append(vector_of_one(self._recipe.at(context) if self._recipe.context is None else self._recipe))
        self.found.drew = changed_generators(before, globals_state())
        return Player(self._vectors[-1], begin=self._begin)

    def _again(self, player: Player) -> list[PlayedStep]:
        return self._play([player], [SEED])[0]

    def _episodes(self, unseeded: int) -> list[list[PlayedStep]]:
        """Play the beginning of the episode of a seed, and of episodes that begin without a seed."""
        seeds = [SEED, *[None] * unseeded]
        return [self._play([self._first], [one], START_STEPS)[0] for one in seeds if one or not self._is_over()]

    def _play(
        self,
        players: Sequence[Player],
        seeds: Sequence[int | None],
        steps: int | None = None,
        each: Callable[[int], object] = lambda number: None,
    ) -> list[list[PlayedStep]]:
        """Return what each player did in at most `steps` steps (by default those of the first play) in a share of time.

        each: called after the reset and each step.
        """
        rows: list[list[PlayedStep]] = [[] for _ in players]
        most, share_s = len(self._played) - 1 if steps is None else steps, self._limit_s / SHARES
        for number in play(players, seeds, actions=SEED, steps=most, limit_s=share_s):
            for player, row in zip(players, rows, strict=True):
                row.append(row_of(player.row))
            each(number)
            if self._is_over():
                break
        return rows

    def _is_over(self) -> bool:
        over = time.monotonic() >= self._end_s
        self.found.hurried |= over
        return over


def _spaces_of(environment: Any) -> dict[str, Any]:
    """Return copies of both spaces, which an environment may change in place."""
    spaces = {}
    for name in ("observation_space", "action_space"):
        with suppress(Exception):  # a property of a user
            spaces[name] = copy.deepcopy(getattr(environment, name))
    return spaces


def _changed_space(before: Mapping[str, Any], environment: Any, number: int) -> str:
    """Return which space of an environment is another one than before; "" for none."""
    for name, space in before.items():
        now = getattr(environment, name, None)
        if now is not space and now != space:
            when = f"step {number:,}" if number else "the reset"
            return f"its {name} was {short(space)} and after {when} {short(now)}, and a policy has one form"
    return ""
