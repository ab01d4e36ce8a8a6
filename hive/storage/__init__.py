"""Storage: the memory layout of rollouts, priorities of a replay memory, and the random streams that determine both."""

from hive.storage.priorities import PriorityTree, importance_weights, priority_leaves, replay_words
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
    "PriorityTree",
    "Purpose",
    "Rollout",
    "final_capacity",
    "importance_weights",
    "priority_leaves",
    "replay_words",
    "rollout_layout",
    "samples_in",
    "stream",
    "stream_seed",
    "stream_seeds",
]
