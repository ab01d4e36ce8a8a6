"""The scheme `rapid`: OpenAI's Rapid as PyTorchRL's grid has it: asynchronous collectors, synchronous gradient workers.

Two levels: each gradient worker owns a share of the collectors, which wait for nobody; the updates are in step.
"""

from __future__ import annotations

from pathlib import Path

from hive.config import Config
from hive.runtime import Topology
from hive.schemes.trainer import trainer

__all__ = ["topology"]


def topology(config: Config, directory: Path) -> Topology:
    return trainer(config, directory)
