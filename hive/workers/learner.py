"""The learner: reduces gradients, steps the optimizer, and owns the state of training.

The state is two blocks of the same turn number, in memory that outlives the learner (DESIGN, idea 5):

    weights block     the global network, and the target network (hive.networks.state): read in place by workers
    optimizer_state block      counters [16] int64 · applied [workers] int64 · returns [100] float32
                      moments [m, parameter_elements] float32

A *turn* reads the blocks of turn v and writes those of turn v + 1; nothing is changed in place, so a learner that is
killed anywhere has lost at most the turn in progress. In it, the accumulator reduces the gradients, the global network
of the NetworkWrapper goes from block v to block v + 1, and its target follows. A turn is an update, except when there
is nothing to apply: gradients of zero samples, or one that is not finite or would make weights that are not: that is
never applied. Then the weights pass on unchanged.

A synchronous object without ports: blocks in, blocks out. When to publish, and to whom, is the actor's business.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.algorithms.schedules import scheduled
from hive.config import AlgorithmConfig, TargetConfig
from hive.errors import NetworkError
from hive.gradients import (
    CAUSE,
    CAUSES,
    ENV_STEPS,
    EPISODES,
    PLAIN,
    ROLLOUTS,
    SAMPLES,
    Codec,
    GradAccumulator,
    ReductionReport,
)
from hive.networks import OBSERVATIONS, REWARDS, NetworkWrapper, OptimizerSettings, SharedNetwork, Version, merge
from hive.runtime import Layout, Status

__all__ = ["RETURNS_KEPT", "Count", "Learner", "LearnerStep", "mean_statistics", "optimizer_state_layout"]

RETURNS_KEPT = 100  # episodes in the mean return that runs are judged by, as everywhere in this field
VIEWED_BLOCKS = (
    8  # more than an optimizer_state's board has; in library use, where a turn may bring new memory, they are let go
)

STATISTICS = {"observed": OBSERVATIONS, "rewarded": REWARDS}
"""Field of a gradient slot -> prefix of the network's buffers that its Moments are added to."""

Arrays = Mapping[str, NDArray[Any]]


class Count(enum.IntEnum):
    """Positions in the optimizer_state's counters. Checkpoints hold them: append only."""

    updates = 0  # optimizer steps
    rollouts = 1  # that turns have consumed, the lost ones of a round included
    env_steps = 2  # valid steps that were applied
    episodes = 3
    skipped = 4  # turns whose gradient or new weights were not finite
    first_ns = 5  # monotonic time at the end of the first turn
    last_ns = 6  # and of the latest
    stale = 7  # gradients that were too old and so dropped


def optimizer_state_layout(moment_blocks: int, parameter_elements: int, workers: int) -> Layout:
    """The layout of an optimizer state. `applied` counts the gradients of each worker that turns have taken."""
    return Layout(
        {
            "counters": ("int64", (16,)),
            "applied": ("int64", (workers,)),
            "returns": ("float32", (RETURNS_KEPT,)),
            "moments": ("float32", (moment_blocks, parameter_elements)),
        }
    )


@dataclass(frozen=True)
class LearnerStep:
    """What one turn did.

    `cause`: what was not finite, one of hive.gradients.CAUSES or "update" where only the new weights were not; "" if
    all was. `bad`: the position of the gradient to blame, or -1.
    """

    applied: bool
    samples: int
    norm: float
    learning_rate: float
    cause: str
    bad: int


class Learner:
    """Applies gradients to the global network of `network`. A linear schedule of the rate ends at `total_steps`."""

    def __init__(
        self,
        config: AlgorithmConfig,
        network: NetworkWrapper,
        total_steps: int,
        *,
        workers: int = 1,
        codec: Codec = PLAIN,
        buffers: Callable[[NDArray[np.uint8]], Arrays] | None = None,
        status: Status | None = None,
    ) -> None:
        """`buffers`: those of the network in a block of weights, for gradients that bring statistics of a round."""
        assert isinstance(network.global_network, SharedNetwork)
        self.network = network
        self.shared = network.global_network
        self.reconfigure(config)
        self.buffers = buffers
        self.flat = self.shared.layout.flat
        self.layout = optimizer_state_layout(self.shared.optimizer.moment_blocks, self.flat.parameter_elements, workers)
        self.total_steps = total_steps
        self.use_codec(codec)
        self._views: dict[int, tuple[NDArray[np.uint8], Arrays]] = {}
        self.status = status
        self.phase = status.phase("update") if status else 0

    def reconfigure(self, config: AlgorithmConfig) -> None:
        """Works by these keys from the next turn on. They must ask for as many moments as before."""
        self.config = config
        self.shared.configure(optimizer_settings(config), config.clip_gradients)

    def use_codec(self, codec: Codec) -> None:
        """Reduces gradients of this codec from the next turn on."""
        self.codec = codec
        self.accumulator = GradAccumulator.for_slots(
            self.flat.parameter_elements, 1, codec, parameters=self.flat.describe()
        )
        self._mean = self.accumulator.zeros()
        self.gradient: NDArray[np.float32] = self._mean.block.floats

    def views(self, optimizer_state: NDArray[np.uint8]) -> Arrays:
        """The fields of an optimizer_state block; made once for each block."""
        known = self._views.get(id(optimizer_state))
        if known is None or known[0] is not optimizer_state:
            if len(self._views) >= VIEWED_BLOCKS:
                self._views.clear()
            known = self._views[id(optimizer_state)] = (optimizer_state, self.layout.views(optimizer_state))
        return known[1]

    def wake_up(self, optimizer_state: NDArray[np.uint8]) -> None:
        """Shifts the stored times to the present, so that training time continues from where it was."""
        counters = self.layout.views(optimizer_state)["counters"]
        slept = time.monotonic_ns() - int(counters[Count.last_ns])
        if counters[Count.first_ns]:
            counters[Count.first_ns] += slept
            counters[Count.last_ns] += slept

    def learning_rate(self, env_steps: int) -> float:
        """The learning rate of the schedule after so many environment steps."""
        progress = min(1.0, env_steps / self.total_steps)
        return scheduled(self.config.learning_rate, self.config.learning_rate_schedule, progress)

    def turn(
        self,
        gradients: Sequence[Arrays],
        weights: NDArray[np.uint8],
        optimizer_state: NDArray[np.uint8],
        weights_out: NDArray[np.uint8],
        optimizer_state_out: NDArray[np.uint8],
        factors: Sequence[float] | None = None,
    ) -> LearnerStep:
        """One turn, from the blocks of turn v to those of v + 1. `gradients` in (worker, sequence) order.

        `factors` multiply single gradients: stale ones may count less.
        """
        if self.status:
            self.status.enter(self.phase)
        before, after = self.views(optimizer_state), self.views(optimizer_state_out)
        counters = after["counters"]
        counters[:] = before["counters"]
        after["applied"][:] = before["applied"]
        after["returns"][:] = before["returns"]
        headers: list[list[int]] = [gradient["header"].tolist() for gradient in gradients]
        report = self._reduce(gradients, headers, factors)
        samples = report.samples
        cause, bad = _blame(headers, report)
        # The steps of this round count already, as in Stable-Baselines3: the last round of a run has a rate of 0.
        counters[Count.env_steps] += sum(header[ENV_STEPS] for header in headers)
        rate = self.learning_rate(int(counters[Count.env_steps]))
        self.shared.between(Version(weights, list(before["moments"])), Version(weights_out, list(after["moments"])))
        if samples and not cause:
            try:
                self.network.apply_gradients_to_global_network(
                    self.gradient, norm=report.norm, step=int(counters[Count.updates]) + 1, learning_rate=rate
                )
            except NetworkError:  # the new weights are not finite
                cause = "update"
        applied = samples > 0 and not cause
        if not applied:
            self.shared.keep()
        counters[Count.updates] += applied
        counters[Count.skipped] += cause != ""
        if self.buffers is not None and not cause:
            for name, prefix in STATISTICS.items():
                if name in gradients[0]:
                    merge([gradient[name] for gradient in gradients], self.buffers(weights_out), prefix)
        self._update_target(int(counters[Count.updates]), applied)
        counters[Count.rollouts] += sum(header[ROLLOUTS] for header in headers)
        for gradient, header in zip(gradients, headers, strict=True):
            if ended := header[EPISODES]:
                _count_episodes(gradient["episode_returns"][:ended], after)
        if self.status:
            self.status.enter(self.status.runtime)
        return LearnerStep(applied, samples, report.norm, rate, cause, bad)

    def _reduce(
        self, gradients: Sequence[Arrays], headers: Sequence[Sequence[int]], factors: Sequence[float] | None
    ) -> ReductionReport:
        """Writes the mean of the gradients to `gradient`. They are adopted only meanwhile."""
        accumulator = self.accumulator
        accumulator.bootstrap_rounds = len(gradients)  # every round that a turn is given
        try:
            for slot, header, factor in zip(gradients, headers, factors or [1.0] * len(gradients), strict=True):
                accumulator.adopt(slot, header[SAMPLES], factor)
            accumulator.mean_reduce(out=self._mean)
        finally:
            accumulator.clear()
        assert accumulator.report is not None
        return accumulator.report

    def _update_target(self, updates: int, applied: bool) -> None:
        """After every `target_interval`-th update, on the newest weights; a turn without an update keeps the target."""
        if isinstance(self.config, TargetConfig):
            due = applied and updates % self.config.target_interval == 0
            self.network.update_target_network(self.config.target_rate if due else 0.0, version=updates + 1)


def _count_episodes(returns: NDArray[np.float32], optimizer_state: Arrays) -> None:
    """Counts these episodes, and keeps the returns of the latest RETURNS_KEPT."""
    seen = int(optimizer_state["counters"][Count.episodes])
    for position, value in enumerate(returns.tolist(), start=seen):
        optimizer_state["returns"][position % RETURNS_KEPT] = value
    optimizer_state["counters"][Count.episodes] = seen + len(returns)


def _blame(headers: Sequence[Sequence[int]], report: ReductionReport) -> tuple[str, int]:
    """What is not finite, by its worker's word or by the reduction, and in which gradient; ("", -1): nothing."""
    for position, header in enumerate(headers):
        if cause := header[CAUSE]:
            return CAUSES[cause], position
    return ("", -1) if report.finite else ("gradient", report.bad_round)


def optimizer_settings(config: AlgorithmConfig) -> OptimizerSettings:
    """The optimizer that an algorithm's keys describe."""
    return OptimizerSettings(
        name=config.optimizer,
        betas=(config.adam_optimizer_beta1, config.adam_optimizer_beta2),
        epsilon=config.optimizer_epsilon,
        decay=config.rms_prop_optimizer_decay,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
    )


def mean_return(returns: NDArray[np.float32], episodes: int) -> float:
    """The mean of the last 100 returns, or of as many as there are; NaN before the first."""
    held = returns[: min(episodes, RETURNS_KEPT)]
    # What `mean` computes, without the Python around it, which takes longer on caches that a turn has emptied.
    return float(np.add.reduce(held, dtype=np.float64)) / len(held) if len(held) else float("nan")


def mean_statistics(parts: Sequence[tuple[int, NDArray[np.float64]]]) -> NDArray[np.float64]:
    """The statistics of all samples that gradients were made of: (samples, statistics) of each gradient.

    One without samples may hold anything.
    """
    total = np.zeros_like(parts[0][1])
    for samples, statistics in parts:
        if samples:
            total += statistics * samples
    total /= max(sum(samples for samples, _ in parts), 1)
    return total
