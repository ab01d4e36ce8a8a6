"""What dense layers read of a row as observations are stored: for hive._native, without torch (unpacking.hpp).

    unpacking_of(dense.before, observation)                 of one array
    unpacking_of(dense.before, observation, joins)          of what a network around them makes of a row first

The layers before the first linear one are known where they only flatten a part, scale it by its bounds, and lay parts
side by side. An action beside the observation is no part of a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from torch import Tensor, nn

from hive import _native
from hive.networks.build.embedders import Merger, VectorInput
from hive.networks.build.spaces import InputSpec
from hive.networks.rows.inputs import ACTION_INPUT, OBSERVATION, InputName
from hive.networks.rows.packed import PackedNetwork, StackedNetwork

PLAIN = (nn.Flatten, nn.Identity)


def unpacking_of(
    before: Sequence[nn.Module], observation: InputSpec, joins: PackedNetwork | StackedNetwork | None = None
) -> _native.Unpacking | None:
    """Return what these layers read of stored rows; None if torch computes it."""
    rows = int(getattr(observation, "stack", 1))
    if rows > 1 and not (isinstance(joins, StackedNetwork) and joins.keeps_order):
        return None
    parts: Mapping[InputName, tuple[InputSpec, int]] = {OBSERVATION: (observation, 0)}
    if isinstance(joins, PackedNetwork):
        parts = joins.places
    described = []
    for name, layers in _embedders(before, parts):
        if name not in parts or (part := _described(*parts[name], layers, rows)) is None:
            return None
        described.append(part)
    return _native.Unpacking(rows * prod(observation.shape) * np.dtype(observation.dtype).itemsize, described)


def _embedders(
    before: Sequence[nn.Module], parts: Mapping[InputName, Any]
) -> Iterator[tuple[InputName, Sequence[nn.Module]]]:
    """Yield each input and its layers, in the order in which they are laid side by side."""
    if len(before) == 1 and type(before[0]) is Merger and not before[0].adds:
        for name, embedder in zip(before[0].names, before[0].embedders, strict=True):
            if name == ACTION_INPUT and name not in parts:
                continue
            # beside an action the only part of a row has the name of the observation
            alone = name == OBSERVATION and name not in parts
            yield next(iter(parts)) if alone else name, list(embedder.children())
    elif len(parts) == 1:
        yield next(iter(parts)), before
    else:
        yield "", before  # which is no part


def _described(spec: InputSpec, offset: int, layers: Sequence[nn.Module], rows: int) -> dict[str, Any] | None:
    """Return a part for _native.Unpacking; None if it is neither numbers nor bytes, or torch computes a layer."""
    scalings = [layer.scaling for layer in layers if type(layer) is VectorInput]
    known = all(type(layer) in (VectorInput, *PLAIN) for layer in layers) and len(scalings) < 2
    if not known or spec.dtype not in ("float32", "uint8"):
        return None
    shift: Sequence[float] = []
    factor: Sequence[float] = []
    scaling = scalings[0] if scalings else None
    if isinstance(scaling, float):
        factor = [] if scaling == 1.0 else [scaling]
    elif scaling is not None:
        shift, factor = map(_numbers, scaling)
    count, is_float = rows * prod(spec.shape), spec.dtype == "float32"
    return {"is_float": is_float, "offset": offset, "count": count, "shift": shift, "factor": factor}


def _numbers(tensor: Tensor) -> list[float]:
    found: list[float] = tensor.reshape(-1).tolist()
    return found
