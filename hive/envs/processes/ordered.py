"""A process that is ordered by a row word: what helpers, which are forked, and environment processes have in common."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NoReturn

from hive.envs.context import EnvContext
from hive.envs.processes.stepper import ACTIVITIES, Activity, Doing
from hive.envs.vectors.row_block import RowBlock
from hive.envs.vectors.share import Answer, Order
from hive.errors import EnvironmentFailed


class Ordered(ABC):
    """A `Stepper`, which documents the methods, of environments `first` to `first + count` of its vector.

    number: of its row word in the block. rows: of one environment. spins: as of `RowWord.ordered`.
    """

    takes_attributes = True

    def __init__(self, block: RowBlock, number: int, first: int, count: int, rows: int, *, spins: bool = True) -> None:
        self.block = block
        self.number, self.first, self.count, self.rows = number, first, count, rows
        self.spins = spins
        self.is_busy = False  # an order has no answer yet
        self.is_closing = False  # the last order was to close
        self.has_raised = False
        self._seeds = block.arrays["seeds"][first * rows : (first + count) * rows]
        self._word, self._doing = block.words[number], block.arrays["doing"][number]
        self._order: Activity = "start"
        self._since_ns = 0

    @abstractmethod
    def pids(self) -> Sequence[int]:
        """Return the process that was started, if any."""

    @abstractmethod
    def how_ended(self) -> str:
        """Return how the process has ended, "" while it runs."""

    @abstractmethod
    def raise_error(self) -> NoReturn:
        """Raise what the process has raised: it has answered so, writes it now, and exits."""

    def renew(self, contexts: Sequence[EnvContext]) -> None:
        """Order it to close its environments and to construct new ones, with other options or with env.rebuild."""
        self._seeds[:] = [one.seed for one in contexts for _ in range(self.rows)]  # which the constructors may be told
        self.order(Order.make, "start")

    def reset(self, seeds: Sequence[int]) -> None:
        """Order it to begin an episode in each environment, and to write the first observations into its columns."""
        self._seeds[:] = seeds
        self.order(Order.reset, "reset")

    def step(self) -> None:
        """Order it to step each environment once with the actions of the block, and to write its columns."""
        self.order(Order.step, "step")

    def change(self) -> None:
        """Order it to give its environments the attributes that the block has."""
        self.order(Order.change, "step")

    def order(self, order: Order, activity: Activity) -> None:
        """Order something, which shows as `activity`."""
        self._order, self._since_ns, self.is_busy = activity, time.monotonic_ns(), True
        if activity != "start":
            self._doing[0] = ACTIVITIES.index(activity)
        self._word.order(order)

    def done(self, limit_s: float) -> bool:
        """Wait for the end of the open order, at most `limit_s`; return whether it has ended."""
        code = self._word.answered(limit_s, self.spins)
        if code is None:
            if not (how := self.how_ended()):
                return False
            code = self._word.answered(0.0, False)
            if code is None:  # otherwise it answered before it exited
                raise EnvironmentFailed(how)
        self.is_busy = False
        if code == Answer.failed:
            self.has_raised = True
            self.raise_error()
        return True

    def doing(self) -> Doing:
        """Return what the open order is about now."""
        activity, environment, since_ns = (int(value) for value in self._doing)
        if self._order != "start" and since_ns > self._since_ns:  # it has come to another environment, or to a reset
            return Doing(ACTIVITIES[activity], environment, since_ns)
        return Doing(self._order, None, self._since_ns)

    def close(self, limit_s: float = 0.0) -> bool:
        """Order it to close its environments and to exit, unless another order is open for longer than `limit_s`."""
        if self.pids() and self.is_busy and self._word.answered(limit_s, False) is None:
            return bool(self.how_ended())
        if self.pids():
            self._word.order(Order.close)
            self.is_busy = self.is_closing = True
        return True
