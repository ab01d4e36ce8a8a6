"""Gradients: their slots in shared memory, their compression, and their reduction by the learner."""

from __future__ import annotations

from typing import NoReturn

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


MOVED = ("GradientNotFinite", "MapOfTensors")


def __getattr__(name: str) -> NoReturn:
    if name in MOVED:  # no AttributeError, of which `from hive.gradients import ...` would hide the text
        raise ImportError(f"`hive.gradients.{name}` is now `hive.compat.rlpack.{name}`")
    raise AttributeError(f"module `hive.gradients` has no attribute `{name}`")
