"""A blueprint holds what all actors of a trainer share, made from the config before any actor starts.

It holds the spaces, the network's parameters and flat layout, the distribution of actions, and the layouts of rollouts,
gradients and state in shared memory. Actors inherit it by fork, and each makes its own network from it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hive.algorithms.algorithm import Algorithm
from hive.algorithms.batches.novelty import SeeksNovelty
from hive.algorithms.making import heads_of_algorithm, make_algorithm
from hive.algorithms.replaying import ReplayAlgorithm, warmup_rounds
from hive.config import AgentConfig, Config, ReplayConfig, TargetConfig
from hive.config.refusals import refused_keys
from hive.envs import (
    EnvironmentSpec,
    Helping,
    VectorEnvironment,
    can_be_helped,
    check_evaluation,
    configured_spec,
    configured_vector,
    seed_globals,
)
from hive.envs.spaces.meaning import kept_meaning, kept_scale
from hive.envs.vectors.helped_vector import helped_vector
from hive.errors import MemoryShort, RecordError, TopologyError
from hive.experience import Purpose, expected_finals, rollout_layout, stream_seed
from hive.gradients import codec_for, gradient_layout
from hive.networks.act.distributions import ActionDistribution
from hive.networks.build.configured import configured_distribution, copy_arrays, network_parameters
from hive.networks.build.convolutions import has_bfloat16_instructions
from hive.networks.build.layers import without_memory
from hive.networks.build.network import build_network, check_network_device
from hive.networks.build.parameters import NetworkParameters
from hive.networks.build.spaces import Spaces
from hive.networks.rows.inputs import state_width_of
from hive.networks.rows.normalization import MOMENTS_OF, observed_elements
from hive.networks.weights.device import prepare_device
from hive.networks.weights.flat import FlatParameters, InitialWeights, aligned_block
from hive.networks.weights.optimizers import FlatOptimizer
from hive.networks.weights.state import StateLayout
from hive.networks.weights.wrapper import NetworkWrapper
from hive.policy.descriptions import describe_policy, described_spaces
from hive.records import Checkpoint, checkpoint_at
from hive.runtime import Layout, Status
from hive.runtime.memory.segments import PAGE
from hive.runtime.process.free_memory import allocation_limit, free_memory, size_text
from hive.runtime.process.user_code.torch_state import hive_torch
from hive.runtime.wire.arrays import MAX_ARRAY_BYTES
from hive.training.collect.collector import Collector
from hive.training.collect.global_generators import seed_all_globals
from hive.training.evaluate.evaluator import ENDLESS, Evaluator
from hive.training.given_weights import GivenWeights
from hive.training.gradient.devices import chosen_device
from hive.training.gradient.threads import helpers_of, threads_of
from hive.training.network_checks import check_custom_network, check_trainable
from hive.training.schedule import Schedule
from hive.training.update.learner import Count, Learner, check_codec, optimizer_settings, optimizer_state_layout
from hive.training.update.replay_memory import ReplayMemory, ReplaySize, ledger_layout, memory_layout, plan_layout
from hive.training.update.replica import Replica

__all__ = ["Blueprint", "blueprint_in", "environment_of"]


class Blueprint:
    """Derives spaces, layouts and factories from the config and its environment.

    environment: the spec of the environment; `environment.observation` and `.action` are how both are stored.
    distribution: of the actions, given the first output of the network. statistics, gradients_per_round,
    gradients_per_batch, asks_for_moments and behaviour_log_probs are those of the algorithm. flat: the layout of the
    parameters in a block. state: the layout of a version of the board `weights`. rollout_layout, memory_layout,
    ledger_layout, plan_layout and `gradient_layout(collectors)`: the layouts of the messages of these names.

    round_steps: environment steps of one round, a full rollout of every collector. rounds: those until the run has
    made its environment steps. per_version: rollouts per behavior version. replays: whether the algorithm learns from
    a replay memory. warmup: with a replay memory, the number of rounds before the first gradient. has_lag: whether a
    policy older than that of a round's first gradient may make its rollouts.

    resume: the checkpoint that the run continues from, if any. Raises what environments and networks raise,
    RecordError if `run.init_from` or a file of `network.weights` does not fit, and NetworkError for a network whose
    buffers change in training. given: the weights of these files; none if the run is resumed.

    All sizes follow from a network without memory (hive.networks.build.layers), so that a run that does not fit this
    machine is refused before anything is allocated. `flat.made` has the initial weights, which the fork server makes
    once. A network with custom code is built at once, because only its author knows what its constructor needs.

    environment: that of the config, if it is known already; else one is built, read and closed. Raises MemoryShort for
    a network that no machine, or a custom one that this machine, has memory for.
    """

    @hive_torch()
    def __init__(
        self, config: Config, resume: Checkpoint | None = None, environment: EnvironmentSpec | None = None
    ) -> None:
        # One thread per actor: the processes are parallel already, and the bits of a sum depend on how it is divided.
        torch.set_num_threads(1)
        self.threads = threads_of(config)
        self.device = chosen_device(config.gradients.device)
        """Where gradients are computed, on copies of the weights; None: on the CPU, in place."""
        self.config = config
        self.resume = resume
        self.environment = self._as_trained(environment_of(config) if environment is None else environment)
        self.spaces = Spaces({"observation": self.environment.observation}, self.environment.action)
        self._count_rounds()
        algorithm = self.algorithm()
        self._count_gradients(algorithm)
        self.distribution: ActionDistribution = algorithm.distribution
        self.heads = heads_of_algorithm(algorithm)
        self.trained_parameters = network_parameters(config.network, config.algorithm.learning_rate, self.heads)
        check_network_device(self.trained_parameters, self.device)
        self.parameters = self._acting(self.trained_parameters)
        torch.set_num_threads(1)  # a custom network's module may have set another number
        self.sketch = self._sketched()
        torch.set_num_threads(1)  # ... or its constructor
        check_trainable(self.sketch)
        self.state_width = state_width_of(self.sketch)
        self._check_columns()
        self.given = GivenWeights({} if resume is not None else config.network.weights, self.sketch)
        self.flat = InitialWeights(self.sketch, self._made)
        self.state = StateLayout(self.flat, has_target=isinstance(config.algorithm, TargetConfig))
        if resume is None and config.run.init_from is not None:  # only to raise errors before any process starts
            self._copy_weights(config.run.init_from, self.flat.hollow_arrays())
        self.codec = codec_for(config.gradients.compression, config.gradients.top_k)
        check_codec(self.codec, self.flat)
        moment_blocks = FlatOptimizer(optimizer_settings(config.algorithm)).moment_blocks
        self.optimizer_state_layout = optimizer_state_layout(
            moment_blocks,
            self.flat.parameter_elements,
            self.gradient_workers,
            len(config.env.info),
            len(self.flat.groups),
        )
        self.optimizer_state_bytes = self.optimizer_state_layout.bytes
        if self.replays:
            self._check_replay()
        self.rollout_layout = self._rollout_layout()

    def _count_rounds(self) -> None:
        """Set the facts that follow from the config alone."""
        config, collection = self.config, self.config.collection
        self.collectors = config.collectors
        self.gradient_workers = max(config.gradients.workers, 1)
        self.round_steps = self.collectors * collection.envs * collection.rollout
        self.rounds = config.run.steps / self.round_steps
        self.per_version = self.collectors * collection.broadcast_interval
        self.has_lag = collection.max_lag > 0
        self.replays = isinstance(config.algorithm, ReplayConfig)
        self.warmup = warmup_rounds(self.replay_config, self.round_steps) if self.replays else None

    def _count_gradients(self, algorithm: Algorithm | ReplayAlgorithm) -> None:
        """Set the facts of the algorithm."""
        self.statistics = algorithm.statistics
        self.gradients_per_round = algorithm.gradients_per_round
        self.gradients_per_batch: int = getattr(algorithm, "gradients_per_batch", 1)  # of each worker, of what is drawn
        self.asks_for_moments = algorithm.asks_for_moments
        self.behaviour_log_probs = algorithm.behaviour_log_probs

    def _rollout_layout(self) -> Layout:
        config, collection = self.config, self.config.collection
        observation, action = self.environment.observation, self.environment.action
        return rollout_layout(
            collection.rollout,
            collection.envs,
            (observation.shape, observation.dtype),
            (action.shape, action.dtype),
            expected_finals(collection.rollout, collection.envs, self.environment.max_episode_steps),
            discounted=config.network.normalize_rewards,
            infos=len(config.env.info),
            state=self.state_width,
            stack=observation.stack,
            errors=getattr(config.algorithm, "initial_errors", False),
        )

    def _acting(self, trained: NetworkParameters) -> NetworkParameters:
        """Return the parameters of networks on the CPU. With a GPU these may act in float32 where it uses bfloat16."""
        if self.device is None or trained.precision == "float32" or has_bfloat16_instructions():
            return trained
        return dataclasses.replace(trained, precision="float32")

    def _as_trained(self, environment: EnvironmentSpec) -> EnvironmentSpec:
        """Return the spec with the meaning of spaces that weights were trained with, if the run begins with some."""
        place = self.config.run.init_from
        if self.resume is None and place is None:
            return environment
        checkpoint = self.resume or checkpoint_at(str(place))
        if (spaces := described_spaces(checkpoint)) is None:
            return environment
        observation, action = spaces
        return dataclasses.replace(
            environment,
            observation=kept_meaning(environment.observation, observation),
            action=kept_scale(environment.action, action),
        )

    @property
    def has_custom_network(self) -> bool:
        """Whether code of the user builds a part of the network."""
        whole = self.parameters.module or self.parameters.extractor
        return whole is not None or any(head.cls is not None for head in self.parameters.heads_parameters)

    @property
    def _network_name(self) -> str:
        """The custom code that builds the network, as the config names it."""
        network = self.config.network
        named = [one for one in (network.module, network.extractor, network.policy_head, network.value_head) if one]
        return f"the network of `{'`, `'.join(named)}`" if named else "the network"

    def _sketched(self) -> nn.Module:
        """Return the network without memory for its parameters, or, with custom code in it, the network itself."""
        if self.has_custom_network:
            with allocation_limit(self._network_name):
                network = build_network(self.parameters, self.spaces, self._generator())
                check_custom_network(network, self.parameters, self.spaces, self._network_name)
            return network
        with without_memory():
            return build_network(self.parameters, self.spaces, self._generator())

    def _made(self) -> FlatParameters:
        """Make the network with its initial weights."""
        flat = FlatParameters(self.sketch) if self.has_custom_network else self._built()
        self.given.write(flat.arrays(flat.block))
        return flat

    def _built(self) -> FlatParameters:
        if self.flat.block_bytes > (free := free_memory()).usable:  # a caller that has not checked the whole run
            size = size_text(self.flat.block_bytes)
            raise MemoryShort(
                f"the network needs {size} for {self.flat.count:,} parameters, and {free} are free",
                hint="lower network.middleware, or give it observations of fewer elements",
            )
        return FlatParameters(build_network(self.parameters, self.spaces, self._generator()))

    def _generator(self) -> torch.Generator:
        """Return the generator of the run's initial weights."""
        return torch.Generator().manual_seed(stream_seed(self.config.run.seed, Purpose.initial_weights, 0, 0))

    def wrapper(self, device: torch.device | None = None) -> NetworkWrapper:
        """Make the networks of one process: online, target and global, each allocated when it is first used.

        device: where the first two compute, on copies of the weights; None: on the CPU, in place.
        """
        if device is not None:
            prepare_device(device, deterministic=not self.config.asynchronous)
        parameters = self.parameters if device is None else self.trained_parameters
        return NetworkWrapper(parameters, self.spaces, self.state, self._generator(), device)

    def network(self) -> nn.Module:
        """Make a separate network for this process, with the run's initial weights."""
        return self.wrapper().online_network.module

    def _check_columns(self) -> None:
        """Raise TopologyError for more minibatches than environments in a share: a sequence is not divided."""
        parts = getattr(self.config.algorithm, "minibatches", 1)
        asynchronous = self.config.collection.communication == "asynchronous"
        collectors = 1 if asynchronous else max(1, self.collectors // self.gradient_workers)
        columns = collectors * self.config.collection.envs
        if self.state_width and parts > columns:
            raise TopologyError(
                f"algorithm.minibatches is {parts}, but a gradient worker has sequences of only {columns} environments",
                hint=f"with network.memory a minibatch has whole sequences: set algorithm.minibatches to {columns} or "
                "less, or raise collection.envs",
            )

    @property
    def weight_files(self) -> dict[str, str]:
        """The SHA-256 of each file of `network.weights` that the run began with, by the name of its module."""
        return self.given.sha256 if self.resume is None else dict(self.resume.state.get("weight_files", {}))

    def policy(self) -> dict[str, Any]:
        """Return the description, for JSON, from which `hive.load` rebuilds this run's policy."""
        environment = self.environment
        return describe_policy(
            environment.observation, environment.action, self.config.network, self.heads, self.distribution
        )

    @property
    def network_bytes(self) -> int:
        """Bytes of a network in a process: its first weights, and those that native passes transpose, or gradients."""
        return 2 * self.flat.block_bytes

    @property
    def gradient_worker_bytes(self) -> int:
        """Bytes that a gradient worker keeps outside of shared memory: networks, what its codec keeps, a replica."""
        weights, gradient = self.network_bytes, self.flat.parameter_bytes
        networks = weights * (2 if self.state.has_target else 1)
        coded = 0 if self.codec.in_place else gradient + self.codec.residual(1).nbytes * self.flat.parameter_elements
        replica = 2 * (self.state.bytes + self.optimizer_state_bytes) + gradient
        return networks + coded + (replica if self.config.gradients.decentralized else 0)

    @property
    def best_by(self) -> str | None:
        """The return that the best policy is chosen by: "evaluation" or "training"; None if none is kept."""
        if self.config.evaluation.every:
            return "evaluation"
        sendable = self.flat.block_bytes <= MAX_ARRAY_BYTES  # the learner sends the weights to the recorder
        return "training" if self.config.checkpoint.every and sendable else None

    def is_lagged(self, number: int, version: int) -> bool:
        """Whether policy `version` is older than that of the first gradient of round `number`.

        Only rounds in order say so; without order every rollout counts as older.
        """
        collection = self.config.collection
        current = collection.communication != "asynchronous" and version * collection.broadcast_interval == number
        return self.has_lag and not current

    def algorithm(self, *, alone: bool = False) -> Algorithm | ReplayAlgorithm:
        """Make the algorithm. `alone`: its worker shares no rounds with others, so it normalizes advantages alone.

        Workers of asynchronous gradients never share rounds.
        """
        alone |= self.config.gradients.communication == "asynchronous"
        squashed = isinstance(self.config.algorithm, AgentConfig)
        action = configured_distribution(self.config.network, self.environment.action, squashed=squashed)
        workers = 1 if alone else self.gradient_workers
        algorithm = make_algorithm(self.config.algorithm, action, workers, self.round_steps)
        if self.has_lag and (expect_lag := getattr(algorithm, "expect_lag", None)) is not None:
            expect_lag()
        weight = self.config.network.novelty_weight
        return SeeksNovelty(cast(Algorithm, algorithm), weight) if weight else algorithm

    @property
    def round_shape(self) -> list[int]:
        """The settings that relate the number of a round to environment steps and to updates."""
        per_turn = self.config.gradients.bootstrap_rounds
        return [self.round_steps, self.gradients_per_round, per_turn]

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

    @property
    def replay_config(self) -> ReplayConfig:
        """[algorithm] of an algorithm that learns from a replay memory."""
        assert isinstance(self.config.algorithm, ReplayConfig)
        return self.config.algorithm

    @functools.cached_property
    def replay_size(self) -> ReplaySize:
        """The sizes of the replay memory."""
        config, collection = self.replay_config, self.config.collection
        asynchronous = collection.communication == "asynchronous"
        ahead = -(-self.config.gradients.max_lag // self.gradients_per_round) + 1
        # Asynchronously more rounds are appended early, and one collector may have made all of their rollouts.
        rounds_ahead = (ahead + collection.max_lag) * self.collectors if asynchronous else ahead
        return ReplaySize(
            sources=self.collectors,
            envs=collection.envs,
            steps=collection.rollout,
            kept=config.replay_capacity // (self.collectors * collection.envs),
            rounds_ahead=rounds_ahead,
            stack=self.environment.observation.stack,
            n_step=config.n_step,
            workers=self.gradient_workers,
            batch=config.batch_size // self.gradient_workers,
        )

    @functools.cached_property
    def memory_layout(self) -> Layout:
        """The layout of the replay memory."""
        observation, action = self.environment.observation, self.environment.action
        return memory_layout(self.replay_size, (observation.shape, observation.dtype), (action.shape, action.dtype))

    @property
    def saved_replay_bytes(self) -> int:
        """Bytes of the replay memory's rows in a checkpoint when it is full; 0 where checkpoints leave it out."""
        if not (self.replays and self.config.checkpoint.replay):
            return 0
        size, fields = self.replay_size, self.memory_layout.fields
        stored = {name: field for name, field in fields.items() if name not in ("finals", "held_leaves")}
        each = sum(dtype.itemsize * math.prod(shape[3:]) for dtype, shape in stored.values())  # of [S, R, B, ...]
        return each * min(self.config.run.steps, size.saved * size.sources * size.envs)

    @property
    def sparse_finals_bytes(self) -> int:
        """Bytes of the replay memory's last observations of truncated episodes that are not expected to be written.

        Only a declared time limit is expected to truncate. Each observation then touches whole pages.
        """
        dtype, shape = self.memory_layout.fields["finals"]
        rows, size = math.prod(shape[:3]), dtype.itemsize * math.prod(shape[3:])
        limit = self.environment.max_episode_steps
        expected = -(-rows // limit) if limit else 0
        return size * rows - min(size * rows, expected * (size + 2 * PAGE))

    @functools.cached_property
    def ledger_layout(self) -> Layout:
        """The layout of the replay memory's ledger."""
        return ledger_layout(self.collectors, len(self.config.env.info), self.normalized)

    @functools.cached_property
    def plan_layout(self) -> Layout:
        """The layout of a plan."""
        return plan_layout(self.replay_size)

    def replay_memory(self, memory: NDArray[np.uint8]) -> ReplayMemory:
        """Make the learner's side of the replay memory in this block."""
        config = self.replay_config
        return ReplayMemory(
            self.replay_size,
            self.memory_layout,
            memory,
            self.environment.observation,
            seed=self.config.run.seed,
            alpha=config.priority_exponent,
            least_steps=config.learning_starts,
        )

    def initialize_replay(
        self, replay: ReplayMemory, ledger: Mapping[str, NDArray[Any]], weights: NDArray[np.uint8]
    ) -> int:
        """Fill the memory and its first ledger, with the rows of a checkpoint if it has any; return its version.

        weights: the first of this run, whose statistics go on. Raises RecordError for rows that do not fit this run.
        """
        for array in ledger.values():
            array[:] = 0
        buffers = self.flat.buffer_arrays(self.state.weights(weights))
        for name in self.normalized:
            ledger[name][:] = buffers[f"{MOMENTS_OF[name][0]}seen"]
        if self.resume is None:
            return 0
        ledger["rollouts"][:] = self.first_round
        block = aligned_block(self.optimizer_state_bytes)
        self._resume_optimizer_state(self.resume, block)
        for name, array in self.learner().views(block).items():
            if name in ("counters", "returns", "infos"):
                ledger[name][:] = array
        if self.resume.has_replay:
            stored = ledger_layout(self.collectors, len(self.resume.state.get("info", ())), self.normalized)
            saved = stored.views(_bytes_of(self.resume, "replay_ledger", stored.bytes))
            for name in ("counters", "written", "returns", *self.normalized):
                ledger[name][:] = saved[name]
            self.resume.read_replay({name: array for name, array in replay.arrays.items() if name != "held_leaves"})
            replay.tree.rebuild()
            replay.forget_unfinished(ledger)  # also rows that a smaller memory does not keep
        return self.first_round * self.collectors

    def _check_replay(self) -> None:
        """Raise TopologyError for what cannot be combined with a replay memory, and for sizes that do not fit."""
        config = self.replay_config
        for row, name in refused_keys(self.config):
            raise TopologyError(f"{row.what} is refused: {name} {row.reason}", hint=row.instead)
        share, rest = divmod(config.batch_size, self.gradient_workers)
        if rest:
            below, above = (whole * self.gradient_workers for whole in (share, share + 1))
            raise TopologyError(
                f"algorithm.batch_size = {config.batch_size} cannot be divided among {self.gradient_workers} gradient "
                "workers",
                hint=f"set it to {f'{below} or {above}' if below else above}",
            )
        least = self.collectors * self.config.collection.envs * config.n_step
        if config.replay_capacity < least:
            raise TopologyError(
                f"algorithm.replay_capacity = {config.replay_capacity} has no room for algorithm.n_step = "
                f"{config.n_step} steps of every environment",
                hint=f"set it to {least} or more",
            )
        if self.warmup is not None and self.warmup * self.round_steps >= self.config.run.steps:
            raise TopologyError(
                f"algorithm.learning_starts = {config.learning_starts} leaves no updates in run.steps = "
                f"{self.config.run.steps}",
                hint="raise run.steps, or lower algorithm.learning_starts",
            )

    def collector(
        self,
        source: int,
        incarnation: int = 0,
        status: Status | None = None,
        vector: VectorEnvironment | None = None,
    ) -> Collector:
        """Make collector number `source` of the run, with its own network, and with `vector` or new environments."""
        envs = self.config.collection.envs
        if vector is None:
            seed_all_globals(self.config.run.seed, Purpose.building, source, incarnation)
            vector = self.vector()
        return Collector(
            vector,
            self.environment.observation,
            self.wrapper(),
            self.distribution.for_collector(source * envs, envs, self.collectors * envs),
            seed=self.config.run.seed,
            source=source,
            incarnation=incarnation,
            log_probs=self.behaviour_log_probs,
            discount=self.config.algorithm.discount,
            n_step=self.replay_config.n_step if self.replays else 0,
            status=status,
        )

    def evaluator(self, status: Status | None = None) -> Evaluator:
        """Make the evaluator of the run, with its own environments and network."""
        evaluation, env = self.config.evaluation, self.config.evaluation_env
        seed_all_globals(self.config.run.seed, Purpose.evaluation_building, 0, 0)
        return Evaluator(
            configured_vector(env, evaluation.envs),
            self.environment.observation,
            self.network(),
            self.distribution,
            seed=self.config.run.seed,
            episodes=evaluation.episodes,
            info=env.info,
            max_steps=evaluation.max_steps,
            status=status,
        )

    def replaying_evaluator(self, vector: VectorEnvironment) -> Evaluator:
        """Make a player of single episodes of evaluations, in a vector of one environment, without a last episode."""
        return Evaluator(
            vector,
            self.environment.observation,
            self.network(),
            self.distribution,
            seed=self.config.run.seed,
            episodes=ENDLESS,
            info=self.config.evaluation_env.info,
            max_steps=self.config.evaluation.max_steps,
        )

    def replica(self) -> Replica:
        """Make a gradient worker's copy of the state, still empty."""
        return Replica(self.learner(), self.state.bytes)

    def learner(self, status: Status | None = None) -> Learner:
        """Make the learner of the run."""
        config = self.config
        return Learner(
            config.algorithm,
            self.wrapper(),
            config.run.steps,
            workers=self.gradient_workers,
            infos=len(config.env.info),
            codec=self.codec,
            buffers=self.flat.buffer_arrays,
            status=status,
        )

    def initialize(self, state: NDArray[np.uint8], optimizer_state: NDArray[np.uint8]) -> int:
        """Write the initial state, or that of the checkpoint resumed from, and return its turn.

        state: uint8 [state.bytes]. optimizer_state: uint8 [optimizer_state_bytes]. Raises RecordError if the checkpoint
        does not fit this network and optimizer.
        """
        if self.resume is not None:
            state[:] = _bytes_of(self.resume, "weights", len(state))
            self._resume_optimizer_state(self.resume, optimizer_state)
            return self.resume.update
        self.flat.initialize_into(self.state.weights(state))
        if self.config.run.init_from is not None:
            own = self.flat.arrays(self.state.weights(state))
            self._copy_weights(self.config.run.init_from, own)
            self.given.write(own)
        self.state.moments(state)[:] = 0.0, 1.0
        if self.state.has_target:
            self.state.begin_target(state)
        optimizer_state[:] = 0
        return 0

    def _copy_weights(self, place: str, own: Mapping[str, NDArray[Any]]) -> None:
        """Overwrite the initial weights `own` with those of another run. Raises RecordError if they do not fit."""
        checkpoint = checkpoint_at(place)
        copy_arrays(checkpoint.tensors(), own, str(checkpoint.path))

    def _resume_optimizer_state(self, resume: Checkpoint, optimizer_state: NDArray[np.uint8]) -> None:
        """Restore the optimizer state of a checkpoint, which may have another number of workers."""
        learner, state = self.learner(), resume.state
        workers = int(state.get("gradient_workers", self.gradient_workers))
        stored = [str(name) for name in state.get("info", ())]
        groups = len(self.flat.groups)
        sizes = learner.network.optimizer.moment_blocks, self.flat.parameter_elements, workers, len(stored), groups
        layout = optimizer_state_layout(*sizes)
        part = "optimizer_state" if resume.format > 1 else "ledger"
        before, after = layout.views(_bytes_of(resume, part, layout.bytes)), learner.views(optimizer_state)
        for name in ("counters", "returns", "moments", *(["group_updates"] if groups > 1 else [])):
            after[name][:] = before[name]
        if "infos" in after:  # a value that the checkpoint does not have is missing in its episodes
            after["infos"][:] = np.nan
            for column, name in enumerate(self.config.env.info):
                if name in stored:
                    after["infos"][:, column] = before["infos"][:, stored.index(name)]
        after["applied"][:] = self.first_gradient  # every worker of the new run begins with this number
        # The behavior version is rollouts // per_version. With another per_version, rescale the count of rollouts so
        # that the version does not go back.
        version = int(before["counters"][Count.rollouts]) // int(state.get("per_version", self.per_version))
        if state.get("per_version", self.per_version) != self.per_version:
            after["counters"][Count.rollouts] = version * self.per_version
        learner.shift_times(optimizer_state)

    @property
    def first_round(self) -> int:
        """The first round of this run: the first that the checkpoint has not finished."""
        if self.resume is None:
            return 0
        if self.replays and self.resume.has_replay:  # which may hold a round that no turn has begun
            return int(self.resume.state["rounds"])
        done = self.resume.update * self.config.gradients.bootstrap_rounds
        return (self.warmup or 0) - (-done // self.gradients_per_round)

    @property
    def first_gradient(self) -> int:
        """The number of each worker's first gradient."""
        return (self.resume.update if self.resume else 0) * self.config.gradients.bootstrap_rounds

    @property
    def steps_between_barriers(self) -> int:
        """Steps of each environment from one scheduled checkpoint, where all begin anew, to the next; 0: no such."""
        barriers = self.schedule().barriers
        anew = barriers.every and not self.config.asynchronous
        return barriers.period * self.config.collection.rollout if anew else 0

    def schedule(self) -> Schedule:
        """Make the schedule of one actor: the versions, rollouts and gradients that it uses."""
        per_round = self.gradients_per_round
        sizes = self.collectors, self.gradient_workers
        return Schedule.of(self.config, per_round, *sizes, self.first_round, self.warmup)

    def vector(self, count: int | None = None, **options: Any) -> VectorEnvironment:
        """Make `count` environments, by default `collection.envs`. `options` override those of the config."""
        env = dataclasses.replace(self.config.env, options={**self.config.env.options, **options})
        return configured_vector(env, count or self.config.collection.envs)

    def helped_vector(self, seed: Callable[[], None]) -> VectorEnvironment:
        """Make the environments of a collector, with helpers if these pay. seed: seeds the global generators."""
        config, environment = self.config, self.environment
        helping = Helping(
            lambda first, count: configured_vector(config.env, count, first),
            seed,
            helpers_of(config) if can_be_helped(config.env) else 0,
            chosen=config.collection.helpers is None,
            observation=environment.observation,
            action=environment.action,
            infos=len(config.env.info),
        )
        return helped_vector(helping, config.collection.envs)

    @property
    def normalized(self) -> dict[str, int]:
        """The moments that the normalizers need, with their lengths.

        A gradient's slot has room for them, or with a replay memory the ledger.
        """
        network, observation = self.config.network, self.environment.observation
        single = observed_elements(())
        needed = {
            "observed": (network.normalize_observations and observation.floats > 0) or network.novelty_weight > 0,
            "rewarded": network.normalize_rewards,
            "novelty": network.novelty_weight > 0,
        }
        lengths = {"observed": observed_elements((observation.numbers_each,)), "rewarded": single, "novelty": single}
        return {name: lengths[name] for name, is_needed in needed.items() if is_needed}

    def gradient_layout(self, collectors: int) -> Layout:
        """Return the layout of a gradient slot for a share of `collectors` collectors."""
        most = collectors * self.config.collection.rollout * self.config.collection.envs
        return gradient_layout(
            self.flat.parameter_elements,
            len(self.flat.parameters),
            len(self.statistics),
            most,
            self.codec,
            len(self.config.env.info),
            {} if self.replays else self.normalized,
            self.replay_size.batch if self.replays else 0,
        )


def _bytes_of(checkpoint: Checkpoint, part: str, size: int) -> NDArray[np.uint8]:
    """Return a part of a checkpoint as uint8 [size]. Raises RecordError if it has another size."""
    data = np.frombuffer(checkpoint.part(part), np.uint8)
    if len(data) != size:
        raise RecordError(
            f"`{part}` of {checkpoint.path} has {len(data)} bytes, this run needs {size}",
            hint="the network and the optimizer must be those of the checkpoint",
        )
    return data


def environment_of(config: Config) -> EnvironmentSpec:
    """Build the environment of the config, read its spaces and close it. Raises what it raises, and ConfigError."""
    # Also for what the environment's module draws when it is imported; torch's has a fixed seed in a new process.
    seed_globals(stream_seed(config.run.seed, Purpose.describing, 0, 0))
    environment = configured_spec(config.env, config.start_limit_s)
    check_evaluation(config, environment)
    return environment


def blueprint_in(parameters: Mapping[str, Any], size: Callable[[Blueprint], int]) -> int:
    """Return the size that follows from the blueprint among the parameters of an actor; 0 if there is none."""
    blueprint = parameters.get("blueprint")
    return size(blueprint) if isinstance(blueprint, Blueprint) else 0
