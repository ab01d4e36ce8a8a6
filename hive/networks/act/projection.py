"""Categorical distributions over a fixed support of values, and the projection of other distributions onto it.

    support   v_min ──── z1 ──── z2 ──── .. ──── v_max          M atoms, equally spaced
    an atom at b, z1 <= b <= z2, with mass p:   p (z2 - b) / dz to z1,   p (b - z1) / dz to z2

This is the projection of Bellemare, Dabney and Munos 2017, "A Distributional Perspective on Reinforcement
Learning", equation 7 and algorithm 1. Atoms beyond an end are moved to that end. The total mass never changes: the
upper neighbor of an atom is always the next atom of the support, so an exact hit has weight 1 on its atom and 0 on
the neighbor. If all atoms lie inside the support, the mean does not change either.

Rewards and discounts are the caller's part: it shifts the atoms, `reward + discount * support`.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hive.errors import NetworkError

# Greatest relative deviation from the mean spacing; float32 rounds the atoms of a support far from 0.
SPACING_TOLERANCE = 1e-3

NOT_FINITE, LOOK_FOR = "atoms of a distribution are not finite", "look for NaN in rewards and discounts"


def categorical_support(v_min: float, v_max: float, atoms: int) -> Tensor:
    """Return `atoms` equally spaced values from `v_min` to `v_max`, float32 [atoms], in the unit of the returns.

    For v_min = -10, v_max = 10 and 51 atoms the middle one is exactly 0, which torch.linspace does not promise.
    Raises NetworkError for fewer than 2 atoms and unless v_min < v_max, both finite.
    """
    if atoms < 2 or not v_min < v_max or v_max - v_min == float("inf"):
        raise NetworkError(
            f"invalid support of {atoms} atoms from {v_min} to {v_max}",
            hint="give at least 2 atoms, and finite v_min < v_max",
        )
    steps = torch.arange(atoms, dtype=torch.float64, device="cpu")
    return ((v_min * (atoms - 1 - steps) + v_max * steps) / (atoms - 1)).to(torch.float32)


def project_categorical(atoms: Tensor, probabilities: Tensor, support: Tensor) -> Tensor:
    """Project the distribution with mass `probabilities` at `atoms` onto `support` (Bellemare et al., equation 7).

    atoms: float [..., K], finite, in any order; probabilities: float [..., K]; their leading axes broadcast.
    support: float [M], M >= 2, increasing and equally spaced.

    Return [..., M] of the dtype of `probabilities`, with the sum of `probabilities` (1 for a distribution).
    Positions on the support are computed in float64. Gradients flow to `probabilities`, not to `atoms`. Raises
    NetworkError for atoms that are not finite or do not fit, and for a support that is not equally spaced.
    """
    bottom, spacing = _checked(support)
    last = support.shape[0] - 1
    shape = _shape_of_both(atoms, probabilities)
    positions = (atoms.detach().to(torch.float64) - bottom) / spacing
    if not bool(torch.isfinite(positions).all()):
        raise NetworkError(NOT_FINITE, hint=LOOK_FOR)
    positions, mass = positions.clamp(0, last).expand(shape), probabilities.expand(shape)
    lower = positions.floor().clamp(max=last - 1)
    above = (positions - lower).to(mass.dtype)
    index = lower.to(torch.int64)
    projected = mass.new_zeros(*mass.shape[:-1], last + 1)
    return projected.scatter_add(-1, index, mass * (1 - above)).scatter_add(-1, index + 1, mass * above)


def point_mass(values: Tensor, support: Tensor) -> Tensor:
    """Return the projection of all mass at `values` [...] onto `support`: [..., M], of the dtype of `support`.

    `point_mass(zeros, support)` is the distribution of the return after the end of an episode. If no atom is 0, the
    mass is split between its two neighbors. Raises NetworkError for a value outside of the support, because no
    distribution on it has that mean; and as `project_categorical`.
    """
    low, high = float(support[0]), float(support[-1])
    outside = ~((values >= low) & (values <= high))  # NaN is outside too
    if bool(outside.any()):
        value = float(values[outside].reshape(-1)[0])
        raise NetworkError(
            f"the value {value:g} is not within the support from {low:g} to {high:g}",
            hint="choose v_min <= 0 <= v_max where episodes end",
        )
    positions = values.unsqueeze(-1)
    return project_categorical(positions, torch.ones_like(positions, dtype=support.dtype), support)


def _shape_of_both(atoms: Tensor, probabilities: Tensor) -> tuple[int, ...]:
    """Return the shape to which atoms and probabilities broadcast."""
    try:
        if atoms.dim() and atoms.shape[-1:] == probabilities.shape[-1:]:
            return np.broadcast_shapes(tuple(atoms.shape), tuple(probabilities.shape))
    except ValueError:  # the leading axes do not broadcast
        pass
    raise NetworkError(
        f"atoms {list(atoms.shape)} and probabilities {list(probabilities.shape)} do not fit",
        hint="one probability for each atom, and leading axes that broadcast",
    )


def _checked(support: Tensor) -> tuple[float, float]:
    """Return the first value of a support and the spacing of its atoms."""
    if support.dim() != 1 or len(support) < 2:
        raise NetworkError(f"a support is [M] with at least two atoms, this one is {list(support.shape)}")
    values = support.detach().to(torch.float64)
    spacings = values.diff()
    spacing = float(values[-1] - values[0]) / (len(values) - 1)
    if not spacing > 0 or not bool(((spacings - spacing).abs() <= SPACING_TOLERANCE * spacing).all()):
        raise NetworkError("a support is not increasing and equally spaced", hint="see categorical_support")
    return float(values[0]), spacing
