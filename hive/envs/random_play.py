"""Plays environments with random actions: the loop of everything that looks at what an environment does.

    player = Player(vector_of_one(recipe))
    for number in play([player], [SEED], steps=200, limit_s=1.0):    0 after the reset, then 1, 2, ... after each step
        player.row, player.returned, player.step_s                   what happened in it

They are stepped by the vector that a run would step them with, so what ends a run ends this loop with the same words.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from hive.envs.random_actions import RandomActions
from hive.envs.vectors.native_vector import NativeVector
from hive.envs.vectors.python_vector import PythonVector
from hive.envs.vectors.rows import StepRow
from hive.envs.vectors.seeding import globals_state, restore_globals, seed_with_torch

if TYPE_CHECKING:
    import gymnasium


class OneVector(PythonVector):
    """One environment in Python. returned: the observations of the last call. resets_s: seconds of its resets."""

    def __init__(
        self,
        id: str,
        environment: gymnasium.Env[Any, Any],
        info: Sequence[str] = (),
        reset_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(id, [environment], info, reset_options=[reset_options or {}])
        self.returned: list[Any] = []
        self.resets_s = 0.0

    def begin_again(self, observations: NDArray[Any]) -> None:
        """Begin an episode without a seed, as after the end of one; write `observations` [1, ...]."""
        self._episodes.begin()
        self._checks.observations([self._reset_one(0, None)], observations)

    def _step_each(self, actions: NDArray[Any]) -> list[Any]:
        results = super()._step_each(actions)
        self.returned.append(results[0][0] if isinstance(results[0], tuple) and results[0] else None)
        return results

    def _reset_one(self, index: int, seed: int | None) -> Any:
        before = time.perf_counter()
        try:
            observation = super()._reset_one(index, seed)
        finally:
            self.resets_s += time.perf_counter() - before
        self.returned.append(observation)
        return observation


class Played(ABC):
    """Something that is played. step_s, resets_s: seconds of the last call, without and of resets.

    begin: called before each call with what it is, "reset" or "step". All methods raise EnvironmentFailed.
    """

    def __init__(self, begin: Callable[[str], object] = lambda call: None) -> None:
        self.step_s = self.resets_s = 0.0
        self.begin = begin
        self._globals: tuple[Any, ...] | None = None

    @abstractmethod
    def reset(self, seed: int | None, actions: int) -> None:
        """Begin an episode. actions: the seed of the actions that follow."""

    @abstractmethod
    def step(self) -> None:
        """Make a step; begin an episode where one ends."""

    @contextmanager
    def timed(self, call: str) -> Iterator[None]:
        """Measure a call of the environment."""
        self.begin(call)
        before = time.perf_counter()
        yield
        took_s = time.perf_counter() - before
        self.step_s, self.resets_s = (took_s, 0.0) if call == "step" else (0.0, took_s)

    @contextmanager
    def own_globals(self) -> Iterator[None]:
        """Have the global generators as the last call of this player left them, whatever others have drawn."""
        if self._globals is not None:
            restore_globals(self._globals)
        yield
        self._globals = globals_state()


class Player(Played):
    """A vector that is played. row: the last one. infos: the number of values of `info` in its rows."""

    def __init__(
        self, vector: NativeVector | PythonVector, infos: int = 0, begin: Callable[[str], object] = lambda call: None
    ) -> None:
        super().__init__(begin)
        self.vector = vector
        self.row = StepRow.allocate(vector.observation, vector.count, infos)

    @property
    def returned(self) -> list[Any]:
        """What the environment returned in the last call, in its form; nothing for a vectorized class."""
        return self.vector.returned if isinstance(self.vector, OneVector) else []

    def reset(self, seed: int | None, actions: int) -> None:
        """Begin an episode, with the global generators seeded as in a run; without a seed for None."""
        self._draw = RandomActions(self.vector.action, self.vector.observation.mask, actions)
        for values in (self.row.rewards, self.row.terminated, self.row.truncated, self.row.episode_lengths):
            values[:] = 0  # of what was played before
        if seed is not None:
            seed_with_torch(seed)
        with self.timed("reset"):
            if seed is None:
                assert isinstance(self.vector, OneVector)
                self.vector.begin_again(self.row.observations)
            else:
                self.vector.reset(range(seed, seed + self.vector.count), self.row.observations)

    def step(self) -> None:
        """Make a step; begin an episode where one ends."""
        self.row.finals.count = 0
        actions = self._draw(self.row.observations)
        with self.timed("step"):
            self.vector.step(actions, self.row)

    @contextmanager
    def timed(self, call: str) -> Iterator[None]:
        """Measure a call; the resets in a step of a single environment apart."""
        single = self.vector if isinstance(self.vector, OneVector) else None
        if single is not None:
            single.returned, single.resets_s = [], 0.0
        with super().timed(call):
            yield
        if single is not None and call == "step":
            self.step_s, self.resets_s = self.step_s - single.resets_s, single.resets_s


def play(
    players: Sequence[Played],
    seeds: Sequence[int | None],
    *,
    actions: int = 0,
    steps: float = math.inf,
    limit_s: float = math.inf,
) -> Iterator[int]:
    """Reset each player with its seed, and step all in turn; yield 0, and after each step how many there were.

    actions: as for `Played.reset`. limit_s: maximum seconds of the steps but the first, in which JAX and numba compile.
    """
    apart = len(players) > 1
    for player, seed in zip(players, seeds, strict=True):
        with player.own_globals() if apart else nullcontext():
            player.reset(seed, actions)
    number, end_s = 0, math.inf
    yield number
    while number < steps and time.monotonic() < end_s:
        for player in players:
            with player.own_globals() if apart else nullcontext():
                player.step()
        number += 1
        end_s = time.monotonic() + limit_s if number == 1 else end_s
        yield number
