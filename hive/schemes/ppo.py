"""The scheme `ppo`: clipped policy optimisation: several epochs of minibatches per round."""

from __future__ import annotations

from pathlib import Path

from hive.config import Config
from hive.runtime import Topology
from hive.schemes.trainer import trainer

__all__ = ["topology"]


def topology(config: Config, directory: Path) -> Topology:
    return trainer(config, directory)
