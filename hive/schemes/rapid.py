"""The scheme `rapid`: OpenAI's Rapid, as PyTorchRL classifies it: asynchronous collection, synchronous updates.

Each gradient worker owns a share of the collectors, which do not wait for updates. Gradient workers are synchronous.
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
