"""Snapshots: weights of one version in memory that never changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hive import _native
from hive.errors import NetworkError
from hive.networks.weights.flat import FlatLayout, aligned_block


@dataclass(frozen=True)
class Snapshot:
    """Weights of one version. `block`: uint8 [block_bytes], read-only, with the layout in
    hive.networks.weights.flat.
    """

    version: int
    block: NDArray[np.uint8]

    @classmethod
    def of(cls, version: int, block: NDArray[np.uint8]) -> Snapshot:
        """Make a snapshot that copies a block of weights."""
        copied = aligned_block(len(block))
        copied[:] = block
        copied.flags.writeable = False
        return cls(version, copied)


def snapshot_of(weights: Snapshot | Mapping[str, Any], flat: FlatLayout, version: int) -> Snapshot:
    """Convert {"version": int, "weights": {name: tensor or array}} to a Snapshot, or the inner mapping with `version`.

    A Snapshot is returned as it is. Raises NetworkError if names, shapes, dtypes or the size are not those of the
    network, and for weights that are not finite.
    """
    if isinstance(weights, Snapshot):
        if len(weights.block) != flat.block_bytes:
            raise NetworkError(
                f"the weights of this network take {flat.block_bytes} bytes, the snapshot has {len(weights.block)}",
                hint="pass a Snapshot of a worker with the same network",
            )
        return weights
    tensors: Any = weights.get("weights", weights)
    number = int(weights["version"]) if "weights" in weights and "version" in weights else version
    block = aligned_block(flat.block_bytes)
    arrays = flat.arrays(block)
    if set(tensors) != set(arrays):
        differ = ", ".join(sorted(set(tensors) ^ set(arrays))[:4])
        raise NetworkError("the weights are of another network", hint=f"the names differ in {differ}")
    for name, array in arrays.items():
        tensor = tensors[name]
        values = tensor.detach().cpu().numpy() if isinstance(tensor, torch.Tensor) else np.asarray(tensor)
        if values.shape != array.shape or values.dtype != array.dtype:
            expected = f"expected {array.dtype} {list(array.shape)}"
            raise NetworkError(f"`{name}` is {values.dtype} {list(values.shape)}, {expected}")
        array[...] = values
    if not _native.norm_and_finite(block[: flat.parameter_bytes].view(np.float32))[1]:
        name = next(n for n, array in arrays.items() if array.dtype.kind == "f" and not np.isfinite(array).all())
        raise NetworkError(f"the weights of `{name}` are not finite; no weights were changed")
    return Snapshot.of(number, block)
