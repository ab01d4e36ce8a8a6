"""Count steps and updates between two looks, both at the end of a round, as every program of a bench does.

    first update  ->  WARM_S later  ->  end of a round: first look  ->  `seconds` later  ->  end of a round: last look

So neither start-up nor the first round counts, and the steps between the looks come with all their updates.
It imports neither torch nor hive, because programs of other environments use it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

WARM_S = 1.0  # seconds after the first update that do not count: first calls allocate, compile and fill caches


class TwoLooks:
    """The looks of one program at its own counters. `seconds`: at least between the looks."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds = seconds
        self.clock = clock
        self.warm: float | None = None  # end of the warm-up
        self.first: tuple[float, int, int] | None = None  # time, steps, updates
        self.last: tuple[float, int, int] | None = None

    def round_ended(self, steps: int, updates: int) -> bool:
        """Count the end of a round, with the totals since the start; return whether the measurement is over."""
        now = self.clock()
        if updates and self.warm is None:
            self.warm = now + WARM_S
        if self.warm is None or now < self.warm or self.over:
            return self.over
        if self.first is None:
            self.first = now, steps, updates
        elif now - self.first[0] >= self.seconds:
            self.last = now, steps, updates
        return self.over

    @property
    def over(self) -> bool:
        return self.last is not None

    @property
    def rates(self) -> dict[str, float]:
        """The rates between the looks. Raises RuntimeError before the last look."""
        if self.first is None or self.last is None:
            raise RuntimeError("the measurement is not over")
        seconds, steps, updates = (last - first for last, first in zip(self.last, self.first, strict=True))
        return {"steps_per_s": steps / seconds, "updates_per_s": updates / seconds}
