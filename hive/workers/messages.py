"""What the trainer's actors tell each other beyond rollouts, gradients and weights.

The first four name what lies in shared memory; their layouts are drawn in hive.storage.rollouts, hive.gradients.blocks
and hive.workers.learner. `Metrics` travels as a message.
"""

from __future__ import annotations

import math

from hive.runtime import Message

__all__ = [
    "CheckpointDue",
    "Evaluation",
    "EvaluationDue",
    "Gradient",
    "Metrics",
    "OptimizerState",
    "RolloutReady",
    "Weights",
]

NORMAL_95 = 1.96  # standard errors on both sides of a mean that contain 95 % of a normal distribution


class RolloutReady(Message):
    """collector -> gradient worker. One rollout; the slot's sequence is its number."""


class Gradient(Message):
    """gradient worker -> learner. One gradient; the slot's sequence is its number."""


class Weights(Message):
    """learner -> gradient workers (one version a turn), or -> collectors (one version a broadcast)."""


class OptimizerState(Message):
    """learner -> its successor. Counters, returns and moments of one turn."""


class Metrics(Message):
    """learner -> recorder. Means over the turns since the last one."""

    updates: int
    env_steps: int
    seconds: float  # since the first turn began
    values: dict[str, float]


class CheckpointDue(Message):
    """learner -> recorder. This turn's blocks are held for you: write them, then unpin them."""

    turn: int
    scheduled: bool  # at a cut: a resumed run goes on as this one does, byte for byte
    env_steps: int
    mean_return: float


class EvaluationDue(Message):
    """learner -> evaluator. This turn's weights are held for you: evaluate them, then unpin them."""

    turn: int
    updates: int
    env_steps: int
    seconds: float  # since the first turn began, as of Metrics


class Evaluation(Message):
    """evaluator -> recorder, and whoever wants to know. How the policy of one turn does without its noise."""

    turn: int
    updates: int
    env_steps: int
    seconds: float  # of the turn, not of its evaluation
    episodes: int
    mean_return: float
    deviation: float  # of the returns: the root of their mean squared distance from the mean
    min: float
    max: float
    mean_length: float  # steps
    wall_s: float  # what the evaluation took

    @property
    def interval(self) -> float:
        """Half the width of the 95 % interval of the mean return; NaN for a single episode. (Central limit theorem.)"""
        return NORMAL_95 * self.deviation / math.sqrt(self.episodes - 1) if self.episodes > 1 else math.nan
