"""Storage: the memory layout of rollouts, and the random streams that determine them."""

from hive.storage.rollouts import (
    FINALS,
    LENGTH,
    SEQUENCE,
    SOURCE,
    VERSION,
    Rollout,
    final_capacity,
    rollout_layout,
    samples_in,
)
from hive.storage.streams import Purpose, stream, stream_seed, stream_seeds

__all__ = [
    "FINALS",
    "LENGTH",
    "SEQUENCE",
    "SOURCE",
    "VERSION",
    "Purpose",
    "Rollout",
    "final_capacity",
    "rollout_layout",
    "samples_in",
    "stream",
    "stream_seed",
    "stream_seeds",
]
