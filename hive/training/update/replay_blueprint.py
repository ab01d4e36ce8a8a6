"""The sizes and layouts of a run's replay memory, which follow from the config before any actor starts."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from hive.algorithms.replaying import warmup_rounds
from hive.config import BCConfig, Config, ReplayConfig
from hive.config.refusals import refused_keys
from hive.envs import EnvironmentSpec
from hive.errors import TopologyError
from hive.runtime.memory.segments import PAGE
from hive.training.update.given_rows import Given, GivenRows, read_given
from hive.training.update.replay_memory import ReplayMemory, ledger_layout, memory_layout, plan_layout
from hive.training.update.replay_size import ReplaySize


class ReplayBlueprint:
    """What all actors of a run share of its replay memory.

    config: [algorithm]. size: the sizes of the memory. memory_layout, ledger_layout, plan_layout: the layouts of the
    messages of these names. columns: rows of a step of one collector. normalized: moments that the normalizers need.
    round_steps: environment steps of a round.

    Raises TopologyError for keys that cannot be combined with a replay memory, and for sizes that do not fit.
    """

    def __init__(
        self,
        run: Config,
        environment: EnvironmentSpec,
        gradients_per_round: int,
        normalized: dict[str, int],
        round_steps: int,
    ) -> None:
        assert isinstance(run.algorithm, ReplayConfig)
        self.run = run
        self.config = config = run.algorithm
        self.environment = environment
        collection = run.collection
        self.round_steps = round_steps
        self.columns = columns = collection.envs * environment.rows
        workers = max(run.gradients.workers, 1)
        asynchronous = collection.communication == "asynchronous"
        ahead = -(-run.gradients.max_lag // gradients_per_round) + 1
        self.size = ReplaySize(
            sources=run.collectors,
            envs=columns,
            steps=collection.rollout,
            kept=config.replay_capacity // (run.collectors * columns),
            # Asynchronously more rounds are appended early, and one collector may have made all of their rollouts.
            rounds_ahead=(ahead + collection.max_lag) * run.collectors if asynchronous else ahead,
            stack=environment.observation.stack,
            n_step=config.n_step,
            workers=workers,
            batch=config.batch_size // workers,
        )
        observation, action = environment.observation, environment.action
        self.memory_layout = memory_layout(
            self.size, (observation.shape, observation.dtype), (action.shape, action.dtype)
        )
        self.ledger_layout = ledger_layout(run.collectors, len(run.env.info) + 1, normalized)  # and how it ended
        self.plan_layout = plan_layout(self.size)

    def memory(self, block: NDArray[np.uint8]) -> ReplayMemory:
        """Make the learner's side of the replay memory in this block."""
        return ReplayMemory(
            self.size,
            self.memory_layout,
            block,
            self.environment.observation,
            seed=self.run.run.seed,
            alpha=self.config.priority_exponent,
            least_steps=self.config.learning_starts,
            keeps_steps=not isinstance(self.config, BCConfig),
        )

    def given(self) -> tuple[Given, GivenRows] | None:
        """Read the transitions of `algorithm.replay_from`; None if it names none. Raises RecordError and UsageError."""
        if not self.config.replay_from:
            return None
        given = read_given(self.config.replay_from, self.environment)
        return given, GivenRows(given.transitions, self.size)

    @property
    def saved_bytes(self) -> int:
        """Bytes of the rows in a checkpoint when the memory is full; 0 where checkpoints leave it out."""
        if not self.run.checkpoint.replay:
            return 0
        size, fields = self.size, self.memory_layout.fields
        stored = {name: field for name, field in fields.items() if name not in ("finals", "held_leaves")}
        each = sum(dtype.itemsize * math.prod(shape[3:]) for dtype, shape in stored.values())  # of [S, R, B, ...]
        return each * min(self.run.run.steps, size.saved * size.sources * size.envs)

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

    def check(self) -> None:
        """Raise TopologyError for what cannot be combined with a replay memory, and for sizes that do not fit."""
        config, workers = self.config, self.size.workers
        for row, name in refused_keys(self.run):
            raise TopologyError(f"{row.what} is refused: {name} {row.reason}", hint=row.instead)
        share, rest = divmod(config.batch_size, workers)
        if rest:
            below, above = (rows * workers for rows in (share, share + 1))
            raise TopologyError(
                f"algorithm.batch_size = {config.batch_size} cannot be divided among {workers} gradient workers",
                hint=f"set it to {f'{below} or {above}' if below else above}",
            )
        least = self.run.collectors * self.columns * config.n_step
        if config.replay_capacity < least:
            raise TopologyError(
                f"algorithm.replay_capacity = {config.replay_capacity} has no room for algorithm.n_step = "
                f"{config.n_step} steps of every environment",
                hint=f"set it to {least} or more",
            )
        if warmup_rounds(config, self.round_steps) * self.round_steps >= self.run.run.steps:
            raise TopologyError(
                f"algorithm.learning_starts = {config.learning_starts} leaves no updates in run.steps = "
                f"{self.run.run.steps}",
                hint="raise run.steps, or lower algorithm.learning_starts",
            )


def check_has_transitions(config: Config) -> None:
    """Raise TopologyError for an algorithm that learns from given transitions alone, without any."""
    if isinstance(config.algorithm, BCConfig) and not config.algorithm.replay_from:
        raise TopologyError(
            f"{config.algorithm.name} learns from given transitions, and algorithm.replay_from is not set",
            hint="set it to a run with a replay memory, or to a file of `hive record` or `hive save --replay`",
        )
