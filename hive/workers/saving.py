"""Decides when the learner saves a checkpoint: which turns are due and which are overdue.

    due       `checkpoint.every` has passed. In deterministic runs that is the turn of a resume barrier. In asynchronous
              runs it is the first end of a round after that many updates, or the first turn after that many seconds
    overdue   nothing was saved for `checkpoint.autosave_s`, so a crash of the machine would lose too much work. Only
              ends of rounds are saved so, and none if `checkpoint.every` is {}. An overdue save is no resume barrier:
              it leaves the run bit-identical, but a run resumed from it is not exact

The recorder writes the checkpoints. While it is busy, an overdue checkpoint stays overdue at the next turn.
"""

from __future__ import annotations

from hive.clock import Clock
from hive.config import Config
from hive.workers.resume_barriers import ResumeBarriers

__all__ = ["SaveSchedule"]


class SaveSchedule:
    """The learner's schedule of checkpoints. Call it once per turn, in order.

    Time is measured by `clock` from the construction, so a new incarnation of the learner starts at 0 seconds.
    """

    def __init__(self, config: Config, barriers: ResumeBarriers, clock: Clock) -> None:
        self.barriers = barriers
        self.clock = clock
        self.asynchronous = config.asynchronous
        self.every = int(config.checkpoint.every.get("updates", 0))
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
        if self.asynchronous:
            return self.barriers.is_first_round_end(turn, self.every)
        round_number = turn * self.barriers.per_turn // self.barriers.per_round
        return self._ends_round(turn) and self.barriers.is_barrier(round_number)

    def overdue(self, turn: int) -> bool:
        """Return whether `turn` should be saved although no scheduled checkpoint is due."""
        return 0 < self.most_ns <= self.clock.now_ns() - self.last_ns and self._ends_round(turn)

    def _ends_round(self, turn: int) -> bool:
        return turn * self.barriers.per_turn % self.barriers.per_round == 0
