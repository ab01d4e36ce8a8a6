"""Pruning for Optuna: reports how a run does to a trial, and ends the run if the trial's pruner says so.

def objective(trial):
    rate = trial.suggest_float("learning_rate", 1e-4, 1e-2, log=True)
    result = hive.train("trial.toml", learning_rate=rate, callbacks=[Pruning(trial)])
    return result.best["mean_return"]
"""

from __future__ import annotations

import math
from typing import Any

from hive.errors import UsageError
from hive.training.callbacks.events import CallbackEvent, EvaluationEvent, RoundEvent

METRICS = {"evaluation": ("on_evaluation",), "return": ("on_round",)}
REPORTS_EVERY = 5_000  # environment steps between two reports of the training return: a study keeps each of them


class Pruning:
    """A callback for `hive.train(callbacks=[Pruning(trial)])`.

    trial: an optuna.Trial. metric: "evaluation", the value of evaluation.best_by of each evaluation, or "return", the
    mean of the last 100 training returns, every `every` environment steps.

    `hive.train` then raises optuna.TrialPruned for a run that was pruned, or stopped before it has reached its goal.
    Raises UsageError for another metric.
    """

    def __init__(self, trial: Any, metric: str = "evaluation", every: int = REPORTS_EVERY) -> None:
        if metric not in METRICS:
            raise UsageError(f"unknown metric `{metric}`", hint=f"metrics: {', '.join(METRICS)}")
        self.trial = trial
        self.handlers = METRICS[metric]
        self.every = every
        self.pruned = False
        self._reported = 0  # environment steps of the last report, in units of `every`

    def on_evaluation(self, event: EvaluationEvent) -> None:
        """Report an evaluation."""
        self._report(event, event.value)

    def on_round(self, event: RoundEvent) -> None:
        """Report the training return, if it is time."""
        number = event.env_steps // self.every
        if number > self._reported and math.isfinite(event.mean_return_100):
            self._reported = number
            self._report(event, event.mean_return_100)

    def on_result(self, result: Any) -> None:
        """Raise optuna.TrialPruned if the run was pruned, or stopped: the value of a shortened trial is no result.

        Called in `hive.train` before it returns.
        """
        if self.pruned or result.state == "stopped":
            import optuna

            raise optuna.TrialPruned(result.stop_reason)

    def _report(self, event: CallbackEvent, value: float) -> None:
        self.trial.report(value, event.env_steps)
        if self.trial.should_prune():
            self.pruned = True
            event.stop(f"pruned by Optuna at {event.env_steps:,} steps")
