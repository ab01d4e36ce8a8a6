"""When the learner saves: what falls due, and what is overdue.

    due       after `checkpoint.every`: in deterministic runs the cut, in asynchronous ones the first end of a round
              since then, or by the clock
    overdue   nothing was saved for `checkpoint.autosave_s`: a crash of the machine would cost too much work. Such a
              save is no cut, nobody begins anew for it, and the bytes of the run stay what they are; what is resumed
              from it is not exact. Only ends of rounds are saved so, and nothing where `every` is {}

Nothing here writes. The recorder does, and may be busy: who is overdue then is so at the next turn too.
"""

from __future__ import annotations

from hive.clock import Clock
from hive.config import Config
from hive.workers.resume_barriers import ResumeBarriers

__all__ = ["SaveSchedule"]


class SaveSchedule:
    """Asked after every turn, in order, by the one learner there is; a later incarnation's clock begins anew."""

    def __init__(self, config: Config, cuts: ResumeBarriers, clock: Clock) -> None:
        self.barriers = cuts
        self.clock = clock
        self.asynchronous = config.asynchronous
        self.every = int(config.checkpoint.every.get("updates", 0))
        self.every_ns = int(config.checkpoint.every.get("seconds", 0) * 1e9)
        self.most_ns = config.checkpoint.autosave_s * 1e9 if config.checkpoint.every else 0
        self.saved()

    def saved(self) -> None:
        """A checkpoint is being written, whoever asked for it."""
        self.last_ns = self.clock.now_ns()

    def due(self, turn: int) -> bool:
        """Whether the checkpoint of the schedule is that of `turn`. By the clock it is told once, written or not."""
        if self.every_ns:
            if is_due := self.clock.now_ns() - self.last_ns >= self.every_ns:
                self.saved()
            return is_due
        if self.asynchronous:
            return self.barriers.is_first_end(turn, self.every)
        return self._ends_round(turn) and self.barriers.is_cut(turn * self.barriers.per_turn // self.barriers.per_round)

    def overdue(self, turn: int) -> bool:
        """Whether `turn` is to be saved although it is not due."""
        return 0 < self.most_ns <= self.clock.now_ns() - self.last_ns and self._ends_round(turn)

    def _ends_round(self, turn: int) -> bool:
        return turn * self.barriers.per_turn % self.barriers.per_round == 0
