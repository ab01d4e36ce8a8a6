"""A replay memory: the newest steps of all environments, from which batches of transitions are gathered.

    observations        [S, R, B, ...]      of S collectors with B environments each, in rings of R rows
    finals              [S, R, B, ...]      the true last observation where an episode was truncated, else not written
    actions             [S, R, B, ...]
    rewards             [S, R, B] float32
    terminated, truncated, valid   [S, R, B] uint8   as in hive.experience.rollouts
    leaves              [S, R, B] uint32    how likely a row is drawn; 0: not at all (hive.experience.priorities)

The rows of a collector are numbered from 0, and row i lies at i modulo R. A step of row i leads to the observation of
row i + 1, which is therefore written together with row i, even at the end of a rollout. The next rollout writes the
other fields of row i + 1. If the environments were reset between the two rollouts, the next one begins in row i + 2
instead, and row i + 1 is a *seam*: it has an observation and no step (valid = 0).

Pages that are never written take no memory, so `finals` cost as much as there are truncated episodes. One writer
appends rollouts. Readers gather batches of rows that are not overwritten meanwhile: the newest `capacity` rows are safe
until R - capacity more rows are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hive import _native
from hive.experience.rollouts import Rollout
from hive.networks.rows.normalization import LIMIT, Scales
from hive.runtime import Layout
from hive.runtime.memory.segments import Arrays

ShapeAndDtype = tuple[tuple[int, ...], str]
"""Shape and dtype of one observation or action."""


def replay_layout(sources: int, rows: int, envs: int, observation: ShapeAndDtype, action: ShapeAndDtype) -> Layout:
    """Return the layout of a memory with S = `sources`, R = `rows` and B = `envs`. All bytes are zeros at first."""
    each = (sources, rows, envs)
    return Layout(
        {
            "observations": (observation[1], (*each, *observation[0])),
            "finals": (observation[1], (*each, *observation[0])),
            "actions": (action[1], (*each, *action[0])),
            "rewards": ("float32", each),
            "terminated": ("uint8", each),
            "truncated": ("uint8", each),
            "valid": ("uint8", each),
            "leaves": ("uint32", each),
        }
    )


@dataclass(frozen=True)
class ReplayBatch:
    """Transitions of up to n steps, N of them, which begin at the rows `positions`, int64 [N].

    observations, next_observations: [N, ...], or stacks [N, k, ...]. actions: [N, ...]. returns: float32 [N], the
    discounted rewards of the steps. discounts: float32 [N], the factor of the value of the next observation: the
    discount to the power of the steps taken, 0 after a termination, where the next observation is the last one before
    it, because the one after it is not stored. Observations and each reward may be normalized.
    """

    positions: NDArray[np.int64]
    observations: NDArray[Any]
    actions: NDArray[Any]
    returns: NDArray[np.float32]
    discounts: NDArray[np.float32]
    next_observations: NDArray[Any]


class Observed(NamedTuple):
    """An observation as it is stored: its shape and dtype, and how many of them a network sees at once."""

    shape: tuple[int, ...]
    dtype: str
    stack: int


class Replay:
    """The memory in `arrays`: `observations` [S, R, B, ...] and so on, as in the message ReplayRows.

    stack: number k of observations that a network sees at once; 1: observations are gathered without that axis.
    statistics: where a block of weights has what normalizes rows, for `described`; see StatisticPlaces in
        native/include/hive/program.hpp.
    """

    def __init__(
        self, arrays: Arrays, *, stack: int = 1, statistics: Mapping[str, Mapping[str, int]] | None = None
    ) -> None:
        self.arrays = arrays
        self.stack = stack
        self.statistics = statistics or {}
        self.sources, self.rows, self.envs = arrays["rewards"].shape
        named = {name: _as_bytes(arrays[name]) for name in ("observations", "finals", "actions")}
        self.native = _native.ReplayRows(
            **named,
            rewards=arrays["rewards"],
            terminated=arrays["terminated"],
            truncated=arrays["truncated"],
            valid=arrays["valid"],
        )

    @property
    def observation(self) -> Observed:
        """What it stores of an observation."""
        stored = self.arrays["observations"]
        return Observed(stored.shape[3:], stored.dtype.name, self.stack)

    def append(self, source: int, written: int, rollout: Rollout) -> int:
        """Write a rollout of collector `source`, of which `written` rows are in the memory; return their new number.

        Raises ValueError for a rollout with other environments, and for one that is longer than the ring.
        """
        steps = rollout.length
        if rollout.rewards.shape[1] != self.envs or steps + 2 > self.rows:
            raise ValueError(
                f"a rollout of {steps} steps of {rollout.rewards.shape[1]} environments does not fit {self.rows} rows "
                f"of {self.envs}"
            )
        own = {name: array[source] for name, array in self.arrays.items()}
        head = written % self.rows
        if written and rollout.begins:
            for name in ("actions", "rewards", "terminated", "truncated", "valid"):
                own[name][head] = 0
            written += 1
        self._put(own["observations"], written, rollout.observations)
        for name in ("actions", "rewards", "terminated", "truncated", "valid"):
            self._put(own[name], written, getattr(rollout, name))
        own["valid"][(written + steps) % self.rows] = 0  # its step is not known yet
        for t, env in np.argwhere(rollout.final_index >= 0):
            last = rollout.final_observations[rollout.final_index[t, env]]
            own["finals"][(written + t) % self.rows, env] = last
        return written + steps

    def gather(
        self, positions: NDArray[np.int64], *, n_step: int, discount: float, scales: Scales | None = None
    ) -> ReplayBatch:
        """Return the transitions that begin at `positions`, int64 [N]: indices into [S, R, B], flattened.

        Each ends after `n_step` steps, or earlier at the end of its episode and before a seam. The rows after it must
        be written. scales: normalize observations and rewards. Raises IndexError for a position outside of the memory,
        and ValueError for `n_step` below 1.
        """
        count = len(positions)
        observations, actions = self.arrays["observations"], self.arrays["actions"]
        shape = count, self.stack, *observations.shape[3:]
        first, following = np.empty(shape, observations.dtype), np.empty(shape, observations.dtype)
        taken = np.empty((count, *actions.shape[3:]), actions.dtype)
        returns, discounts = np.empty(count, np.float32), np.empty(count, np.float32)
        if count:
            self.native.gather(
                positions,
                n_step,
                discount,
                first.reshape(count, self.stack, -1).view(np.uint8),
                following.reshape(count, self.stack, -1).view(np.uint8),
                taken.reshape(count, -1).view(np.uint8),
                returns,
                discounts,
                *(scales or Scales()),
                LIMIT,
            )
        if self.stack == 1:
            first, following = first[:, 0], following[:, 0]
        return ReplayBatch(positions, first, taken, returns, discounts, following)

    def described(
        self, n_step: int, discount: float, importance_exponent: float, *, actions: str = "int64"
    ) -> tuple[str, dict[str, Any]] | None:
        """Return the gathering of a batch as a step of a `_native.Program`.

        It writes the registers that are named as the fields of a batch. actions: the dtype of actions that the steps
        after it read, one number of int64, or of float32. None for other actions.
        """
        stored = self.arrays["actions"]
        is_one = stored[0, 0, 0].size == 1 or actions != "int64"
        if stored.dtype.name != actions or not is_one:
            return None
        keys = {"n_step": n_step, "discount": discount, "importance_exponent": importance_exponent}
        normalizers = {name: self.statistics.get(name) for name in ("observed", "rewarded")}
        return "gather", {"memory": self.native, "stack": self.stack, "limit": LIMIT, **keys, **normalizers}

    def positions_of(self, source: int, first: int, end: int) -> NDArray[np.int64]:
        """Return the positions of rows `first` to `end` - 1 of a collector, int64 [(end - first) * B]."""
        rows = (source * self.rows + np.arange(first, end) % self.rows)[:, None]
        positions: NDArray[np.int64] = rows * self.envs + np.arange(self.envs)
        return positions.ravel()

    def _put(self, ring: NDArray[Any], first: int, rows: NDArray[Any]) -> None:
        """Write `rows` [n, B, ...] at row `first` of a ring [R, B, ...]."""
        start = first % self.rows
        left = min(len(rows), self.rows - start)
        ring[start : start + left] = rows[:left]
        ring[: len(rows) - left] = rows[left:]


def _as_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return [S, R, B, ...] as bytes [S, R, B, bytes], without copying."""
    sources, rows, envs = array.shape[:3]
    return array.reshape(sources, rows, envs, -1).view(np.uint8)
