"""When the training of a run ends: its steps, its mean return, a callback, or the other policies of the run."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hive.config import Config
from hive.records.return_text import return_text
from hive.training.callbacks.sequence import CallbackSequence
from hive.training.schedule import Schedule
from hive.training.update.goal import SharedGoal
from hive.training.update.results import Results


@dataclass(frozen=True)
class RunEnd:
    """Judges the results of each turn. goal: the common end of several policies."""

    config: Config
    schedule: Schedule
    results: Results
    callbacks: CallbackSequence | None
    goal: SharedGoal | None

    async def reached(self, turn: int) -> str | None:
        """Return why the run has reached its goal after a turn, or None; several policies end together."""
        reason = self._reason(turn)
        if self.goal is None:
            return reason
        if not self.schedule.gradients.may_end(turn):
            return None  # a callback may have asked for the end: all policies end the same round
        barriers = self.schedule.barriers
        rounds = barriers.rounds_after(turn)
        has_steps = self.results.totals["env_steps"] >= self.config.run.steps
        if reason is not None and not has_steps:
            self.goal.end_after(barriers.common_end(rounds), reason)
        over = await self.goal.is_over(rounds, has_steps=has_steps)
        return self.goal.reason or reason if over else None

    def _reason(self, turn: int) -> str | None:
        """Return why this policy has reached its goal, or None. It depends on the optimizer state alone.

        A successor within the last round also makes the other turns of this round first.
        """
        if self.callbacks is not None and self.callbacks.stop is not None:
            return self.callbacks.stop
        if not self.schedule.gradients.may_end(turn):
            return None
        run, totals = self.config.run, self.results.totals
        mean_return_100 = totals["mean_return_100"]
        judged = totals["episodes"] >= 100 and math.isfinite(mean_return_100)
        if judged and run.stop_at_return is not None and mean_return_100 >= run.stop_at_return:
            return f"mean return {return_text(mean_return_100)} >= {run.stop_at_return:g}"
        return f"{run.steps:,} steps" if totals["env_steps"] >= run.steps else None
