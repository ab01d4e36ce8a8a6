"""The scheme `single`: any algorithm in one training process beside the supervisor.

By default `collection.workers` and `gradients.workers` are 0, so all actors share the learner's process.
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
