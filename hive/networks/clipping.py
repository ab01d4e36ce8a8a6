"""Gradient clipping: the scale factor for a norm, and clipping of a gradient that lies in one block."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hive import _native
from hive.networks.parameters import GradientClippingMethod

__all__ = ["clip_factor", "clip_gradient"]

Floats = npt.NDArray[np.float32]

MARGIN = 1e-6  # added to the norm as torch.nn.utils.clip_grad_norm_ does, which avoids a division by 0


def clip_factor(norm: float, limit: float | None) -> float:
    """Returns min(1, limit / (norm + 1e-6)), the factor of torch's clip_grad_norm_ (Pascanu et al. 2013).

    limit: the greatest norm; None or 0: no clipping. Up to a norm of `limit - 1e-6` the factor is exactly 1, so the
        gradient stays bit-identical.
    """
    return min(1.0, limit / (norm + MARGIN)) if limit else 1.0


def clip_gradient(
    gradient: Floats, parts: Sequence[Floats], norm: float, limit: float | None, method: GradientClippingMethod
) -> None:
    """Clips `gradient`, a finite block float32 [elements], in place.

    parts: a view of the block for each parameter. norm: its global norm. limit: None or 0: no clipping.
    A gradient within the limit stays bit-identical, see `clip_factor`.
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
