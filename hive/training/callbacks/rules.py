"""The rules of a config that end a run or change its environments: callbacks of hive's own, within the learner.

run.stop_at_evaluation, run.stop_after_evaluations     StopAtEvaluation
run.stop_when_no_better                                StopWhenNoBetter
env.curriculum                                         Curriculum
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hive.config import Config
from hive.records.return_text import return_text
from hive.training.callbacks.events import Callback, EvaluationEvent, RoundEvent
from hive.training.update.learner import RETURNS_KEPT

NONE_YET = -1  # of the episodes before a stage: those before the next event


class StopAtEvaluation(Callback):
    """Ends the run once `times` successive evaluations have reached `goal`."""

    kept = ("reached",)

    def __init__(self, goal: float, times: int, what: str) -> None:
        self.goal, self.times, self.what = goal, times, what
        self.reached = 0  # successive evaluations

    def on_evaluation(self, event: EvaluationEvent) -> None:
        """Count the evaluation."""
        self.reached = self.reached + 1 if event.value >= self.goal else 0
        if self.reached >= self.times:
            many = f" in {self.times} successive evaluations" if self.times > 1 else ""
            event.stop(f"evaluation: {self.what} {return_text(event.value)} >= {self.goal:g}{many}")


class StopWhenNoBetter(Callback):
    """Ends the run once `times` successive evaluations have not been better than the best before them."""

    kept = ("worse",)

    def __init__(self, times: int, what: str) -> None:
        self.times, self.what = times, what
        self.worse = 0  # successive evaluations

    def on_evaluation(self, event: EvaluationEvent) -> None:
        """Count the evaluation."""
        self.worse = 0 if event.is_best else self.worse + 1
        if self.worse >= self.times:
            event.stop(f"no better {self.what} in {self.times} successive evaluations")


class Curriculum(Callback):
    """Makes environments with other options once a stage begins. stages: as env.curriculum.

    A stage begins at its number of steps, or once the mean of 100 returns of the stage before reaches its return.
    delay: rounds until the environments have the options of a stage.
    """

    kept = ("stage", "episodes", "begins")

    def __init__(self, stages: Sequence[Mapping[str, Any]], delay: int = 0) -> None:
        self.stages = stages
        self.delay = delay
        self.stage = 0  # how many have begun
        self.begins = 0  # rounds after which all episodes are those of the last stage
        self.episodes = 0  # of all training, at that time

    def on_round(self, event: RoundEvent) -> None:
        """Begin the next stage if it is due."""
        if event.number <= self.begins or self.episodes == NONE_YET:
            self.episodes = event.number_of_episodes
        while self.stage < len(self.stages) and self._is_due(self.stages[self.stage], event):
            event.env.options(**self.stages[self.stage]["options"])
            self.stage += 1
            self.begins, self.episodes = event.number + self.delay, event.number_of_episodes
        event.log({"curriculum/stage": self.stage})

    def _is_due(self, stage: Mapping[str, Any], event: RoundEvent) -> bool:
        if "steps" in stage:
            return event.env_steps >= int(stage["steps"])
        judged = event.number_of_episodes - self.episodes >= RETURNS_KEPT
        return judged and event.mean_return_100 >= float(stage["return"])


def rules_of(config: Config) -> dict[str, Callback]:
    """Return the rules of a config by the keys that make them."""
    run, what = config.run, best_text(config.evaluation.best_by)
    rules: dict[str, Callback] = {}
    if run.stop_at_evaluation is not None:
        rules["run.stop_at_evaluation"] = StopAtEvaluation(run.stop_at_evaluation, run.stop_after_evaluations, what)
    if run.stop_when_no_better:
        rules["run.stop_when_no_better"] = StopWhenNoBetter(run.stop_when_no_better, what)
    if config.env.curriculum:
        rules["env.curriculum"] = Curriculum(
            config.env.curriculum, config.collection.max_lag + config.collection.broadcast_interval - 1
        )
    return rules


def best_text(best_by: str) -> str:
    """Return evaluation.best_by in words: "mean return", or the name of a value of env.info."""
    return best_by.replace("mean_return", "mean return").removeprefix("info/")
