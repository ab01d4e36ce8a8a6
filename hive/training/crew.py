"""What the actors of a run with several policies share: a blueprint of each policy, and the environments of all.

Every policy that learns has rollouts, gradients, weights, a learner and a recorder of its own. T, B, the lag and the
number of a round are the run's. So are the resume barriers: rounds in which all policies can be saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm
from pathlib import Path

from hive.config import Config
from hive.envs import EnvironmentSpec, recipe_of
from hive.envs.agents.parallel import ParallelVector
from hive.envs.agents.table import make_table
from hive.envs.agents.turns import TurnsVector
from hive.errors import ConfigError
from hive.records import Checkpoint, RunDirectory
from hive.records.atomic import write_json
from hive.runtime import Status
from hive.training.blueprint import Blueprint
from hive.training.collect.collector import contexts_of
from hive.training.collect.several import SeveralCollector
from hive.training.policies import Policies, folder_of
from hive.training.resume_barriers import CommonBarriers
from hive.training.run_start import own_first_round, schedule_of


@dataclass(frozen=True)
class Crew:
    """The policies of a run. blueprints: of those that learn, in their order. folders: where each is recorded."""

    config: Config
    policies: Policies
    blueprints: tuple[Blueprint, ...]
    folders: tuple[Path, ...]

    @classmethod
    def of(cls, config: Config, policies: Policies, directory: Path, checkpoints: Sequence[Checkpoint | None]) -> Crew:
        """Make the blueprints. checkpoints: those that the policies continue from. Raises what a Blueprint raises."""
        blueprints = tuple(
            Blueprint(policy.config, resume, policy.seat.spec, len(policies.environment.agents))
            for policy, resume in zip(policies.learning, checkpoints, strict=True)
        )
        _check_stacks(blueprints)
        _check_evaluations(config, blueprints)
        common = common_barriers(config, blueprints)
        for blueprint in blueprints:
            blueprint.barriers = common
        policies = policies.with_origins([one.environment.observation for one in blueprints])
        return cls(config, policies, blueprints, folders_of(directory, policies))

    @property
    def first(self) -> Blueprint:
        """The blueprint of the first policy, whose folder is the run's."""
        return self.blueprints[0]

    def collector(
        self, source: int, incarnation: int, status: Status | None, table: ParallelVector | TurnsVector
    ) -> SeveralCollector:
        """Make collector number `source` of the run, which plays at `table`. status: the page that shows its phases."""
        members = [
            blueprint.member(source, incarnation, status if blueprint is self.first else None)
            for blueprint in self.blueprints
        ]
        return SeveralCollector(table, members, seed=self.config.run.seed, source=source, incarnation=incarnation)

    def table(self, source: int, start: int = 0, incarnation: int = 0) -> ParallelVector | TurnsVector:
        """Make the environments of collector `source`, with the agents of all policies: construction `start`."""
        infos = [blueprint.config.env.info for blueprint in self.blueprints]
        recipe, envs = recipe_of(self.config.env), self.config.collection.envs
        seed, run = self.config.run.seed, self.first.run
        contexts = contexts_of(seed, source, envs, start=start, incarnation=incarnation, run=run)
        return make_table(recipe, envs, self.policies.seats, self.policies.bots, infos, contexts)


def folders_of(directory: Path, policies: Policies) -> tuple[Path, ...]:
    """Return where each policy is recorded: the first one in the run's directory."""
    return tuple(directory / folder_of(policy) for policy in policies.learning)


def crew_needed(environment: EnvironmentSpec, config: Config) -> Policies | None:
    """Return the policies of an environment of several agents if they need a crew; None: a blueprint is enough."""
    if not environment.agents:
        return None
    policies = Policies.of(config, environment)
    return policies if policies.needs_table else None


def common_barriers(config: Config, blueprints: Sequence[Blueprint]) -> CommonBarriers:
    """Return the resume barriers of all: of `checkpoint.every`, in rounds or updates of the first policy."""
    each = [schedule_of(blueprint).barriers for blueprint in blueprints]
    grain = lcm(*(barriers.grain for barriers in each))
    has_any = each[0].every > 0 and not config.asynchronous
    resumed = [blueprint.resume for blueprint in blueprints if blueprint.resume is not None]
    return CommonBarriers(
        grain=grain,
        period=-(-each[0].period // grain) * grain if has_any else 0,
        begins=max(barriers.warmup for barriers in each),
        resumed_at=max(map(own_first_round, blueprints)),
        env_steps=max((int(checkpoint.state.get("env_steps", 0)) for checkpoint in resumed), default=0),
    )


def _check_stacks(blueprints: Sequence[Blueprint]) -> None:
    """Raise ConfigError for stacks of observations that a replay memory would put together from other rows.

    Rows of agents that act in turn do not follow each other there without gaps.
    """
    for blueprint in blueprints:
        environment = blueprint.environment
        if blueprint.replays and environment.takes_turns and environment.observation.stack > 1:
            raise ConfigError(
                f"env.frame_stack is refused with {blueprint.config.algorithm.name} for agents that act in turn",
                hint="leave it out, or give the policies a memory (network.memory) and an algorithm without replay",
            )


def _check_evaluations(config: Config, blueprints: Sequence[Blueprint]) -> None:
    """Raise ConfigError for what evaluations of several policies that learn cannot be combined with.

    Each learner decides alone which of its turns are evaluated, so none may wait for the result.
    """
    evaluation, run = config.evaluation, config.run
    if len(blueprints) == 1 or not evaluation.every:
        return
    refused = {
        "evaluation.every = { updates = ... }": (
            "updates" in evaluation.every,
            "each counts its own; give the steps of environments, which all share: { steps = 10_000 }",
        ),
        "evaluation.workers": (evaluation.workers > 1, "one evaluator plays all of them: leave it out"),
        "run.stop_at_evaluation": (run.stop_at_evaluation is not None, "use run.stop_at_return, of the first policy"),
        "run.stop_when_no_better": (run.stop_when_no_better, "leave it out"),
        "on_evaluation of a callback": (blueprints[0].wanted.evaluations, "read evaluations.jsonl, or use on_round"),
    }
    for name, (is_set, way_out) in refused.items():
        if is_set:
            raise ConfigError(f"{name} is refused with several policies that learn", hint=way_out)


def write_policies(policies: Policies, directory: Path) -> None:
    """Write policies.json into the directory of a run; nothing for one that is only checked. Raises RecordError."""
    if directory.is_dir():
        write_json(RunDirectory(directory).policies_file, policies.document())


def check_crew(config: Config) -> None:
    """Raise ConfigError for what several policies, bots and agents that act in turn cannot be combined with."""
    refused = {
        "env.curriculum": (config.env.curriculum, "leave it out; the environment can count its own episodes"),
        "env.processes": (config.env.is_apart, "leave it out: agents of one environment act in one process"),
        "collection.fraction_workers": (config.collection.fraction_workers < 1, "leave it out"),
        "collection.hosts": (config.collection.hosts, "leave it out: all agents play on this machine"),
    }
    for name, (is_set, way_out) in refused.items():
        if is_set:
            raise ConfigError(
                f"{name} is refused with several policies, scripted ones, or agents that act in turn", hint=way_out
            )
