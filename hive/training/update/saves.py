"""The checkpoints that a learner requests: which turns the recorder saves, and what is held for it while it writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hive.runtime import Outlet, Publication
from hive.training.callbacks.messages import CallbackState
from hive.training.messages import CheckpointDue, OptimizerState, Weights
from hive.training.resume_barriers import SaveSchedule
from hive.training.update.evaluations import Evaluations
from hive.training.update.reports import Reports

SAVE_AGAIN_S = 0.05  # seconds between two attempts to save; a checkpoint takes the recorder tens of milliseconds


@dataclass
class Saves:
    """Holds the blocks of a turn for the recorder, and tells it.

    reader: the recorder's number among the readers of the weights. exact: whether a run that is resumed from a
    scheduled checkpoint is bit-identical. hold_more: holds what else belongs to a checkpoint, and returns the version
    of its ledger, or -1. note: writes to the run's event log.
    """

    schedule: SaveSchedule
    exact: bool
    weights: Publication[Weights]
    optimizer_state: Publication[OptimizerState]
    callback_state: Publication[CallbackState]
    checkpoints: Outlet[CheckpointDue]
    reader: int
    evaluations: Evaluations
    reports: Reports
    hold_more: Callable[[], int]
    note: Callable[..., None]

    async def request(self, turn: int) -> None:
        """Hold this turn's blocks for the recorder if a checkpoint is due, unless it still writes the previous one."""
        if self.schedule.due(turn):
            await self.evaluations.all_done()
            if not await self.hold(turn, scheduled=self.exact):
                self.note("skipped", f"checkpoint {turn} was skipped: the previous one is still being written")
        elif self.schedule.overdue(turn):
            await self.hold(turn, scheduled=False)

    async def hold(self, turn: int, *, scheduled: bool, by_hand: bool = False) -> bool:
        """Hold this turn's blocks for the recorder and notify it. Return False while it still writes another turn."""
        await self.reports.send_episodes()  # before the checkpoint, after which a resumed run continues
        # The weights first: their pin is the one that the recorder releases last, so it covers both blocks.
        if not self.weights.board.hold(self.reader, turn):
            return False
        self.schedule.saved()
        self.optimizer_state.board.hold(0, turn)
        ledger = self.hold_more()
        called = -1
        if self.callback_state.connected:
            called = self.callback_state.board.latest
            self.callback_state.board.hold(0, called)
        totals = self.reports.results.totals
        counts = int(totals["env_steps"]), float(totals["mean_return_100"])
        await self.checkpoints.send(CheckpointDue(turn, scheduled, *counts, ledger, called, by_hand))
        return True
