"""A trainer whose learner is slow: it sleeps within each update."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from hive.config import Config
from hive.runtime import Topology
from hive.schemes.trainer import trainer
from hive.training.update.learner import LearnerStep
from hive.training.update.learner_actor import LearnerActor

SLEEP_S = 0.05


class SlowLearner(LearnerActor):
    """Takes its time with every update."""

    async def setup(self) -> None:
        await super().setup()
        turn = self.learner.turn

        def slow(*arguments: Any) -> LearnerStep:
            done = turn(*arguments)
            self.status.enter(self.learner.phase)
            time.sleep(SLEEP_S)
            self.status.enter(self.status.runtime)
            return done

        self.learner.turn = slow  # type: ignore[method-assign]


def scheme(config: Config, directory: Path) -> Topology:
    """The built-in trainer with that learner."""
    topology = trainer(config, directory)
    topology["learner"].cls = SlowLearner
    return topology
