"""A blueprint holds what all actors of a trainer share, made from the config before any actor starts.

It holds the spaces, the network's parameters and flat layout, the distribution of actions, and the layouts of rollouts,
gradients and state in shared memory. Actors inherit it by fork, and each makes its own network from it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from hive.algorithms.algorithm import Algorithm
from hive.algorithms.batches.novelty import SeeksNovelty
from hive.algorithms.making import check_effect, heads_of_algorithm, make_algorithm
from hive.algorithms.replaying import ReplayAlgorithm, warmup_rounds
from hive.config import AgentConfig, Config, EnvConfig, ReplayConfig, TargetConfig, is_reference
from hive.config.references import give_setup
from hive.envs import (
    EnvContext,
    EnvironmentSpec,
    VectorEnvironment,
    check_curriculum,
    check_each,
    check_evaluation,
    configured_spec,
    configured_vector,
    seed_globals,
)
from hive.envs.configured import changed_env
from hive.envs.processes.describing import keeping
from hive.envs.raw_returns import RAW_RETURN
from hive.envs.spaces.differences import check_alike
from hive.envs.spaces.meaning import kept_meaning, kept_scale
from hive.errors import TopologyError
from hive.experience import EPISODE_END, Purpose, expected_finals, rollout_layout, stream_seed
from hive.gradients import codec_for, gradient_layout
from hive.networks.act.distributions import ActionDistribution
from hive.networks.build.configured import configured_distribution
from hive.networks.build.spaces import Spaces
from hive.networks.rows.inputs import state_width_of
from hive.networks.rows.normalization import observed_elements
from hive.networks.weights.device import prepare_device
from hive.networks.weights.optimizers import FlatOptimizer
from hive.networks.weights.state import StateLayout
from hive.networks.weights.wrapper import NetworkWrapper
from hive.policy.descriptions import describe_policy, described_spaces
from hive.records import Checkpoint, RunDirectory, checkpoint_at, read_resume_point
from hive.runtime import Layout, Status
from hive.runtime.process.user_code.torch_state import hive_torch
from hive.training.callbacks.messages import Wanted
from hive.training.collect.collector import Collector, contexts_of, seed_all_globals
from hive.training.given_weights import copy_weights_of
from hive.training.gradient.devices import chosen_device
from hive.training.gradient.threads import threads_of
from hive.training.initial_network import InitialNetwork
from hive.training.policies import Policies, check_best_by, check_has_agents
from hive.training.resume_barriers import CommonBarriers
from hive.training.update.given_report import GivenReport, report_of
from hive.training.update.learner import Learner, check_codec, optimizer_settings, optimizer_state_layout
from hive.training.update.replay_blueprint import ReplayBlueprint


class Blueprint:
    """Derives spaces, layouts and factories from the config and its environment.

    Attributes. environment: the spec of the environment; `environment.observation` and `.action` are how both are
    stored. distribution: of the actions, given the first output of the network. statistics, gradients_per_round,
    gradients_per_batch, asks_for_moments and behaviour_log_probs are those of the algorithm. flat: the layout of the
    parameters in a block. state: the layout of a version of the board `weights`. rollout_layout, memory_layout,
    ledger_layout, plan_layout and `gradient_layout(collectors)`: the layouts of the messages of these names.

    turns: environment steps in which each agent has one row: all agents, if they act in turn; else 1.
    columns: rows of a step of one collector: its environments, or all agents of the policy in them.
    round_steps: environment steps of one round, a full rollout of every collector. rounds: those until the run has
    made its environment steps. per_version: rollouts per behavior version. replays: whether the algorithm learns from
    a replay memory. warmup: with a replay memory, the number of rounds before the first gradient of a new run. has_lag:
    whether a policy older than that of a round's first gradient may make its rollouts.

    weight_files: the SHA-256 of each file of `network.weights`, by module.

    Arguments. resume: the checkpoint that the run continues from, if any. environment: the spec, if the caller has it;
    otherwise an environment is built, read and closed. agents_in_all: those of one environment that any policy of the
    run acts for, if some are not this policy's. Raises what environments and networks raise, and RecordError if
    `run.init_from` or a file of `network.weights` does not fit.

    All sizes follow from a network without memory (hive.training.initial_network), so that a run that does not fit this
    machine is refused before anything is allocated. `flat.made` has the initial weights, which the fork server makes
    once.
    """

    witness: Path | None = None
    """Where collectors keep the checksums of their rollouts (hive.training.collect.witness); None: they keep none."""
    run = ""
    """The name of the run, which its environments are told."""
    barriers: CommonBarriers | None = None
    """Those that all policies of the run have in common; None with one policy."""
    agents_in_all = 1

    @hive_torch()
    def __init__(
        self,
        config: Config,
        resume: Checkpoint | None = None,
        environment: EnvironmentSpec | None = None,
        agents_in_all: int | None = None,
    ) -> None:
        # One thread per actor: the processes are parallel already, and the bits of a sum depend on how it is divided.
        torch.set_num_threads(1)
        self.threads = threads_of(config)
        self.device = chosen_device(config.gradients.device)
        """Where gradients are computed, on copies of the weights; None: on the CPU, in place."""
        if environment is None:
            environment = environment_of(config)
            if environment.agents:  # this is then the blueprint of the first policy
                first = Policies.of(config, environment).learning[0]
                agents_in_all, config, environment = len(environment.agents), first.config, first.seat.spec
            else:
                check_has_agents(config)
        if environment.raw_return and RAW_RETURN not in config.env.info:
            env = dataclasses.replace(config.env, info=(*config.env.info, RAW_RETURN))
            config = dataclasses.replace(config, env=env)
        check_best_by(config, environment)
        self.config = config
        self.resume = resume
        self.environment = self._as_trained(environment)
        self.spaces = Spaces({"observation": self.environment.observation}, self.environment.action)
        self.agents_in_all = agents_in_all or self.environment.rows
        self._count_rounds()
        algorithm = self.algorithm()
        self._count_gradients(algorithm)
        if resume is None:  # an earlier hive let such keys be
            check_effect(config, algorithm.distribution, self.collectors * self.columns)
        self.distribution: ActionDistribution = self._begun(algorithm.distribution)
        self.heads = heads_of_algorithm(algorithm)
        weights = config.network.weights if resume is None else {}
        self.initial = InitialNetwork(config, self.spaces, self.heads, self.device, weights)
        """The networks of all processes begin with its weights."""
        self.weight_files = self.initial.given.sha256 if resume is None else dict(resume.state.get("weight_files", {}))
        self.sketch, self.flat = self.initial.sketch, self.initial.flat
        self.state_width = state_width_of(self.sketch)
        self._check_columns()
        self.state = StateLayout(self.flat, has_target=isinstance(config.algorithm, TargetConfig))
        if resume is None and config.run.init_from is not None:  # only to raise errors before any process starts
            copy_weights_of(config.run.init_from, self.flat.hollow_arrays())
        self.codec = codec_for(config.gradients.compression, config.gradients.top_k)
        check_codec(self.codec, self.flat)
        self.optimizer_state_bytes = optimizer_state_layout(
            FlatOptimizer(optimizer_settings(config.algorithm)).moment_blocks,
            self.flat.parameter_elements,
            self.gradient_workers,
            len(self.episode_values),
            len(self.flat.groups),
        ).bytes
        if self.replays:
            self.replay.check()
        self.given: GivenReport | None = None
        if self.gives_rows and (given := self.replay.given()) is not None:  # also raises errors before a process starts
            self.given = report_of(*given, self.environment, self.replay.size.n_step, config.env)
        self.rollout_layout = self._rollout_layout()

    def _count_rounds(self) -> None:
        """Set the facts that follow from the config alone."""
        config, collection = self.config, self.config.collection
        self.collectors = config.collectors
        self.gradient_workers = max(config.gradients.workers, 1)
        self.columns = collection.envs * self.environment.rows
        self.turns = self.agents_in_all if self.environment.takes_turns else 1
        self.round_steps = self.collectors * collection.envs * collection.rollout * self.turns
        self.rounds = config.run.steps / self.round_steps
        self.per_version = self.collectors * collection.broadcast_interval
        self.has_lag = collection.max_lag > 0 or collection.broadcast_interval > 1
        self.replays = isinstance(config.algorithm, ReplayConfig)
        self.warmup = (
            warmup_rounds(config.algorithm, self.round_steps) if isinstance(config.algorithm, ReplayConfig) else None
        )

    def _count_gradients(self, algorithm: Algorithm | ReplayAlgorithm) -> None:
        """Set the facts of the algorithm."""
        self.statistics = algorithm.statistics
        self.gradients_per_round = algorithm.gradients_per_round
        self.gradients_per_batch: int = getattr(algorithm, "gradients_per_batch", 1)  # of each worker, from drawn rows
        self.asks_for_moments = algorithm.asks_for_moments
        self.behaviour_log_probs = algorithm.behaviour_log_probs

    def _begun(self, distribution: Any) -> ActionDistribution:
        """Return the distribution without a warm-up of uniform actions, if the policy has learned before."""
        if self.resume is not None and self.resume.update and getattr(distribution, "warmup", 0):
            distribution = dataclasses.replace(distribution, warmup=0)
        return cast(ActionDistribution, distribution)

    def _rollout_layout(self) -> Layout:
        config, collection = self.config, self.config.collection
        observation, action = self.environment.observation, self.environment.action
        return rollout_layout(
            collection.rollout,
            self.columns,
            (observation.shape, observation.dtype),
            (action.shape, action.dtype),
            expected_finals(collection.rollout, self.columns, self.environment.max_episode_steps),
            discounted=config.network.normalize_rewards,
            infos=len(self.episode_values),
            state=self.state_width,
            stack=observation.stack,
            errors=getattr(config.algorithm, "initial_errors", False),
        )

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

    def wrapper(self, device: torch.device | None = None) -> NetworkWrapper:
        """Make the networks of one process: online, target and global, each allocated when it is first used.

        device: where the first two compute, on copies of the weights; None: on the CPU, in place.
        """
        if device is not None:
            prepare_device(device, deterministic=not self.config.asynchronous)
        parameters = self.initial.parameters if device is None else self.initial.trained_parameters
        return NetworkWrapper(parameters, self.spaces, self.state, self.initial.generator(), device)

    def network(self) -> nn.Module:
        """Make a separate network for this process, with the run's initial weights."""
        return self.wrapper().online_network.module

    @property
    def network_bytes(self) -> int:
        """Bytes of a network in a process: its first weights, and those that native passes transpose, or gradients."""
        return 2 * self.flat.block_bytes

    @functools.cached_property
    def replay(self) -> ReplayBlueprint:
        """The sizes and layouts of the replay memory of an algorithm that learns from one (`replays`)."""
        return ReplayBlueprint(
            self.config, self.environment, self.gradients_per_round, self.normalized, self.round_steps
        )

    @property
    def gives_rows(self) -> bool:
        """Whether `algorithm.replay_from` is read: not by a run that is resumed with the memory that has these rows."""
        return self.replays and (self.resume is None or not self.resume.has_replay)

    @property
    def memory_layout(self) -> Layout:
        """The layout of the replay memory."""
        return self.replay.memory_layout

    @property
    def ledger_layout(self) -> Layout:
        """The layout of the replay memory's ledger."""
        return self.replay.ledger_layout

    @property
    def plan_layout(self) -> Layout:
        """The layout of a plan."""
        return self.replay.plan_layout

    def _check_columns(self) -> None:
        """Raise TopologyError for more minibatches than environments in a share: a sequence is not divided."""
        parts = getattr(self.config.algorithm, "minibatches", 1)
        asynchronous = self.config.collection.communication == "asynchronous"
        collectors = 1 if asynchronous else max(1, self.collectors // self.gradient_workers)
        columns = collectors * self.columns
        if self.state_width and parts > columns:
            raise TopologyError(
                f"algorithm.minibatches is {parts}, but a gradient worker has sequences of only {columns} environments",
                hint=f"with network.memory a minibatch has whole sequences: set algorithm.minibatches to {columns} or "
                "less, or raise collection.envs",
            )

    def policy(self) -> dict[str, Any]:
        """Return the description, for JSON, from which `hive.load` rebuilds this run's policy."""
        environment = self.environment
        return describe_policy(
            environment.observation, environment.action, self.config.network, self.heads, self.distribution
        )

    def algorithm(self, *, alone: bool = False) -> Algorithm | ReplayAlgorithm:
        """Make the algorithm. `alone`: its worker shares no rounds with others, so it normalizes advantages alone.

        Workers of asynchronous gradients never share rounds.
        """
        alone |= self.config.gradients.communication == "asynchronous"
        algorithm_config = self.config.algorithm
        squashed = isinstance(algorithm_config, AgentConfig) or getattr(algorithm_config, "network_of", "") == "sac"
        action = configured_distribution(self.config.network, self.environment.action, squashed=squashed)
        workers = 1 if alone else self.gradient_workers
        algorithm = make_algorithm(self.config.algorithm, action, workers, self.round_steps)
        if self.has_lag and (expect_lag := getattr(algorithm, "expect_lag", None)) is not None:
            expect_lag()
        weight = self.config.network.novelty_weight
        return SeeksNovelty(cast(Algorithm, algorithm), weight) if weight else algorithm

    def collector(
        self,
        source: int,
        incarnation: int = 0,
        status: Status | None = None,
        vector: VectorEnvironment | None = None,
    ) -> Collector:
        """Make collector number `source` of the run, with its own network, and with `vector` or new environments."""
        if vector is None:
            seed_all_globals(self.config.run.seed, Purpose.building, source, incarnation)
            vector = self.vector(contexts=self.contexts(source, incarnation=incarnation))
        return self.member(source, incarnation, status, vector)

    def member(
        self,
        source: int,
        incarnation: int = 0,
        status: Status | None = None,
        vector: VectorEnvironment | None = None,
    ) -> Collector:
        """Make the part of collector number `source` that acts; as a member of several it has no `vector`."""
        columns = self.columns
        return Collector(
            vector,
            self.environment.observation,
            self.wrapper(),
            self.distribution.for_collector(source * columns, columns, self.collectors * columns),
            seed=self.config.run.seed,
            source=source,
            incarnation=incarnation,
            log_probs=self.behaviour_log_probs,
            discount=self.config.algorithm.discount,
            n_step=self.replay.config.n_step if self.replays else 0,
            status=status,
        )

    def learner(self, status: Status | None = None) -> Learner:
        """Make the learner of the run."""
        config = self.config
        return Learner(
            config.algorithm,
            self.wrapper(),
            config.run.steps,
            workers=self.gradient_workers,
            infos=len(self.episode_values),
            codec=self.codec,
            buffers=self.flat.buffer_arrays,
            status=status,
        )

    def vector(
        self, count: int | None = None, *, contexts: Sequence[EnvContext] | None = None, **options: Any
    ) -> VectorEnvironment:
        """Make `count` environments, by default `collection.envs`. `options` override those of the config.

        contexts: who each is; None: those of the first collector. A collector gives its own: `contexts()`.
        """
        if contexts is None:
            contexts = self.contexts(envs=count)
        return self.vector_in(changed_env(self.config.env, options), contexts)

    def vector_in(self, env: EnvConfig, contexts: Sequence[EnvContext], first: int = 0) -> VectorEnvironment:
        """Make the environments of a table [env]. first: the number of the first one in its collector."""
        vector = configured_vector(env, len(contexts), first, contexts, self.environment)
        self.check_spaces(vector, contexts[0])
        return vector

    def contexts(
        self, source: int = 0, start: int = 0, incarnation: int = 0, envs: int | None = None
    ) -> list[EnvContext]:
        """Return who the environments of collector `source` are. start: the round of the reset that follows."""
        envs = envs or self.config.collection.envs
        seed, rows = self.config.run.seed, self.environment.rows
        return contexts_of(seed, source, envs, start=start, incarnation=incarnation, rows=rows, run=self.run)

    def check_spaces(self, vector: VectorEnvironment, first: EnvContext) -> None:
        """Raise EnvironmentFailed if the environments of a vector have other spaces than the run. first: its first."""
        observation, action = getattr(vector, "observation", None), getattr(vector, "action", None)
        if observation is not None and action is not None:  # a compiled vector has one description for all
            spec, what = self.environment, f"the environment {first.index} of the run"
            check_alike(what, (observation, action), (spec.observation, spec.action), "the environment 0")

    @functools.cached_property
    def wanted(self) -> Wanted:
        """What the callbacks and rules of the run want. Imports their modules; raises TopologyError."""
        return Wanted.of(self.config)

    @property
    def episode_values(self) -> tuple[str, ...]:
        """The names of the values that are kept of each episode: those of env.info, and how it ended."""
        return (*self.config.env.info, EPISODE_END)

    @property
    def lists_episodes(self) -> bool:
        """Whether the learner collects the episodes that end, because something takes them."""
        return self.records_episodes or self.wanted.episodes

    @property
    def records_episodes(self) -> bool:
        """Whether a sink takes the episodes that end."""
        return any(sink == "episodes" or is_reference(sink) for sink in self.config.record.sinks)

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
        most = collectors * self.config.collection.rollout * self.columns
        return gradient_layout(
            self.flat.parameter_elements,
            len(self.flat.parameters),
            len(self.statistics),
            most,
            self.codec,
            len(self.episode_values),
            {} if self.replays else {**self.normalized, **({"clipped": 4} if "rewarded" in self.normalized else {})},
            self.replay.size.batch if self.replays else 0,
            self.lists_episodes and not self.replays,
        )


def environment_of(config: Config, directory: RunDirectory | None = None) -> EnvironmentSpec:
    """Build the environment of the config, read its spaces and close it. Raises what it raises, and ConfigError.

    directory: of the run. It keeps the spaces that processes of environments have told at an earlier start; and a
    resumed run whose [env] is the same does not look again, since its log has what was found.
    """
    resumed = None if directory is None else read_resume_point(directory)
    is_known = resumed is not None and resumed.update > 0 and not any(key.startswith("env.") for key in resumed.changed)
    give_setup(config.run.setup)
    # Also for what the environment's module draws when it is imported; torch's has a fixed seed in a new process.
    seed_globals(stream_seed(config.run.seed, Purpose.describing, 0, 0))
    with keeping(None if directory is None else directory.spaces_file):
        environment = configured_spec(
            config.env,
            config.start_limit_s,
            plays=True,
            environments=0 if is_known else config.collectors * config.collection.envs,
            beside=config.has_neighbours,
        )
        check_evaluation(config, environment)
        check_curriculum(config, environment)
        check_each(config, environment)
    return environment


def blueprint_in(parameters: Mapping[str, Any], size: Callable[[Blueprint], int]) -> int:
    """Return the size that follows from the blueprint among the parameters of an actor; 0 if there is none."""
    blueprint = parameters.get("blueprint")
    return size(blueprint) if isinstance(blueprint, Blueprint) else 0
