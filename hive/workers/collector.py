"""The collector: steps B environments with a policy and writes what happens into a rollout, in place.

    for each step t     outputs = policy(observations[t])      phase "policy"
                        actions[t] = sample(outputs, noise[t])
                        step the environments                  phase "env"    writes rows t, observations t + 1

A synchronous object without ports: memory and weights come from outside, the rollout goes outside. Nothing is stacked
afterwards: the environments write straight into the rollout's rows. Noise is that of the rollout's own stream, so a
rollout made again, by another process, is the same rollout, as far as the environments are deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hive.envs import FinalObservations, ObservationSpec, StepRow, VectorEnvironment
from hive.networks import ActionDistribution, NetworkWrapper, SharedNetwork
from hive.runtime import Status
from hive.storage import FINALS, LENGTH, SEQUENCE, SOURCE, VERSION, Purpose, stream, stream_seed, stream_seeds

__all__ = ["Collector"]

MAX_INCARNATIONS = 1 << 20  # keeps the occasions of a reset apart; a process does not come back so often

Arrays = Mapping[str, NDArray[Any]]

PREPARED_SLOTS = 128  # more than a slab has; in library use, where every rollout may be new memory, they are let go


@dataclass(frozen=True)
class _Prepared:
    """The views of one slot, made once: rows for the environments, tensors for the policy."""

    arrays: Arrays
    finals: FinalObservations
    rows: list[StepRow]
    observations: list[torch.Tensor]


class Collector:
    """Collects rollouts. `source` is its number in the run; `incarnation` of the process it lives in.

    observation: what one observation is. network: its online network acts, with the weights of `bind`. distribution:
    reads actions from its first output. log_probs: whether rollouts hold the log-probabilities of the acting policy.
    discount: per step, of the discounted sums that normalised rewards need. status: shows its phases, or None.
    """

    def __init__(
        self,
        vector: VectorEnvironment,
        observation: ObservationSpec,
        network: NetworkWrapper,
        distribution: ActionDistribution,
        *,
        seed: int,
        source: int,
        incarnation: int = 0,
        log_probs: bool = False,
        discount: float = 1.0,
        status: Status | None = None,
    ) -> None:
        self.vector = vector
        self.network = network
        self.policy = network.online_network.module.eval()
        self.distribution = distribution
        self.seed = seed
        self.source = source
        self.incarnation = incarnation
        self.log_probs = log_probs
        self.discount = discount
        self.status = status
        self.phases = (status.phase("policy"), status.phase("env")) if status else (0, 0)
        self.observation = observation
        self.current: NDArray[Any]  # [B, ...]: what the next rollout begins with; `reset` makes it
        self._prepared: dict[int, _Prepared] = {}

    def bind(self, weights: NDArray[np.uint8]) -> None:
        """Acts with these weights from now on; they are read in place."""
        assert isinstance(self.network.global_network, SharedNetwork)
        self.network.global_network.at(weights)
        self.network.update_online_network()

    def reset(self, start: int = 0) -> None:
        """Starts an episode in every environment, before the first rollout and after a cut. Raises EnvironmentFailed.

        `start` is the round of the cut: with the seed, the environment's number and the incarnation it says how.
        """
        if self.status:
            self.status.enter(self.phases[1])
        envs = self.vector.count
        self.current = np.empty((envs, *self.observation.shape), self.observation.dtype)
        self.discounted = np.zeros(envs)  # sum of each running episode's discounted rewards
        occasion = start * MAX_INCARNATIONS + self.incarnation
        self.vector.reset(
            stream_seeds(self.seed, Purpose.environment, self.source * envs, envs, occasion), self.current
        )
        if self.status:
            self.status.enter(self.status.runtime)

    def rebuild(self, vector: VectorEnvironment, start: int) -> None:
        """Goes on with new environments: what a wrapper remembers does not survive a cut."""
        self.vector.close()
        self.vector = vector
        self.reset(start)

    def collect(
        self, rollout: Arrays, *, sequence: int, version: int, enough: Callable[[int], bool] | None = None
    ) -> None:
        """Fills one rollout (hive.storage.rollouts draws it). Ends it early when its final observations are used up.

        `enough` is asked after every step, with the number of steps so far, whether the rollout ends here.

        Raises EnvironmentFailed, and RuntimeError before the first `reset`.
        """
        if not hasattr(self, "current"):
            raise RuntimeError("no episode has begun: call reset() before the first collect()")
        prepared = self._prepare(rollout)
        finals = prepared.finals
        observations, actions = rollout["observations"], rollout["actions"]
        steps, envs = rollout["rewards"].shape
        enter = self.status.enter if self.status else _nothing
        policy_phase, env_phase = self.phases
        enter(policy_phase)  # its noise, of all steps at once, is what it acts by
        distribution = self.distribution.for_rollout(sequence)
        noise = self._noise(sequence, (steps, envs))
        torch.default_generator.manual_seed(stream_seed(self.seed, Purpose.acting_forward, self.source, sequence))
        observations[0] = self.current
        finals.count, length = 0, steps
        kept = np.empty((steps, envs, distribution.width), np.float32) if self.log_probs else None
        policy, sample, step = self.policy, distribution.sample_numpy, self.vector.step
        with torch.inference_mode():
            for t in range(steps):
                if finals.room < envs:
                    length = t
                    break
                enter(policy_phase)
                outputs = policy(prepared.observations[t])[0].numpy()
                actions[t] = sample(outputs, noise[t])
                if kept is not None:
                    kept[t] = outputs
                enter(env_phase)
                step(actions[t], prepared.rows[t])
                if enough is not None and enough(t + 1):
                    length = t + 1
                    break
            if kept is not None:  # of all steps at once: one call instead of one a step
                enter(policy_phase)
                chosen = distribution.log_prob(torch.from_numpy(kept[:length]), torch.from_numpy(actions[:length]))
                rollout["log_probs"][:length] = chosen.numpy()
        if "discounted" in rollout:
            self._discount(rollout, length)
        self.current[...] = observations[length]
        header = rollout["header"]
        header[VERSION], header[LENGTH], header[FINALS] = version, length, finals.count
        header[SOURCE], header[SEQUENCE] = self.source, sequence
        if self.status:
            self.status.enter(self.status.runtime)

    def _discount(self, rollout: Arrays, length: int) -> None:
        """Writes the discounted sum of rewards since each episode began. It continues in the next rollout."""
        sums, ended = self.discounted, rollout["episode_lengths"] > 0
        for t in range(length):
            sums *= self.discount
            sums += rollout["rewards"][t]
            rollout["discounted"][t] = sums
            sums[ended[t]] = 0.0

    def _noise(self, sequence: int, shape: tuple[int, int]) -> NDArray[np.float32]:
        generator = stream(self.seed, Purpose.action, self.source, sequence)
        return self.distribution.draw_noise(generator, *shape)

    def _prepare(self, rollout: Arrays) -> _Prepared:
        prepared = self._prepared.get(id(rollout))
        if prepared is None or prepared.arrays is not rollout:
            finals = FinalObservations(rollout["final_observations"])
            names = ("rewards", "terminated", "truncated", "valid", "episode_returns", "episode_lengths", "final_index")
            rows = [
                StepRow(
                    observations=rollout["observations"][t + 1],
                    finals=finals,
                    **{name: rollout[name][t] for name in names},
                )
                for t in range(len(rollout["rewards"]))
            ]
            prepared = _Prepared(rollout, finals, rows, [torch.from_numpy(row) for row in rollout["observations"]])
            if len(self._prepared) >= PREPARED_SLOTS:
                self._prepared.clear()
            self._prepared[id(rollout)] = prepared
        return prepared

    def close(self) -> None:
        self.vector.close()


def _nothing(phase: int) -> None:
    """Nobody watches."""
