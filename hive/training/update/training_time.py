"""The training time of a run, which begins with the first turn and does not count pauses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hive.clock import Clock
from hive.runtime.actor.actor import ActorContext
from hive.training.update.learner import Count


@dataclass
class TrainingTime:
    """Keeps the times in the counters of the optimizer state.

    begun_ns: time of the first steps, if they are counted as trained; 0: that of the first turn.
    """

    clock: Clock
    actor_context: ActorContext
    begun_ns: int = 0

    def count(self, counters: NDArray[np.int64]) -> None:
        """Update the times of the beginning and of the last turn."""
        if not counters.item(Count.first_ns) and not self.begun_ns:
            counters[Count.first_steps] = counters[Count.env_steps]
        counters[Count.first_ns], counters[Count.last_ns] = self.times(counters)

    def times(self, counters: NDArray[np.int64]) -> tuple[int, int]:
        """Return the time of the beginning, shifted by the pauses since the last turn, and the time now."""
        first, last = counters.item(Count.first_ns), counters.item(Count.last_ns)
        resumed, now_ns = self.actor_context.resumed_ns, self.clock.now_ns()
        if 0 < last < resumed:
            first += resumed - last
        return first or self.begun_ns or now_ns, now_ns
