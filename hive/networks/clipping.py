"""The factor that brings a gradient within a limit, and clipping of a gradient that lies in one block."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hive import _native
from hive.networks.parameters import GradientClippingMethod

__all__ = ["clip_factor", "clip_gradient"]

Floats = npt.NDArray[np.float32]

MARGIN = 1e-6  # torch.nn.utils.clip_grad_norm_ adds it to the norm, so that a norm of 0 divides nothing by 0


def clip_factor(norm: float, limit: float | None) -> float:
    """The factor that brings a gradient of this norm within `limit`, as torch's clip_grad_norm_ computes it.

    limit: None or 0: no clipping. Up to a norm of `limit - 1e-6` the factor is 1 and a gradient keeps its bytes.
    """
    return min(1.0, limit / (norm + MARGIN)) if limit else 1.0


def clip_gradient(
    gradient: Floats, parts: Sequence[Floats], norm: float, limit: float | None, method: GradientClippingMethod
) -> None:
    """Clips `gradient`, a finite block, in place.

    parts: the views of it that belong to each parameter. norm: its global norm. limit: None or 0: no clipping.
    A gradient within the limit keeps its bytes, see `clip_factor`.
    """
    if not limit:
        return
    if method is GradientClippingMethod.ClipByValue:
        np.clip(gradient, -limit, limit, out=gradient)
    elif method is GradientClippingMethod.ClipByGlobalNorm:
        gradient *= np.float32(clip_factor(norm, limit))
    else:
        for part in parts:
            part *= np.float32(clip_factor(_native.norm_and_finite(part.reshape(-1))[0], limit))
