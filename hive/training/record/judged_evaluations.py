"""Whether the evaluations of a run had values by which its rules and the choice of the best policy can judge."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from hive.config import Config
from hive.envs.agents.seats import TEAM
from hive.records.run_warnings import GOAL_NOT_JUDGED, RunWarning
from hive.training.record.best_policy import MEAN_RETURN, is_same
from hive.training.record.health import INFO_MISSING

BALANCED = "balanced"  # key of the lines of evaluations.jsonl for which `Evaluation.balanced` is true


class JudgedEvaluations:
    """Takes the lines of evaluations.jsonl."""

    def __init__(self, config: Config, lines: Iterable[Mapping[str, Any]]) -> None:
        self._run, self._every = config.run, config.evaluation.every
        self._best_by = config.evaluation.best_by
        self._made = 0
        self._first: float | None = None  # value
        self._chooses = False  # whether values have differed
        self._balanced = False  # whether one was of sums that never differ
        for line in lines:
            self.take(line)

    def take(self, line: Mapping[str, Any]) -> None:
        """Take a line."""
        self._made += 1
        value = line.get(self._best_by)
        if not isinstance(value, int | float) or not math.isfinite(value):
            return
        self._first = value if self._first is None else self._first
        self._balanced |= line.get(BALANCED) is True and self._best_by in (MEAN_RETURN, f"info/{TEAM}")
        self._chooses |= not is_same(value, self._first)

    def at_end(self, steps: int) -> list[RunWarning]:
        """Return the warnings of a run that ends now, after `steps` environment steps."""
        cause, advice = self._cause(steps)
        if not cause:
            return []
        rules = self._rules()
        text = f"{' and '.join(rules)} was never judged: {cause}" if rules else cause
        return [RunWarning(GOAL_NOT_JUDGED if rules else INFO_MISSING, text, advice, steps)]

    def _rules(self) -> list[str]:
        goal, times = self._run.stop_at_evaluation, self._run.stop_when_no_better
        rules = [] if goal is None else [f"run.stop_at_evaluation = {goal:g}"]
        return [*rules, f"run.stop_when_no_better = {times}"] if times else rules

    def _cause(self, steps: int) -> tuple[str, str]:
        """Return why values cannot be judged, and what helps; "" if they can."""
        if not self._made:
            missed = bool(self._rules()) and steps >= self._run.steps
            return ("no evaluation was made", "lower evaluation.every") if missed else ("", "")
        if self._first is None:
            return (
                f'no evaluation had the value of evaluation.best_by = "{self._best_by}"',
                "env.info names what the info of an episode's last step has, also after its wrappers",
            )
        if self._run.stop_when_no_better and self._balanced and not self._chooses:
            return (
                "the returns of the agents add up to the same in every episode, whatever the policy does",
                "judge by a value of env.info (evaluation.best_by), or play against a frozen policy ([policies])",
            )
        return "", ""
