"""Weights and rollouts for scripts that use these classes without a run, as copies outside shared memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hive import _native
from hive.errors import NetworkError
from hive.networks.flat import FlatLayout, aligned_block
from hive.storage import LENGTH

__all__ = ["CollectedRollout", "RoundStorage", "Snapshot", "snapshot_of"]


@dataclass(frozen=True)
class Snapshot:
    """Weights of one version. `block`: uint8 [block_bytes], read-only, with the layout in hive.networks.flat."""

    version: int
    block: NDArray[np.uint8]

    @classmethod
    def of(cls, version: int, block: NDArray[np.uint8]) -> Snapshot:
        """Make a snapshot that copies a block of weights."""
        copied = aligned_block(len(block))
        copied[:] = block
        copied.flags.writeable = False
        return cls(version, copied)


@dataclass(frozen=True)
class CollectedRollout:
    """One rollout.

    data: its arrays, with the layout in hive.storage.rollouts. version_collected: version of the weights that acted.
    n_samples: valid steps. worker_id: number of its collector in the run. seq: number of the rollout. episodes: returns
    float32 [E] and lengths int32 [E] of the finished episodes. seconds: its collection time.
    """

    data: Mapping[str, NDArray[Any]]
    version_collected: int
    n_samples: int
    worker_id: int
    seq: int
    episodes: tuple[NDArray[np.float32], NDArray[np.int32]] = field(repr=False)
    seconds: float

    @property
    def steps(self) -> int:
        """Steps of each environment, fewer than configured if the rollout ended early."""
        return int(self.data["header"][LENGTH])


class RoundStorage:
    """The rollouts of one round, in the order of their workers. `left`: gradients not yet made of it."""

    def __init__(self) -> None:
        self.rollouts: list[CollectedRollout] = []
        self.left = 0

    def insert(self, rollouts: Sequence[CollectedRollout], gradients: int) -> None:
        """Replace the round by a new one, of which `gradients` gradients are made."""
        self.rollouts = list(rollouts)
        self.left = gradients

    @property
    def samples(self) -> int:
        """Valid steps of the round."""
        return sum(one.n_samples for one in self.rollouts)


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
    given: Any = weights.get("weights", weights)
    number = int(weights["version"]) if "weights" in weights and "version" in weights else version
    block = aligned_block(flat.block_bytes)
    own = flat.arrays(block)
    if set(given) != set(own):
        differ = ", ".join(sorted(set(given) ^ set(own))[:4])
        raise NetworkError("the weights are of another network", hint=f"the names differ in {differ}")
    for name, array in own.items():
        tensor = given[name]
        values = tensor.detach().cpu().numpy() if isinstance(tensor, torch.Tensor) else np.asarray(tensor)
        if values.shape != array.shape or values.dtype != array.dtype:
            found, wanted = f"{values.dtype} {list(values.shape)}", f"{array.dtype} {list(array.shape)}"
            raise NetworkError(f"`{name}` is {found}, expected {wanted}")
        array[...] = values
    if not _native.norm_and_finite(block[: flat.parameter_bytes].view(np.float32))[1]:
        name = next(name for name, array in own.items() if array.dtype.kind == "f" and not np.isfinite(array).all())
        raise NetworkError(f"the weights of `{name}` are not finite; no weights were changed")
    return Snapshot.of(number, block)
