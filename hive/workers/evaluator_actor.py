"""The evaluator's actor: evaluates the weights that the learner holds for it.

    learner ──EvaluationDue──> evaluator ──Evaluation──> recorder, and actors of your own
            one turn's weights, pinned

While it plays, evaluations that fall due are skipped and counted (hive.workers.pinned_blocks), and training goes on. An
evaluation that is in progress when the evaluator dies, or when the run ends, is lost.
"""

from __future__ import annotations

import asyncio

from hive.errors import VersionGone
from hive.runtime import Actor, Inlet, Outlet, Subscription
from hive.workers.blueprint import Blueprint
from hive.workers.messages import Evaluation, EvaluationDue, Weights
from hive.workers.pinned_blocks import held_block, next_due

__all__ = ["EvaluatorActor"]


class EvaluatorActor(Actor):
    """One evaluation after another. `evaluations` is a broadcast: connect it to actors of your own."""

    role = "evaluator"
    due = Inlet(EvaluationDue)
    weights = Subscription(Weights)
    evaluations = Outlet(Evaluation, pattern="broadcast")

    def __init__(self, blueprint: Blueprint) -> None:
        self.blueprint = blueprint
        self.evaluator = blueprint.evaluator(self.status)
        self.made = self.status.counter("evaluations")

    async def run(self) -> None:
        while True:
            due = await next_due(self.due, self.weights)
            try:
                await self._evaluate(due)
            except VersionGone as error:
                self.note("lost", f"evaluation {due.turn} was not made: {error}")
            self.weights.unpin()

    async def _evaluate(self, due: EvaluationDue) -> None:
        """Raises VersionGone where nothing was held."""
        weights = held_block(self.weights, due.turn)
        self.evaluator.bind(weights)
        self.evaluator.begin(due)
        while (evaluation := self.evaluator.step()) is None:
            self.status.show_version(due.turn, self.weights.latest - due.turn)
            await asyncio.sleep(0)  # messages are heard between two steps: told to stop, it stops
        self.status.add(self.made, 1)
        await self.evaluations.send(evaluation)

    async def teardown(self) -> None:
        self.weights.unpin()
        self.evaluator.close()
