"""The evaluator plays whole episodes with the weights of one turn, by default with the most likely actions.

    begin(due)    every environment is reset by its seed
    step()        actions = mode(policy(observations))      phase "policy"
                  step the environments                     phase "env"      -> None, at last the Evaluation

Each environment plays a number of episodes that is fixed in advance, and is then left alone until the next evaluation.
Counting the first E episodes to end, of any environment, would be biased towards short ones: towards bad ones where an
end is a failure, towards good ones where it is the goal.

The seeds of environments, sampled actions and torch are derived from the run's seed and the turn. So the same weights
get the same evaluation in any process, if environments draw only from their own generators and a reset clears them.

The evaluator is a synchronous object without ports. A step is short, so its caller can do other work between two steps.

An episode that does not end within `max_steps` steps is cut: it counts with its return up to there. A vector cannot
reset one environment alone. So the environment of a cut episode waits until the others have played their episodes. Then
all are reset, with other seeds, for the episodes that are left.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hive.envs import (
    EnvContext,
    Household,
    ObservationSpec,
    ProcessVector,
    StepRow,
    VectorEnvironment,
    configured_vector,
    let_play,
    runs_python,
    seed_globals,
)
from hive.envs.spaces.fitted import fitted_vector
from hive.experience import Purpose, stream, stream_seed, stream_seeds
from hive.networks.act.distributions import ActionDistribution
from hive.networks.rows.inputs import Memory
from hive.networks.weights.flat import FlatParameters
from hive.runtime import START, Status
from hive.training.blueprint import Blueprint
from hive.training.collect.collector import FrameStack, seed_all_globals
from hive.training.messages import Evaluation, EvaluationDue
from hive.training.update.turn_metrics import info_means

ENDLESS = 1 << 31  # episodes of a play without a limit
ROUNDS = 1 << 40  # stride between the seeds of two resets of one evaluation: more than turns of a run
TORCH_SEEDS = 1 << 63  # number of seeds that torch generators accept


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
    """Plays `episodes` episodes, divided among the environments of `vector`, with the weights of `bind`.

    observation: shape and dtype of an observation. policy: the module whose weights `bind` replaces. distribution: maps
    its first output to actions. sample: whether to sample actions, as in training. info: the values of `info` that
    `vector` writes, of which means are reported. max_steps: limit of an episode; 0: none. same_starts: whether
    each evaluation plays the same episodes, as far as they do not follow from the policy. status: the status page that
    shows its phases; None in library use. Raises ValueError if there are fewer episodes than environments.
    """

    def __init__(
        self,
        vector: VectorEnvironment,
        observation: ObservationSpec,
        policy: torch.nn.Module,
        distribution: ActionDistribution,
        *,
        seed: int,
        episodes: int,
        sample: bool = False,
        info: Sequence[str] = (),
        max_steps: int = 0,
        same_starts: bool = False,
        status: Status | None = None,
    ) -> None:
        if episodes < vector.count:
            raise ValueError(f"{episodes} episodes are fewer than the {vector.count} environments")
        self.apart = vector if isinstance(vector, ProcessVector) else None
        self.vector = fitted_vector(vector, observation)
        self.runs_python = runs_python(vector)
        self.observation = observation
        self.policy = policy
        self.flat = FlatParameters(policy)
        self.distribution = distribution
        self.seed = seed
        self.sample = sample
        self.max_steps = max_steps
        self.same_starts = same_starts
        self.status = status
        self.phases = (status.phase("policy"), status.phase("env")) if status else (0, 0)
        self.starts = status.phase(START) if status else 0
        numbers = np.arange(vector.count)
        self.quota = episodes // vector.count + (numbers < episodes % vector.count)  # [B]: episodes of each
        self.info = info
        self.row = StepRow.allocate(observation, vector.count, len(info))
        self.observations = torch.from_numpy(self.row.observations)
        self._due: EvaluationDue | None = None
        policy.eval()

    @classmethod
    def of_run(
        cls,
        blueprint: Blueprint,
        status: Status | None = None,
        number: int = 0,
        household: Household | None = None,
    ) -> Evaluator:
        """Make evaluator `number` of a run, with its own environments and network.

        household: as of `configured_vector`.
        """
        evaluation, env = blueprint.config.evaluation, blueprint.config.evaluation_env
        seed_all_globals(blueprint.config.run.seed, Purpose.evaluation_building, 0, 0)
        episodes = evaluation.episodes * blueprint.environment.rows  # each agent has episodes of its own
        contexts = evaluator_contexts(blueprint, number)
        spec = None if blueprint.config.evaluation.env else blueprint.environment
        origins = blueprint.environment.observation
        vector = configured_vector(
            env, evaluation.envs, contexts=contexts, spec=spec, household=household, origins=origins
        )
        return cls._of(blueprint, vector, episodes, status)

    @classmethod
    def of_videos(cls, blueprint: Blueprint, vector: VectorEnvironment) -> Evaluator:
        """Make a player of single episodes of evaluations, in a vector of one environment, without a last episode."""
        return cls._of(blueprint, vector, ENDLESS)

    @classmethod
    def _of(
        cls, blueprint: Blueprint, vector: VectorEnvironment, episodes: int, status: Status | None = None
    ) -> Evaluator:
        return cls(
            vector,
            blueprint.environment.observation,
            blueprint.network(),
            blueprint.distribution,
            seed=blueprint.config.run.seed,
            episodes=episodes,
            info=blueprint.config.evaluation_env.info,
            max_steps=blueprint.config.evaluation.max_steps,
            same_starts=blueprint.config.evaluation.same_starts,
            status=status,
        )

    def bind(self, weights: NDArray[np.uint8]) -> None:
        """Evaluate these weights from now on: uint8 [block_bytes], read in place."""
        self.flat.bind(weights, read_only=True)

    def evaluate(self, due: EvaluationDue) -> Evaluation:
        """Evaluate the bound weights to the end. Raises EnvironmentFailed."""
        self.begin(due)
        while (evaluation := self.step()) is None:
            pass
        return evaluation

    def begin(self, due: EvaluationDue, first: int = 0, episodes: int = 0) -> None:
        """Start the first episode of every environment, and abandon an evaluation in progress.

        `due` names the turn of the bound weights. first: number of the first environment, where those of `vector` are
        only some of the environments of an evaluation. episodes: of each environment, where it is not the usual number.
        Raises EnvironmentFailed.
        """
        count = self.vector.count
        self._due, self._started = due, time.monotonic()
        self._cuts = np.zeros(count, bool)  # [B]: whether its episode is cut in this step
        self._returns: list[float] = []  # returns of the counted episodes, in the order in which they ended
        self._infos: list[NDArray[np.float32]] = []  # [K]: their values of `info`, NaN where missing
        self._lengths: list[int] = []  # their lengths in steps
        quota = np.full_like(self.quota, episodes) if episodes else self.quota
        self._left = quota.copy()  # [B]: episodes still to be counted of each environment
        self._steps = self._rounds = self.cut = 0
        self._first, self._number = first, 0 if self.same_starts else due.turn
        self._forward = stream_seed(self.seed, Purpose.evaluation_forward, 0, self._number)
        self._code = stream_seed(self.seed, Purpose.evaluation_stepping, first, self._number)
        self._noise = stream(self.seed, Purpose.evaluation_action, 0, self._number)
        self._reset()

    def _reset(self) -> None:
        """Start an episode in every environment, for the first time or after episodes were cut."""
        self._enter(self.starts)
        count = self.vector.count
        self._memory = Memory.of(self.policy, count)
        self._length, self._return = np.zeros(count, np.int64), np.zeros(count)  # [B]: of the running episodes
        self._waits = np.zeros(count, bool)  # [B]: whether its episode was cut
        sequence = self._number + self._rounds * ROUNDS
        seeds = stream_seeds(self.seed, Purpose.evaluation, self._first, count, sequence)
        if self.runs_python:
            seed_all_globals(self.seed, Purpose.evaluation_stepping, self._first, sequence)
        if self.apart is not None:  # each of its processes has generators of its own, so one seed is enough
            self.apart.seed_globals(stream_seed(self.seed, Purpose.evaluation_stepping, self._first, sequence))
        self.vector.reset(seeds, self.row.observations)
        let_play(self.vector, self._left)
        self._stack = FrameStack.of(self.observation, self.row.observations)
        self._leave()

    def step(self) -> Evaluation | None:
        """Step every environment once. Return the evaluation after the last counted episode has ended, else None.

        Raises EnvironmentFailed; RuntimeError before `begin` and after the last step.
        """
        if self._due is None:
            raise RuntimeError("no evaluation has begun")
        self._enter(self.phases[0])
        # Seed before every step, because actors that share a process also share global generators.
        torch.default_generator.manual_seed((self._forward + self._steps) % TORCH_SEEDS)
        if self.runs_python:
            seed_globals((self._code + 1 + self._steps) % TORCH_SEEDS)
        with torch.inference_mode():
            seen = self.observations if self._stack is None else self._stack.seen
            actions = self._actions((self._memory or self.policy)(seen)[0])
        self._enter(self.phases[1])
        self.row.finals.count = 0  # overwrite the final observations, which are not used here
        self.vector.step(actions, self.row)
        if self._memory is not None:
            self._memory.forget(self.row.ended)
        if self._stack is not None:
            self._stack.push(self.row)
        self._steps += 1
        if self.max_steps:
            self._cut()
        ended = (self.row.episode_lengths > 0) & (self._left > 0) & ~self._waits
        self._waits |= self._cuts
        self._returns += self.row.episode_returns[ended].tolist()
        self._infos += [*self.row.infos[ended]]
        self._lengths += self.row.episode_lengths[ended].tolist()
        self._left -= ended
        if ended.any():
            let_play(self.vector, np.where(self._waits, 0, self._left))
        self._leave()
        if not self._left.any():
            return self._end(self._due)
        if self._waits[self._left > 0].all():
            self._rounds += 1
            self._reset()
        return None

    def _cut(self) -> None:
        """End, in the row of this step, the episodes that have come to the limit: their lengths and returns so far."""
        row = self.row
        self._length[row.valid == 0], self._return[row.valid == 0] = 0, 0.0  # an episode that failed is none
        self._length += row.valid
        self._return += row.rewards
        self._cuts = (self._length >= self.max_steps) & (row.episode_lengths == 0) & ~self._waits
        row.episode_lengths[self._cuts], row.episode_returns[self._cuts] = self.max_steps, self._return[self._cuts]
        self.cut += int((self._cuts & (self._left > 0)).sum())
        over = row.episode_lengths > 0
        self._length[over], self._return[over] = 0, 0.0

    def _actions(self, outputs: torch.Tensor) -> NDArray[Any]:
        if not self.sample:
            return self.distribution.mode(outputs).numpy()
        noise = self.distribution.draw_noise(self._noise, self.vector.count)
        return self.distribution.sample_numpy(outputs.numpy(), noise)

    def played(self, evaluation: Evaluation) -> Played:
        """Return the last evaluation with its episodes."""
        return Played(evaluation, self._returns, self._lengths)

    @property
    def done(self) -> int:
        """Number of counted episodes that have ended since `begin`."""
        return len(self._returns)

    def _end(self, due: EvaluationDue) -> Evaluation:
        self._due = None
        returns = np.array(self._returns)
        return Evaluation(
            turn=due.turn,
            updates=due.updates,
            env_steps=due.env_steps,
            seconds=due.seconds,
            episodes=len(returns),
            mean_return=float(returns.mean()),
            deviation=float(returns.std()),
            min=float(returns.min()),
            max=float(returns.max()),
            mean_length=float(np.mean(self._lengths)),
            wall_s=time.monotonic() - self._started,
            info=info_means(self.info, np.array(self._infos, np.float32)),
            cut=self.cut,
        )

    def _enter(self, phase: int) -> None:
        if self.status:
            self.status.enter(phase)

    def _leave(self) -> None:
        if self.status:
            self.status.enter(self.status.runtime)

    def close(self) -> None:
        """Close the environments."""
        self.vector.close()
