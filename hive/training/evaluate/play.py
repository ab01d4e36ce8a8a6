"""Plays whole episodes at a table, with a policy in each of its seats.

    play = Play(table, players, seed=1, episodes=100)
    play.begin(turn)
    while not play.over:
        for episode in play.step():         the counted episodes that ended in this step
            ...

A table has environments, and seats whose columns are their agents; an environment of one agent is a table with one
seat. Evaluations, recordings, videos, `hive play` and `hive record` are readers of this loop.

Each environment plays a number of episodes that is fixed in advance; episodes beyond that number do not count. Counting
the first E episodes to end, of any environment, would be biased towards short ones: towards bad ones where an end is a
failure, towards good ones where it is the goal. An environment that has played its number is left alone.

The seeds of environments, sampled actions and torch are derived from the run's seed and the turn. So the same weights
play the same episodes in any process, if environments draw only from their own generators and a reset clears them.

An episode that does not end within `max_steps` steps is cut: it counts with its return up to there. Its environment
waits until the others have played their episodes; then all are reset, with other seeds, for the episodes that are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from hive.envs import StepRow, seed_globals
from hive.envs.agents.playable import Table
from hive.envs.agents.seats import EndedEpisode
from hive.experience import Purpose, stream, stream_seed, stream_seeds
from hive.policy.acting import ALL, Rows
from hive.runtime import START, Status
from hive.training.collect.collector import seed_all_globals

ENDLESS = 1 << 31  # episodes of a play without a limit
RESET_STRIDE = 1 << 40  # stride between the seeds of two resets of one play: more than turns of a run
TORCH_SEEDS = 1 << 63  # number of seeds that torch generators accept


class Player(Protocol):
    """Acts in a seat: an `Acting`, which documents the methods, or what stands in the place of a policy."""

    @property
    def remembers(self) -> bool: ...

    def bind(self, weights: NDArray[np.uint8]) -> None: ...

    def begin(self, count: int) -> None: ...

    def see(self, observations: NDArray[Any], rows: Rows = ...) -> None: ...

    def forget(self, ended: NDArray[np.bool_]) -> None: ...

    def actions(
        self, observations: NDArray[Any], rows: NDArray[np.int64] | None, noise: np.random.Generator | None
    ) -> NDArray[Any]: ...


class Play:
    """Plays `episodes` episodes, divided among the environments of `table`, with a policy for each seat.

    sample: whether to sample actions, as in training, instead of taking the most likely ones. max_steps: limit of an
    episode; 0: none. status: the status page that shows its phases; None in library use. rows: of each seat, as the
    last step wrote them. actions: stored ones of the last step, of each seat. Raises ValueError if there are fewer
    episodes than environments.
    """

    def __init__(
        self,
        table: Table,
        players: Sequence[Player],
        *,
        seed: int,
        episodes: int,
        sample: bool = False,
        max_steps: int = 0,
        status: Status | None = None,
    ) -> None:
        if episodes < table.count:
            raise ValueError(f"{episodes} episodes are fewer than the {table.count} environments")
        self.table = table
        self.players = players
        self.seed = seed
        self.sample = sample
        self.max_steps = max_steps
        numbers = np.arange(table.count)
        self.quota = episodes // table.count + (numbers < episodes % table.count)  # [E]: episodes of each
        self.rows = [StepRow.allocate(seat.observation, seat.count, len(seat.info)) for seat in table.seats]
        self.over = True
        self._status = status
        self._phases = (status.phase("policy"), status.phase("env"), status.phase(START)) if status else (0, 0, 0)

    def begin(self, turn: int, first: int = 0) -> None:
        """Start the first episode of every environment, and abandon what is in progress.

        turn: of the weights, which with the seed decides all random numbers. first: number of the first environment,
        where those of the table are only some of the environments of an evaluation. Raises EnvironmentFailed.
        """
        self._turn, self._first = turn, first
        self._left = self.quota.copy()  # [E]: episodes still to be counted of each environment
        self._steps = self._rounds = 0
        self._forward = stream_seed(self.seed, Purpose.evaluation_forward, 0, turn)
        self._code = stream_seed(self.seed, Purpose.evaluation_stepping, first, turn)
        self._noise = [
            stream(self.seed, Purpose.evaluation_action, seat, turn) if self.sample else None
            for seat in range(len(self.players))
        ]
        self.over = False
        self._reset()

    def _reset(self) -> None:
        """Start an episode in every environment, for the first time or after episodes were cut."""
        self._enter(self._phases[2])
        table = self.table
        for player, seat in zip(self.players, table.seats, strict=True):
            player.begin(seat.count)
        self._waits = np.zeros(table.count, bool)  # [E]: whether its episode was cut
        sequence = self._turn + self._rounds * RESET_STRIDE
        if table.runs_python:
            seed_all_globals(self.seed, Purpose.evaluation_stepping, self._first, sequence)
        # Each process of environments has generators of its own, so one seed is enough.
        table.seed_processes(stream_seed(self.seed, Purpose.evaluation_stepping, self._first, sequence))
        seeds = stream_seeds(self.seed, Purpose.evaluation, self._first, table.count, sequence)
        table.ended.clear()  # what a play that failed has left
        table.reset(seeds, [row.observations for row in self.rows])
        table.play(self._left)
        self._see()
        self._leave()

    def step(self) -> list[EndedEpisode]:
        """Step every environment once, or play a turn in each; return the counted episodes that ended.

        Raises EnvironmentFailed; RuntimeError before `begin` and after the last step.
        """
        if self.over:
            raise RuntimeError("no play has begun, or all its episodes have ended: call begin() first")
        self._enter(self._phases[0])
        # Seed before every step, because actors that share a process also share global generators.
        torch.default_generator.manual_seed((self._forward + self._steps) % TORCH_SEEDS)
        if self.table.runs_python:
            seed_globals((self._code + 1 + self._steps) % TORCH_SEEDS)
        with torch.inference_mode():
            self.actions = [self._act(seat) for seat in range(len(self.players))]
        self._enter(self._phases[1])
        for row in self.rows:
            row.finals.count = 0  # overwrite the final observations of the last step
        self.table.step(self.actions, self.rows)
        for player, row in zip(self.players, self.rows, strict=True):
            if player.remembers:
                player.forget(row.ended)
        self._see()
        self._steps += 1
        ended = self._count()
        self._leave()
        if not self._left.any():
            self.over = True
        elif self._waits[self._left > 0].all():
            self._rounds += 1
            self._reset()
        return ended

    def _act(self, seat: int) -> NDArray[Any]:
        """Return stored actions [B, ...] of a seat, zeros where a column has no turn."""
        player, row, columns = self.players[seat], self.rows[seat], self.table.turns(seat)
        if columns is not None and not len(columns):
            return np.zeros(len(row.rewards))  # nobody takes one, and no layer has to know what to do without rows
        chosen = player.actions(row.observations, columns, self._noise[seat])
        if columns is None:
            return chosen
        actions = np.zeros((len(row.rewards), *chosen.shape[1:]), chosen.dtype)
        actions[columns] = chosen
        return actions

    def _see(self) -> None:
        for number, (player, row) in enumerate(zip(self.players, self.rows, strict=True)):
            if player.remembers:
                columns = self.table.turns(number)
                player.see(row.observations, ALL if columns is None else columns)

    def _count(self) -> list[EndedEpisode]:
        """Cut what has come to the limit; return the episodes that count, by environment."""
        table = self.table
        if self.max_steps:
            ended = {one.number for one in table.ended}
            for number in np.flatnonzero(table.steps >= self.max_steps).tolist():
                if number not in ended and self._left[number] and not self._waits[number]:
                    table.cut(number)
        counted: list[EndedEpisode] = []
        for one in table.ended:
            if self._left[one.number] > 0 and not self._waits[one.number]:
                counted.append(one)
                self._left[one.number] -= 1
                self._waits[one.number] = one.cut
        table.ended.clear()
        if counted:
            table.play(np.where(self._waits, 0, self._left))
        return sorted(counted, key=lambda one: one.number)

    def _enter(self, phase: int) -> None:
        if self._status:
            self._status.enter(phase)

    def _leave(self) -> None:
        if self._status:
            self._status.enter(self._status.runtime)

    def close(self) -> None:
        """Close the environments."""
        self.table.close()
