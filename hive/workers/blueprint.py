"""A blueprint: what all the actors of one trainer agree on, made once from the config before any of them exists.

Spaces, the network and its flat form, the algorithm, and the layouts of everything in shared memory. Actors inherit it
by fork; each makes its own network from it.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hive.algorithms import Algorithm, describe_policy, heads_of_algorithm, make_algorithm
from hive.config import Config, TargetConfig
from hive.envs import EnvironmentSpec, VectorEnvironment, describe, make_vector
from hive.errors import NetworkError, RecordError
from hive.gradients import codec_for, gradient_layout
from hive.networks import (
    ActionDistribution,
    FlatParameters,
    NetworkWrapper,
    Spaces,
    StateLayout,
    aligned_block,
    buffers_that_training_changes,
    build_network,
    copy_arrays,
    distribution_for,
    network_parameters,
    observed_elements,
)
from hive.records import Checkpoint, checkpoint_at
from hive.runtime import Layout, Status
from hive.storage import Purpose, final_capacity, rollout_layout, stream_seed
from hive.workers.collector import Collector
from hive.workers.evaluator import Evaluator
from hive.workers.learner import Count, Learner, optimizer_state_layout
from hive.workers.replica import Replica
from hive.workers.resume_barriers import ResumeBarriers

__all__ = ["Blueprint"]

BUFFERS_SHOWN = 3  # in an error: those of one BatchNorm


class Blueprint:
    """Everything that follows from the config and the environment. Raises what environments and networks raise."""

    def __init__(self, config: Config, resume: Checkpoint | None = None) -> None:
        # One thread per actor: the processes are the parallelism, and the bits of a sum depend on who adds what.
        torch.set_num_threads(1)
        self.config = config
        self.resume = resume
        collection = config.collection
        self.environment: EnvironmentSpec = describe(config.env.id, config.env.options, config.env.vector)
        self.spaces = Spaces({"observation": self.environment.observation}, self.environment.action)
        self.collectors = collection.workers or max(config.gradients.workers, 1)
        self.gradient_workers = max(config.gradients.workers, 1)
        algorithm = self.algorithm()
        self.distribution: ActionDistribution = algorithm.distribution
        self.heads = heads_of_algorithm(algorithm)
        self.parameters = network_parameters(config.network, config.algorithm.learning_rate, self.heads)
        network = build_network(self.parameters, self.spaces, self._generator())
        self._check_buffers(network)
        self.flat = FlatParameters(network)
        self.state = StateLayout(self.flat, has_target=isinstance(config.algorithm, TargetConfig))
        if resume is None and config.run.init_from is not None:  # a mistake is told before there are processes
            self._copy_weights(config.run.init_from, aligned_block(self.flat.block_bytes))
        self.codec = codec_for(config.gradients.compression, config.gradients.top_k)
        self.optimizer_state_bytes = self.learner().layout.bytes
        observation, action = self.environment.observation, self.environment.action
        self.rollout_layout = rollout_layout(
            collection.rollout,
            collection.envs,
            (observation.shape, observation.dtype),
            (action.shape, action.dtype),
            final_capacity(collection.rollout, collection.envs, self.environment.max_episode_steps),
        )

    def _generator(self) -> torch.Generator:
        """Draws the run's initial weights."""
        return torch.Generator().manual_seed(stream_seed(self.config.run.seed, Purpose.initial_weights, 0, 0))

    def wrapper(self) -> NetworkWrapper:
        """The networks of one process: copies in the learner's state, made as far as the process asks for them."""
        return NetworkWrapper(
            self.parameters,
            has_target=self.state.has_target,
            has_global=True,
            name="main",
            spaces=self.spaces,
            generator=self._generator(),
            state=self.state,
        )

    def network(self) -> nn.Module:
        """A network of its own for this process, with the run's initial weights."""
        return self.wrapper().online_network.module

    def _check_buffers(self, network: nn.Module) -> None:
        """Raises NetworkError for one that learns in its buffers: only parameters travel from worker to worker."""
        if changed := buffers_that_training_changes(network, self.spaces):
            shown = ", ".join(changed[:BUFFERS_SHOWN]) + (", ..." if len(changed) > BUFFERS_SHOWN else "")
            raise NetworkError(
                f"`{type(network).__name__}` changes buffers of its own while it trains: {shown}",
                hint="whoever acts would go on with their first values: use LayerNorm or GroupNorm in the place of "
                "BatchNorm, or track_running_stats=False",
            )

    def policy(self) -> dict[str, Any]:
        """What `hive.load` makes this run's policy of, besides the weights; for JSON."""
        environment = self.environment
        return describe_policy(
            environment.observation, environment.action, self.config.network, self.heads, self.distribution
        )

    def algorithm(self, *, alone: bool = False) -> Algorithm:
        """The algorithm. `alone`: its worker shares no rounds with others, and normalises by itself.

        That is so of all asynchronous ones.
        """
        alone |= self.config.gradients.communication == "asynchronous"
        action = distribution_for(self.environment.action)
        workers = 1 if alone else self.gradient_workers
        return make_algorithm(self.config.algorithm, action, workers, self.round_steps)

    @property
    def round_steps(self) -> int:
        """Environment steps of one round: a full rollout of every collector."""
        collection = self.config.collection
        return self.collectors * collection.envs * collection.rollout

    @property
    def rounds(self) -> float:
        """Rounds until the run has made its environment steps."""
        return self.config.run.steps / self.round_steps

    @property
    def round_shape(self) -> list[int]:
        """The settings that relate the number of a round to environment steps and to updates."""
        per_turn = self.config.gradients.bootstrap_rounds
        return [self.round_steps, self.algorithm().gradients_per_round, per_turn]

    @functools.cached_property
    def schedule_start(self) -> float:
        """The round from which schedules count; 0 unless a checkpoint was resumed in rounds of another shape.

        The number of the first round then says nothing about the share of the run that is done, and the environment
        steps of the checkpoint do. In asynchronous runs it never does: every gradient of every worker is an update.
        """
        if self.resume is None:
            return 0.0
        state = self.resume.state
        if state.get("round_shape") == self.round_shape and not self.config.asynchronous:
            return float(state.get("schedule_start", 0.0))
        return self.first_round - int(state.get("env_steps", 0)) / self.round_steps

    def collector(
        self,
        source: int,
        incarnation: int = 0,
        status: Status | None = None,
        vector: VectorEnvironment | None = None,
    ) -> Collector:
        """Collector number `source` of the run, with a network of its own, and environments of its own or `vector`."""
        return Collector(
            self.vector() if vector is None else vector,
            self.environment.observation,
            self.wrapper(),
            self.distribution,
            seed=self.config.run.seed,
            source=source,
            incarnation=incarnation,
            log_probs=self.algorithm().behaviour_log_probs,
            status=status,
        )

    def evaluator(self, status: Status | None = None) -> Evaluator:
        """The evaluator of the run, with environments and a network of its own."""
        evaluation = self.config.evaluation
        return Evaluator(
            self.vector(evaluation.envs),
            self.environment.observation,
            self.network(),
            self.distribution,
            seed=self.config.run.seed,
            episodes=evaluation.episodes,
            status=status,
        )

    def replica(self) -> Replica:
        """A gradient worker's own copy of the state, before its first turn."""
        return Replica(self.learner(), self.state.bytes)

    def learner(self, status: Status | None = None) -> Learner:
        config = self.config
        return Learner(
            config.algorithm,
            self.wrapper(),
            config.run.steps,
            workers=self.gradient_workers,
            codec=self.codec,
            normalizer=self.flat.buffer_arrays if config.network.normalize_observations else None,
            status=status,
        )

    def initialize(self, state: NDArray[np.uint8], optimizer_state: NDArray[np.uint8]) -> int:
        """Writes what the learner begins with: the initial weights, or those it was resumed from. Returns the turn."""
        if self.resume is not None:
            state[:] = _bytes_of(self.resume, "weights", len(state))
            self._resume_optimizer_state(self.resume, optimizer_state)
            return self.resume.update
        self.flat.initialize_into(self.state.weights(state))
        if self.config.run.init_from is not None:
            self._copy_weights(self.config.run.init_from, state)
        self.state.moments(state)[:] = 0.0, 1.0
        if self.state.has_target:
            self.state.begin_target(state)
        optimizer_state[:] = 0
        return 0

    def _copy_weights(self, place: str, state: NDArray[np.uint8]) -> None:
        """Overwrites the initial weights with those of another run. Raises RecordError where they do not fit."""
        checkpoint = checkpoint_at(place)
        own = self.flat.arrays(state[: self.flat.block_bytes])
        copy_arrays(checkpoint.tensors(), own, str(checkpoint.path))

    def _resume_optimizer_state(self, resume: Checkpoint, optimizer_state: NDArray[np.uint8]) -> None:
        """Restores the optimizer state of a checkpoint, which may have another number of workers."""
        learner, state = self.learner(), resume.state
        workers = int(state.get("gradient_workers", self.gradient_workers))
        layout = optimizer_state_layout(learner.shared.optimizer.moment_blocks, self.flat.parameter_elements, workers)
        part = "optimizer_state" if resume.format > 1 else "ledger"
        before, after = layout.views(_bytes_of(resume, part, layout.bytes)), learner.views(optimizer_state)
        for name in ("counters", "returns", "moments"):
            after[name][:] = before[name]
        after["applied"][:] = self.first_gradient  # numbers begin anew, and are the same for everybody
        # The version of the policy follows from a count of rollouts; it never goes back when there are more of them.
        version = int(before["counters"][Count.rollouts]) // int(state.get("per_version", self.per_version))
        if state.get("per_version", self.per_version) != self.per_version:
            after["counters"][Count.rollouts] = version * self.per_version
        learner.wake_up(optimizer_state)

    @property
    def per_version(self) -> int:
        """Rollouts between two versions of the policy."""
        return self.collectors * self.config.collection.broadcast_interval

    @property
    def first_round(self) -> int:
        """The round that this run begins with: the first that the checkpoint has not finished."""
        done = (self.resume.update if self.resume else 0) * self.config.gradients.bootstrap_rounds
        return -(-done // self.algorithm().gradients_per_round)

    @property
    def first_gradient(self) -> int:
        """The number of each worker's first gradient."""
        return (self.resume.update if self.resume else 0) * self.config.gradients.bootstrap_rounds

    @functools.cached_property
    def barriers(self) -> ResumeBarriers:
        """Where this run can be taken up again byte for byte; a loose one nowhere, so nothing is cut for that."""
        collection = self.config.collection
        return ResumeBarriers(
            every=0 if self.config.asynchronous else int(self.config.checkpoint.every.get("updates", 0)),
            per_round=self.algorithm().gradients_per_round,
            per_turn=self.config.gradients.bootstrap_rounds,
            interval=collection.broadcast_interval,
            lag=collection.max_lag,
            resumed_at=self.first_round,
        )

    def vector(self, count: int | None = None, **options: Any) -> VectorEnvironment:
        """`count` environments, by default as many as a collector has; `options` go before those of the config."""
        env = self.config.env
        return make_vector(env.id, {**env.options, **options}, count or self.config.collection.envs, env.vector)

    @property
    def observed(self) -> int:
        """Elements of what a gradient says about the observations of its round; 0 where they are not normalised."""
        normalizes = self.config.network.normalize_observations
        return observed_elements(self.environment.observation.shape) if normalizes else 0

    def gradient_layout(self, collectors: int) -> Layout:
        """The layout of the gradient of a share of `collectors` collectors."""
        most = collectors * self.config.collection.rollout * self.config.collection.envs
        return gradient_layout(
            self.flat.parameter_elements,
            len(self.flat.parameters),
            len(self.algorithm().statistics),
            most,
            self.codec,
            self.observed,
        )


def _bytes_of(checkpoint: Checkpoint, part: str, size: int) -> NDArray[np.uint8]:
    """A part of a checkpoint, as long as this run needs it. Raises RecordError."""
    data = np.frombuffer(checkpoint.part(part), np.uint8)
    if len(data) != size:
        raise RecordError(
            f"`{part}` of {checkpoint.path} has {len(data)} bytes, this run needs {size}",
            hint="the network and the optimizer must be those of the checkpoint",
        )
    return data
