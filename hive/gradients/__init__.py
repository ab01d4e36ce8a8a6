"""Gradients: their slots in shared memory, their compression, and their reduction by the learner."""

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
from hive.gradients.reports import GradientNotFinite, ReductionReport

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
    "GradientNotFinite",
    "ReductionReport",
    "clear",
    "codec_for",
    "gradient_layout",
    "put_episodes",
]
