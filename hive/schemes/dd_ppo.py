"""The scheme `dd-ppo`: decentralised distributed PPO (Wijmans et al. 2020).

Each gradient worker collects in its own process and applies the gradients of all, synchronously. When six of ten are
through with a rollout, the others stop theirs, if they have a quarter of it: the numbers are those of the paper.
"""

from __future__ import annotations

from pathlib import Path

from hive.config import Config
from hive.runtime import Topology
from hive.schemes.trainer import trainer

__all__ = ["topology"]


def topology(config: Config, directory: Path) -> Topology:
    return trainer(config, directory)
