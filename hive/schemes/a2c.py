"""The scheme `a2c`: parallel collectors and one synchronous gradient per round (Mnih et al. 2016)."""

from __future__ import annotations

from pathlib import Path

from hive.config import Config
from hive.runtime import Topology
from hive.schemes.trainer import trainer

__all__ = ["topology"]


def topology(config: Config, directory: Path) -> Topology:
    """Build the topology; see `hive.schemes.trainer.trainer`."""
    return trainer(config, directory)
