"""Keeps the best policy of a run on disk: the weights of one turn, replaced by those of a better one.

    [evaluation] every is set      the evaluator has the turn's weights and the mean return of whole episodes
    otherwise                      the recorder gets the policies that have played with the highest mean returns
    otherwise, checkpoint.every = {}     no policy is kept

What is on disk determines what is best. So a successor of a killed process, a resumed run and the next stage of a
scaled run continue with the same best policy, and a kill loses one candidate at most. Training reads nothing of this.
"""

from __future__ import annotations

import logging
import math

import numpy as np
from numpy.typing import NDArray

from hive.errors import RecordError
from hive.records import JSON, RunDirectory, best_policy, only_writer, remove_unfinished, replace_best
from hive.records.owner import Ownership
from hive.records.return_text import return_text
from hive.records.runs import folder_of_run
from hive.runtime.wire.arrays import MAX_ARRAY_BYTES
from hive.training.blueprint import Blueprint
from hive.training.messages import Evaluation
from hive.training.update.learner import RETURNS_KEPT

# Turns between two candidates for the best policy, as a share of the turns so far. A return that rises all the time
# then costs 50 writes each time the number of turns grows by a factor of e, however long the run is, and a policy that
# lasted for 2 % of the run is not missed.
BEST_SPACING = 0.02
MEAN_RETURN = "mean_return"  # the default of evaluation.best_by


def value_of(evaluation: Evaluation, best_by: str) -> float:
    """Return the value of an evaluation that evaluation.best_by names; NaN if no episode had it."""
    if best_by == MEAN_RETURN:
        return evaluation.mean_return
    return evaluation.info.get(best_by.removeprefix("info/"), math.nan)


def best_by(blueprint: Blueprint) -> str | None:
    """Return the return that the best policy is chosen by: "evaluation" or "training"; None if none is kept."""
    if blueprint.config.evaluation.every:
        return "evaluation"
    sendable = blueprint.flat.block_bytes <= MAX_ARRAY_BYTES  # the learner sends the weights to the recorder
    return "training" if blueprint.config.checkpoint.every and sendable else None


class BestSchedule:
    """The learner's choice of turns at which the policy that played may be the best by training return.

    It begins without a best return, also in a successor of the learner and in a resumed run: the recorder compares what
    it gets with the best policy on disk.
    """

    def __init__(self) -> None:
        self.best = -math.inf  # highest mean return of an offered turn
        self.turn = 0  # the turn that was offered last

    def improved(self, turn: int, episodes: int, mean_return: float, *, last: bool = False) -> bool:
        """Return whether to offer the policy of the last 100 episodes before `turn`, and record that it is offered.

        A mean of fewer than 100 episodes is not comparable, and one that is not finite is never the best. last: there
        is no later turn.
        """
        if episodes < RETURNS_KEPT or (turn < self.turn * (1 + BEST_SPACING) and not last):
            return False
        if not self.best < mean_return < math.inf:  # also for NaN
            return False
        self.turn, self.best = turn, mean_return
        return True


class BestPolicy:
    """A writer of `best/`: an evaluator of the run, or its recorder. Only one at a time writes, under a lock.

    blueprint, directory: those of the run. log: reports policies that were kept, and those that could not be written.
    """

    def __init__(self, blueprint: Blueprint, directory: RunDirectory, log: logging.Logger) -> None:
        self.blueprint = blueprint
        self.root = directory.best
        self.ownership = Ownership(RunDirectory(folder_of_run(directory.path)))
        self.log = log
        self.best_by = blueprint.config.evaluation.best_by if best_by(blueprint) == "evaluation" else MEAN_RETURN
        with only_writer(self.root.parent):
            remove_unfinished(self.root)  # left by an incarnation that was killed
            self._read()

    def _read(self) -> None:
        best = best_policy(self.root)
        self.value, self.turn = -math.inf, 0
        if best is not None and best.mean_return is not None and best.state.get("best_by", MEAN_RETURN) == self.best_by:
            self.value, self.turn = float(best.state.get("value", best.mean_return)), best.update

    def offer(
        self,
        weights: NDArray[np.uint8],
        turn: int,
        *,
        updates: int,
        env_steps: int,
        mean_return: float,
        episodes: int,
        value: float | None = None,
    ) -> None:
        """Keep the weights if `value`, by default `mean_return`, is finite and higher than that of the best policy.

        Of equal ones that of the earliest turn is kept: several evaluators finish in any order.

        weights: uint8 [block_bytes or more], those of `turn`. episodes: number of episodes in `mean_return`. value:
        that of evaluation.best_by.

        An error of writing is logged, and the best policy is then still the previous one.
        """
        value = mean_return if value is None else value
        if not (math.isfinite(mean_return) and self._is_better(value, turn)):
            return
        state: dict[str, JSON] = {
            "mean_return": mean_return,
            "value": value,
            "best_by": self.best_by,
            "episodes": episodes,
            "by": best_by(self.blueprint),
            "env_steps": env_steps,
            "updates": updates,
            "env": self.blueprint.config.env.id,
            "policy": self.blueprint.policy(),
        }
        flat = self.blueprint.flat
        try:
            with only_writer(self.root.parent):
                self.ownership.check()
                self._read()  # another evaluator may have written a better one since
                if not self._is_better(value, turn):
                    return
                replace_best(self.root, turn, tensors=flat.arrays(weights[: flat.block_bytes]), state=state)
        except RecordError as error:  # the run continues, e.g. on a full disk
            self.log.warning("the best policy was not kept: %s", error)
            return
        self.value, self.turn = value, turn
        self.log.info("the best policy is that of update %d: mean return %s", turn, return_text(mean_return))

    def _is_better(self, value: float, turn: int) -> bool:
        higher = self.value < value < math.inf  # false for NaN
        return higher or (value == self.value and turn < self.turn)
