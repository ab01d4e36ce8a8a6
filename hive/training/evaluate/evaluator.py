"""The evaluator plays whole episodes with the weights of one turn, by default with the most likely actions.

    begin(due)    every environment is reset by its seed
    step()        a step of the play (hive.training.evaluate.play)      -> None, at last the Evaluation

It plays with one policy, or with all policies of a run together; then each has an evaluation. It is a synchronous
object without ports. A step is short, so its caller can do other work between two steps.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.envs import EnvContext, Household, configured_vector, recipe_of
from hive.envs.agents.lone import LONE, LoneTable
from hive.envs.agents.playable import Table, TableSeat
from hive.envs.agents.seats import RETURN_OF, TEAM, EndedEpisode
from hive.envs.agents.table import make_table, seat_of_all
from hive.experience import Purpose, stream_seeds
from hive.networks.weights.flat import FlatParameters
from hive.policy.acting import Acting
from hive.runtime import Status
from hive.training.blueprint import Blueprint
from hive.training.collect.collector import seed_all_globals
from hive.training.crew import Crew
from hive.training.evaluate.play import Play
from hive.training.messages import Evaluation, EvaluationDue
from hive.training.record.best_policy import is_balanced


@dataclass(frozen=True)
class Played:
    """An evaluation and its episodes, in the order in which they ended.

    returns: of the policy, one by one: of each of its agents, where an environment has several. lengths: of the
    episodes, in steps or turns.
    """

    evaluation: Evaluation
    returns: Sequence[float]
    lengths: Sequence[int]


def evaluation_contexts(seed: int, envs: int, first: int = 0, run: str = "") -> list[EnvContext]:
    """Return who the environments of evaluations are: from the index `first` on, with the seeds of turn 0."""
    seeds = stream_seeds(seed, Purpose.evaluation, 0, envs, 0)
    return [EnvContext(first + number, int(one), 0, run) for number, one in enumerate(seeds)]


def evaluator_contexts(blueprint: Blueprint, number: int) -> list[EnvContext]:
    """Return who the environments of evaluator `number` of a run are. Their indices follow those of all collectors.

    They are made before it is known which turn they play first, so that their seeds are those of turn 0.
    """
    config = blueprint.config
    first, envs = config.evaluator_indices.start, config.evaluation.envs
    return evaluation_contexts(config.run.seed, envs, first + number * envs, blueprint.run)


class Evaluator:
    """Evaluates the policies of the seats of a play, each with the weights of `bind`.

    same_starts: whether each evaluation plays the same episodes, as far as they do not follow from the policy.
    """

    def __init__(self, play: Play, *, same_starts: bool = False) -> None:
        self.play = play
        self.same_starts = same_starts
        self.played: list[Played] = []  # of each policy, after the last step
        self._due: EvaluationDue | None = None

    @classmethod
    def of_run(
        cls,
        blueprint: Blueprint,
        status: Status | None = None,
        number: int = 0,
        household: Household | None = None,
        crew: Crew | None = None,
    ) -> Evaluator:
        """Make evaluator `number` of a run, with its own environments and networks.

        household: as of `configured_vector`. crew: the policies that play together; None: the blueprint's alone.
        """
        config, environment = blueprint.config, blueprint.environment
        env, count = config.evaluation_env, config.evaluation.envs
        seed_all_globals(config.run.seed, Purpose.evaluation_building, 0, 0)
        contexts = evaluator_contexts(blueprint, number)
        blueprints = (blueprint,) if crew is None else crew.blueprints
        if crew is not None:
            policies = crew.policies
            table: Table = make_table(recipe_of(env), count, policies.seats, policies.bots, contexts=contexts)
        elif environment.agents:
            table = make_table(recipe_of(env), count, [seat_of_all("", environment)], contexts=contexts)
        else:
            spec = None if config.evaluation.env else environment
            origins = environment.observation
            vector = configured_vector(env, count, contexts=contexts, spec=spec, household=household, origins=origins)
            table = LoneTable(vector, environment.observation, env.info)
        how: dict[str, Any] = {"episodes": config.evaluation.episodes, "max_steps": config.evaluation.max_steps}
        players = [player_of(one) for one in blueprints]
        play = Play(table, players, seed=config.run.seed, status=status, **how)
        return cls(play, same_starts=config.evaluation.same_starts)

    def bind(self, *weights: NDArray[np.uint8]) -> None:
        """Evaluate these weights from now on, of each policy: uint8 [block_bytes], read in place."""
        for player, block in zip(self.play.players, weights, strict=True):
            player.bind(block)

    def evaluate(self, due: EvaluationDue) -> Evaluation:
        """Evaluate the bound weights to the end. Raises EnvironmentFailed."""
        self.begin(due)
        while (evaluation := self.step()) is None:
            pass
        return evaluation

    def begin(self, due: EvaluationDue) -> None:
        """Start the first episode of every environment, and abandon an evaluation in progress.

        `due` names the turn of the bound weights. Raises EnvironmentFailed.
        """
        self._due, self._done, self._started = due, list[EndedEpisode](), time.monotonic()
        self.play.begin(0 if self.same_starts else due.turn)

    def step(self) -> Evaluation | None:
        """Step every environment once. Return the evaluation of the first policy after the last episode, else None.

        Raises EnvironmentFailed; RuntimeError before `begin` and after the last step.
        """
        if self._due is None:
            raise RuntimeError("no evaluation has begun")
        self._done += self.play.step()
        if not self.play.over:
            return None
        wall_s = time.monotonic() - self._started
        self.played = [_played(self._done, seat, self._due, wall_s) for seat in self.play.table.seats]
        self._due = None
        return self.played[0].evaluation

    @property
    def done(self) -> int:
        """Number of counted episodes that have ended since `begin`."""
        return len(self._done)

    def close(self) -> None:
        """Close the environments."""
        self.play.close()


def player_of(blueprint: Blueprint) -> Acting:
    """Return a policy of a run, with a network of its own, which acts as in evaluations."""
    network = blueprint.network().eval()
    place = functools.partial(FlatParameters(network).bind, read_only=True)
    return Acting(network, blueprint.environment.observation, blueprint.distribution, place)


def _played(done: Sequence[EndedEpisode], seat: TableSeat, due: EvaluationDue, wall_s: float) -> Played:
    """Return the evaluation of the policy of a seat."""
    agents = seat.agents
    each = [one.returns[agent] for one in done for agent in agents if agent in one.returns]
    returns, lengths = np.array(each or [np.nan]), [one.steps for one in done]
    info = _info(done, seat)
    evaluation = Evaluation(
        turn=due.turn,
        updates=due.updates,
        env_steps=due.env_steps,
        seconds=due.seconds,
        episodes=len(done),
        mean_return=float(returns.mean()),
        deviation=float(returns.std()),
        min=float(returns.min()),
        max=float(returns.max()),
        mean_length=_mean(lengths),
        wall_s=wall_s,
        info={name: _mean(values) for name, values in info.items()},
        cut=sum(one.cut for one in done),
        balanced=is_balanced([[one.returns.get(agent, 0.0) for agent in agents] for one in done]),
        counted={name: len(values) for name, values in info.items()},
    )
    return Played(evaluation, each, lengths)


def _info(done: Sequence[EndedEpisode], seat: TableSeat) -> dict[str, list[float]]:
    """Return the values of `info` of the episodes that have them; of several agents, their returns, too.

    A value that is not finite counts for none.
    """
    chosen = [one.infos[agent] for one in done for agent in seat.agents if agent in one.infos]
    found = {
        name: values
        for name in seat.info
        if (values := [each[name] for each in chosen if np.isfinite(each.get(name, np.nan))])
    }
    if LONE in seat.agents:
        return found
    everyone = dict.fromkeys(agent for one in done for agent in one.returns)
    returns = {RETURN_OF + agent: [one.returns[agent] for one in done if agent in one.returns] for agent in everyone}
    return {**returns, **found, TEAM: [sum(one.returns.values()) for one in done]}


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))
