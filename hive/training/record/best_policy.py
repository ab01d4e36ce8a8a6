"""Keeps the best policy of a run on disk: the weights of one turn, replaced by those of a better one.

    [evaluation] every is set      the evaluator has the turn's weights and the mean return of whole episodes
    otherwise                      the recorder gets the policies that have played with the highest mean returns
    otherwise, checkpoint.every = {}     no policy is kept

What is on disk determines what is best, unless it was measured otherwise (`measure_of`). So a successor of a killed
process, a resumed run and the next stage of a scaled run continue with the same best policy, and a kill loses one
candidate at most. Training reads nothing of this.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.config import Config
from hive.config.values import digest_of
from hive.envs.agents.seats import TEAM
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
# Keys of [env] on which returns depend.
PLAYED = ("id", "command", "options", "reset_options", "each", "preset", "wrappers")
SAME_SUM = 1e-5  # largest difference between sums of returns that are equal, as a share of the largest return


def value_of(evaluation: Evaluation, best_by: str) -> float:
    """Return the value of an evaluation that evaluation.best_by names; NaN if no episode had it."""
    if best_by == MEAN_RETURN:
        return evaluation.mean_return
    return evaluation.info.get(best_by.removeprefix("info/"), math.nan)


def is_balanced(returns: Sequence[Sequence[float]] | NDArray[Any]) -> bool:
    """Return whether returns [episodes, agents] vary, but not the sums of the episodes, as in a zero-sum game.

    Their mean then says nothing about a policy that all these agents share.
    """
    each = np.asarray(returns, np.float64)
    if each.ndim != 2 or min(each.shape) < 2 or not np.isfinite(each).all():
        return False
    least = SAME_SUM * max(float(np.abs(each).max()), 1.0)
    return bool(np.ptp(each, axis=0).max() > least >= np.ptp(each.sum(axis=1)))


def chooses_none(evaluation: Evaluation, best_by: str) -> bool:
    """Return whether the value that evaluation.best_by names is the same for every policy, as far as is seen here."""
    return evaluation.balanced and best_by in (MEAN_RETURN, f"info/{TEAM}")


def is_same(value: float, other: float) -> bool:
    """Return whether two mean returns differ by rounding only."""
    return math.isclose(value, other, rel_tol=SAME_SUM, abs_tol=SAME_SUM)


def latest_by_episode(returns: NDArray[np.float32], episodes: int, agents: int) -> NDArray[np.float32]:
    """Return the returns [E, agents] of the latest episodes in a ring of RETURNS_KEPT, if agents end together.

    episodes: how many returns were counted.
    """
    if episodes < RETURNS_KEPT:
        return returns[:0].reshape(0, agents)
    return np.roll(returns, -(episodes % RETURNS_KEPT))[RETURNS_KEPT % agents :].reshape(-1, agents)


def best_by(blueprint: Blueprint) -> str | None:
    """Return the return that the best policy is chosen by: "evaluation" or "training"; None if none is kept."""
    if blueprint.config.evaluation.every:
        return "evaluation"
    sendable = blueprint.flat.block_bytes <= MAX_ARRAY_BYTES  # the learner sends the weights to the recorder
    return "training" if blueprint.config.checkpoint.every and sendable else None


def measure_of(config: Config, by: str | None) -> dict[str, JSON]:
    """Return what two values of policies must have in common to be compared. by: as `best_by` returns it."""
    evaluated = by == "evaluation"
    env = config.evaluation_env if evaluated else config.env
    plays = [getattr(env, name) for name in PLAYED], config.evaluation.max_steps if evaluated else 0
    return {"by": by, "best_by": config.evaluation.best_by if evaluated else MEAN_RETURN, "plays": digest_of(plays)}


class BestSchedule:
    """The learner's choice of turns at which the policy that played may be the best by training return.

    It begins without a best return, also in a successor of the learner and in a resumed run: the recorder compares what
    it gets with the best policy on disk.
    """

    def __init__(self) -> None:
        self.best = -math.inf  # highest mean return of an offered turn
        self.turn = 0  # the turn that was offered last

    def improved(
        self, turn: int, episodes: int, mean_return: float, *, last: bool = False, balanced: bool = False
    ) -> bool:
        """Return whether to offer the policy of the last 100 episodes before `turn`, and record that it is offered.

        A mean of fewer than 100 episodes is not comparable, and one that is not finite is never the best. last: there
        is no later turn. balanced: an equal mean is offered, too.
        """
        if episodes < RETURNS_KEPT or (turn < self.turn * (1 + BEST_SPACING) and not last):
            return False
        higher = self.best < mean_return < math.inf  # false for NaN
        if not higher and not (balanced and is_same(mean_return, self.best)):
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
        self.measure = measure_of(blueprint.config, best_by(blueprint))
        with only_writer(self.root.parent):
            remove_unfinished(self.root)  # left by an incarnation that was killed
            self._read()

    def _read(self) -> None:
        best = best_policy(self.root)
        self.value, self.turn, self.balanced, self.replaces = -math.inf, 0, False, ""
        if best is None or best.mean_return is None:
            return
        before = {"best_by": MEAN_RETURN, **best.state}  # runs of earlier versions have no digest
        if all(before.get(name, value) == value for name, value in self.measure.items()):
            self.value, self.turn = float(best.state.get("value", best.mean_return)), best.update
            self.balanced = best.state.get("balanced") is True
        else:
            self.replaces = f"; that of update {best.update} was chosen by other returns, which do not compare"

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
        balanced: bool = False,
    ) -> None:
        """Keep the weights if `value`, by default `mean_return`, is finite and higher than that of the best policy.

        Of equal ones that of the earliest turn is kept: several evaluators finish in any order. balanced: as of
        `Evaluation`; then that of the newest turn is kept, because the value chooses none.

        weights: uint8 [block_bytes or more], those of `turn`. episodes: number of episodes in `mean_return`. value:
        that of evaluation.best_by.

        An error of writing is logged, and the best policy is then still the previous one.
        """
        value = mean_return if value is None else value
        if not (math.isfinite(mean_return) and self._is_better(value, turn, balanced)):
            return
        state: dict[str, JSON] = {
            "mean_return": mean_return,
            "value": value,
            **self.measure,
            "episodes": episodes,
            "env_steps": env_steps,
            "updates": updates,
            "balanced": balanced or (self.balanced and is_same(value, self.value)),
            "env": self.blueprint.config.env.id,
            "policy": self.blueprint.policy(),
        }
        flat = self.blueprint.flat
        try:
            with only_writer(self.root.parent):
                self.ownership.check()
                self._read()  # another evaluator may have written a better one since
                if not self._is_better(value, turn, balanced):
                    return
                replace_best(self.root, turn, tensors=flat.arrays(weights[: flat.block_bytes]), state=state)
        except RecordError as error:  # the run continues, e.g. on a full disk
            self.log.warning("the best policy was not kept: %s", error)
            return
        self.balanced = state["balanced"] is True
        self.value, self.turn = value, turn
        shown = return_text(mean_return) + self.replaces
        self.log.info("the best policy is that of update %d: mean return %s", turn, shown)

    def _is_better(self, value: float, turn: int, balanced: bool) -> bool:
        if (balanced or self.balanced) and is_same(value, self.value):
            return turn > self.turn
        higher = self.value < value < math.inf  # false for NaN
        return higher or (value == self.value and turn < self.turn)
