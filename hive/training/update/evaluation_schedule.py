"""After which turns the weights are evaluated: evaluation.every, in updates or in environment steps.

With { steps = N } that is the first end of a round at or after each multiple of N. The steps of a round are those that
it has by its size, so the turns follow from numbers alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from hive.training.blueprint import Blueprint
from hive.training.resume_barriers import ResumeBarriers


@dataclass(frozen=True)
class EvaluationSchedule:
    """updates, steps: evaluation.every; 0 for the other one, and both for none.

    round_steps, shares: the environment steps of a round as `barriers` count rounds are round_steps / shares; without
    order that is one rollout, or a part of it.
    """

    barriers: ResumeBarriers
    updates: int = 0
    steps: int = 0
    round_steps: int = 1
    shares: int = 1

    @classmethod
    def of(cls, blueprint: Blueprint, barriers: ResumeBarriers) -> EvaluationSchedule:
        """Return the schedule of a run."""
        config, workers = blueprint.config, blueprint.gradient_workers
        every = config.evaluation.every
        any_rollout = config.collection.communication == "asynchronous" and not blueprint.replays
        each_turn = 1 if config.gradients.communication == "asynchronous" else workers
        shares = blueprint.collectors if any_rollout else workers
        counts = int(every.get("updates", 0)), int(every.get("steps", 0))
        return cls(barriers, *counts, blueprint.round_steps * each_turn, shares)

    @property
    def has_any(self) -> bool:
        """Whether there are evaluations."""
        return self.updates > 0 or self.steps > 0

    @property
    def rounding(self) -> str:
        """How multiples of `steps` are rounded; "" if they are ends of rounds, or not used."""
        if not self.steps or self.steps * self.shares % self.round_steps == 0:
            return ""
        each = self.round_steps / self.shares
        return f"evaluations are due every {self.steps:,} steps, and made at the end of that round of {each:,.0f} steps"

    def is_due(self, turn: int) -> bool:
        """Return whether the weights of this turn are evaluated."""
        if not turn or not self.has_any:
            return False
        if self.updates:
            return turn % self.updates == 0
        rounds = self.barriers.rounds_after(turn)
        common = self.barriers.common
        if common is not None and rounds <= common.begins:
            return False  # a policy is still in its warm-up, and has no turn to evaluate
        return self.barriers.ends_round(turn) and self._count(rounds) > self._count(rounds - 1)

    def number(self, turn: int) -> int:
        """Return the number of the evaluation that is due after a turn. Policies of one run count the same ones."""
        return turn // self.updates if self.updates else self._count(self.barriers.rounds_after(turn))

    def until_next(self, turn: int) -> int:
        """Return how many turns after this one the next is that is evaluated. There must be any."""
        if self.updates:
            return self.updates - turn % self.updates
        rounds = -(-(self._count(self.barriers.rounds_after(turn)) + 1) * self.steps * self.shares // self.round_steps)
        last = -(-self.barriers.first_gradient(rounds) // self.barriers.per_turn)
        return max(last - turn, 1)

    def _count(self, rounds: int) -> int:
        """Return how many multiples of `steps` these rounds have reached."""
        return rounds * self.round_steps // (self.steps * self.shares)
