"""Workers: collector, gradient worker, learner, evaluator and recorder, as plain objects and as actors."""

from hive.workers.actors import CollectorActor, GradientWorkerActor
from hive.workers.blueprint import Blueprint, environment_of
from hive.workers.collector import Collector
from hive.workers.evaluator import Evaluator
from hive.workers.evaluator_actor import EvaluatorActor
from hive.workers.g_worker import GWorker
from hive.workers.gradient_slot import GradientSlot
from hive.workers.learner import Learner
from hive.workers.learner_actor import RESULTS, LearnerActor, info_counters
from hive.workers.messages import (
    CheckpointDue,
    Evaluation,
    EvaluationDue,
    Gradient,
    Improved,
    Metrics,
    OptimizerState,
    ReplayFloor,
    ReplayLedger,
    ReplayPlan,
    ReplayRows,
    RolloutReady,
    Weights,
)
from hive.workers.playing import evaluate, joined
from hive.workers.recorder import Recorder
from hive.workers.recording import Episode, Recording, record, show
from hive.workers.replay_learner import ReplayLearnerActor
from hive.workers.replay_memory import REPLAY_VALUES
from hive.workers.replay_worker import ReplayWorker, ReplayWorkerActor
from hive.workers.replica import Replica, replica_slots
from hive.workers.trainer import Trainer
from hive.workers.turn_metrics import Update, UpdateHook

__all__ = [
    "REPLAY_VALUES",
    "RESULTS",
    "Blueprint",
    "CheckpointDue",
    "Collector",
    "CollectorActor",
    "Episode",
    "Evaluation",
    "EvaluationDue",
    "Evaluator",
    "EvaluatorActor",
    "GWorker",
    "Gradient",
    "GradientSlot",
    "GradientWorkerActor",
    "Improved",
    "Learner",
    "LearnerActor",
    "Metrics",
    "OptimizerState",
    "Recorder",
    "Recording",
    "ReplayFloor",
    "ReplayLearnerActor",
    "ReplayLedger",
    "ReplayPlan",
    "ReplayRows",
    "ReplayWorker",
    "ReplayWorkerActor",
    "Replica",
    "RolloutReady",
    "Trainer",
    "Update",
    "UpdateHook",
    "Weights",
    "environment_of",
    "evaluate",
    "info_counters",
    "joined",
    "record",
    "replica_slots",
    "show",
]

Plan = ReplayPlan  # its name in the last release; the next one removes it
