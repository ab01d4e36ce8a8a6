"""The replay memory of a script: steps go in, batches of transitions come out.

    replay = ReplayBuffer(((4,), "float32"), ((), "int64"), capacity=100_000, n_step=3, discount=0.99, alpha=0.6)
    replay.begin(observation)                                    after each reset that no episode led to
    replay.add(action, reward, terminated, truncated, after, observation)
    batch = replay.sample(64)
    ...  batch.observations, batch.actions, batch.returns + batch.discounts * value of batch.next_observations
    replay.update(batch, errors)                                 only with alpha > 0

Prioritized replay (Schaul et al. 2016) draws a transition in proportion to (|TD error| + epsilon)^alpha; a new one has
the largest priority so far, so that each is soon drawn once. With alpha = 0, the default, all are equally likely.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hive.experience.priorities import PriorityTree, importance_weights, priority_leaves, replay_words
from hive.experience.replay import Replay, ReplayBatch, ShapeAndDtype, replay_layout
from hive.experience.rollouts import BEGINS, FINALS, LENGTH, Rollout, rollout_layout

EPSILON = 1e-6  # added to |TD error|, so that a transition without an error can still be drawn


@dataclass(frozen=True)
class DrawnBatch(ReplayBatch):
    """A batch with the weights of its losses: float32 [N], the largest of which is 1.

    written: rows that the memory had when it was drawn.
    """

    weights: NDArray[np.float32]
    written: int = 0


class ReplayBuffer:
    """The newest `capacity` steps of B environments, in private memory.

    observation, action: shape and dtype of one, such as ((4,), "float32") and ((), "int64").
    capacity: steps of all environments together. envs: B.
    n_step, discount: transitions have up to n steps, whose rewards are discounted.
    stack: observations that the network sees at once.
    alpha, beta: exponents of priorities and of the weights; beta may be changed at any time.
    seed: of the draws.
    """

    def __init__(
        self,
        observation: ShapeAndDtype,
        action: ShapeAndDtype,
        *,
        capacity: int,
        envs: int = 1,
        n_step: int = 1,
        discount: float = 0.99,
        stack: int = 1,
        alpha: float = 0.0,
        beta: float = 0.4,
        seed: int = 0,
    ) -> None:
        self.kept = capacity // envs  # rows from which transitions are drawn
        if self.kept < 1:
            raise ValueError(f"a capacity of {capacity} steps is less than one of each of {envs} environments")
        if n_step < 1 or stack < 1:
            raise ValueError(f"n_step = {n_step} and stack = {stack}: both are 1 or more")
        self.n_step, self.discount, self.alpha, self.beta, self.seed = n_step, discount, alpha, beta, seed
        # Besides: the row whose step is not made yet, the steps after the last transition, the observations before the
        # first, and a seam.
        layout = replay_layout(1, self.kept + n_step + stack + 2, envs, observation, action)
        self.memory = Replay(_zeros(layout), stack=stack)
        self.tree = PriorityTree(self.memory.arrays["leaves"].reshape(-1))
        self.written = 0  # rows
        self.drawn = 0  # batches
        self.largest = int(priority_leaves(np.ones(1, np.float32), alpha)[0][0])  # leaf of new transitions
        self._step = _zeros(rollout_layout(1, envs, observation, action, envs))
        self._step["header"][LENGTH] = 1
        self._step["valid"][:] = 1

    def __len__(self) -> int:
        """The number of transitions that can be drawn."""
        return int(np.count_nonzero(self.tree.leaves))

    def begin(self, observations: ArrayLike) -> None:
        """Set the first observations [B, ...] of new episodes. Earlier episodes stay without an end."""
        self._put("observations", 0, observations)
        self._step["header"][BEGINS] = 1

    def add(
        self,
        actions: ArrayLike,
        rewards: ArrayLike,
        terminated: ArrayLike,
        truncated: ArrayLike,
        after: ArrayLike,
        observations: ArrayLike,
    ) -> None:
        """Add one step of every environment; each argument is [B, ...], without this axis also for one environment.

        after: the observations that followed. observations: those that the next actions are chosen by, which differ
        from `after` where an episode ended.
        """
        step = self._step
        for name, values in (("actions", actions), ("rewards", rewards), ("terminated", terminated)):
            self._put(name, 0, values)
        self._put("truncated", 0, np.asarray(truncated, bool) & ~np.asarray(terminated, bool))
        self._put("observations", 1, observations)
        self._put("final_observations", slice(None), after)
        ended = np.flatnonzero(step["truncated"][0])
        step["final_index"][0] = -1
        step["final_index"][0, ended] = ended
        step["header"][FINALS] = self.memory.envs
        before = self.written
        self.written = self.memory.append(0, before, Rollout(step))
        self._admit(before - self.n_step + 1, self.written - self.n_step + 1)
        step["observations"][0] = step["observations"][1]
        step["header"][BEGINS] = 0

    def _put(self, name: str, at: int | slice, values: ArrayLike) -> None:
        """Write a field of the step. Raises ValueError for another shape, and for numbers that it would change."""
        to, given = self._step[name][at], np.asarray(values)
        alone = to.shape[0] == 1 and given.shape == to.shape[1:]
        if given.shape != to.shape and not alone:
            raise ValueError(f"`{name}` has shape {list(given.shape)}, expected {list(to.shape)}")
        with np.errstate(invalid="ignore"):
            stored = given.astype(to.dtype, copy=False)
        if stored is not given and to.dtype.kind in "iu" and not np.array_equal(stored, given):
            raise ValueError(f"`{name}` is stored as {to.dtype}, which would change its values")
        to[:] = stored

    def sample(self, count: int) -> DrawnBatch:
        """Draw `count` transitions. Raises ValueError before the first can be drawn."""
        positions, leaves = self.tree.draw(replay_words(self.seed, 0, self.drawn, count))
        if len(positions) < count:
            raise ValueError(f"no transition of {self.n_step} steps is in the memory yet")
        self.drawn += 1
        batch = self.memory.gather(positions, n_step=self.n_step, discount=self.discount)
        return DrawnBatch(**vars(batch), weights=importance_weights(leaves, self.beta), written=self.written)

    def update(self, batch: DrawnBatch, errors: ArrayLike) -> None:
        """Set the priorities of a batch to its absolute TD errors, [N]; those evicted meanwhile are left out."""
        priorities = np.abs(np.asarray(errors, np.float32)) + np.float32(EPSILON)
        leaves, _ = priority_leaves(priorities, self.alpha)
        self.largest = max(self.largest, int(leaves.max(initial=0)))
        present = self.tree.leaves[batch.positions] > 0  # others were evicted since,
        rows = self.memory.rows
        again = batch.written + (batch.positions // self.memory.envs - batch.written) % rows
        present &= again >= self.written  # or a later step has taken their place
        self.tree.write(batch.positions[present], leaves[present])

    def _admit(self, first: int, end: int) -> None:
        """Let rows `first` to `end` - 1 be drawn, and as many of the oldest not any more."""
        valid = self.memory.arrays["valid"].reshape(-1)
        for row in range(max(first, 0), end):
            old = self.memory.positions_of(0, row - self.kept, row - self.kept + 1)
            if row >= self.kept:
                self.tree.fill(int(old[0]), len(old), 0)
            new = self.memory.positions_of(0, row, row + 1)
            leaves = np.where(valid[new] > 0, self.largest, 0).astype(np.uint32)
            self.tree.write(new, leaves)


def _zeros(layout: Any) -> Any:
    """Return the fields of a layout in new memory, which takes none until it is written."""
    return layout.views(np.zeros(layout.bytes, np.uint8))
