"""Plays whole episodes of environments with several agents, with a trained policy for each kind of them.

    policies = {"cross": hive.load(run, policy="cross"), "circle": hive.load(run, policy="circle")}
    played = play_table(policies, config, episodes=100)
    print(played["cross"].mean_return, played["cross"].info)

Each environment plays a number of episodes that is fixed in advance, as in `hive.training.evaluate.evaluator`. The
returns of a policy are those of its agents, one by one; `info` has the mean return of every agent and of the team.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Union

import numpy as np
import torch
from numpy.typing import NDArray

from hive.config import Config
from hive.envs import ObservationSpec, StepRow, recipe_of, seed_globals
from hive.envs.agents.parallel import ParallelVector
from hive.envs.agents.seats import RETURN_OF, TEAM, EndedEpisode, SeatRows
from hive.envs.agents.table import make_table, seat_of_all
from hive.envs.agents.turns import TurnsVector
from hive.experience import Purpose, stream, stream_seed, stream_seeds
from hive.networks.act.distributions import ActionDistribution
from hive.networks.rows.inputs import Memory
from hive.networks.weights.flat import FlatParameters
from hive.policy.loaded import Policy
from hive.runtime import Status
from hive.training.blueprint import Blueprint
from hive.training.collect.collector import FrameStack, seed_all_globals
from hive.training.evaluate.evaluator import TORCH_SEEDS, Played, evaluation_contexts, evaluator_contexts
from hive.training.messages import Evaluation, EvaluationDue
from hive.training.policies import Policies
from hive.training.record.best_policy import is_balanced

Table = ParallelVector | TurnsVector
Acting = Union[Policy, "BoundPolicy"]


def play_table(
    policies: Mapping[str, Policy],
    seated: Policies,
    config: Config,
    *,
    episodes: int,
    envs: int,
    seed: int = 0,
    sample: bool = False,
    max_steps: int = 0,
    progress: Callable[[int], object] = lambda done: None,
) -> dict[str, Played]:
    """Play `episodes` episodes; return the evaluation of each policy, with its episodes.

    seated: the policies of the config, whose bots act for the other agents. Other arguments: as of
    `hive.training.evaluate.playing.evaluate`. Raises EnvironmentFailed.
    """
    seed_all_globals(seed, Purpose.evaluation_building, 0, 0)
    recipe = recipe_of(config.evaluation_env)
    count = min(envs, episodes)
    table = make_table(recipe, count, seated.seats, seated.bots, contexts=evaluation_contexts(seed, count))
    began, done = time.monotonic(), list[EndedEpisode]()
    try:
        for ended in table_episodes(table, policies, seed=seed, episodes=episodes, sample=sample, max_steps=max_steps):
            done += ended
            progress(len(done))
    finally:
        table.close()
    wall_s, lengths = time.monotonic() - began, [one.steps for one in done]
    return {
        name: Played(_evaluation(policy, done, seat.seat.agents, wall_s), _returns(done, seat.seat.agents), lengths)
        for (name, policy), seat in zip(policies.items(), table.seats, strict=True)
    }


def table_episodes(
    table: Table,
    policies: Mapping[str, Acting],
    *,
    seed: int,
    episodes: int,
    sample: bool = False,
    max_steps: int = 0,
    turn: int = 0,
) -> Iterator[list[EndedEpisode]]:
    """Play with the policies of the seats, in their order; yield after every step the counted episodes that ended.

    turn: of the weights, which with `seed` decides all random numbers.
    """
    pairs = enumerate(zip(policies.values(), table.seats, strict=True))
    players = [
        _Player(policy, seat, stream(seed, Purpose.evaluation_action, number, turn), sample)
        for number, (policy, seat) in pairs
    ]
    numbers = np.arange(table.count)
    left = episodes // table.count + (numbers < episodes % table.count)
    seeds = stream_seeds(seed, Purpose.evaluation, 0, table.count, turn)
    code = stream_seed(seed, Purpose.evaluation_stepping, 0, turn)
    seed_globals(code)
    play = _AtOnce(table, players) if isinstance(table, ParallelVector) else _InTurn(table, players)
    play.reset(seeds)
    table.play(left)
    steps = 0
    while left.any():
        torch.default_generator.manual_seed((code + steps) % TORCH_SEEDS)
        seed_globals((code + 1 + steps) % TORCH_SEEDS)
        with torch.inference_mode():
            play.step()
        steps += 1
        if max_steps:
            play.cut(max_steps)
        counted = []
        for one in table.ended:
            if left[one.number]:
                left[one.number] -= 1
                counted.append(one)
        table.ended.clear()
        yield counted


@dataclass
class BoundPolicy:
    """A policy of a run, which acts with the weights of a block."""

    observation: ObservationSpec
    network: torch.nn.Module
    distribution: ActionDistribution
    updates: int = 0
    env_steps: int = 0


class TableEvaluator:
    """Evaluates the policy that all agents of a run share, who act at once; `Evaluator` documents the methods."""

    def __init__(self, blueprint: Blueprint, status: Status | None = None, number: int = 0) -> None:
        config = blueprint.config
        self._seed, self._evaluation = config.run.seed, config.evaluation
        seed_all_globals(self._seed, Purpose.evaluation_building, 0, 0)
        seat = seat_of_all("", blueprint.environment)
        recipe, contexts = recipe_of(config.evaluation_env), evaluator_contexts(blueprint, number)
        self._table = make_table(recipe, self._evaluation.envs, [seat], contexts=contexts)
        network = blueprint.network()
        self._flat = FlatParameters(network)
        network.eval()
        self._policy = BoundPolicy(blueprint.environment.observation, network, blueprint.distribution)
        self._status, self._phase = status, status.phase("env") if status else 0

    def bind(self, weights: NDArray[np.uint8]) -> None:
        """Evaluate these weights from now on."""
        self._flat.bind(weights, read_only=True)

    def begin(self, due: EvaluationDue) -> None:
        """Start an evaluation."""
        self._due, self._done = due, list[EndedEpisode]()
        self._began = time.monotonic()
        self._playing = table_episodes(
            self._table,
            {"": self._policy},
            seed=self._seed,
            episodes=self._evaluation.episodes,
            max_steps=self._evaluation.max_steps,
            turn=0 if self._evaluation.same_starts else due.turn,
        )

    def step(self) -> Evaluation | None:
        """Step every environment once. Return the evaluation after the last episode, else None."""
        if self._status:
            self._status.enter(self._phase)
        ended = next(self._playing, None)
        if self._status:
            self._status.enter(self._status.runtime)
        if ended is not None:
            self._done += ended
            return None
        due, agents = self._due, self._table.seats[0].seat.agents
        played = _evaluation(self._policy, self._done, agents, time.monotonic() - self._began)
        return replace(played, turn=due.turn, updates=due.updates, env_steps=due.env_steps, seconds=due.seconds)

    def close(self) -> None:
        """Close the environments."""
        self._table.close()


def _evaluation(policy: Acting, done: Sequence[EndedEpisode], agents: Sequence[str], wall_s: float) -> Evaluation:
    """Return the evaluation of the policy of these agents."""
    returns = np.array(_returns(done, agents) or [np.nan])
    everyone = dict.fromkeys(agent for one in done for agent in one.returns)
    info = {
        RETURN_OF + agent: _mean([one.returns[agent] for one in done if agent in one.returns]) for agent in everyone
    }
    chosen = [one.infos[agent] for one in done for agent in agents if agent in one.infos]
    for name in dict.fromkeys(name for values in chosen for name in values):
        info[name] = _mean([values[name] for values in chosen if name in values])
    return Evaluation(
        turn=0,
        updates=policy.updates,
        env_steps=policy.env_steps,
        seconds=0.0,
        episodes=len(done),
        mean_return=float(returns.mean()),
        deviation=float(returns.std()),
        min=float(returns.min()),
        max=float(returns.max()),
        mean_length=_mean([one.steps for one in done]),
        wall_s=wall_s,
        info={**info, TEAM: _mean([sum(one.returns.values()) for one in done])},
        cut=sum(one.cut for one in done),
        balanced=is_balanced([[one.returns.get(agent, 0.0) for agent in agents] for one in done]),
    )


def _returns(done: Sequence[EndedEpisode], agents: Sequence[str]) -> list[float]:
    """Return the returns of these agents in the episodes that they were part of."""
    return [one.returns[agent] for one in done for agent in agents if agent in one.returns]


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


class _Player:
    """A policy that acts for the columns of a seat."""

    def __init__(self, policy: Acting, seat: SeatRows, noise: np.random.Generator, sample: bool) -> None:
        self._policy = policy
        self.seat = seat
        self.spec = policy.observation
        self._sample = sample
        self._noise = noise
        self.row = StepRow.allocate(seat.seat.spec.observation, seat.count, len(seat.info))
        self.observations = self.row.observations
        self._memory = Memory.of(policy.network, seat.count)
        self._stack = FrameStack.of(self.spec, np.zeros_like(self.observations))
        self._is_new = np.ones(seat.count, bool)

    def begin(self) -> None:
        """Begin all episodes, with the first observations."""
        self.forget(np.ones(self.seat.count, bool))

    def see(self, columns: NDArray[np.int64]) -> None:
        """Take the observations that these columns act for next."""
        if self._stack is None:
            return
        frames = self._stack.frames
        for column in columns:
            frames[column, :-1] = 0 if self._is_new[column] else frames[column, 1:].copy()
            frames[column, -1] = self.observations[column]
        self._is_new[columns] = False

    def forget(self, ended: NDArray[np.bool_]) -> None:
        """Forget episodes that ended."""
        self._is_new |= ended
        if self._memory is not None:
            self._memory.forget(ended)

    def act(self, columns: NDArray[np.int64]) -> NDArray[Any]:
        """Return stored actions [B, ...], of which those of these columns are taken."""
        policy, memory = self._policy, self._memory
        before = None if memory is None else memory.state.numpy().copy()
        seen = torch.from_numpy(self.observations) if self._stack is None else self._stack.seen
        outputs = (memory or policy.network)(seen)[0]
        if memory is not None and before is not None:
            kept = np.ones(len(before), bool)
            kept[columns] = False
            memory.state.numpy()[kept] = before[kept]
        if not self._sample:
            return policy.distribution.mode(outputs).numpy()
        noise = policy.distribution.draw_noise(self._noise, self.seat.count)
        return policy.distribution.sample_numpy(outputs.numpy(), noise)


class _AtOnce:
    """Plays agents that act at once."""

    def __init__(self, table: ParallelVector, players: Sequence[_Player]) -> None:
        self._table = table
        self._players = players

    def reset(self, seeds: Sequence[int]) -> None:
        """Start an episode in every environment."""
        self._table.reset(seeds, [player.observations for player in self._players])
        for player in self._players:
            player.begin()
            player.see(np.arange(player.seat.count))

    def step(self) -> None:
        """Make one step of every environment."""
        every = [np.arange(player.seat.count) for player in self._players]
        actions = [player.act(columns) for player, columns in zip(self._players, every, strict=True)]
        for player in self._players:
            player.row.finals.count = 0
        self._table.step(actions, [player.row for player in self._players])
        for player, columns in zip(self._players, every, strict=True):
            player.forget(player.row.ended)
            player.see(columns)

    def cut(self, max_steps: int) -> None:
        """End episodes of this many steps."""
        late = [table for table in self._table.tables if table.left and table.steps >= max_steps]
        for table in late:
            table.finish(cut=True)
            for player in self._players:
                columns = np.array([column for column, _ in player.seat.columns_of(table.number)])
                player.seat.store(player.observations)
                ended = np.zeros(player.seat.count, bool)
                ended[columns] = True
                player.forget(ended)
                player.see(columns)


class _InTurn:
    """Plays agents that act in turn: in each step, one turn of every environment."""

    def __init__(self, table: TurnsVector, players: Sequence[_Player]) -> None:
        self._table = table
        self._players = players

    def reset(self, seeds: Sequence[int]) -> None:
        """Start an episode in every environment."""
        self._table.reset(seeds)
        for player in self._players:
            player.seat.store(player.observations)  # blank ones
            player.begin()
        for game in self._table.games:
            self._see(game)

    def _see(self, game: Any) -> None:
        player = self._players[game.turn.seat]
        player.seat.checks.one(game.turn.column, game.turn.observation, player.observations)
        player.see(np.array([game.turn.column]))

    def step(self) -> None:
        """Play one turn of every environment."""
        taken: list[Sequence[Any]] = []
        for seat, player in enumerate(self._players):
            columns = [game.turn.column for game in self._playing() if game.turn.seat == seat]
            taken.append(player.seat.environment_actions(player.act(np.array(columns, np.int64))) if columns else [])
        for game in self._playing():
            game.act(taken[game.turn.seat][game.turn.column])
            for row in game.completed:
                if row.terminated or row.truncated:
                    self._forget(row.seat, row.column)
            if game.left:
                self._see(game)

    def _playing(self) -> list[Any]:
        return [game for game in self._table.games if game.left]

    def _forget(self, seat: int, column: int) -> None:
        player = self._players[seat]
        ended = np.zeros(player.seat.count, bool)
        ended[column] = True
        player.forget(ended)
        player.seat.ended(column)

    def cut(self, max_steps: int) -> None:
        """End episodes of this many turns."""
        for game in self._playing():
            if game.steps >= max_steps:
                game.finish(cut=True)
                for seat, player in enumerate(self._players):
                    for column, _ in player.seat.columns_of(game.number):
                        self._forget(seat, column)
                if game.left:
                    game.begin(None)
                    self._see(game)
