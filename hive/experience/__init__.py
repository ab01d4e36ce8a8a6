"""Storage: the memory layout of rollouts, replay memories and their priorities, and the random streams behind all."""

from hive.experience.priorities import PriorityTree, importance_weights, priority_leaves, replay_words
from hive.experience.replay import Replay, ReplayBatch, replay_layout
from hive.experience.replay_buffer import DrawnBatch, ReplayBuffer
from hive.experience.rollouts import (
    BEGINS,
    EPISODE_END,
    FINALS,
    LENGTH,
    SEQUENCE,
    SOURCE,
    VERSION,
    Rollout,
    check_finals,
    expected_finals,
    rollout_layout,
    samples_in,
    steps_in,
)
from hive.experience.streams import Purpose, stream, stream_seed, stream_seeds

__all__ = [
    "BEGINS",
    "EPISODE_END",
    "FINALS",
    "LENGTH",
    "SEQUENCE",
    "SOURCE",
    "VERSION",
    "DrawnBatch",
    "PriorityTree",
    "Purpose",
    "Replay",
    "ReplayBatch",
    "ReplayBuffer",
    "Rollout",
    "check_finals",
    "expected_finals",
    "importance_weights",
    "priority_leaves",
    "replay_layout",
    "replay_words",
    "rollout_layout",
    "samples_in",
    "steps_in",
    "stream",
    "stream_seed",
    "stream_seeds",
]
