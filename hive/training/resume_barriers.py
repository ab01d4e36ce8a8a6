"""Resume barriers, the rounds at which a deterministic run can be resumed bit-identically, and when a run is saved.

At a resume barrier every earlier round is consumed and no later one has begun. Collectors reset their environments by
(seed, environment, round of the barrier), and versions count from there. Every actor computes the
barriers from numbers alone, so no message announces them.

    rounds     0 ........ P .... P + L ........ 2 P .... 2 P + L ...      a checkpoint is due at P, 2 P, ...
                                 barrier                 barrier          its barrier follows L rounds later, once the
                                                                          L rounds then in the pipeline are consumed

With a replay memory the first `warmup` rounds make no gradients, and barriers are counted from the round after them.

P is `every` turns in rounds, rounded up so that a barrier ends both a turn and a version. A resumed run begins with a
barrier. If its checkpoint was a scheduled one, that barrier is one of the original run's. Asynchronous runs have no
barriers: they write checkpoints but cannot be resumed bit-identically.

A turn is saved if it is one of

    due       `checkpoint.every` has passed. In deterministic runs that is the turn of a resume barrier. In asynchronous
              runs it is the first end of a round after that many updates, or the first turn after that many seconds
    overdue   nothing was saved for `checkpoint.autosave_s`, at the beginning for a minute, so a crash of the machine
              would lose too much work. Only ends of rounds are saved so, and none if `checkpoint.every` is {}. An
              overdue save is no resume barrier: it leaves the run bit-identical, but a run resumed from it is not
              exact. While the recorder is busy, it stays overdue at the next turn
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from math import gcd, lcm

from hive.clock import Clock
from hive.config import Config


@dataclass(frozen=True)
class CommonBarriers:
    """What policies of one run share, so that their barriers are the same rounds.

    grain: rounds after which a round, a turn and a version of each end together. period: rounds from one checkpoint to
    the next, 0 for none; a multiple of the grain. begins: the round from which they are counted, after the longest
    warm-up. resumed_at: the first round of all; env_steps: those before it.
    """

    grain: int
    period: int
    begins: int
    resumed_at: int
    env_steps: int


@dataclass(frozen=True)
class ResumeBarriers:
    """Computes the resume barriers of a run.

    every: turns between checkpoints, 0 for none. per_round: gradients that a worker makes of a round. per_turn:
    gradients of each worker in a turn. interval: rounds collected with each behaviour version. lag: versions by which
    the behaviour policy may be behind. resumed_at: the round that this run began with. warmup: number of first rounds
    that no gradients follow, that is the round of a worker's gradient 0; in a run that was resumed with rounds of
    another shape it may be negative (hive.training.run_start). common: of the policies of a run with several.
    """

    every: int
    per_round: int
    per_turn: int
    interval: int
    lag: int
    resumed_at: int = 0
    warmup: int = 0
    common: CommonBarriers | None = None

    @functools.cached_property
    def grain(self) -> int:
        """The number of rounds after which a round, a turn and a version end together."""
        if self.common is not None:
            return self.common.grain
        return lcm(self.interval, self.per_turn // gcd(self.per_turn, self.per_round))

    @functools.cached_property
    def period(self) -> int:
        """P: the number of rounds from one checkpoint to the next."""
        if self.common is not None:
            return max(self.common.period, 1)
        return self._up(-(-self.every * self.per_turn // self.per_round))

    @functools.cached_property
    def delay(self) -> int:
        """L: the number of rounds from a checkpoint that falls due to its barrier."""
        return self._up(self.lag)

    @functools.cached_property
    def _offset(self) -> int:
        """The round from which barriers are counted."""
        return self.delay + (self.warmup if self.common is None else self.common.begins)

    @functools.cached_property
    def _has_any(self) -> bool:
        return self.every > 0 if self.common is None else self.common.period > 0

    def _up(self, rounds: int) -> int:
        return -(-rounds // self.grain) * self.grain

    def last(self, number: int) -> int:
        """Return the round of the last barrier at or before round `number`, or `resumed_at` if there was none."""
        since = number - self._offset
        if not self._has_any or since < self.period:
            return self.resumed_at
        return max(since // self.period * self.period + self._offset, self.resumed_at)

    def is_barrier(self, number: int) -> bool:
        """Return whether a barrier lies immediately before round `number`."""
        since = number - self._offset
        return self._has_any and since >= self.period and since % self.period == 0

    def round_of(self, gradient: int) -> int:
        """Return the round that a worker makes gradient number `gradient` of, or after."""
        return self.warmup + gradient // self.per_round

    def rounds_after(self, turn: int) -> int:
        """Return how many rounds have ended after `turn` turns."""
        return self.round_of(turn * self.per_turn)

    def first_gradient(self, number: int) -> int:
        """Return the number of the first gradient that a worker makes of round `number` or of later ones."""
        return max(number - self.warmup, 0) * self.per_round

    def version(self, number: int) -> int:
        """Return the newest behaviour version that needs no update of round `number` or of later ones."""
        return max(number - self.warmup, 0) // self.interval

    def unbegun(self, rounds: int) -> int:
        """Return the first round that no rollout has begun of before the end of `rounds` rounds is published.

        Its rollouts need the first behaviour version that is published later.
        """
        return self.warmup + (self.version(rounds - 1) + 1 + self.lag) * self.interval

    def common_end(self, rounds: int) -> int:
        """Return how many rounds all policies of the run can still end, once `rounds` rounds of this one have ended.

        Another policy has ended all rounds before `unbegun` at the most, and looks again when it ends one more.
        """
        begins = self.warmup if self.common is None else self.common.begins
        return begins + self._up(self.unbegun(rounds) + 1 - begins)

    def ends_round(self, turn: int) -> bool:
        """Return whether the first `turn` turns take whole rounds."""
        return turn * self.per_turn % self.per_round == 0

    def is_checkpoint(self, turn: int) -> bool:
        """Return whether a checkpoint is scheduled after `turn` turns: at each barrier."""
        return self.ends_round(turn) and self.is_barrier(self.rounds_after(turn))


@dataclass(frozen=True)
class NoBarriers(ResumeBarriers):
    """The numbers of an asynchronous run: no barrier, and a checkpoint at the first end of a round since `every` turns.

    The fields are those of ResumeBarriers.
    """

    def last(self, number: int) -> int:
        return self.resumed_at

    def is_barrier(self, number: int) -> bool:
        return False

    def is_checkpoint(self, turn: int) -> bool:
        """Return whether `turn` is the first to end a round since a multiple of `every` turns."""
        spacing = self.per_round // gcd(self.per_turn, self.per_round)  # turns between two that end rounds
        return self.every > 0 and turn % spacing == 0 and turn // self.every > (turn - spacing) // self.every


FIRST_S = 60.0  # seconds after which the first checkpoint is overdue: a job that is killed early begins there again


class SaveSchedule:
    """The learner's schedule of checkpoints. Call it once per turn, in order.

    Time is measured by `clock` from the construction, so a new incarnation of the learner starts at 0 seconds.
    """

    def __init__(self, config: Config, barriers: ResumeBarriers, clock: Clock) -> None:
        self.barriers = barriers
        self.clock = clock
        self.every_ns = int(config.checkpoint.every.get("seconds", 0) * 1e9)
        self.most_ns = config.checkpoint.autosave_s * 1e9 if config.checkpoint.every else 0
        self.last_ns, self.limit_ns = clock.now_ns(), min(self.most_ns, FIRST_S * 1e9)

    def saved(self) -> None:
        """Record that a checkpoint is being written now, for whatever reason."""
        self.last_ns, self.limit_ns = self.clock.now_ns(), self.most_ns

    def due(self, turn: int) -> bool:
        """Return whether a scheduled checkpoint is due at `turn`.

        A schedule in seconds returns True once per interval, whether or not the checkpoint is then written.
        """
        if self.every_ns:
            if is_due := self.clock.now_ns() - self.last_ns >= self.every_ns:
                self.saved()
            return is_due
        return self.barriers.is_checkpoint(turn)

    def overdue(self, turn: int) -> bool:
        """Return whether `turn` should be saved although no scheduled checkpoint is due."""
        return self.late and self.barriers.ends_round(turn)

    @property
    def late(self) -> bool:
        """Whether the next end of a round is overdue."""
        return 0 < self.limit_ns <= self.clock.now_ns() - self.last_ns
