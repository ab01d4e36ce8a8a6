"""The scheme `ppo`: a clipped surrogate loss, with several epochs of minibatches per round (Schulman et al. 2017)."""

from __future__ import annotations

from pathlib import Path

from hive.config import Config
from hive.runtime import Topology
from hive.schemes.trainer import trainer

__all__ = ["topology"]


def topology(config: Config, directory: Path) -> Topology:
    """Build the topology; see `hive.schemes.trainer.trainer`."""
    return trainer(config, directory)
