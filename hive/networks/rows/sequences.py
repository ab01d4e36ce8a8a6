"""The rows of a batch as sequences, for recurrent networks: which rows follow each other, and from which state.

An episode start cuts the column of an environment into fragments. No fragment depends on another one, so the network
computes step 0 of all fragments, then step 1, and so on, without masks:

    column 0   a a a | b b                packed rows   a0 b0 c0  a1 b1 c1  a2 c2  c3  c4
    column 1   c c c c c                  sizes         3         3         2      1   1

The last observation of a truncated episode is one more step from the state that its fragment ends in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["Fragments", "Sequences"]

Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Sequences:
    """N rows for a recurrent network, which returns its outputs in the same order.

    observation: [N, ...], or a mapping from names to such tensors.
    state: float32 [K, S], the state before each of K fragments, which are sorted by falling length.
    sizes: int64 [L], the number of fragments that are longer than l steps.
    rows: int64 [M], the rows of the fragments: step 0 of all, step 1 of all that are longer, and so on; None: all rows
        are in this order already.
    finals, after: int64 [F]: rows that are one step from the last row of a fragment, and the number of this fragment.
    order: int64 [N], the place of each row in the concatenation of `rows` and `finals`; None like `rows`.
    """

    observation: Any
    state: Tensor
    sizes: Tensor
    rows: Tensor | None = None
    finals: Tensor | None = None
    after: Tensor | None = None
    order: Tensor | None = None

    def starting_from(self, state: Tensor) -> Sequences:
        """Return these sequences with other states before each fragment, float32 [K, S]."""
        return replace(self, state=state)


@dataclass(frozen=True, eq=False)
class Fragments:
    """K fragments: rows `first`, `first + stride`, ... of the rows of a batch. All arrays are int64 [K].

    column: the environment of each. continues: 1 if it begins with the stored state of its column, 0: with zeros.
    """

    first: Numbers
    stride: Numbers
    length: Numbers
    column: Numbers
    continues: Numbers

    @classmethod
    def between(cls, starts: NDArray[np.bool_], row: int = 0, column: int = 0) -> Fragments:
        """Cut rows [L, C], time-major, where an episode starts.

        starts: [L, C]; row 0 begins fragments whatever it says, and its state is the stored one. row, column: the
        numbers of the first row and of the first column.
        """
        steps, columns = starts.shape
        begins = starts.T.copy()
        begins[:, 0] = True
        place = np.flatnonzero(begins)  # column after column
        mine, step = np.divmod(place, steps)
        length = np.diff(place, append=steps * columns)
        stride = np.full(len(place), columns)
        return cls(row + step * columns + mine, stride, length, column + mine, (step == 0).astype(np.int64))

    @classmethod
    def joined(cls, parts: Sequence[Fragments]) -> Fragments:
        """Concatenate fragments of the same rows."""
        names = cls.__dataclass_fields__
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def where(self, chosen: NDArray[np.bool_]) -> Fragments:
        """Return the fragments where `chosen`, bool [K], is true."""
        return Fragments(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))

    def sorted(self) -> Fragments:
        """Return them by falling length; of equal length, in their order."""
        order = np.argsort(-self.length, kind="stable")
        return Fragments(*(getattr(self, name)[order] for name in self.__dataclass_fields__))

    @property
    def last(self) -> Numbers:
        """The last row of each, int64 [K]."""
        return self.first + (self.length - 1) * self.stride

    def packed(self) -> tuple[Numbers, Numbers]:
        """Return (rows int64 [M], sizes int64 [L]) as in Sequences. The fragments must be sorted."""
        counts = np.bincount(self.length)
        sizes = len(self.length) - np.cumsum(counts)[:-1]
        step = np.repeat(np.arange(len(sizes)), sizes)
        fragment = np.arange(len(step)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return self.first[fragment] + step * self.stride[fragment], sizes

    def initial(self, state: Tensor) -> Tensor:
        """Return the state before each, float32 [K, S], from the stored states of all columns, float32 [C, S]."""
        continues = torch.from_numpy(self.continues).to(state.dtype)
        return state.index_select(0, torch.from_numpy(self.column)) * continues.unsqueeze(1)

    def sequences(
        self,
        observation: Tensor,
        state: Tensor,
        finals: tuple[Numbers, Numbers] | None = None,
    ) -> Sequences:
        """Return the Sequences of all rows of `observation`, [N, ...]. The fragments must be sorted.

        state: the stored states, float32 [C, S]. finals: rows of final observations, int64 [F], and for each the row
        that it follows, which is the last of a fragment.
        """
        rows, sizes = self.packed()
        state = self.initial(state)
        if finals is None and np.array_equal(rows, np.arange(len(observation))):
            return Sequences(observation, state, torch.from_numpy(sizes))
        order = np.zeros(len(observation), np.int64)
        order[rows] = np.arange(len(rows))
        after = None
        if finals is not None:
            order[finals[0]] = len(rows) + np.arange(len(finals[0]))
            fragment = np.zeros(len(observation), np.int64)
            fragment[self.last] = np.arange(len(self.last))
            after = torch.from_numpy(fragment[finals[1]])
        return Sequences(
            observation,
            state,
            torch.from_numpy(sizes),
            torch.from_numpy(rows),
            None if finals is None else torch.from_numpy(finals[0]),
            after,
            torch.from_numpy(order),
        )
