"""ResumeBarriers: where a deterministic run can be taken up again, byte for byte.

At a cut everything of the rounds before it is consumed and nothing after it has begun; collectors rebuild their
environments and reset them by (seed, environment, round of the cut), and versions count from there. All of it follows
from numbers, so nobody has to be told: every actor knows where the cuts are.

    rounds     0 ........ P .... P + L ........ 2 P .... 2 P + L ...      a checkpoint is due at P, 2 P, ...
                                 cut                     cut              and falls L rounds later, when the pipeline of
                                                                          L rounds that had begun by then is consumed

P is `every` updates in rounds, rounded up so that a cut is the end of a turn and of a version. A resumed run begins
with a cut of its own, which is one of these if it was taken up from a scheduled checkpoint. Asynchronous runs have
none: they save, but are not exact.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from math import gcd, lcm

__all__ = ["ResumeBarriers"]


@dataclass(frozen=True)
class ResumeBarriers:
    """`every`: turns between checkpoints, 0 for none. `per_round` gradients of a round, `per_turn` of a turn."""

    every: int
    per_round: int
    per_turn: int
    interval: int
    lag: int
    resumed_at: int = 0  # the round that this run began with

    @functools.cached_property
    def grain(self) -> int:
        """The rounds after which a round, a turn and a version end together."""
        return lcm(self.interval, self.per_turn // gcd(self.per_turn, self.per_round))

    @functools.cached_property
    def period(self) -> int:
        """P."""
        return self._up(-(-self.every * self.per_turn // self.per_round))

    @functools.cached_property
    def delay(self) -> int:
        """L."""
        return self._up(self.lag)

    def _up(self, rounds: int) -> int:
        return -(-rounds // self.grain) * self.grain

    def start(self, number: int) -> int:
        """The round of the last cut at or before round `number`; that of the run's beginning if there was none."""
        if not self.every or number < self.period + self.delay:
            return self.resumed_at
        return max((number - self.delay) // self.period * self.period + self.delay, self.resumed_at)

    def is_cut(self, number: int) -> bool:
        """Whether a cut lies before round `number`."""
        return self.every > 0 and number >= self.period + self.delay and (number - self.delay) % self.period == 0

    def is_first_end(self, turn: int, every: int) -> bool:
        """Whether `turn` ends a round as the first to do so since a multiple of `every` turns; 0: none does."""
        apart = self.per_round // gcd(self.per_turn, self.per_round)  # turns between two that end rounds
        return every > 0 and turn % apart == 0 and turn // every > (turn - apart) // every

    def policy(self, number: int) -> int:
        """The behaviour version that round `number` is collected with."""
        return max(self.start(number) // self.interval, number // self.interval - self.lag, 0)

    def state(self, sequence: int, lag: int) -> int:
        """The state version that gradient `sequence` is computed on, `lag` turns behind.

        A run that was saved in the middle of a round begins with the rest of it, of which no rollout is left, before
        its first cut: those gradients, of zero samples, never wait for a version that they are a part of.
        """
        now = sequence // self.per_turn
        begin = self.start(sequence // self.per_round) * self.per_round // self.per_turn
        return max(min(begin, now), now - lag, 0)
