"""The inputs of a network: an observation, for a recurrent network (`recurrent`) with its state, or with an action.

A recurrent network learns from `Sequences`: an episode start cuts the column of an environment into `Fragments`. No
fragment depends on another one, so the network computes step 0 of all, then step 1, and so on, without masks:

    column 0   a a a | b b                packed rows   a0 b0 c0  a1 b1 c1  a2 c2  c3  c4
    column 1   c c c c c                  sizes         3         3         2      1   1

The last observation of a truncated episode is one more step from the state that its fragment ends in. To act, it keeps
its state between two calls in a `Memory`.

All other inputs have names. Parts of an observation are addressed by their paths, tuples of keys and positions, so no
name that an environment gives to a part can be one of hive's. A custom module gets parts by `dotted_name`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

RowNumbers = NDArray[np.int64]


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

    first: RowNumbers
    stride: RowNumbers
    length: RowNumbers
    column: RowNumbers
    continues: RowNumbers

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
    def last(self) -> RowNumbers:
        """The last row of each, int64 [K]."""
        return self.first + (self.length - 1) * self.stride

    def packed(self) -> tuple[RowNumbers, RowNumbers]:
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
        finals: tuple[RowNumbers, RowNumbers] | None = None,
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


InputName: TypeAlias = str | tuple[str | int, ...]
"""The name of an input, or the path of a part of an observation."""

OBSERVATION = "observation"  # the only observation, where an input beside it has a name
RECURRENT_STATE = "recurrent_state"
EPISODE_STARTS = "episode_starts"

# The name of the input that holds the action; a critic of states and actions has an embedder for it.
ACTION_INPUT = "action"

FURTHER = (RECURRENT_STATE, EPISODE_STARTS, ACTION_INPUT)  # inputs beside the observation


def dotted_name(name: InputName) -> str:
    """Return the path of a part with dots between keys, `arm.joints`; a name as it is."""
    return name if isinstance(name, str) else ".".join(map(str, name))


def input_order(name: InputName) -> tuple[str, list[str]]:
    """Return the sort key of inputs: by dotted name, and by path where these are equal."""
    return dotted_name(name), [] if isinstance(name, str) else list(map(repr, name))


def state_width_of(network: nn.Module) -> int:
    """Return the number of elements in the recurrent state of one environment; 0 for a network without a memory."""
    return int(getattr(network, "state_width", 0))


def observation_of(inputs: Any) -> Any:
    """Return the only observation in the inputs of a network: these, or the one beside a state or an action."""
    if isinstance(inputs, Sequences):
        return inputs.observation
    if not isinstance(inputs, Mapping):
        return inputs
    return next(value for name, value in inputs.items() if name not in FURTHER)


def with_observation(inputs: Any, function: Callable[[Any], Any]) -> Any:
    """Return the inputs of a network with `function(observation)` in the place of the only observation.

    The result may be a mapping, whose names then stand beside the state of a recurrent network, or beside an action.
    """
    if not isinstance(inputs, Sequences | Mapping):
        return function(inputs)
    changed = function(observation_of(inputs))
    if isinstance(inputs, Sequences):
        return replace(inputs, observation=changed)
    named = changed if isinstance(changed, Mapping) else {OBSERVATION: changed}
    return {**named, **{name: inputs[name] for name in FURTHER if name in inputs}}


class Memory:
    """The recurrent state of B environments that one network acts in, between its calls.

    network: a recurrent network, or one around it. state: float32 [B, S], at first zeros.
    """

    def __init__(self, network: nn.Module, count: int) -> None:
        self.network = network
        self.state = torch.zeros(count, state_width_of(network), dtype=torch.float32, device="cpu")

    @classmethod
    def of(cls, network: nn.Module, count: int) -> Memory | None:
        """Return the memory of a network for `count` environments; None if it has none."""
        return cls(network, count) if state_width_of(network) else None

    def __call__(self, observations: Tensor, rows: RowNumbers | None = None) -> tuple[Tensor, ...]:
        """Return the outputs of the heads for observations [n, ...] of these rows, and remember their states.

        rows: int64 [n]; None: all. The states of other rows stay.
        """
        before = self.state if rows is None else self.state[rows]
        *outputs, after = self.network({"observation": observations, RECURRENT_STATE: before})
        if rows is None:
            self.state = after
        else:
            self.state[rows] = after
        return tuple(outputs)

    def forget(self, ended: NDArray[np.bool_] | RowNumbers) -> None:
        """Set the state to zeros in these rows: bool [B], or their numbers."""
        self.state.numpy()[ended] = 0.0
