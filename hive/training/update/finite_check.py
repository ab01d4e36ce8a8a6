"""Turns that were not applied because a value was not finite: how many in a row a run accepts, and what it reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hive.errors import NotFinite
from hive.runtime import Slot
from hive.training.blueprint import Blueprint
from hive.training.update.learner import LearnerStep

MOST_SKIPPED = 100  # turns without an update in a row; by then nothing finite can be expected, as weights do not change
HINT = (
    "lower algorithm.learning_rate, set algorithm.clip_gradients, or set network.normalize_rewards = true for "
    "large rewards; events.jsonl names the origin, and not-finite/ of the run holds the rollouts, inputs and "
    "weights"
)


class FiniteCheck:
    """Counts the consecutive turns that were skipped. note: writes to the run's event log."""

    def __init__(self, blueprint: Blueprint, note: Callable[..., None]) -> None:
        self.stops = blueprint.config.supervision.non_finite == "stop"
        self.note = note
        self.skipped = 0  # consecutive turns that were not finite
        self.last_cause = ""  # `cause` of the last skipped turn
        resume = blueprint.resume
        self.first_turn = resume.update if resume else 0
        self.first_updates = int(resume.state.get("updates", 0)) if resume else 0

    def add(self, turn: int, step: LearnerStep, claimed: Sequence[Slot]) -> None:
        """Count a turn, and log it if it was skipped."""
        self.skipped = self.skipped + 1 if step.cause else 0
        if step.cause:
            self.last_cause = step.cause
            self.note("skipped", f"turn {turn} was not applied: {_fault(step, claimed)}", turn=turn)

    def check(self, turn: int) -> None:
        """Raise NotFinite at the first turn that is not finite, or after MOST_SKIPPED in a row, as configured."""
        if self.skipped >= (1 if self.stops else MOST_SKIPPED):
            why = '[supervision] non_finite = "stop"' if self.stops else f"{self.skipped} turns in a row"
            raise NotFinite(f"the {self.last_cause} of turn {turn} was not finite ({why})", hint=HINT)

    def check_end(self, turn: int, skipped: float, updates: float) -> None:
        """Raise NotFinite if all turns of this run were skipped: it has reached its goal without any training.

        turn: the last. skipped, updates: of the whole run, also before it was resumed.
        """
        turns = turn - self.first_turn
        if turns and skipped and updates == self.first_updates:
            why = f": the last was skipped because its {self.last_cause} was not finite" if self.last_cause else ""
            raise NotFinite(f"no update was made in {turns} turns{why}", hint=HINT)


def _fault(step: LearnerStep, claimed: Sequence[Slot]) -> str:
    """Describe the first value of a turn that was not finite, with its gradient worker."""
    if step.bad < 0:
        return f"its {step.cause} is not finite, though every gradient is"
    slot = claimed[step.bad]
    return f"the {step.cause} of gradient {slot.sequence} of gradient-worker-{slot.producer} is not finite"
