"""The schedule of a run: which version, rollouts and gradients each computation uses, in every communication mode.

In the deterministic modes each actor computes from numbers alone, never from timing, what it uses. Let r be the number
of a rollout, g of a gradient, S the gradients that an algorithm makes of a round, K = bootstrap_rounds:

                          synchronous and pipelined                                 asynchronous
    rollout r is made     with behaviour version max(c, r // interval - lag)        with the latest version
    gradient g is made    of the worker's share of round g // S                     of the oldest fresh rollout
                          on state version max(t, g // K - lag)                     on the latest version
    turn t reduces        gradients t K ... (t + 1) K - 1 of every worker           the first K gradients of any worker
    older data            does not exist, because every lag is fixed                is dropped, scaled or accepted
    version v is due      once every worker has finished the rounds before          once enough rollouts are consumed
                          v * interval
    a run may end         after a turn that ends a round                            after any turn

c and t are the versions at the last resume barrier (resume_barriers.py), 0 before the first. A lag of 0 is synchronous.
A lag of k >= 1 is pipelined: all actors work at the same time, and every run is bit-identical.

Collection and gradients each have one of the two columns. `Schedule.of` chooses them, and no other code of the actors
branches on the modes. Every method is a function of its arguments. The only state is a cache of progress in
`RoundsInOrder`, so each actor makes its own schedule.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hive.config import Config
from hive.training.resume_barriers import CommonBarriers, NoBarriers, ResumeBarriers

LATEST = -1  # requests the newest version of a board


@dataclass(frozen=True)
class Claim:
    """A rollout or gradient to claim: that of a producer and a sequence, by default the oldest of any producer.

    max_lag: the largest lag in versions at which it is used; an older one is dropped as stale. None: any.
    """

    producer: int | None = None
    sequence: int = -1
    max_lag: int | None = None


class CollectionSchedule(ABC):
    """Decides which version a rollout is made with, which rollouts gradients are made of, and which version is due."""

    @abstractmethod
    def behaviour_version(self, rollout: int) -> int:
        """Return the behaviour version that rollout number `rollout` is made with, or LATEST."""

    @abstractmethod
    def lag(self, rollout: int, version: int, latest: int) -> int:
        """Return how many versions a rollout's is behind: at its use if that is known, else now."""

    @abstractmethod
    def claims(self, number: int, first: Mapping[int, int]) -> Sequence[Claim]:
        """Return the rollouts that a gradient worker claims for its round `number`.

        first: producer of its share -> the first rollout that no earlier incarnation of the worker has claimed.
        """

    @abstractmethod
    def lost(self, number: int, first: Mapping[int, int]) -> int:
        """Return how many rollouts from round `number` on earlier incarnations have claimed and lost."""

    @abstractmethod
    def counted(self, claimed: int, share: int) -> int:
        """Return how many rollouts a finished round counts as.

        claimed: those that its gradients were made of. share: the collectors of the worker.
        """

    @abstractmethod
    def version_due(self, latest: int, finished: Callable[[int], int], rollouts: Callable[[], int]) -> int:
        """Return the newest behaviour version that is due, which is `latest` or lower if none is.

        latest: the newest published version. finished: gradient worker -> how many of its gradients were claimed.
        rollouts: counts the rollouts of all claimed gradients.
        """


class RoundsInOrder(CollectionSchedule):
    """Synchronous and pipelined collection: rollouts by number.

    workers: the gradient workers that have collectors. A version is due when each of them has finished its rounds,
    whether its gradients were applied or dropped, so no collector waits forever.
    """

    def __init__(self, barriers: ResumeBarriers, workers: int) -> None:
        self.barriers = barriers
        self.workers = range(workers)
        self.unfinished = list(self.workers)  # workers still in a round of the next behaviour version

    def behaviour_version(self, rollout: int) -> int:
        barriers = self.barriers
        return max(barriers.version(barriers.last(rollout)), barriers.version(rollout) - barriers.lag)

    def lag(self, rollout: int, version: int, latest: int) -> int:
        return max(self.barriers.version(rollout) - version, 0)

    def claims(self, number: int, first: Mapping[int, int]) -> Sequence[Claim]:
        # A successor still waits for the rollouts that are left of a round, because the learner must not run ahead of a
        # collector that is behind.
        return [Claim(producer, number) for producer, left in first.items() if number >= left]

    def lost(self, number: int, first: Mapping[int, int]) -> int:
        return sum(max(0, left - number) for left in first.values())

    def counted(self, claimed: int, share: int) -> int:
        return share  # lost rollouts included

    def version_due(self, latest: int, finished: Callable[[int], int], rollouts: Callable[[], int]) -> int:
        per_version = self.barriers.per_round * self.barriers.interval
        while self.unfinished and finished(self.unfinished[-1]) >= (latest + 1) * per_version:
            self.unfinished.pop()  # a worker never goes back, so the next call need not look at it again
        if self.unfinished:
            return latest
        self.unfinished = list(self.workers)
        return min(finished(worker) for worker in self.workers) // per_version


class RolloutsAsReady(CollectionSchedule):
    """Asynchronous collection: the latest version, the oldest rollout that is at most `max_lag` versions behind."""

    def __init__(self, max_lag: int, per_version: int) -> None:
        self.fresh = (Claim(max_lag=max_lag),)
        self.per_version = per_version

    def behaviour_version(self, rollout: int) -> int:
        return LATEST

    def lag(self, rollout: int, version: int, latest: int) -> int:
        return latest - version

    def claims(self, number: int, first: Mapping[int, int]) -> Sequence[Claim]:
        return self.fresh

    def lost(self, number: int, first: Mapping[int, int]) -> int:
        return 0  # no round waits for a particular rollout

    def counted(self, claimed: int, share: int) -> int:
        return claimed

    def version_due(self, latest: int, finished: Callable[[int], int], rollouts: Callable[[], int]) -> int:
        return rollouts() // self.per_version


class GradientSchedule(ABC):
    """Decides on which version a gradient is made, and which gradients make a turn.

    turn_size: the gradients of one turn, over all workers.
    """

    turn_size: int

    @abstractmethod
    def state_version(self, gradient: int) -> int:
        """Return the state version that gradient number `gradient` is made on, or LATEST."""

    @abstractmethod
    def lag(self, gradient: int, version: int, latest: int) -> int:
        """Return how many versions a gradient's is behind: at its use if that is known, else now."""

    @abstractmethod
    def needs(self, collectors: int) -> bool:
        """Return whether a worker with this many collectors in its share makes gradients."""

    @abstractmethod
    def claims(self, turn: int, claimed: int) -> Sequence[Claim]:
        """Return the gradients to claim next for the turn that follows version `turn`, with `claimed` so far."""

    @abstractmethod
    def factor(self, lag: int) -> float:
        """Return the factor that a gradient is multiplied by which is `lag` versions behind."""

    @abstractmethod
    def may_end(self, turn: int) -> bool:
        """Return whether the run may end after `turn` turns, and offer their weights as the best policy."""


class TurnsInOrder(GradientSchedule):
    """Synchronous and pipelined gradients: by number, from every worker, in every turn."""

    def __init__(self, barriers: ResumeBarriers, max_lag: int, workers: int) -> None:
        self.barriers = barriers
        self.max_lag = max_lag
        self.workers = range(workers)
        self.turn_size = barriers.per_turn * workers

    def state_version(self, gradient: int) -> int:
        """Return the version `max_lag` turns behind.

        A run saved in the middle of a round resumes with the remaining gradients of that round, before its first
        barrier. The rollouts are gone, so these gradients have zero samples. They never wait for a version that they
        are themselves part of.
        """
        barriers = self.barriers
        turn = gradient // barriers.per_turn
        begin = barriers.first_gradient(barriers.last(barriers.round_of(gradient))) // barriers.per_turn
        return max(min(begin, turn), turn - self.max_lag, 0)

    def lag(self, gradient: int, version: int, latest: int) -> int:
        return max(gradient // self.barriers.per_turn - version, 0)

    def needs(self, collectors: int) -> bool:
        return True  # the learner waits for every worker; without rollouts its gradients have zero samples

    def claims(self, turn: int, claimed: int) -> Sequence[Claim]:
        sequence = turn * self.barriers.per_turn + claimed // len(self.workers)
        return [Claim(worker, sequence) for worker in self.workers]

    def factor(self, lag: int) -> float:
        return 1.0

    def may_end(self, turn: int) -> bool:
        return self.barriers.ends_round(turn)  # a run ends with a whole round


class GradientsAsReady(GradientSchedule):
    """Asynchronous gradients: one at a time, the oldest of any worker.

    stale: the treatment of gradients more than `max_lag` versions behind: "drop", "scale" by 1 / (1 + lag) or "accept".
    """

    def __init__(self, per_turn: int, max_lag: int, stale: str) -> None:
        self.turn_size = per_turn
        self.oldest = (Claim(max_lag=max_lag if stale == "drop" else None),)
        self.unscaled = max_lag if stale == "scale" else math.inf  # largest lag of a gradient that is not scaled

    def state_version(self, gradient: int) -> int:
        return LATEST

    def lag(self, gradient: int, version: int, latest: int) -> int:
        return latest - version

    def needs(self, collectors: int) -> bool:
        return collectors > 0  # the learner does not wait for the gradients of a particular worker

    def claims(self, turn: int, claimed: int) -> Sequence[Claim]:
        return self.oldest

    def factor(self, lag: int) -> float:
        return 1.0 / (1.0 + lag) if lag > self.unscaled else 1.0

    def may_end(self, turn: int) -> bool:
        return True


@dataclass(frozen=True)
class PartialRounds:
    """Rounds that end early, once `collectors` of them have finished their rollouts.

    steps: the least steps of a rollout that is ended early.
    """

    collectors: int
    steps: int

    def over(self, steps: int, committed: Callable[[], int]) -> bool:
        """Return whether a rollout ends after `steps` steps. committed: counts the collectors that have finished."""
        return steps >= self.steps and committed() >= self.collectors


@dataclass(frozen=True)
class Schedule:
    """The schedule of one actor. partial: None if rounds never end early."""

    barriers: ResumeBarriers
    collection: CollectionSchedule
    gradients: GradientSchedule
    partial: PartialRounds | None = None

    @classmethod
    def of(
        cls,
        config: Config,
        per_round: int,
        collectors: int,
        workers: int,
        resumed_at: int,
        warmup: int | None = None,
        common: CommonBarriers | None = None,
        turns: int = 1,
        first_gradient_round: int | None = None,
    ) -> Schedule:
        """Choose the schedule of a run.

        per_round: gradients that a worker makes of a round. collectors, workers: of the run, at least 1 each.
        resumed_at: the first round of the run. warmup: with a replay memory, the rounds before the first gradient.
        common: as of ResumeBarriers. turns: environment steps of one row, more than 1 of agents that act in turn.
        first_gradient_round: the round of a worker's gradient 0; None: the first one after the warm-up.
        """
        collection, gradients = config.collection, config.gradients
        barriers = (NoBarriers if config.asynchronous else ResumeBarriers)(
            every=_turns_between_checkpoints(config, per_round, collectors, workers, turns, replays=warmup is not None),
            per_round=per_round,
            per_turn=gradients.bootstrap_rounds,
            interval=collection.broadcast_interval,
            lag=collection.max_lag,
            resumed_at=resumed_at,
            warmup=(warmup or 0) if first_gradient_round is None else first_gradient_round,
            common=common,
        )
        return cls(
            barriers,
            RolloutsAsReady(collection.max_lag, collectors * collection.broadcast_interval)
            if collection.communication == "asynchronous"
            else RoundsInOrder(barriers, min(workers, collectors) if warmup is None else workers),
            GradientsAsReady(gradients.bootstrap_rounds, gradients.max_lag, gradients.stale)
            if gradients.communication == "asynchronous"
            else TurnsInOrder(barriers, gradients.max_lag, workers),
            _partial_rounds(collectors, collection.fraction_workers, collection.fraction_samples * collection.rollout),
        )


def _turns_between_checkpoints(
    config: Config, per_round: int, collectors: int, workers: int, turns: int, *, replays: bool
) -> int:
    """Return `checkpoint.every` in turns, rounded up; 0 if it is no number of steps or updates."""
    collection, every = config.collection, config.checkpoint.every
    if "steps" not in every:
        return int(every.get("updates", 0))
    # A gradient takes one rollout with asynchronous collection, else a worker's share of a round.
    shares = collectors if collection.communication == "asynchronous" and not replays else workers
    gradients = config.gradients.bootstrap_rounds * (1 if config.gradients.communication == "asynchronous" else workers)
    round_steps = collectors * collection.envs * collection.rollout * turns
    return -(-int(every["steps"]) * shares * per_round // (round_steps * gradients))


def _partial_rounds(collectors: int, fraction: float, steps: float) -> PartialRounds | None:
    # Rounded first: 0.07 * 100 is 7.000000000000001, and its ceiling would be 8.
    enough, least = (math.ceil(round(value, 9)) for value in (fraction * collectors, steps))
    return PartialRounds(enough, least) if enough < collectors else None
