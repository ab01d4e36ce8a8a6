"""What a table is for those that play at it: seats with columns, and environments that are reset, stepped and cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hive.envs.agents.notices import Notices
from hive.envs.agents.seats import EndedEpisode, SeatRows
from hive.envs.loading import close
from hive.envs.spaces.observation import ObservationSpec
from hive.envs.vectors.attributes import Pending
from hive.envs.vectors.resetting import Resets
from hive.envs.vectors.rows import StepRow


class TableSeat(Protocol):
    """A policy's place at a table."""

    @property
    def count(self) -> int:
        """Its columns, B = environments * agents."""

    @property
    def info(self) -> Sequence[str]:
        """The names of the values of `info` in its rows."""

    @property
    def agents(self) -> Sequence[str]:
        """The agents that it acts for in each environment."""

    @property
    def observation(self) -> ObservationSpec:
        """What they see."""


class Table(Protocol):
    """`count` environments in which policies play: vectors of several agents, and `LoneTable` for those of one.

    ended: the episodes that have ended since the caller has last emptied it. runs_python: whether a step runs Python
    code of an environment in this process.
    """

    count: int
    runs_python: bool
    ended: list[EndedEpisode]

    @property
    def seats(self) -> Sequence[TableSeat]:
        """The seats, in the order of policies."""

    @property
    def steps(self) -> NDArray[np.int64]:
        """Steps or turns of each running episode, [count]."""

    def seed_processes(self, seed: int) -> None:
        """Seed the global generators of processes that step the environments."""

    def reset(self, seeds: Sequence[int], observations: Sequence[NDArray[Any]]) -> None:
        """Start an episode in every environment; write the first observations of each seat, [B, ...]."""

    def play(self, episodes: NDArray[np.int64]) -> None:
        """Let each environment play so many more episodes until the next reset, and then leave it alone."""

    def turns(self, seat: int) -> NDArray[np.int64] | None:
        """Return the columns of a seat that act in the next step; None: all."""

    def step(self, actions: Sequence[NDArray[Any]], rows: Sequence[StepRow]) -> None:
        """Step every environment once with stored actions of each seat, [B, ...]; write a row of each.

        Where agents act in turn, a step is one turn of each environment, and a row has only its observations and which
        columns ended.
        """

    def cut(self, number: int) -> None:
        """End the running episode of an environment, which waits for the next reset."""

    def close(self) -> None:
        """Close every environment."""


class OneEnvironment(Protocol):
    """One environment of several agents. steps: of its running episode. left: episodes that it still plays."""

    left: int

    @property
    def steps(self) -> int: ...

    def finish(self, *, cut: bool) -> None: ...


class Seated:
    """What tables of several agents have in common. each: their environments, set by subclasses."""

    runs_python = True
    each: Sequence[OneEnvironment]

    def __init__(self, id: str, resets: Resets, seats: Sequence[SeatRows]) -> None:
        self.id = id
        self.resets = resets
        self.environments = resets.environments
        self.count = len(self.environments)
        self.seats = seats
        self.ended: list[EndedEpisode] = []  # since the caller has last emptied it
        self.notices = Notices(id)
        self.pending = Pending()

    @property
    def refused(self) -> str:
        """As of `Resets`."""
        return self.resets.refused

    @property
    def steps(self) -> NDArray[np.int64]:
        """Steps or turns of each running episode, [count]."""
        return np.array([one.steps for one in self.each])

    def seed_processes(self, seed: int) -> None:
        """Do nothing: all environments are in this process."""

    def play(self, episodes: Sequence[int] | NDArray[np.int64]) -> None:
        """Let each environment play so many more episodes until the next reset; -1: without a limit."""
        for one, left in zip(self.each, episodes, strict=True):
            one.left = int(left)

    def set_attributes(self, values: Mapping[str, Any]) -> None:
        """Give every environment these values before its next reset."""
        self.pending.set(values)

    def cut(self, number: int) -> None:
        """End the running episode of an environment, which waits for the next reset."""
        self.each[number].left = 1
        self.each[number].finish(cut=True)
        for seat in self.seats:
            for column, _ in seat.columns_of(number):
                seat.ended(column)
                seat.present[column] = False

    def close(self) -> None:
        """Close every environment."""
        for environment in self.environments:
            close(environment)
