"""The messages between the trainer's actors.

`RolloutReady`, `Gradient`, `Weights`, `OptimizerState`, `ReplayRows`, `ReplayLedger` and `ReplayPlan` name data in
shared memory, with the layouts of hive.experience.rollouts, hive.gradients.blocks, hive.training.update.learner and
hive.training.update.replay_memory. The others are sent as messages.
"""

from __future__ import annotations

from dataclasses import field
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from hive.records.return_text import interval_95
from hive.runtime import Message, Shape


class RolloutReady(Message):
    """collector -> gradient worker, or learner with a replay memory. One rollout; the slot's sequence is its number."""


class ReplayRows(Message):
    """learner -> gradient workers and recorder. The block of the replay memory (`Blueprint.memory_layout`)."""


class ReplayLedger(Message):
    """learner -> recorder and its successor. How much of the replay memory is written; the version counts rollouts."""


class ReplayFloor(Message):
    """recorder -> learner. int64 [1 + S]: the ledger whose rows are being written, and the first rows still needed."""


class ReplayPlan(Message):
    """learner -> gradient workers. The rows that batch number n is made of; the version is n."""


class Gradient(Message):
    """gradient worker -> learner. One gradient; the slot's sequence is its number."""


class Weights(Message):
    """learner -> gradient workers (one version a turn), or -> collectors (one version a broadcast)."""


class OptimizerState(Message):
    """learner -> recorder, replicas and its successor. Counters, returns and moments of one turn."""


class Metrics(Message):
    """learner -> recorder. Means over the turns since the last Metrics."""

    updates: int
    env_steps: int
    seconds: float  # training time: since the first turn ended, less the pauses
    values: dict[str, float]


class EpisodesEnded(Message):
    """learner -> recorder. The n training episodes that were counted since the last EpisodesEnded, in that order."""

    first: int  # number of the first among those that the run has counted, from 1; the others follow
    returns: Annotated[NDArray[np.float32], Shape("n")]
    lengths: Annotated[NDArray[np.int32], Shape("n")]  # in steps
    columns: Annotated[NDArray[np.int32], Shape("n")]  # (collector * envs + environment) * agents + agent
    infos: Annotated[NDArray[np.float32], Shape("n", "k")]  # their values of `info`; NaN where missing
    updates: Annotated[NDArray[np.int64], Shape("n")]  # of the run, when each was counted, as the next two
    env_steps: Annotated[NDArray[np.int64], Shape("n")]
    seconds: Annotated[NDArray[np.float64], Shape("n")]  # training time, as in Metrics


class CheckpointDue(Message):
    """learner -> recorder. The blocks of this turn are pinned for the recorder, which writes and then unpins them."""

    turn: int
    scheduled: bool  # whether it lies at a resume barrier, so that a resumed run is bit-identical
    env_steps: int
    mean_return: float
    ledger: int = -1  # version of the replay memory's ledger, which is pinned too; -1: there is no replay memory
    callbacks: int = -1  # version of the callbacks' state, which is pinned too; -1: there are no callbacks
    by_hand: bool = False  # `hive save` asked for it: it is kept until `hive prune`


class Improved(Message):
    """learner -> recorder. A behaviour policy, copied from this turn, may be the best policy by training return."""

    turn: int
    updates: int
    env_steps: int
    mean_return: float  # mean of the last 100 training episodes, of which it has played the newest
    weights: Annotated[NDArray[np.uint8], Shape("bytes")]  # [block_bytes] of hive.networks.weights.flat
    balanced: bool = False  # as of Evaluation


class EvaluationDue(Message):
    """learner -> evaluators. The weights of this turn are pinned for one of them, which evaluates and unpins them."""

    evaluator: int  # its index
    turn: int
    updates: int
    env_steps: int
    seconds: float  # training time of the turn, as in Metrics


class Evaluation(Message):
    """evaluator -> recorder and custom actors. The returns of the policy of one turn over whole episodes."""

    turn: int
    updates: int
    env_steps: int
    seconds: float  # training time of the turn, as in Metrics
    episodes: int
    mean_return: float
    deviation: float  # population standard deviation of the returns
    min: float  # smallest return
    max: float  # largest return
    mean_length: float  # mean length of the episodes, in steps
    wall_s: float  # wall time of the evaluation
    info: dict[str, float] = field(default_factory=dict)  # env.info: means over the episodes that have the value
    cut: int = 0  # episodes that did not end and were cut at the limit of steps; their returns count up to there
    balanced: bool = False  # whether returns of agents that share the policy vary, but never their sum in an episode
    counted: dict[str, int] = field(default_factory=dict)  # number of values in each mean of `info`

    @property
    def interval(self) -> float:
        """Half-width of the 95 % confidence interval of the mean return (central limit theorem); NaN for 1 episode."""
        return interval_95(self.deviation, self.episodes)
