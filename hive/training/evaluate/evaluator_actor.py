"""The evaluator's actor evaluates the weights that the learner holds for it.

    learner ──EvaluationDue──> evaluator ──Evaluation──> recorder, and custom actors
            one turn's weights, pinned     │ a better policy than the best so far
                                           v
                                         best/ of the run

Training continues meanwhile. Evaluations that fall due while one is running are skipped and counted
(hive.training.record.pinned_blocks); with `evaluation.wait` the learner waits for a free evaluator instead. With
`evaluation.workers` = N that happens only while N are running: the first evaluator that is free makes the next one. The
result does not depend on which evaluator makes it. An evaluation in progress is lost when the evaluator is killed or
the run ends; with `evaluation.wait` a run that reaches its goal, or a checkpoint, waits for it.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hive.envs import Household
from hive.envs.processes.describing import keeping
from hive.errors import VersionGone
from hive.records import RunDirectory
from hive.runtime import START, Actor, Bytes, Inlet, Outlet, Status, Subscription
from hive.training.blueprint import Blueprint, blueprint_in
from hive.training.collect.apart import Apart
from hive.training.evaluate.evaluator import Evaluator, evaluator_contexts
from hive.training.messages import Evaluation, EvaluationDue, Weights
from hive.training.record.best_policy import BestPolicy, chooses_none, value_of
from hive.training.record.episode_videos import EpisodeVideos
from hive.training.record.pinned_blocks import held_block, next_due

if TYPE_CHECKING:  # it imports gymnasium
    from hive.training.evaluate.table import TableEvaluator


class EvaluatingActor(Actor, ABC):
    """Has one evaluation after another played, wherever `_play` plays it.

    `evaluations` is a broadcast, which custom actors can subscribe to. directory: that of the run.
    """

    role = "evaluator"
    due = Inlet(EvaluationDue)
    weights = Subscription(Weights)
    evaluations = Outlet(Evaluation, pattern="broadcast")

    def __init__(self, blueprint: Blueprint, directory: Path) -> None:
        self.blueprint = blueprint
        self.best = BestPolicy(blueprint, RunDirectory.open(directory), self.log)
        self.made = self.status.counter("evaluations")

    @classmethod
    def private_bytes(cls, parameters: Mapping[str, Any]) -> int:
        """Return the bytes of its copy of the network, and of another one for videos."""
        return blueprint_in(parameters, lambda b: b.network_bytes * (2 if b.config.evaluation.videos else 1))

    async def run(self) -> None:
        while True:
            due = await next_due(self.due, self.weights, mine=lambda due: due.evaluator == self.index)
            try:
                await self._evaluate(due)
            except VersionGone as error:
                self.note("lost", f"evaluation {due.turn} was not made: {error}")
            self.weights.unpin()

    @abstractmethod
    async def _play(self, due: EvaluationDue, weights: Bytes) -> Evaluation:
        """Return the evaluation of these weights. Raises VersionGone if it was lost."""

    async def _evaluate(self, due: EvaluationDue) -> None:
        """Evaluate the held weights, keep them if they are the best, and send the result.

        They are kept first, so every evaluation that a reader knows of has been compared with the best policy. Raises
        VersionGone if the turn has been overwritten.
        """
        weights = held_block(self.weights, due.turn)
        evaluation = await self._play(due, weights)
        self.status.add(self.made, 1)
        if evaluation.cut:
            limit = self.blueprint.config.evaluation.max_steps
            what = f"{evaluation.cut} of {evaluation.episodes} episodes did not end within {limit:,} steps"
            self.note("cut", f"evaluation {due.turn}: {what} (evaluation.max_steps) and count up to there")
        best_by = self.blueprint.config.evaluation.best_by
        self.best.offer(
            weights,
            due.turn,
            updates=due.updates,
            env_steps=due.env_steps,
            mean_return=evaluation.mean_return,
            episodes=evaluation.episodes,
            value=value_of(evaluation, best_by),
            balanced=chooses_none(evaluation, best_by),
        )
        await self.evaluations.send(evaluation)

    async def teardown(self) -> None:
        self.weights.unpin()


def evaluator_of_run(
    blueprint: Blueprint, status: Status, number: int, household: Household | None = None
) -> Evaluator | TableEvaluator:
    """Make evaluator `number` of a run, for environments of one agent or of several. household: as of `Evaluator`."""
    if not blueprint.environment.agents:
        return Evaluator.of_run(blueprint, status, number, household)
    from hive.training.evaluate.table import TableEvaluator

    return TableEvaluator(blueprint, status, number)


class EvaluatorActor(EvaluatingActor):
    """Plays the evaluations in its own process."""

    apart: Apart | None = None  # its environments, if they have processes of their own

    def __init__(self, blueprint: Blueprint, directory: Path) -> None:
        super().__init__(blueprint, directory)
        self.apart = self._apart(directory)
        with self.status(START):
            household = None if self.apart is None else replace(self.apart.household, may_leave_out=False)
            with keeping(RunDirectory.open(directory).spaces_file):
                self.evaluator = evaluator_of_run(blueprint, self.status, self.index, household)
        if self.apart is not None and isinstance(self.evaluator, Evaluator):
            self.apart.vector = self.evaluator.apart
        self.videos = EpisodeVideos(blueprint, RunDirectory.open(directory), self)

    def _apart(self, directory: Path) -> Apart | None:
        """Return what looks after its environments, if these have processes of their own."""
        config = self.blueprint.config
        first = config.evaluator_indices.start + self.index * config.evaluation.envs
        if not config.evaluation_env.is_apart:
            return None
        apart = Apart(self, config, self.blueprint.environment, directory, first)
        apart.follow(evaluator_contexts(self.blueprint, self.index))
        return apart

    async def run(self) -> None:
        await asyncio.gather(super().run(), self.videos.run())

    async def _play(self, due: EvaluationDue, weights: Bytes) -> Evaluation:
        self.evaluator.bind(weights)
        self.status.show_version(due.turn, self.weights.latest - due.turn)  # before it can be seen stepping
        self.evaluator.begin(due)
        while (evaluation := self.evaluator.step()) is None:
            self.status.show_version(due.turn, self.weights.latest - due.turn)
            await asyncio.sleep(0)  # let the loop receive messages between two steps, a request to stop among them
        return evaluation

    async def _evaluate(self, due: EvaluationDue) -> None:
        with self.videos.evaluating():
            await super()._evaluate(due)
            if self.apart is not None:
                self.apart.write()
            self.videos.offer(due, held_block(self.weights, due.turn))

    async def teardown(self) -> None:
        await super().teardown()
        self.evaluator.close()
        self.videos.close()
