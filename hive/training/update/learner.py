"""The learner: reduces gradients, steps the optimizer, and owns the state of training.

The state is two blocks of the same turn number, in memory that outlives the learner:

    weights           the global network, and the target network (hive.networks.weights.state): read in place by workers
    optimizer state   counters [16] int64 · applied [workers] int64 · returns [100] float32
                      moments [m, parameter_elements] float32, group_updates [groups] int64 of several groups

A *turn* reads the blocks of turn v and writes those of turn v + 1. Nothing is changed in place, so a learner that is
killed at any instruction loses at most the turn in progress. The accumulator reduces the gradients, the global network
of the NetworkWrapper advances from block v to block v + 1, and its target follows. A turn is an update if it has
samples and both its gradient and its new weights are finite. Otherwise the weights are copied unchanged.

An update of a network of several parameter groups (hive.networks.weights.flat) steps the groups that have a gradient,
each with its own number of updates, norm and learning rate, and copies the others. The target network follows the
updates of the first group, which is the actor.

The learner is a synchronous object without ports: it reads and writes blocks, and its actor publishes them.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive import _native
from hive.algorithms.parameters import Progress, scheduled
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
from hive.networks.rows.normalization import MOMENTS_OF, merge, replace
from hive.networks.weights.flat import FlatLayout, GroupUpdate
from hive.networks.weights.optimizers import OptimizerSettings
from hive.networks.weights.state import Version
from hive.networks.weights.wrapper import NetworkWrapper
from hive.runtime import CachedViews, Layout, Status
from hive.runtime.memory.segments import Arrays

RETURNS_KEPT = 100  # episodes in the mean return, as is usual in the RL literature


class Count(enum.IntEnum):
    """Positions in the counters of an optimizer state. Checkpoints store them, so only append."""

    updates = 0  # optimizer steps
    rollouts = 1  # rollouts consumed by turns, including those that a round lost
    env_steps = 2  # valid environment steps in the gradients of all turns
    episodes = 3  # finished episodes
    skipped = 4  # turns whose gradient or new weights were not finite
    first_ns = 5  # monotonic time at the end of the first turn (with a replay memory: at the start), in nanoseconds
    last_ns = 6  # monotonic time at the end of the latest turn, in nanoseconds
    stale = 7  # gradients dropped because they were too old
    largest_leaf = 8  # of a replay memory: the highest priority so far, that of new steps
    saturated = 9  # of a replay memory: priorities that were above the limit of a leaf
    first_steps = 10  # env_steps at first_ns: rates leave them out, because they were made before it
    adopted = 11  # gradients with samples that the accumulator has adopted
    reduced = 12  # reductions of gradients with samples
    applied = 13  # gradients that the NetworkWrapper has applied to the global network
    target_updates = 14  # updates of the NetworkWrapper's target network
    given = 15  # of a replay memory: steps that entered it from algorithm.replay_from


COLLECTED = [Count.rollouts, Count.env_steps, Count.episodes]
"""The counters of what collectors have made."""

PASSED = [Count.adopted, Count.reduced, Count.applied, Count.target_updates]
"""The counters of the steps of an update."""


def optimizer_state_layout(
    moment_blocks: int, parameter_elements: int, workers: int, infos: int = 0, groups: int = 1
) -> Layout:
    """Return the layout of an optimizer state; see the module for shapes and dtypes.

    `applied` holds, for each worker, the number of the first gradient that no turn has applied yet.
    infos: number of values of `info` for each episode; 0: no such field. groups: number of parameter groups; with one,
    its updates are those of the counters, and there is no field of them.
    """
    return Layout(
        {
            "counters": ("int64", (16,)),
            "applied": ("int64", (workers,)),
            "returns": ("float32", (RETURNS_KEPT,)),
            **({"infos": ("float32", (RETURNS_KEPT, infos))} if infos else {}),
            "moments": ("float32", (moment_blocks, parameter_elements)),
            **({"group_updates": ("int64", (groups,))} if groups > 1 else {}),
        }
    )


@dataclass(frozen=True)
class LearnerStep:
    """The outcome of one turn."""

    applied: bool  # whether the turn was an update
    samples: int
    norm: float  # global L2 norm of the mean gradient before clipping
    learning_rate: float
    cause: str  # what was not finite: one of hive.gradients.CAUSES, "update" if only the new weights, "" if nothing
    bad: int  # position of the first gradient that was not finite, or -1


class Learner:
    """Applies gradients to the global network of `network`.

    total_steps: environment steps at which a linear schedule of the learning rate reaches 0. workers: gradient workers
    of the run. codec: compression of the gradients. normalizer: returns the buffers of a network that normalizes
    observations, from a block of weights. status: the status page that shows its phase; None in library use.
    """

    def __init__(
        self,
        config: AlgorithmConfig,
        network: NetworkWrapper,
        total_steps: int,
        *,
        workers: int = 1,
        infos: int = 0,
        codec: Codec = PLAIN,
        buffers: Callable[[NDArray[np.uint8]], Arrays] | None = None,
        status: Status | None = None,
    ) -> None:
        """buffers: returns the network's buffers in a block of weights, for gradients with statistics of a round."""
        self.network = network
        self.reconfigure(config)
        self.buffers = buffers
        self.flat = network.state.flat
        self._grouped = len(self.flat.groups) > 1
        self.layout = optimizer_state_layout(
            network.optimizer.moment_blocks, self.flat.parameter_elements, workers, infos, len(self.flat.groups)
        )
        self.total_steps = total_steps
        self.use_codec(codec)
        self.views = CachedViews(self.layout)
        """Returns the fields of a block of optimizer state, uint8 [layout.bytes], as views."""
        self.status = status
        self.phase = status.phase("update") if status else 0

    def reconfigure(self, config: AlgorithmConfig) -> None:
        """Use these keys from the next turn on. They must not change the number of the optimizer's moments."""
        self.config = config
        self.network.configure(optimizer_settings(config), config.clip_gradients)

    def use_codec(self, codec: Codec) -> None:
        """Expect gradients of this codec from the next turn on.

        Raises NetworkError as `check_codec`.
        """
        check_codec(codec, self.flat)
        self.codec = codec
        self.accumulator = GradAccumulator(self.flat.parameter_elements, 1, codec)
        self._mean = self.accumulator.zeros()
        self.gradient = self._mean.array  # float32 [parameter_elements], of the last turn

    def shift_times(self, optimizer_state: NDArray[np.uint8]) -> None:
        """Shift the stored times to the present, so that training time excludes the time between save and resume."""
        counters = self.layout.views(optimizer_state)["counters"]
        elapsed_ns = time.monotonic_ns() - int(counters[Count.last_ns])
        if counters[Count.first_ns]:
            counters[Count.first_ns] += elapsed_ns
            counters[Count.last_ns] += elapsed_ns

    def learning_rate(self, env_steps: int) -> float:
        """Return the scheduled learning rate after `env_steps` environment steps."""
        progress = Progress(min(1.0, env_steps / self.total_steps), env_steps)
        return scheduled(self.config.learning_rate, self.config.learning_rate_schedule, progress)

    def described(self, learning_rate: float) -> dict[str, Any]:
        """Return the keys of an update for `_native.Round`. learning_rate: that of this turn."""
        config, optimizer = self.config, self.network.optimizer.settings
        names = [group.name for group in self.flat.groups] if self._grouped else [""]
        followed = config if isinstance(config, TargetConfig) else None
        return {
            "learning_rates": [self._group_rate(name, learning_rate) for name in names],
            "clip_gradients": config.clip_gradients or 0.0,
            "target_interval": followed.target_interval if followed else 0,
            "target_rate": followed.target_rate if followed else 0.0,
            "optimizer": {
                "name": optimizer.name,
                "beta1": optimizer.betas[0],
                "beta2": optimizer.betas[1],
                "epsilon": optimizer.epsilon,
                "decay": optimizer.decay,
                "momentum": optimizer.momentum,
                "weight_decay": optimizer.weight_decay,
            },
        }

    def turn(
        self,
        gradients: Sequence[Arrays],
        weights: NDArray[np.uint8],
        optimizer_state: NDArray[np.uint8],
        weights_out: NDArray[np.uint8],
        optimizer_state_out: NDArray[np.uint8],
        factors: Sequence[float] | None = None,
        collected: Arrays | None = None,
    ) -> LearnerStep:
        """Make one turn: read the blocks of turn v and write those of turn v + 1.

        gradients: gradient slots (hive.gradients.blocks) in (worker, sequence) order. factors: a multiplier for each
        gradient, so that stale ones may weigh less. collected: with a replay memory, the counters COLLECTED, the
        latest episodes and the moments of all steps, which gradients then do not carry.
        """
        if self.status:
            self.status.enter(self.phase)
        before, after = self.views(optimizer_state), self.views(optimizer_state_out)
        counts = self._counts(before, after, collected)
        headers: list[list[int]] = [gradient["header"].tolist() for gradient in gradients]
        report = self._reduce(gradients, headers, factors, counts)
        samples = report.samples
        cause, bad = _first_not_finite(headers, report)
        # The steps of this round are included, as in Stable-Baselines3: the last round of a run has a rate of 0.
        counts[Count.env_steps] += sum(header[ENV_STEPS] for header in headers)
        rate = self.learning_rate(counts[Count.env_steps])
        following = Version(weights_out, list(after["moments"]))
        self.network.begin_update(Version(weights, list(before["moments"])), following)
        updates = self._updates(gradients, headers, before, report.norm, rate) if samples and not cause else []
        applied = bool(updates) and self.network.apply_gradients_to_global_network(self.gradient, updates)
        if not applied:
            cause = "update" if updates else cause
            self.network.keep_global_network()
        if self._grouped:
            after["group_updates"][:] = before["group_updates"]
            if applied:
                after["group_updates"][:] += [update.step > 0 for update in updates]
        counts[Count.applied] += applied
        counts[Count.updates] += applied
        counts[Count.skipped] += cause != ""
        counts[Count.rollouts] += sum(header[ROLLOUTS] for header in headers)
        after["counters"][:] = counts
        if not cause:
            if collected is None:
                self._merge_statistics(gradients, weights_out)
            else:
                self.replace_statistics(collected, weights_out)
        self._update_target(after["counters"], self._followed(before, after))
        for gradient, header in zip(gradients, headers, strict=True):
            if ended := header[EPISODES]:
                infos = gradient["episode_infos"][:ended] if "infos" in after else None
                count_episodes(gradient["episode_returns"][:ended], infos, after)
        if self.status:
            self.status.enter(self.status.runtime)
        return LearnerStep(applied, samples, report.norm, rate, cause, bad)

    def _counts(self, before: Arrays, after: Arrays, collected: Arrays | None) -> list[int]:
        """Copy what a turn may leave as it is, and return the counters before the turn, with those of `collected`."""
        after["applied"][:] = before["applied"]
        counts: list[int] = before["counters"].tolist()
        latest = before
        if collected is not None:
            latest, made = collected, collected["counters"].tolist()
            for count in COLLECTED:
                counts[count] = made[count]
        for name in ("returns", "infos"):
            if name in after:
                after[name][:] = latest[name]
        return counts

    def _reduce(
        self,
        gradients: Sequence[Arrays],
        headers: Sequence[Sequence[int]],
        factors: Sequence[float] | None,
        counts: list[int],
    ) -> ReductionReport:
        """Make `self.gradient` the mean of the gradients, weighted by samples.

        A single plain one is read where it lies, because it is the mean and its worker has computed the norm.
        """
        accumulator = self.accumulator
        accumulator.bootstrap_rounds = len(gradients)  # the accumulator reduces after this many gradients
        try:
            for slot, header, factor in zip(gradients, headers, factors or [1.0] * len(gradients), strict=True):
                samples = header[SAMPLES]
                accumulator.adopt(slot, samples, factor, norm=slot["norm"].item())
                counts[Count.adopted] += samples > 0
            self.gradient = accumulator.mean_reduce(out=self._mean).array
        finally:
            accumulator.clear()  # the slots are retired after the turn and must not be read again
        assert accumulator.report is not None
        counts[Count.reduced] += accumulator.report.samples > 0
        return accumulator.report

    def _updates(
        self,
        gradients: Sequence[Arrays],
        headers: Sequence[Sequence[int]],
        before: Arrays,
        norm: float,
        learning_rate: float,
    ) -> list[GroupUpdate]:
        """Return the update of the whole vector, or of each parameter group: a step if one of the gradients has it."""
        if not self._grouped:
            number = int(before["counters"][Count.updates]) + 1
            return [GroupUpdate(slice(0, len(self.gradient)), norm, number, learning_rate)]
        done: NDArray[np.int64] = before["group_updates"]
        masks = [gradient["mask"] for gradient, header in zip(gradients, headers, strict=True) if header[SAMPLES]]
        updates = []
        for group, number in zip(self.flat.groups, done.tolist(), strict=True):
            step = number + 1 if any(group.has_gradient(mask) for mask in masks) else 0
            norm = 0.0
            if step and self.config.clip_gradients:
                norm = _native.norm_and_finite(self.gradient[group.elements])[0]
            updates.append(GroupUpdate(group.elements, norm, step, self._group_rate(group.name, learning_rate)))
        return updates

    def _group_rate(self, name: str, learning_rate: float) -> float:
        """Return the learning rate of a parameter group, for `learning_rate` of the others.

        A rate `<name>_learning_rate` other than 0 decreases as `learning_rate` does. Points, which replace it, leave
        the group's constant.
        """
        own: float = getattr(self.config, f"{name}_learning_rate", 0.0)
        if not own:
            return learning_rate
        if not isinstance(self.config.learning_rate_schedule, str):
            return own
        return learning_rate * (own / self.config.learning_rate)

    def _merge_statistics(self, gradients: Sequence[Arrays], weights_out: NDArray[np.uint8]) -> None:
        """Merge the statistics of this turn's rounds into the network's buffers."""
        if self.buffers is None:
            return
        for name in (name for name in MOMENTS_OF if name in gradients[0]):
            buffers = self.buffers(weights_out)
            for prefix in MOMENTS_OF[name]:
                if f"{prefix}seen" in buffers:
                    merge([gradient[name] for gradient in gradients], buffers, prefix)

    def replace_statistics(self, moments: Arrays, weights: NDArray[np.uint8]) -> None:
        """Set the statistics in a block of weights to those of all steps, "observed" and "rewarded", if there are."""
        if self.buffers is None:
            return
        for name in (name for name in MOMENTS_OF if name in moments):
            replace(moments[name], self.buffers(weights), MOMENTS_OF[name][0])

    def _followed(self, before: Arrays, after: Arrays) -> int:
        """Return the number of the update that the target follows, an update of the first group; 0 if it had none."""
        name, place = ("group_updates", 0) if self._grouped else ("counters", Count.updates)
        number = int(after[name][place])
        return number if number > before[name][place] else 0

    def _update_target(self, counters: NDArray[np.int64], followed: int) -> None:
        """Move the target towards the newest weights after every `target_interval`-th update; otherwise keep it."""
        if isinstance(self.config, TargetConfig):
            due = followed > 0 and followed % self.config.target_interval == 0
            version = counters.item(Count.updates) + 1
            self.network.update_target_network(self.config.target_rate if due else 0.0, version=version)
            counters[Count.target_updates] += due


def count_episodes(returns: NDArray[np.float32], infos: NDArray[np.float32] | None, optimizer_state: Arrays) -> None:
    """Count these episodes and store the returns and `infos` [N, K] of the latest RETURNS_KEPT, as a ring."""
    seen = int(optimizer_state["counters"][Count.episodes])
    for position, value in enumerate(returns.tolist(), start=seen):
        optimizer_state["returns"][position % RETURNS_KEPT] = value
        if infos is not None:
            optimizer_state["infos"][position % RETURNS_KEPT] = infos[position - seen]
    optimizer_state["counters"][Count.episodes] = seen + len(returns)


def _first_not_finite(headers: Sequence[Sequence[int]], report: ReductionReport) -> tuple[str, int]:
    """Return (cause, position) of the first gradient that is not finite; ("", -1) if all are finite.

    The cause that a gradient worker has noted in the header comes first; the reduction only finds "gradient".
    """
    for position, header in enumerate(headers):
        if cause := header[CAUSE]:
            return CAUSES[cause], position
    return ("", -1) if report.finite else ("gradient", report.bad_round)


def check_codec(codec: Codec, flat: FlatLayout) -> None:
    """Raise NetworkError for a codec with a residual and several parameter groups.

    With a gradient of one group it would also send what it holds of the others, which are not stepped.
    """
    if len(flat.groups) > 1 and len(codec.residual(1)):
        names = ", ".join(group.name for group in flat.groups)
        raise NetworkError(
            f'gradients.compression = "{codec.name}" cannot send the gradients of {names} separately',
            hint='use "bf16" or "fp16"',
        )


def optimizer_settings(config: AlgorithmConfig) -> OptimizerSettings:
    """Return the optimizer settings in the keys of [algorithm]."""
    return OptimizerSettings(
        name=config.optimizer,
        betas=(config.adam_beta1, config.adam_beta2),
        epsilon=config.optimizer_epsilon,
        decay=config.rmsprop_decay,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
    )


def mean_return(returns: NDArray[np.float32], episodes: int) -> float:
    """Return the mean of the latest 100 returns, or of all if there are fewer; NaN before the first."""
    held = returns[: min(episodes, RETURNS_KEPT)]
    # Equal to np.mean, without its Python overhead, which is largest right after a turn has emptied the caches.
    return float(np.add.reduce(held, dtype=np.float64)) / len(held) if len(held) else float("nan")


def deviation_of_returns(returns: NDArray[np.float32], episodes: int) -> float:
    """Return the population standard deviation of the returns that `mean_return` averages; NaN before the first."""
    held = returns[: min(episodes, RETURNS_KEPT)]
    with np.errstate(invalid="ignore"):  # infinite returns have no deviation: NaN
        return float(held.std(dtype=np.float64)) if len(held) else float("nan")


def mean_statistics(parts: Sequence[tuple[int, NDArray[np.float64]]]) -> NDArray[np.float64]:
    """Return the means of statistics over samples, float64 [S]. `parts`: (samples, statistics [S]) of each gradient.

    The statistics of a gradient without samples are ignored and may have any value.
    """
    total = np.zeros_like(parts[0][1])
    for samples, statistics in parts:
        if samples:
            total += statistics * samples
    total /= max(sum(samples for samples, _ in parts), 1)
    return total
