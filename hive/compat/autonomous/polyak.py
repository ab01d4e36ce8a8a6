"""The Polyak step, which moves a target network towards another network.

    target = (1 - rate) * target + rate * source

(Polyak and Juditsky 1992; for target networks Lillicrap et al. 2016.) Contiguous float32 in host memory, such as a
flat block of weights, takes one native pass. Torch computes tensors of other dtypes and on other devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from hive import _native
from hive.errors import NetworkError
from hive.networks.weights.flat import Floats

Values: TypeAlias = Tensor | Floats


def polyak_step(targets: Sequence[Values], sources: Sequence[Values], rate: float) -> None:
    """Move every target, in place, by `rate` to the source at its position.

    targets, sources: tensors or contiguous arrays of float32, of equal shapes. rate: from 0, which changes nothing, to
        1, which copies exactly. Whole numbers and booleans are copied at every rate.

    Raises NetworkError, and changes nothing, for any other rate and for lists that do not fit each other.
    """
    if not 0.0 <= rate <= 1.0:
        raise NetworkError(f"the rate of a weight update must be from 0 to 1, got {rate}")
    shapes, given = [tuple(target.shape) for target in targets], [tuple(source.shape) for source in sources]
    if shapes != given:
        raise NetworkError(f"weights of shapes {given} cannot update weights of shapes {shapes}")
    flat = [(_flat(target), _flat(source)) for target, source in zip(targets, sources, strict=True)]
    others = []
    for target, source, (old, new) in zip(targets, sources, flat, strict=True):
        if old is None or new is None:
            others.append((torch.as_tensor(target), torch.as_tensor(source).detach()))
        elif rate > 0.0:
            _native.polyak(old, new, old, rate)
    with torch.no_grad():
        _torch_step(others, rate)


def _torch_step(pairs: Sequence[tuple[Tensor, Tensor]], rate: float) -> None:
    copied = [(target, source) for target, source in pairs if rate == 1.0 or not target.is_floating_point()]
    if copied:
        torch._foreach_copy_([target for target, _ in copied], [source for _, source in copied])
    blended = [(target, source) for target, source in pairs if target.is_floating_point() and 0.0 < rate < 1.0]
    if blended:
        torch._foreach_lerp_([target for target, _ in blended], [source for _, source in blended], rate)


def _flat(values: Values) -> Floats | None:
    """Return a view float32 [elements] for the native pass; None for tensors that it does not support."""
    if isinstance(values, Tensor):
        if values.dtype != torch.float32 or values.device.type != "cpu" or not values.is_contiguous():
            return None
        return values.detach().reshape(-1).numpy()
    if values.dtype != np.float32 or not values.flags.c_contiguous:
        raise NetworkError(f"weights are contiguous float32, this array is {values.dtype} {list(values.shape)}")
    return values.reshape(-1)
