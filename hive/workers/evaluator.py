"""The evaluator: whole episodes of the policy, without its noise unless that is wanted, with the weights of one turn.

    begin(due)    every environment is reset by its seed
    step()        actions = mode(policy(observations))      phase "policy"
                  step the environments                     phase "env"      -> None, at last the Evaluation

Each environment plays a number of episodes that is settled beforehand; what it plays beyond them, while others are not
yet done, does not count. (Whoever takes the first E episodes that end, of whichever environment, prefers the short
ones: where an end is a failure, the bad ones; where it is the goal, the good ones.)

Randomness belongs to the turn: seeds of the environments, of actions that are drawn, and of torch where the network
itself draws, follow from the run's seed and the turn, so the same weights get the same evaluation in whichever process,
as far as the environments draw from their own generators and a reset makes them forget.

A synchronous object without ports. One step is short, so whoever drives it may do something else between two. It sets
no limit to an episode: one that never ends is an evaluation that never ends.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hive.envs import ObservationSpec, StepRow, VectorEnvironment
from hive.networks import ActionDistribution, FlatParameters
from hive.runtime import Status
from hive.storage import Purpose, stream, stream_seed, stream_seeds
from hive.workers.messages import Evaluation, EvaluationDue

__all__ = ["Evaluator"]

TORCH_SEEDS = 1 << 63  # what torch's generators take


class Evaluator:
    """Plays `episodes` episodes, dealt out to the environments of `vector`, with the weights of `bind`.

    observation: what one observation is. policy: the module whose weights `bind` exchanges; until then it has its own.
    sample: actions are drawn, as in training. status: where its phases are shown; None in library use.
    Raises ValueError when there are fewer episodes than environments.
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
        status: Status | None = None,
    ) -> None:
        if episodes < vector.count:
            raise ValueError(f"{episodes} episodes leave some of {vector.count} environments without any")
        self.vector = vector
        self.policy = policy
        self.flat = FlatParameters(policy)
        self.distribution = distribution
        self.seed = seed
        self.sample = sample
        self.status = status
        self.phases = (status.phase("policy"), status.phase("env")) if status else (0, 0)
        numbers = np.arange(vector.count)
        self.quota = episodes // vector.count + (numbers < episodes % vector.count)  # [B]: episodes that count
        self.row = StepRow.allocate(observation, vector.count)
        self.observations = torch.from_numpy(self.row.observations)
        self._due: EvaluationDue | None = None
        policy.eval()

    def bind(self, weights: NDArray[np.uint8]) -> None:
        """Evaluates these weights from now on; they are read in place."""
        self.flat.bind(weights, read_only=True)

    def evaluate(self, due: EvaluationDue) -> Evaluation:
        """A whole evaluation of the weights that are bound. Raises EnvironmentFailed."""
        self.begin(due)
        while (evaluation := self.step()) is None:
            pass
        return evaluation

    def begin(self, due: EvaluationDue) -> None:
        """Starts the first episode of every environment; an evaluation that is not done is dropped.

        `due` says of which turn the weights are that are bound. Raises EnvironmentFailed.
        """
        self._enter(self.phases[1])
        count = self.vector.count
        self._due, self._started = due, time.monotonic()
        self._returns: list[float] = []  # of the episodes that count, in the order in which they ended
        self._lengths: list[int] = []
        self._left = self.quota.copy()  # [B]
        self._steps = 0
        self._forward = stream_seed(self.seed, Purpose.evaluation_forward, 0, due.turn)
        self._noise = stream(self.seed, Purpose.evaluation_action, 0, due.turn)
        seeds = stream_seeds(self.seed, Purpose.evaluation, 0, count, due.turn)
        self.vector.reset(seeds, self.row.observations)
        self._rest()

    def step(self) -> Evaluation | None:
        """One step of every environment. The evaluation, once the last episode that counts has ended.

        Raises EnvironmentFailed; RuntimeError before `begin` and after the last step.
        """
        if self._due is None:
            raise RuntimeError("no evaluation has begun")
        self._enter(self.phases[0])
        # Before every step, because actors that share a process share the generator too.
        torch.default_generator.manual_seed((self._forward + self._steps) % TORCH_SEEDS)
        with torch.inference_mode():
            actions = self._actions(self.policy(self.observations)[0])
        self._enter(self.phases[1])
        self.row.finals.count = 0  # an episode's last observation is of no use here
        self.vector.step(actions, self.row)
        self._steps += 1
        ended = (self.row.episode_lengths > 0) & (self._left > 0)
        self._returns += self.row.episode_returns[ended].tolist()
        self._lengths += self.row.episode_lengths[ended].tolist()
        self._left -= ended
        self._rest()
        return None if self._left.any() else self._end(self._due)

    def _actions(self, outputs: torch.Tensor) -> NDArray[Any]:
        if not self.sample:
            return self.distribution.mode(outputs).numpy()
        noise = self.distribution.draw_noise(self._noise, self.vector.count)
        return self.distribution.sample_numpy(outputs.numpy(), noise)

    @property
    def done(self) -> int:
        """How many of the episodes have ended, since `begin`."""
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
        )

    def _enter(self, phase: int) -> None:
        if self.status:
            self.status.enter(phase)

    def _rest(self) -> None:
        if self.status:
            self.status.enter(self.status.runtime)

    def close(self) -> None:
        self.vector.close()
