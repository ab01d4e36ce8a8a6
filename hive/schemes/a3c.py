"""The scheme `a3c`: asynchronous advantage actor-critic (Mnih et al. 2016).

Each gradient worker collects in its own process and sends its gradient when it has one; the learner applies what comes.
"""

from __future__ import annotations

from pathlib import Path

from hive.config import Config
from hive.runtime import Topology
from hive.schemes.trainer import trainer

__all__ = ["topology"]


def topology(config: Config, directory: Path) -> Topology:
    return trainer(config, directory)
