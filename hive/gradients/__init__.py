"""Gradients: their form in shared memory, and the learner's reduction."""

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
    "clear",
    "combine",
    "gradient_layout",
    "put_episodes",
]
