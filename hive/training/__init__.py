"""Workers: collector, gradient worker, learner, evaluator and recorder, as plain objects and as actors."""

from hive.training.actors import CollectorActor, GradientWorkerActor
from hive.training.blueprint import Blueprint, environment_of
from hive.training.callbacks.callback_actor import CallbackActor
from hive.training.callbacks.changes import CHANGES_BYTES
from hive.training.callbacks.events import Callback, EndEvent, EpisodeEvent, EvaluationEvent, RoundEvent
from hive.training.callbacks.messages import CallbacksState, answer_layout
from hive.training.collect.collector import Collector
from hive.training.collect.witness import witness_folder
from hive.training.crew import Crew, check_crew, crew_needed, folders_of, write_policies
from hive.training.evaluate.evaluator import Evaluator
from hive.training.evaluate.evaluator_actor import EvaluatorActor, policies_evaluator
from hive.training.evaluate.playing import evaluate, evaluate_together, joined
from hive.training.evaluate.recording import Episode, Recording, record, show
from hive.training.gradient.g_worker import GWorker
from hive.training.gradient.gradient_slot import GradientSlot
from hive.training.gradient.replay_worker import ReplayWorker, ReplayWorkerActor
from hive.training.messages import (
    CheckpointDue,
    EpisodesEnded,
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
from hive.training.policies import Policies, check_has_agents, of_policy, port
from hive.training.record.best_policy import best_by
from hive.training.record.recorder import Recorder
from hive.training.run_start import first_gradient, first_round
from hive.training.several_actors import policies_collector
from hive.training.trainer import Trainer
from hive.training.update.goal import GOAL_BYTES, Goal, with_goal
from hive.training.update.learner import Learner
from hive.training.update.learner_actor import LearnerActor
from hive.training.update.replay_blueprint import check_has_transitions
from hive.training.update.replay_learner import ReplayLearnerActor
from hive.training.update.replay_memory import REPLAY_VALUES
from hive.training.update.replica import Replica, replica_slots
from hive.training.update.results import RESULTS, info_counters
from hive.training.update.turn_metrics import Update, UpdateHook

__all__ = [
    "CHANGES_BYTES",
    "GOAL_BYTES",
    "REPLAY_VALUES",
    "RESULTS",
    "Blueprint",
    "Callback",
    "CallbackActor",
    "CallbacksState",
    "CheckpointDue",
    "Collector",
    "CollectorActor",
    "Crew",
    "EndEvent",
    "Episode",
    "EpisodeEvent",
    "EpisodesEnded",
    "Evaluation",
    "EvaluationDue",
    "EvaluationEvent",
    "Evaluator",
    "EvaluatorActor",
    "GWorker",
    "Goal",
    "Gradient",
    "GradientSlot",
    "GradientWorkerActor",
    "Improved",
    "Learner",
    "LearnerActor",
    "Metrics",
    "OptimizerState",
    "Policies",
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
    "RoundEvent",
    "Trainer",
    "Update",
    "UpdateHook",
    "Weights",
    "answer_layout",
    "best_by",
    "check_crew",
    "check_has_agents",
    "check_has_transitions",
    "crew_needed",
    "environment_of",
    "evaluate",
    "evaluate_together",
    "first_gradient",
    "first_round",
    "folders_of",
    "info_counters",
    "joined",
    "of_policy",
    "policies_collector",
    "policies_evaluator",
    "port",
    "record",
    "replica_slots",
    "show",
    "with_goal",
    "witness_folder",
    "write_policies",
]
