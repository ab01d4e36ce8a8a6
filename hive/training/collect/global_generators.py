"""The global generators of torch, NumPy and Python, from which an environment's code may draw.

hive itself draws from streams (hive.experience.streams), and never from these. They are seeded where such code runs:
before environments are built, reset and stepped. So runs repeat and resume exactly with environments that use them, and
the collectors of a run, forks of one process, do not draw the same numbers.
"""

from __future__ import annotations

import torch

from hive.envs import seed_globals
from hive.experience import Purpose, stream_seed

__all__ = ["seed_all_globals"]


def seed_all_globals(seed: int, purpose: Purpose, source: int, sequence: int) -> None:
    """Seed all three from a stream."""
    word = stream_seed(seed, purpose, source, sequence)
    torch.default_generator.manual_seed(word)
    seed_globals(word)
