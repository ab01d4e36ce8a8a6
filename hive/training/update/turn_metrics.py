"""The turns between two reports, the metrics of them, and hooks: functions of the user that see each update.

The learner records each turn as it commits it, because the slots of its gradients are retired next. A report averages
the turns since the last one. Nothing that affects training depends on it.

    [run] update_hook = "mine:watch"

    def watch(update: hive.Update) -> dict[str, float]:
        return {"mine/weight_norm": float(np.linalg.norm(update.weights["policy.weight"]))}

The learner waits for the hook, and its status page shows the time spent. The returned numbers are added to the next
metrics. An exception in the hook ends the learner. The weights are read-only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hive.training.update.learner import PASSED, LearnerStep, deviation_of_returns, mean_statistics


@dataclass(frozen=True)
class Update:
    """One update, as passed to a hook."""

    number: int  # updates so far
    env_steps: int
    mean_return_100: float  # mean of the last 100 returns; NaN before the first episode
    gradient_norm: float  # L2 norm before clipping
    learning_rate: float
    statistics: Mapping[str, float]  # the algorithm's statistics, means over the update's samples
    weights: Mapping[str, NDArray[Any]]  # read-only views by parameter name, valid during the call only


UpdateHook: TypeAlias = Callable[[Update], Mapping[str, float] | None]


class StepRecord(NamedTuple):
    """One turn and the quantities that metrics report of it."""

    step: LearnerStep
    parts: list[tuple[int, NDArray[np.float64]]]  # (samples, statistics) of each gradient, averaged only if reported
    gradient_lag: int  # largest lag of a gradient with samples, in turns
    policy_lag: int | None  # largest lag of the rollouts that this turn was the first to use, in behaviour versions

    @property
    def counts(self) -> bool:
        """Whether the turn is part of the means: not so if its gradients had zero samples or carried only moments."""
        return self.step.applied or bool(self.step.cause)

    @property
    def statistics(self) -> NDArray[np.float64]:
        """float64 [statistics of the algorithm]: means over the samples of the turn."""
        return mean_statistics(self.parts)


class TurnMetrics:
    """The turns since the last report.

    names: of the algorithm's statistics. plain_bytes: size of a gradient that is not compressed. reward_clip: that of
    [network].
    """

    def __init__(self, names: Sequence[str], plain_bytes: int, reward_clip: float) -> None:
        self.names = names
        self.plain_bytes = plain_bytes
        self.window: list[StepRecord] = []
        self.of_hook: dict[str, float] = {}  # metrics that the update hook returned
        self.compression_errors: list[float] = []
        self.sent_bytes = 0  # size of one compressed gradient
        self.reward_clip = reward_clip
        self.of_rewards: dict[str, float] = {}  # metrics of the last round whose rewards were counted
        self.clipped = np.zeros(4)  # sums of the field of this name of the gradients (hive.gradients.blocks)
        self.reported_s, self.reported_steps = 0.0, 0.0  # training time and environment steps of the last report

    def take(
        self, totals: Mapping[str, float], returns: NDArray[np.float32], values: Mapping[str, float] | None = None
    ) -> dict[str, float]:
        """Return the metrics of these turns, and begin the next report; {} without a turn that counts.

        totals: the learner's counters. returns: those of the latest episodes. values: their other metrics, such as
        `end_values`.
        """
        window = [record for record in self.window if record.counts]
        if not window:
            return {}
        since = totals["train_s"] - self.reported_s
        steps = totals["env_steps"] - max(self.reported_steps, totals["first_steps"])
        reported = {
            "return/mean_100": totals["mean_return_100"],
            "return/deviation_100": deviation_of_returns(returns, int(totals["episodes"])),
            "episodes": totals["episodes"],
            **(values or {}),
            "learner/gradient_norm": float(np.mean([record.step.norm for record in window])),
            "learner/learning_rate": window[-1].step.learning_rate,
            **lag_values("gradient", [record.gradient_lag for record in window]),
            **lag_values("policy", [record.policy_lag for record in self.window if record.policy_lag is not None]),
            "learner/skipped": totals["skipped"],
            **{f"learner/{which.name}": totals[which.name] for which in PASSED},
            "rate/env_steps_per_s": _per_s(steps, since),
            "rate/updates_per_s": _per_s(sum(record.step.applied for record in window), since),
        }
        means = finite_means([record.statistics for record in window])
        reported |= {f"learner/{name}": mean for name, mean in zip(self.names, means, strict=False)}
        if self.compression_errors:
            reported["gradients/compression_ratio"] = self.plain_bytes / self.sent_bytes
            reported["gradients/compression_error"] = float(np.mean(self.compression_errors))
        self.of_rewards = clipped_values(self.clipped, self.reward_clip) or self.of_rewards
        self.clipped = np.zeros(4)
        reported |= self.of_rewards
        reported |= self.of_hook
        self.compression_errors, self.of_hook, self.window = [], {}, []
        self.reported_s, self.reported_steps = totals["train_s"], totals["env_steps"]
        return reported


def clipped_values(clipped: NDArray[np.float64], limit: float) -> dict[str, float]:
    """Return the share of clipped rewards, and by how much clipping raises the share of all others in their sum.

    clipped: [4] as in a gradient's slot, of some rounds. {} without a reward. Where all rewards are clipped, or
    none is, they keep their proportions.
    """
    rewards, count, others, cut = clipped.tolist()
    if not rewards:
        return {}
    whole, left = others + cut, others + count * limit
    moved = others / left - others / whole if whole and left else 0.0
    return {"learner/rewards_clipped": count / rewards, "learner/rewards_moved": moved}


def _per_s(amount: float, seconds: float) -> float:
    return amount / seconds if seconds > 0 else 0.0


def finite_means(rows: Sequence[NDArray[np.float64]]) -> list[float]:
    """Return the mean of each column over its finite values; NaN for a column without any.

    Statistics of skipped turns may be NaN, and a statistic may be undefined for some turns.
    """
    columns = np.stack(rows, axis=1)
    return [float(known.mean()) if len(known := column[np.isfinite(column)]) else math.nan for column in columns]


def info_means(names: Sequence[str], infos: NDArray[np.float32]) -> dict[str, float]:
    """Return the mean of each value of `info` over the episodes that have it, without names that no episode has.

    infos: [N, K], K values of N episodes; NaN where missing.
    """
    means = finite_means([*infos.astype(np.float64)]) if names and len(infos) else []
    return {name: mean for name, mean in zip(names, means, strict=False) if math.isfinite(mean)}


def end_values(ends: NDArray[np.float32], limit: int | None) -> dict[str, float]:
    """Return how the latest episodes ended: shares of them by flag, and their lengths in steps.

    ends: [N] (EPISODE_END); NaN where an older checkpoint does not tell, 0 where a custom collector does not. limit:
    the declared one. "ends/limit" are those that it truncated, "ends/truncated" those that the environment did. {}
    where none is known.
    """
    known = ends[np.isfinite(ends) & (ends != 0)].astype(np.float64)
    if not len(known):
        return {}
    lengths, truncated = np.abs(known), known < 0
    limited = truncated & (lengths >= (limit or np.inf))
    return {
        "length/mean_100": float(lengths.mean()),
        "length/deviation_100": float(lengths.std()),
        "ends/terminated": float((~truncated).mean()),
        "ends/truncated": float((truncated & ~limited).mean()),
        "ends/limit": float(limited.mean()),
    }


LAGS_SHOWN = 8  # largest lag with a bucket of its own; the last bucket also counts all larger lags


def lag_values(name: str, lags: list[int]) -> dict[str, float]:
    """Return a histogram of lags as metrics: the shares lag/policy_0 ... lag/policy_8, their mean and maximum."""
    if not lags:
        return {}
    counts = np.bincount(np.minimum(lags, LAGS_SHOWN), minlength=1) / len(lags)
    shares = {f"lag/{name}_{lag}": float(share) for lag, share in enumerate(counts) if share}
    return {f"lag/{name}_mean": float(np.mean(lags)), f"lag/{name}_max": float(max(lags)), **shares}
