"""Parameter groups: contiguous ranges of a flat vector that an update steps separately.

    flat vector | actor .. | critic .. | temperature |
                  steps      unchanged   unchanged       a gradient of the actor alone

An agent of several networks is one module, so that its weights are one block. A module names its groups in the
attribute `parameter_groups`: a group is named like the child of the module that holds its parameters, or by the path of
a child further down: "network.actor" is the group "actor". The groups of a module follow each other in the order of its
parameters and contain all of them. A module without this attribute has one group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hive.errors import NetworkError

__all__ = ["GroupUpdate", "ParameterGroup", "parameter_groups"]

WHOLE = "network"  # name of the only group of a module that names none


@dataclass(frozen=True, slots=True)
class ParameterGroup:
    """`parameters`: the numbers of its parameters. `elements`: its range in a flat vector, padding included."""

    name: str
    parameters: slice
    elements: slice

    def has_gradient(self, mask: npt.NDArray[np.uint8]) -> bool:
        """Whether a gradient with this mask, uint8 [parameters], contains one of the group's parameters."""
        return bool(mask[self.parameters].any())


class GroupUpdate(NamedTuple):
    """The update of one group. step: its number among the updates of the group, from 1 on; 0 keeps the group.

    norm: of the group's gradient before clipping; not read without clipping.
    """

    elements: slice
    norm: float
    step: int
    learning_rate: float


def parameter_groups(
    prefixes: Sequence[str], names: Sequence[str], starts: Sequence[int], elements: int
) -> tuple[ParameterGroup, ...]:
    """Return the groups of a flat vector.

    prefixes: the names of the groups; () for a single one. names, starts: name and first element of each parameter, in
        the order of the vector. elements: the length of the vector.

    Raises NetworkError unless each parameter belongs to a group, and the groups follow each other and are not empty.
    """
    if not prefixes:
        return (ParameterGroup(WHOLE, slice(0, len(names)), slice(0, elements)),)
    owners = [
        next((prefix for prefix in prefixes if name.startswith(f"{prefix}.")), name.partition(".")[0]) for name in names
    ]
    firsts = [owners.index(prefix) if prefix in owners else -1 for prefix in prefixes]
    ends = [*firsts[1:], len(owners)]
    expected = [prefix for prefix, first, end in zip(prefixes, firsts, ends, strict=True) for _ in range(first, end)]
    if owners != expected or len(set(prefixes)) != len(prefixes) or -1 in firsts:
        raise NetworkError(
            f"the parameters {', '.join(dict.fromkeys(owners))} do not form the groups {', '.join(prefixes)}",
            hint="`parameter_groups` names children of the module, in their order, that hold all parameters",
        )
    edges = [starts[first] for first in firsts] + [elements]
    return tuple(
        ParameterGroup(prefix.rpartition(".")[2], slice(first, end), slice(edges[number], edges[number + 1]))
        for number, (prefix, first, end) in enumerate(zip(prefixes, firsts, ends, strict=True))
    )
