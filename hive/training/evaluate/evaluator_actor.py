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

Policies that learn together are evaluated together, with the weights that each had when the same evaluation fell due.
Each learner decides alone; the evaluator pairs what they send by the number of the evaluation.
"""

from __future__ import annotations

import asyncio
import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hive.envs.agents.lone import LoneTable
from hive.envs.processes.describing import keeping
from hive.envs.vectors.resetting import report_resets
from hive.errors import VersionGone
from hive.records import RunDirectory
from hive.runtime import START, Actor, Bytes, Inlet, Outlet, Subscription
from hive.training.blueprint import Blueprint, blueprint_in
from hive.training.collect.apart import Apart
from hive.training.crew import Crew
from hive.training.evaluate.evaluator import Evaluator, evaluator_contexts
from hive.training.messages import Evaluation, EvaluationDue, Weights
from hive.training.policies import of_policy, port
from hive.training.record.best_policy import BestPolicy, chooses_none, value_of
from hive.training.record.episode_videos import EpisodeVideos
from hive.training.record.pinned_blocks import held_block, next_due
from hive.training.run_start import schedule_of
from hive.training.update.evaluation_schedule import EvaluationSchedule

PAIR_S = 120.0  # seconds in which a policy waits for the others to end the same round, before its evaluation is lost


class EvaluatingActor(Actor, ABC):
    """Has one evaluation after another played, wherever `_play` plays it.

    `evaluations` is a broadcast, which custom actors can subscribe to. directory: that of the run. crew: the policies
    that play together; None: the blueprint's alone. Each policy has its own `due`, `weights` and `evaluations`; those
    of the first are here, `policies_evaluator` makes the subclass with the others.
    """

    role = "evaluator"
    due = Inlet(EvaluationDue)
    weights = Subscription(Weights)
    evaluations = Outlet(Evaluation, pattern="broadcast")

    def __init__(self, blueprint: Blueprint, directory: Path, crew: Crew | None = None) -> None:
        self.blueprint = blueprint
        blueprints = (blueprint,) if crew is None else crew.blueprints
        folders = (directory,) if crew is None else crew.folders
        self.sides = [
            _Side(
                getattr(self, port(of_policy("due", number))),
                getattr(self, port(of_policy("weights", number))),
                getattr(self, port(of_policy("evaluations", number))),
                BestPolicy(one, _made(folder), self.log),
                EvaluationSchedule.of(one, schedule_of(one).barriers),
            )
            for number, (one, folder) in enumerate(zip(blueprints, folders, strict=True))
        ]
        self.made = self.status.counter("evaluations")

    @classmethod
    def private_bytes(cls, parameters: Mapping[str, Any]) -> int:
        """Return the bytes of its copies of the networks, and of other ones for videos."""
        crew = parameters.get("crew")
        others = sum(one.network_bytes for one in crew.blueprints[1:]) if crew else 0
        return blueprint_in(parameters, lambda b: (b.network_bytes + others) * (2 if b.config.evaluation.videos else 1))

    async def run(self) -> None:
        while True:
            dues = await self._dues()
            try:
                await self._evaluate(dues)
            except VersionGone as error:
                self.note("lost", f"evaluation {dues[0].turn} was not made: {error}")
            self._unpin()

    async def _dues(self) -> list[EvaluationDue]:
        """Return the next turn of every policy, all for one evaluation.

        Turns and steps do not tell which belong together: a killed worker costs one policy a rollout. What another
        learner skipped, or did not send because it was killed, is dropped.
        """
        if len(self.sides) == 1:
            return [await self._next(self.sides[0])]
        waiting = [asyncio.ensure_future(self._next(side)) for side in self.sides]
        try:
            while True:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                await asyncio.wait(waiting, timeout=PAIR_S)
                found = {n: self._number(n, one.result()) for n, one in enumerate(waiting) if one.done()}
                latest = max(found.values())
                if len(found) == len(waiting) and set(found.values()) == {latest}:
                    return [one.result() for one in waiting]
                for n, number in found.items():
                    if number < latest or len(found) < len(waiting):
                        self.note("lost", f"evaluation {number} of all policies was not made: one of them skipped it")
                        self.sides[n].weights.unpin()
                        waiting[n] = asyncio.ensure_future(self._next(self.sides[n]))
        finally:
            for one in waiting:
                one.cancel()

    def _number(self, side: int, due: EvaluationDue) -> int:
        return self.sides[side].schedule.number(due.turn)

    async def _next(self, side: _Side) -> EvaluationDue:
        return await next_due(side.due, side.weights, mine=lambda due: due.evaluator == self.index)

    @abstractmethod
    async def _play(self, due: EvaluationDue, weights: Sequence[Bytes]) -> list[Evaluation]:
        """Return the evaluation of each policy with these weights. Raises VersionGone if they were lost."""

    async def _evaluate(self, dues: Sequence[EvaluationDue]) -> None:
        """Evaluate the held weights, keep them if they are the best, and send the results.

        They are kept first, so every evaluation that a reader knows of has been compared with the best policy. Raises
        VersionGone if a turn has been overwritten.
        """
        blocks = [held_block(side.weights, due.turn) for side, due in zip(self.sides, dues, strict=True)]
        played = await self._play(dues[0], blocks)
        self.status.add(self.made, 1)
        self._tell_cuts(played[0])
        best_by = self.blueprint.config.evaluation.best_by
        for side, due, block, one in zip(self.sides, dues, blocks, played, strict=True):
            evaluation = replace(one, turn=due.turn, updates=due.updates, env_steps=due.env_steps, seconds=due.seconds)
            side.best.offer(
                block,
                due.turn,
                updates=due.updates,
                env_steps=due.env_steps,
                mean_return=evaluation.mean_return,
                episodes=evaluation.episodes,
                value=value_of(evaluation, best_by),
                balanced=chooses_none(evaluation, best_by),
            )
            await side.evaluations.send(evaluation)

    def _tell_cuts(self, evaluation: Evaluation) -> None:
        if evaluation.cut:
            limit = self.blueprint.config.evaluation.max_steps
            what = f"{evaluation.cut} of {evaluation.episodes} episodes did not end within {limit:,} steps"
            self.note("cut", f"evaluation {evaluation.turn}: {what} (evaluation.max_steps) and count up to there")

    def _unpin(self) -> None:
        for side in self.sides:
            side.weights.unpin()

    async def teardown(self) -> None:
        self._unpin()


def _made(folder: Path) -> RunDirectory:
    """Return the folder of a policy, which its recorder may not have made yet."""
    folder.mkdir(parents=True, exist_ok=True)
    return RunDirectory(folder)


@dataclass(frozen=True)
class _Side:
    """What an evaluator has for each policy."""

    due: Inlet[EvaluationDue]
    weights: Subscription[Weights]
    evaluations: Outlet[Evaluation]
    best: BestPolicy
    schedule: EvaluationSchedule


class EvaluatorActor(EvaluatingActor):
    """Plays the evaluations in its own process."""

    apart: Apart | None = None  # its environments, if they have processes of their own

    def __init__(self, blueprint: Blueprint, directory: Path, crew: Crew | None = None) -> None:
        super().__init__(blueprint, directory, crew)
        self.apart = self._apart(directory)
        with self.status(START):
            household = None if self.apart is None else replace(self.apart.household, may_leave_out=False)
            with keeping(RunDirectory.open(directory).spaces_file):
                self.evaluator = Evaluator.of_run(blueprint, self.status, self.index, household, crew)
        if self.apart is not None and isinstance(self.evaluator.play.table, LoneTable):
            self.apart.vector = self.evaluator.play.table.processes
        self.videos = EpisodeVideos(blueprint, RunDirectory.open(directory), self, crew)

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

    async def _play(self, due: EvaluationDue, weights: Sequence[Bytes]) -> list[Evaluation]:
        report_resets(self.status.page.pulse)
        self.evaluator.bind(*weights)
        self.status.show_version(due.turn, self.weights.latest - due.turn)  # before it can be seen stepping
        self.evaluator.begin(due)
        while self.evaluator.step() is None:
            self.status.show_version(due.turn, self.weights.latest - due.turn)
            await asyncio.sleep(0)  # let the loop receive messages between two steps, a request to stop among them
        return [one.evaluation for one in self.evaluator.played]

    async def _evaluate(self, dues: Sequence[EvaluationDue]) -> None:
        with self.videos.evaluating():
            await super()._evaluate(dues)
            if self.apart is not None:
                self.apart.write()
            blocks = [held_block(side.weights, due.turn) for side, due in zip(self.sides, dues, strict=True)]
            self.videos.offer(dues[0], blocks)

    async def teardown(self) -> None:
        await super().teardown()
        self.evaluator.close()
        self.videos.close()


@functools.cache
def policies_evaluator(policies: int) -> type[EvaluatorActor]:
    """Return the class of evaluators of this many policies."""
    ports: dict[str, Any] = {}
    for number in range(1, policies):
        ports[port(of_policy("due", number))] = Inlet(EvaluationDue)
        ports[port(of_policy("weights", number))] = Subscription(Weights)
        ports[port(of_policy("evaluations", number))] = Outlet(Evaluation, pattern="broadcast")
    return type("EvaluatorActor", (EvaluatorActor,), ports) if ports else EvaluatorActor
