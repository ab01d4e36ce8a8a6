"""Gradients: their form in shared memory, and the learner's reduction."""

from hive.gradients.accumulator import GradAccumulator
from hive.gradients.blocks import (
    CAUSE,
    CAUSES,
    ENV_STEPS,
    EPISODES,
    POLICY,
    ROLLOUTS,
    SAMPLES,
    SEQUENCE,
    VERSION,
    clear,
    combine,
    gradient_layout,
    put_episodes,
)
from hive.gradients.map_of_tensors import MapOfTensors
from hive.gradients.reports import GradientNotFinite, ReductionReport

__all__ = [
    "CAUSE",
    "CAUSES",
    "ENV_STEPS",
    "EPISODES",
    "POLICY",
    "ROLLOUTS",
    "SAMPLES",
    "SEQUENCE",
    "VERSION",
    "GradAccumulator",
    "GradientNotFinite",
    "MapOfTensors",
    "ReductionReport",
    "clear",
    "combine",
    "gradient_layout",
    "put_episodes",
]
