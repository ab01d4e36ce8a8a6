"""Decides when the learner saves: which turns are due or overdue as a checkpoint, and which may be the best policy.

    due       `checkpoint.every` has passed. In deterministic runs that is the turn of a resume barrier. In asynchronous
              runs it is the first end of a round after that many updates, or the first turn after that many seconds
    overdue   nothing was saved for `checkpoint.autosave_s`, so a crash of the machine would lose too much work. Only
              ends of rounds are saved so, and none if `checkpoint.every` is {}. An overdue save is no resume barrier:
              it leaves the run bit-identical, but a run resumed from it is not exact

    improved  the mean training return is the highest so far. Counted in turns, so the same seed offers the same turns

The recorder writes the checkpoints. While it is busy, an overdue checkpoint stays overdue at the next turn.
"""

from __future__ import annotations

import math

from hive.clock import Clock
from hive.config import Config
from hive.training.resume_barriers import ResumeBarriers
from hive.training.update.learner import RETURNS_KEPT

__all__ = ["BestSchedule", "SaveSchedule"]

# Turns between two candidates for the best policy, as a share of the turns so far. A return that rises all the time
# then costs 50 writes each time the number of turns grows by a factor of e, however long the run is, and a policy that
# lasted for 2 % of the run is not missed.
BEST_SPACING = 0.02


class SaveSchedule:
    """The learner's schedule of checkpoints. Call it once per turn, in order.

    Time is measured by `clock` from the construction, so a new incarnation of the learner starts at 0 seconds.
    """

    def __init__(self, config: Config, barriers: ResumeBarriers, clock: Clock) -> None:
        self.barriers = barriers
        self.clock = clock
        self.every_ns = int(config.checkpoint.every.get("seconds", 0) * 1e9)
        self.most_ns = config.checkpoint.autosave_s * 1e9 if config.checkpoint.every else 0
        self.saved()

    def saved(self) -> None:
        """Record that a checkpoint is being written now, for whatever reason."""
        self.last_ns = self.clock.now_ns()

    def due(self, turn: int) -> bool:
        """Return whether a scheduled checkpoint is due at `turn`.

        A schedule in seconds returns True once per interval, whether or not the checkpoint is then written.
        """
        if self.every_ns:
            if is_due := self.clock.now_ns() - self.last_ns >= self.every_ns:
                self.saved()
            return is_due
        return self.barriers.is_checkpoint(turn)

    def overdue(self, turn: int) -> bool:
        """Return whether `turn` should be saved although no scheduled checkpoint is due."""
        return 0 < self.most_ns <= self.clock.now_ns() - self.last_ns and self.barriers.ends_round(turn)


class BestSchedule:
    """The learner's choice of turns whose weights may be the best by training return.

    It begins without a best return, also in a successor of the learner and in a resumed run: the recorder compares what
    it gets with the best policy on disk.
    """

    def __init__(self) -> None:
        self.best = -math.inf  # highest mean return of an offered turn
        self.turn = 0  # the turn that was offered last

    def improved(self, turn: int, episodes: int, mean_return: float) -> bool:
        """Return whether to offer `turn`, whose last 100 episodes have this mean return, and record that it is offered.

        A mean of fewer than 100 episodes is not comparable, and one that is not finite is never the best.
        """
        if episodes < RETURNS_KEPT or turn < self.turn * (1 + BEST_SPACING):
            return False
        if not self.best < mean_return < math.inf:  # also for NaN
            return False
        self.turn, self.best = turn, mean_return
        return True
