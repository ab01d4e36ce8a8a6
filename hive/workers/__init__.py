"""Workers: collector, gradient worker, learner, evaluator and recorder, as plain objects and as actors."""

from hive.workers.actors import CollectorActor, GradientWorkerActor
from hive.workers.blueprint import Blueprint
from hive.workers.c_worker import CollectedRollout, CWorker, CWorkerSet, Snapshot
from hive.workers.collector import Collector
from hive.workers.collector_task import CollectorTask, CollectorThread
from hive.workers.evaluator import Evaluator
from hive.workers.evaluator_actor import EvaluatorActor
from hive.workers.g_worker import Gradients, GWorker
from hive.workers.g_worker_set import GWorkerSet
from hive.workers.gradient_worker import GradientWorker
from hive.workers.hooks import Update, UpdateHook
from hive.workers.learner import Learner
from hive.workers.learner_actor import RESULTS, LearnerActor
from hive.workers.messages import Evaluation, EvaluationDue, Gradient, Ledger, Metrics, RolloutReady, Weights
from hive.workers.playing import evaluate
from hive.workers.recorder import Recorder
from hive.workers.replica import Replica, replica_slots

__all__ = [
    "RESULTS",
    "Blueprint",
    "CWorker",
    "CWorkerSet",
    "CollectedRollout",
    "Collector",
    "CollectorActor",
    "CollectorTask",
    "CollectorThread",
    "Evaluation",
    "EvaluationDue",
    "Evaluator",
    "EvaluatorActor",
    "GWorker",
    "GWorkerSet",
    "Gradient",
    "GradientWorker",
    "GradientWorkerActor",
    "Gradients",
    "Learner",
    "LearnerActor",
    "Ledger",
    "Metrics",
    "Recorder",
    "Replica",
    "RolloutReady",
    "Snapshot",
    "Update",
    "UpdateHook",
    "Weights",
    "evaluate",
    "replica_slots",
]
