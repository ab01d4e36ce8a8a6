"""The evaluations that a learner requests: which evaluator gets the weights of a turn, and who waits for the result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from hive.records.run_warnings import UNFINISHED
from hive.runtime import WAIT_IN, Inlet, Outlet, Publication, Status
from hive.training.blueprint import Blueprint
from hive.training.callbacks.sequence import CallbackSequence
from hive.training.messages import Evaluation, EvaluationDue, Weights
from hive.training.resume_barriers import ResumeBarriers
from hive.training.update.evaluation_schedule import EvaluationSchedule
from hive.training.update.results import Results

# Seconds between two looks for an evaluator that has released its weights, which nothing announces: short beside any
# evaluation, and a thousandth of a core.
EVALUATION_POLL_S = 0.005
EVALUATION_PHASE = "wait evaluation"
RESULT_S = 1.0  # seconds in which a result arrives once its evaluator has released the weights; it takes milliseconds


@dataclass
class Evaluations:
    """Holds the weights of the turns that are due for evaluators, and tells them.

    first_reader: the number of evaluator 0 among the readers of the weights. results: of the turn that is evaluated.
    note: writes to the run's event log.
    """

    blueprint: Blueprint
    barriers: ResumeBarriers
    weights: Publication[Weights]
    requests: Outlet[EvaluationDue]
    received: Inlet[Evaluation]
    first_reader: int
    callbacks: CallbackSequence | None
    results: Results
    status: Status
    note: Callable[..., None]

    def __post_init__(self) -> None:
        config = self.blueprint.config.evaluation
        self.schedule = EvaluationSchedule.of(self.blueprint, self.barriers)
        self.exist = self.schedule.has_any and self.requests.connected
        self.waits = config.wait and self.exist
        self.readers = range(self.first_reader, self.first_reader + config.workers)
        self.skipped = False  # whether the last evaluation that fell due was skipped

    def note_rounding(self) -> None:
        """Log how the turns that are evaluated differ from those of the config, if they do."""
        if self.exist and (text := self.schedule.rounding):
            self.note("evaluations", text)

    def until_next(self, turn: int, most: int) -> int:
        """Return after how many turns the next is evaluated, at most `most`."""
        return min(most, self.schedule.until_next(turn)) if self.exist else most

    async def request(self, turn: int) -> None:
        """Hold this turn's weights for the first free evaluator if an evaluation is due.

        While all of them play, it is skipped, or with `evaluation.wait` awaits one.
        """
        if not (self.exist and self.schedule.is_due(turn)):
            return
        if self.received.connected:
            await self.follow(turn)
            return
        if self.waits:
            with self.status(EVALUATION_PHASE, WAIT_IN):
                await self._send(turn)
            return
        if (free := self._free(turn)) is not None:
            self.skipped = False
            await self.requests.send(self._due(free, turn))
            return
        self.status.count("evaluations_skipped")
        if not self.skipped:  # a slow evaluation may skip many: only the first is logged
            count = len(self.readers)
            still = "the previous one is" if count == 1 else f"the previous {count} are"
            self.note("skipped", f"evaluation {turn} was skipped: {still} still running")
        self.skipped = True

    async def follow(self, turn: int) -> None:
        """If callbacks follow evaluations and one is due, have it made, wait for the result, and call them.

        An evaluation that was lost with its evaluator is made again: it depends on the weights alone.
        """
        if not (self.received.connected and self.exist and self.schedule.is_due(turn)):
            return
        assert self.callbacks is not None
        if self.callbacks.is_evaluated(turn):
            return
        evaluation: Evaluation | None = None
        with self.status(EVALUATION_PHASE, WAIT_IN):
            while evaluation is None:
                await self._send(turn)
                evaluation = await self._result(turn)
        await self.callbacks.follow_evaluation(evaluation, self.barriers.rounds_after(turn))

    async def _send(self, turn: int) -> None:
        """Hold this turn's weights for a free evaluator, and tell it."""
        while (free := self._free(turn)) is None:
            await asyncio.sleep(EVALUATION_POLL_S)
        await self.requests.send(self._due(free, turn))

    def _free(self, turn: int) -> int | None:
        """Hold this turn's weights for the first evaluator that plays nothing, and return its number."""
        board = self.weights.board
        return next((e for e, reader in enumerate(self.readers) if board.hold(reader, turn)), None)

    def _due(self, evaluator: int, turn: int) -> EvaluationDue:
        totals = self.results.totals
        counts = int(totals["updates"]), int(totals["env_steps"])
        return EvaluationDue(evaluator, turn, *counts, totals["train_s"])

    async def _result(self, turn: int) -> Evaluation | None:
        """Return the evaluation of this turn; None once no evaluator plays it and its result has not arrived."""
        idle = False
        while True:
            try:
                async with asyncio.timeout(RESULT_S):
                    while (evaluation := await self.received.receive()).turn != turn:
                        pass  # of an earlier turn: it was made twice
                    return evaluation
            except TimeoutError:
                was_idle, idle = idle, not self._playing()
                if idle and was_idle:
                    return None

    def _playing(self) -> int:
        """Return how many evaluators play."""
        words = self.weights.board.view.words
        return sum(words.pinned(reader) for reader in self.readers)

    async def all_done(self) -> None:
        """With `evaluation.wait`, wait until no evaluator plays."""
        while self.waits and self._playing():
            with self.status(EVALUATION_PHASE, WAIT_IN):
                await asyncio.sleep(EVALUATION_POLL_S)

    def note_unfinished(self) -> None:
        """Log how many evaluations have not ended with the training, and so are lost."""
        playing = self._playing() if self.exist else 0
        if playing:
            had = "1 evaluation had" if playing == 1 else f"{playing} evaluations had"
            text = f"{had} not ended with the training, and count for nothing (evaluation.wait = true awaits them)"
            self.note(UNFINISHED, text, routine=True)
