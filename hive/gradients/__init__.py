"""Gradients: their slots in shared memory, their compression, and their reduction by the learner."""

from __future__ import annotations

from hive.gradients.accumulator import GradAccumulator, MeanGradient, ReductionReport
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
    gradient_layout,
    put_episodes,
)
from hive.gradients.codecs import COMPRESSIONS, ERROR, PLAIN, TOP_K, Codec, codec_for

__all__ = [
    "CAUSE",
    "CAUSES",
    "COMPRESSIONS",
    "ENV_STEPS",
    "EPISODES",
    "ERROR",
    "PLAIN",
    "POLICY",
    "ROLLOUTS",
    "SAMPLES",
    "SEQUENCE",
    "TOP_K",
    "VERSION",
    "Codec",
    "GradAccumulator",
    "MeanGradient",
    "ReductionReport",
    "clear",
    "codec_for",
    "gradient_layout",
    "put_episodes",
]
