"""Collects rollouts of several agents: of several policies at once, or of agents that act in turn.

    all at once   each step: every policy acts for its agents, one step of the environments, a row of every policy
    in turn       each turn: the policy of the agent whose turn it is acts; its row is complete at its next turn

Every policy has a `Collector`, which is a member here: it acts with its own weights, noise and memory, and its rollout
has the rows of its own agents. All rollouts of a number begin and end together.

Agents that act in turn fill their columns at their own pace. An environment waits once an agent whose turn it is has no
row left, and the rollouts end when all of them wait. Columns that are not full then end with rows that are not valid.
An action whose row is not complete yet, because its agent waits, is carried over: it is row 0 of the next rollout, with
the observation, the log-probability and the memory that it was chosen with.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from hive.envs import seed_globals
from hive.envs.agents.parallel import ParallelVector
from hive.envs.agents.seats import SeatRows
from hive.envs.agents.turns import Completed, Game, TurnsVector
from hive.experience import Purpose, stream_seed, stream_seeds
from hive.runtime.memory.segments import Arrays
from hive.training.collect.collector import Collector, RolloutPart, occasion_of, seed_all_globals

UNWRITTEN = (
    "rewards",
    "terminated",
    "truncated",
    "valid",
    "episode_returns",
    "episode_lengths",
    "actions",
    "log_probs",
)
"""What is 0 in rows of a column that is not full."""


class SeveralCollector:
    """Collects with the policies of `members`, in the order of the seats of `vector`.

    seed, source, incarnation: as of `Collector`; the seeds of environments follow from the run's seed.
    """

    def __init__(
        self,
        vector: ParallelVector | TurnsVector,
        members: Sequence[Collector],
        *,
        seed: int,
        source: int,
        incarnation: int = 0,
    ) -> None:
        self.vector = vector
        self.closed = False  # as of `Collector`
        self.members = members
        self.seed = seed
        self.source = source
        self.incarnation = incarnation

    def reset(self, start: int = 0) -> None:
        """Start an episode in every environment; as `Collector.reset`."""
        occasion = occasion_of(start, self.incarnation)
        count = self.vector.count
        seeds = stream_seeds(self.seed, Purpose.environment, self.source * count, count, occasion)
        seed_all_globals(self.seed, Purpose.resetting, self.source, occasion)
        for member, seat in zip(self.members, self.vector.seats, strict=True):
            member.begin_episodes(seat.count)
        if isinstance(self.vector, ParallelVector):
            self.vector.reset(seeds, [member.current for member in self.members])
            for member in self.members:
                member.acting.see(member.current)
            return
        self.vector.reset(seeds)
        self._columns = [_Columns(*pair) for pair in zip(self.members, self.vector.seats, strict=True)]
        for game in self.vector.games:
            self._see(game)

    def rebuild(self, vector: ParallelVector | TurnsVector, start: int) -> None:
        """Replace the environments by `vector` and reset them."""
        self.close()
        self.vector, self.closed = vector, False
        self.reset(start)

    def close(self) -> None:
        """Close the environments, if they are open."""
        if not self.closed:
            self.closed = True
            self.vector.close()

    def collect(self, rollouts: Sequence[Arrays], *, sequence: int, versions: Sequence[int]) -> None:
        """Fill a rollout of every member (layout: hive.experience.rollouts).

        sequence: the number of all of them. versions: of the bound weights. Raises EnvironmentFailed.
        """
        at_once = isinstance(self.vector, ParallelVector)
        pairs = zip(self.members, rollouts, strict=True)
        with torch.inference_mode():
            parts = [member.begin_rollout(rollout, sequence, natively=at_once) for member, rollout in pairs]
            seed_globals(stream_seed(self.seed, Purpose.stepping, self.source, sequence))
            before = self.vector.env_steps
            if isinstance(self.vector, ParallelVector):
                self._all_at_once(self.vector, parts)
            else:
                self._in_turn(self.vector, parts)
            env_steps = self.vector.env_steps - before
            self.vector.ended.clear()  # which are in the rows, too
            for part, version in zip(parts, versions, strict=True):
                length = len(part.rollout["rewards"])
                part.member.end_rollout(part, length, version, sequence, env_steps, in_turn=not at_once)

    def _enter(self, phase: int) -> None:
        """Enter the phase of the policies, 0, or of the environments, 1, on the status page of the first member."""
        first = self.members[0]
        if first.status is not None:
            first.status.enter(first.phases[phase])

    def _all_at_once(self, vector: ParallelVector, parts: Sequence[RolloutPart]) -> None:
        """Make all steps of parallel environments."""
        for t in range(len(parts[0].prepared.rows)):
            self._enter(0)
            for part in parts:
                part.act(t)
            self._enter(1)
            vector.step([part.rollout["actions"][t] for part in parts], [part.prepared.rows[t] for part in parts])
            for part in parts:
                part.after(t)
        for part in parts:
            part.member.current[...] = part.rollout["observations"][-1]

    def _in_turn(self, vector: TurnsVector, parts: Sequence[RolloutPart]) -> None:
        """Play turns until every environment waits."""
        for part, columns in zip(parts, self._columns, strict=True):
            columns.begin(part)
        while playing := [game for game in vector.games if self._columns[game.turn.seat].has_room(game.turn.column)]:
            self._enter(0)
            for seat, columns in enumerate(self._columns):
                columns.act([game.turn.column for game in playing if game.turn.seat == seat])
            self._enter(1)
            for game in playing:
                game.act(self._columns[game.turn.seat].action(game.turn.column))
                for row in game.completed:
                    self._columns[row.seat].complete(row)
                self._see(game)
        for columns in self._columns:
            columns.end()

    def _see(self, game: Game) -> None:
        self._columns[game.turn.seat].see(game.turn.column, game.turn.observation)


class _Columns:
    """The columns of one member, whose agents act in turn.

    number: [B] how many rows of each are complete in this rollout. waits: [B] whether an action has no result yet; it
    is then that of the row after these.
    """

    def __init__(self, member: Collector, seat: SeatRows) -> None:
        count = seat.count
        self._member = member
        self._seat = seat
        seat.store(member.current)  # blank ones
        self._acting = acting = member.acting
        self._every = np.arange(count)
        self.number = np.zeros(count, np.int64)
        self.waits = np.zeros(count, bool)
        self._state = None if acting.memory is None else acting.memory.state.numpy().copy()  # before the last action
        self._actions: NDArray[np.generic] | None = None  # the last one of each, stored
        self._outputs: NDArray[np.float32] | None = None  # that it was chosen by
        self._part: RolloutPart | None = None

    def begin(self, part: RolloutPart) -> None:
        """Begin a rollout, with the actions that wait in its row 0."""
        self._part = part
        rollout, waits = part.rollout, self.waits
        self.number[:] = 0
        for name in UNWRITTEN:
            rollout[name][...] = 0
        rollout["final_index"][...] = -1
        if "infos" in rollout:
            rollout["infos"][...] = np.nan
        rollout["observations"][1:] = rollout["observations"][0]  # valid values for rows that are not read
        if self._actions is None:
            self._actions = np.zeros_like(rollout["actions"][0])
        rollout["actions"][0][waits] = self._actions[waits]
        if self._state is not None:
            rollout["state"][waits] = self._state[waits]
        self._kept: NDArray[np.float32] | None = None
        if part.kept is not None and self._outputs is not None:
            self._keep()[0][waits] = self._outputs[waits]

    def _keep(self) -> NDArray[np.float32]:
        """Return the outputs of all rows, float32 [T, B, ...], 0 where there is none."""
        assert self._part is not None
        assert self._outputs is not None
        if self._kept is None:
            self._kept = np.zeros((len(self._part.rollout["rewards"]), *self._outputs.shape), np.float32)
        return self._kept

    def has_room(self, column: int) -> bool:
        """Whether the agent of a column may act in this rollout."""
        assert self._part is not None
        return bool(self.number[column] < len(self._part.rollout["rewards"]))

    def see(self, column: int, observation: object) -> None:
        """Take what the agent sees at its turn."""
        current = self._member.current
        self._seat.checks.one(column, observation, current)
        self._acting.see(current, np.array([column]))
        if self._part is not None:
            self._part.rollout["observations"][self.number[column], column] = current[column]

    def act(self, columns: Sequence[int]) -> None:
        """Choose the actions of these columns."""
        if not columns:
            return
        part, acting = self._part, self._acting
        assert part is not None
        assert self._actions is not None
        chosen = np.array(columns)
        rows = self.number[chosen]
        if acting.memory is not None and self._state is not None:
            self._state[chosen] = acting.memory.state.numpy()[chosen]
        outputs = acting.outputs(self._member.current, chosen)
        if self._outputs is None:
            self._outputs = np.zeros((acting.count, *outputs.shape[1:]), outputs.dtype)
        self._outputs[chosen] = outputs
        noise = part.noise[np.minimum(self.number, len(part.noise) - 1), self._every]
        self._actions[chosen] = part.distribution.sample_numpy(self._outputs, noise)[chosen]  # exploration is by column
        part.rollout["actions"][rows, chosen] = self._actions[chosen]
        if part.kept is not None:
            self._keep()[rows, chosen] = outputs
        self.waits[chosen] = True
        self._taken = self._seat.environment_actions(self._actions)

    def action(self, column: int) -> object:
        """Return the action of a column, as the environment takes it."""
        return self._taken[column]

    def complete(self, done: Completed) -> None:
        """Write the row that the agent's next turn, or its end, completes."""
        part, column = self._part, done.column
        assert part is not None
        rollout, t = part.rollout, int(self.number[column])
        rollout["rewards"][t, column] = done.reward
        rollout["valid"][t, column] = 1
        rollout["terminated"][t, column], rollout["truncated"][t, column] = done.terminated, done.truncated
        if done.truncated:
            rollout["final_index"][t, column] = self._seat.checks.final(column, done.final, part.prepared.finals)
        self._seat.lengths[column] += 1
        if done.terminated or done.truncated:
            returned, length, values = self._seat.ended(column)
            rollout["episode_returns"][t, column], rollout["episode_lengths"][t, column] = returned, length
            if "infos" in rollout:
                rollout["infos"][t, column, :-1] = values
            self._acting.forget(np.array([column]))  # at once: a rollout may begin before the agent's next episode
        self.number[column] = t + 1
        self.waits[column] = False

    def end(self) -> None:
        """End the rollout."""
        assert self._part is not None
        if self._part.kept is not None and self._kept is not None:
            self._part.kept.extend(self._kept)
