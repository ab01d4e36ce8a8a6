"""What collection hands on in library mode: weights of one version, and rollouts in memory of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hive import _native
from hive.errors import NetworkError
from hive.networks import FlatParameters, aligned_block
from hive.storage import LENGTH

__all__ = ["CollectedRollout", "RoundStorage", "Snapshot", "snapshot_of"]


@dataclass(frozen=True)
class Snapshot:
    """Weights of one version. `block`: uint8 [block_bytes], read-only, laid out as hive.networks.flat draws it."""

    version: int
    block: NDArray[np.uint8]

    @classmethod
    def of(cls, version: int, block: NDArray[np.uint8]) -> Snapshot:
        """A copy of a block of weights."""
        copied = aligned_block(len(block))
        copied[:] = block
        copied.flags.writeable = False
        return cls(version, copied)


@dataclass(frozen=True)
class CollectedRollout:
    """One rollout. `data` is drawn in hive.storage.rollouts; `episodes`: returns and lengths of those that ended.

    worker_id: the number of its collector in the run. seq: the number of the rollout. seconds: what it took.
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
        """Steps of each environment; fewer than were asked for where it was cut short."""
        return int(self.data["header"][LENGTH])


class RoundStorage:
    """The rollouts of one round, in the order of their workers. `left`: gradients that are still to be made of it."""

    def __init__(self) -> None:
        self.rollouts: list[CollectedRollout] = []
        self.left = 0

    def insert(self, rollouts: Sequence[CollectedRollout], gradients: int) -> None:
        """A new round, of which so many gradients are made, takes the place of the last."""
        self.rollouts = list(rollouts)
        self.left = gradients

    @property
    def samples(self) -> int:
        """Steps that count."""
        return sum(one.n_samples for one in self.rollouts)


def snapshot_of(weights: Snapshot | Mapping[str, Any], flat: FlatParameters, version: int) -> Snapshot:
    """A snapshot of {"version": int, "weights": {name: tensor or array}}, or of the inner mapping with this version.

    Raises NetworkError where names, shapes or dtypes are not those of the network, and for weights that are not finite.
    """
    if isinstance(weights, Snapshot):
        if len(weights.block) != flat.block_bytes:
            raise NetworkError(
                f"the weights of this network take {flat.block_bytes} bytes, these {len(weights.block)}",
                hint="a Snapshot goes from one worker to another of the same network",
            )
        return weights
    given: Any = weights.get("weights", weights)
    number = int(weights["version"]) if "weights" in weights and "version" in weights else version
    block = aligned_block(flat.block_bytes)
    own = flat.arrays(block)
    if set(given) != set(own):
        differ = ", ".join(sorted(set(given) ^ set(own))[:4])
        raise NetworkError("these are not the weights of this network", hint=f"they differ in {differ}")
    for name, array in own.items():
        tensor = given[name]
        values = tensor.detach().cpu().numpy() if isinstance(tensor, torch.Tensor) else np.asarray(tensor)
        if values.shape != array.shape or values.dtype != array.dtype:
            found, wanted = f"{values.dtype} {list(values.shape)}", f"{array.dtype} {list(array.shape)}"
            raise NetworkError(f"`{name}` is {found}, this network has {wanted}")
        array[...] = values
    if not _native.norm_and_finite(block[: flat.parameter_bytes].view(np.float32))[1]:
        name = next(name for name, array in own.items() if array.dtype.kind == "f" and not np.isfinite(array).all())
        raise NetworkError(f"the weights of `{name}` are not finite; none were set")
    return Snapshot.of(number, block)
