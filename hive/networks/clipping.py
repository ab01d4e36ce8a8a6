"""Clipping a gradient that lies in one block."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hive.networks.parameters import GradientClippingMethod

__all__ = ["clip_factor", "clip_gradient"]

Floats = npt.NDArray[np.float32]


def clip_factor(norm: float, limit: float | None) -> float:
    """What brings a gradient of this norm within `limit`, at most 1; None or 0: no clipping.

    As torch.nn.utils.clip_grad_norm_: limit / (norm + 1e-6).
    """
    return min(1.0, limit / (norm + 1e-6)) if limit else 1.0


def clip_gradient(
    gradient: Floats, parts: Sequence[Floats], norm: float, limit: float | None, method: GradientClippingMethod
) -> None:
    """Clips `gradient`, a finite block, in place.

    parts: the views of it that belong to each parameter. norm: its global norm. limit: None or 0: no clipping.
    A gradient within the limit keeps its bytes.
    """
    if not limit:
        return
    if method is GradientClippingMethod.ClipByValue:
        np.clip(gradient, -limit, limit, out=gradient)
    elif method is GradientClippingMethod.ClipByGlobalNorm:
        gradient *= np.float32(limit / max(norm, limit))
    else:
        for part in parts:
            part *= np.float32(limit / max(float(np.linalg.norm(part)), limit))
