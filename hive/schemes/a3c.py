"""The scheme `a3c`: asynchronous advantage actor-critic (Mnih et al. 2016).

Each gradient worker collects in its own process and sends gradients asynchronously. The learner applies them in order
of arrival.
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
