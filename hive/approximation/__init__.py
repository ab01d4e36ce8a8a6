"""Function approximation: models with their optimizers, target networks and checkpoints, for scripts and runs.

    approximation, stepping, writers     an update, from the loss to the checkpoint
    targets, checkpointers, stored       target networks and checkpoints, which follow an update
    features, identity, joint            several heads on shared features
    values, distributional, states       values of states and actions

The classes are those of the page `all.approximation` of autonomous-learning-library. They work with any torch module
and any torch optimizer, in a single process.
"""

from __future__ import annotations

from hive.approximation.actor_critic import ActorCritic
from hive.approximation.approximation import CHECKPOINT_FREQUENCY, Approximation
from hive.approximation.checkpointers import (
    Checkpointer,
    DummyCheckpointer,
    PeriodicCheckpointer,
    load_checkpoint,
)
from hive.approximation.distributional import QDist
from hive.approximation.features import CACHE_SIZE, FeatureNetwork
from hive.approximation.identity import Identity
from hive.approximation.joint import accumulate_jointly, jointly, reinforce_jointly
from hive.approximation.receivers import AnyPart, ComputedPart, GradientReceiver, NativePart, Part, RemotePart
from hive.approximation.stepping import STAGES, StepReport
from hive.approximation.targets import FixedTarget, PolyakTarget, SharedTarget, TargetNetwork, TrivialTarget
from hive.approximation.values import QContinuous, QNetwork, SingleOutput, VNetwork
from hive.approximation.writers import DummyWriter, SinkWriter, Writer

__all__ = [
    "CACHE_SIZE",
    "CHECKPOINT_FREQUENCY",
    "STAGES",
    "ActorCritic",
    "AnyPart",
    "Approximation",
    "Checkpointer",
    "ComputedPart",
    "DummyCheckpointer",
    "DummyWriter",
    "FeatureNetwork",
    "FixedTarget",
    "GradientReceiver",
    "Identity",
    "NativePart",
    "Part",
    "PeriodicCheckpointer",
    "PolyakTarget",
    "QContinuous",
    "QDist",
    "QNetwork",
    "RemotePart",
    "SharedTarget",
    "SingleOutput",
    "SinkWriter",
    "StepReport",
    "TargetNetwork",
    "TrivialTarget",
    "VNetwork",
    "Writer",
    "accumulate_jointly",
    "jointly",
    "load_checkpoint",
    "reinforce_jointly",
]
