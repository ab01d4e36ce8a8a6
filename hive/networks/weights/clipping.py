"""The scale factor that clips a gradient by its norm."""

from __future__ import annotations

MARGIN = 1e-6  # added to the norm as torch.nn.utils.clip_grad_norm_ does, which avoids a division by 0


def clip_factor(norm: float, limit: float | None) -> float:
    """Returns min(1, limit / (norm + 1e-6)), the factor of torch's clip_grad_norm_ (Pascanu et al. 2013).

    limit: the greatest norm; None or 0: no clipping. Up to a norm of `limit - 1e-6` the factor is exactly 1, so the
        gradient stays bit-identical.
    """
    return min(1.0, limit / (norm + MARGIN)) if limit else 1.0
