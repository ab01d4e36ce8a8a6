"""The replay memory of a run: the learner writes it and draws from it, and gradient workers gather what was drawn.

    rows      [S, R, B, ...]   the steps of S collectors with B environments each, in one block of shared memory
                               (hive.experience.replay), with the leaves of a tree of priorities
                               (hive.experience.priorities)
    ledger    counters, written [S] int64, rollouts [S] int64, returns [100] float32 (, infos [100, K] float32)
              (, observed [1 + 2 n] float64) (, rewarded [3] float64)
              how much of it is written, as a version of a board: version r after r rollouts; and, if the network
              normalizes, the moments of all steps that were ever written (hive.networks.rows.normalization)
    plan      drawn, least int64; positions int64 [W, n], leaves uint32 [W, n]
              the rows that each of W gradient workers computes its part of an update from

A learner that is killed is followed by one that repeats its last step. So each step either writes rows and leaves that
depend on committed numbers alone, and may be written twice, or reads them only after all of these writes: first the
rollouts of a round are admitted, then the plan is drawn, and the errors of a turn are written at its end.

Statistics of a network that normalizes are sums over all rows so far, which the ledger has: a rollout is in them when,
and only when, its rows are in the memory. Each turn sets those of its weights to those of the ledger.

No row is overwritten while it is read. A plan names rows that could be drawn when it was drawn. Until its
gradients have arrived, the rollouts of at most `rounds_ahead` rounds are appended. The ring has room for these, besides
the rows that can be drawn, their stacks of observations and the steps that follow them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.envs import ObservationSpec
from hive.experience import (
    PriorityTree,
    Replay,
    Rollout,
    importance_weights,
    priority_leaves,
    replay_layout,
    replay_words,
)
from hive.networks.rows.normalization import MOMENTS_OF, add_moments
from hive.runtime import Layout
from hive.runtime.memory.segments import Arrays
from hive.training.collect.collector import observe
from hive.training.update.learner import RETURNS_KEPT, Count, count_episodes
from hive.training.update.replay_size import ReplaySize as ReplaySize

EPSILON = 1e-6  # added to |TD error|, so that a step without an error can still be drawn
COUNTERS = 16  # words, as in an optimizer state
MOST_DESCRIBED = 1 << 16  # leaves that their spread is computed from: all of them would take milliseconds

REPLAY_VALUES = (
    "replay/steps",
    "replay/fill",
    "replay/draws_per_step",
    "replay/age_steps",
    "replay/priority_share",
    "replay/given",
)
"""Steps in the memory; their share of the capacity; how often each new step is drawn, on average; mean age, in
environment steps, of what was drawn last; the share of steps that would be drawn as often if only these were drawn,
all equally often: 1 without priorities (the effective sample size, Kish 1965); and how many steps entered the memory
from algorithm.replay_from, which the run has not made itself."""


def memory_layout(size: ReplaySize, observation: tuple[Any, str], action: tuple[Any, str]) -> Layout:
    """Return the layout of the shared memory: the rows, and a copy of the leaves for the recorder."""
    rows = replay_layout(size.sources, size.rows, size.envs, observation, action)
    leaves = "uint32", (size.sources, size.rows, size.envs)
    return Layout(
        {**{name: (dtype.name, shape) for name, (dtype, shape) in rows.fields.items()}, "held_leaves": leaves}
    )


def ledger_layout(sources: int, infos: int = 0, normalized: Mapping[str, int] | None = None) -> Layout:
    """Return the layout of a ledger; see the module.

    infos: number of values of `info` for each episode. normalized: the moments that the network needs, and their
    lengths.
    """
    return Layout(
        {
            "counters": ("int64", (COUNTERS,)),
            "written": ("int64", (sources,)),
            "rollouts": ("int64", (sources,)),
            "returns": ("float32", (RETURNS_KEPT,)),
            **({"infos": ("float32", (RETURNS_KEPT, infos))} if infos else {}),
            **{name: ("float64", (length,)) for name, length in (normalized or {}).items()},
        }
    )


def plan_layout(size: ReplaySize) -> Layout:
    """Return the layout of a plan; see the module."""
    each = (size.workers, size.batch)
    return Layout({"header": ("int64", (2,)), "positions": ("int64", each), "leaves": ("uint32", each)})


@dataclass(frozen=True)
class DrawnRows:
    """The rows of a plan for one worker: positions int64 [n], importance float32 [n]. n is 0 if none could be drawn."""

    positions: NDArray[np.int64]
    importance: NDArray[np.float32]

    @classmethod
    def of(cls, plan: Arrays, worker: int, importance_exponent: float) -> DrawnRows:
        """Copy the rows of one worker from a plan."""
        drawn, least = plan["header"].tolist()
        leaves = plan["leaves"][worker, :drawn]
        return cls(
            plan["positions"][worker, :drawn].copy(), importance_weights(leaves, importance_exponent, least or None)
        )


class ReplayMemory:
    """What the learner does with the memory. `memory`: a block of `memory_layout`, which may already hold rows.

    observation: that of the environments. alpha: exponent of the priorities; 0: all rows that can be drawn are equally
    likely. least_steps: no rows are drawn before this many steps are in the memory. keeps_steps: whether the steps of
    the run enter the memory; otherwise it has only those that it was given.
    """

    def __init__(
        self,
        size: ReplaySize,
        layout: Layout,
        memory: NDArray[np.uint8],
        observation: ObservationSpec,
        *,
        seed: int,
        alpha: float,
        least_steps: int,
        keeps_steps: bool = True,
    ) -> None:
        self.size = size
        self.observation = observation
        self.arrays = layout.views(memory)
        self.rows = Replay(self.arrays, stack=size.stack)
        self.tree = PriorityTree(self.arrays["leaves"].reshape(-1))
        self.seed = seed
        self.alpha = alpha
        self.keeps_steps = keeps_steps
        self.least_steps = min(least_steps, size.sources * size.kept * size.envs)
        self.first_leaf = int(priority_leaves(np.ones(1, np.float32), alpha)[0][0])

    def admit(self, rollouts: Sequence[Rollout], before: Arrays, after: Arrays, largest_leaf: int) -> None:
        """Append these rollouts, those of a collector in order, and write the ledger `after` them.

        largest_leaf: leaf of new rows. With the same `before` it may be called again, also after a call that was cut
        short.
        """
        for name, array in before.items():
            after[name][:] = array
        counters = after["counters"]
        for rollout in rollouts:
            if self.keeps_steps:
                self._keep(rollout, after, largest_leaf or self.first_leaf)
            after["rollouts"][rollout.source] = rollout.sequence + 1
            counters[Count.rollouts] += 1
            counters[Count.env_steps] += rollout.env_steps
            infos = rollout.episode_infos() if "infos" in after else None
            count_episodes(rollout.episodes()[0], infos, after)

    def _keep(self, rollout: Rollout, after: Arrays, leaf: int) -> None:
        """Append the rows of a rollout. leaf: that of new rows."""
        source = rollout.source
        first = int(after["written"][source])
        end = self.rows.append(source, first, rollout)
        drawable = self._let_draw(source, first, end, leaf)
        if self.alpha and rollout.errors is not None:
            self._prioritize(source, end - rollout.length, rollout.errors, drawable)
        after["written"][source] = end
        self._observe(rollout, after)

    def give(self, rollouts: Iterable[Rollout], ledger: Arrays, weight: float = 1.0) -> None:
        """Append rows that the run has not made, before its first round, and count them in the ledger.

        weight: their chance to be drawn, relative to that of a new row.
        """
        leaf = max(1, round(weight * self.first_leaf))
        for rollout in rollouts:
            source = rollout.source
            first = int(ledger["written"][source])
            end = self.rows.append(source, first, rollout)
            self._let_draw(source, first, end, leaf)
            ledger["written"][source] = end
            ledger["counters"][Count.given] += rollout.samples
            self._observe(rollout, ledger)

    def writer_keys(self) -> dict[str, Any]:
        """Return what native code appends rollouts with, as `admit` does."""
        kept = {"kept": self.size.kept, "n_step": self.size.n_step, "alpha": self.alpha, "epsilon": EPSILON}
        return {"rows": self.rows.native, "tree": self.tree.native, **kept}

    def forget_unfinished(self, ledger: Arrays) -> None:
        """Let no row be drawn that is not in the ledger, after a call of `admit` that may have been cut short.

        With asynchronous collectors the next call may have other rollouts, and would leave such rows as they are.
        """
        for source, written in enumerate(ledger["written"].tolist()):
            end = max(0, written - self.size.n_step + 1)
            self._fill(source, end, max(0, end - self.size.kept) + self.size.rows, 0)

    def draw(self, number: int, ledger: Arrays, plan: Arrays) -> None:
        """Draw plan `number`: rows for each worker, or none while the memory holds too few."""
        size, least, drawn = self.size, [], 0
        if self.holds_enough(ledger) and self.tree.total:
            for worker in range(size.workers):
                out = plan["positions"][worker], plan["leaves"][worker]
                _, leaves = self.tree.draw(replay_words(self.seed, worker, number, size.batch), out)
                drawn = size.batch
                least.append(int(leaves.min()))
        plan["header"][:] = drawn, min(least, default=0)

    def holds_enough(self, ledger: Arrays) -> bool:
        """Return whether the memory holds as many steps as the first draw waits for; native rounds only draw then."""
        held = np.minimum(ledger["written"], self.size.kept).sum() * self.size.envs
        return bool(held >= self.least_steps)

    def learn(self, plan: Arrays, errors: Sequence[NDArray[np.float32]]) -> tuple[int, int]:
        """Set the priorities of the rows of a plan to their new absolute TD errors.

        errors: float32 [n] of each worker, in order; those that are not finite leave the priority as it is, and so does
        a row that cannot be drawn any more. Return the largest new leaf, and how many were above the limit.
        """
        largest = saturated = 0
        if not self.alpha:
            return largest, saturated
        drawn = int(plan["header"][0])
        for worker, own in enumerate(errors):
            positions = plan["positions"][worker, :drawn]
            known = np.isfinite(own[:drawn]) & (self.tree.leaves[positions] > 0)
            leaves, above = priority_leaves(own[:drawn][known] + np.float32(EPSILON), self.alpha)
            self.tree.write(positions[known], leaves)
            largest, saturated = max(largest, int(leaves.max(initial=0))), saturated + above
        return largest, saturated

    def describe(self, ledger: Arrays, plan: Arrays, draws: int) -> dict[str, float]:
        """Return the metrics REPLAY_VALUES. plan: the last one. draws: steps drawn so far."""
        size = self.size
        columns = size.sources * size.envs
        held = np.minimum(ledger["written"], size.kept).sum() * size.envs
        positions = plan["positions"][:, : plan["header"][0]].reshape(-1)
        source, row = np.divmod(positions // size.envs, size.rows)
        ages = (ledger["written"][source] - 1 - row) % size.rows
        leaves = self.arrays["leaves"].reshape(-1)
        some = leaves[:: -(-len(leaves) // MOST_DESCRIBED)].astype(np.float64)
        squares = np.count_nonzero(some) * (some * some).sum()
        steps = max(int(ledger["counters"][Count.env_steps]), 1)
        values = (
            float(held),
            float(held / (size.kept * columns)),
            draws / steps,
            float(ages.mean() * columns) if len(ages) else 0.0,
            float(some.sum() ** 2 / squares) if squares else 0.0,
            float(ledger["counters"][Count.given]),
        )
        return dict(zip(REPLAY_VALUES, values, strict=True))

    def hold_leaves(self) -> None:
        """Copy the leaves for the recorder."""
        self.arrays["held_leaves"][:] = self.arrays["leaves"]

    def _observe(self, rollout: Rollout, ledger: Arrays) -> None:
        """Add the steps of a rollout to the statistics, unless one of their values is not finite.

        No update is made of such a row, and sums that are not finite would never be finite again.
        """
        own = {name: np.zeros_like(ledger[name]) for name in MOMENTS_OF if name in ledger}
        with np.errstate(invalid="ignore", over="ignore"):
            observe(rollout, self.observation, own)
        for name, moments in own.items():
            if moments[0] and np.isfinite(moments).all():
                add_moments(moments, ledger[name])

    def _let_draw(self, source: int, first: int, end: int, leaf: int) -> range:
        """Let the steps be drawn that rows `first` to `end` - 1 have completed, and as many of the oldest no more.

        Return the rows of the former.
        """
        before, now = (max(0, row - self.size.n_step + 1) for row in (first, end))
        oldest, kept = (max(0, row - self.size.kept) for row in (before, now))
        self._fill(source, oldest, min(kept, before), 0)
        self._fill(source, max(kept, before), now, leaf)  # not those of a long rollout that are too old already
        new = self.rows.positions_of(source, max(kept, before), now)
        skipped = new[self.arrays["valid"].reshape(-1)[new] == 0]
        if len(skipped):
            self.tree.write(skipped, np.zeros(len(skipped), np.uint32))
        return range(max(kept, before), now)

    def _prioritize(self, source: int, first: int, errors: NDArray[np.float32], drawable: range) -> None:
        """Set the priorities of the steps from row `first` on that can be drawn and whose errors [T, B] are finite.

        The others get the first priority when the rows after them are written, though an end may make their errors
        known before.
        """
        begin, end = max(first, drawable.start), max(first, drawable.stop)
        positions, errors = self.rows.positions_of(source, begin, end), errors[begin - first : end - first].reshape(-1)
        known = np.isfinite(errors)
        leaves, _ = priority_leaves(errors[known] + np.float32(EPSILON), self.alpha)
        self.tree.write(positions[known], leaves)

    def _fill(self, source: int, first: int, end: int, leaf: int) -> None:
        """Set the leaves of rows `first` to `end` - 1 of a collector, at most a ring of them."""
        ring, envs = self.size.rows, self.size.envs
        while first < end:
            start = first % ring
            count = min(end - first, ring - start)
            self.tree.fill((source * ring + start) * envs, count * envs, leaf)
            first += count
