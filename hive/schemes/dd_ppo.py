"""The scheme `dd-ppo`: decentralised distributed PPO (Wijmans et al. 2020).

Each gradient worker collects in its own process and applies the gradients of all workers, synchronously. When 60 % of
the collectors have finished a rollout, the others end theirs as soon as they have 25 % of it, as in the paper.
"""

from __future__ import annotations

from pathlib import Path

from hive.config import Config
from hive.runtime import Topology
from hive.schemes.trainer import trainer

__all__ = ["topology"]


def topology(config: Config, directory: Path) -> Topology:
    """Build the topology; see `hive.schemes.trainer.trainer`."""
    return trainer(config, directory)
