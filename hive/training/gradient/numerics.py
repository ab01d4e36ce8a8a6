"""Locates the origin of a NaN or infinity in a gradient, and collects the data that the gradient was computed from.

    rollouts -> weights -> loss -> gradient        the first of these that is not finite is the cause

It only runs after a gradient was found not to be finite, so it need not be fast. hive.records.nan_dumps stores the
collected data: the rollouts of the share, the inputs of the forward passes, and the weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hive.experience import Rollout
from hive.networks.weights.flat import FlatParameters
from hive.runtime.memory.segments import Arrays

FIELDS = ("observations", "actions", "log_probs", "rewards", "terminated", "truncated", "valid", "final_index")


@dataclass(frozen=True)
class NonFiniteOrigin:
    """The origin of a gradient that is not finite."""

    cause: str  # one of hive.gradients.CAUSES
    text: str  # a description that names the actor, array and position
    arrays: Mapping[str, NDArray[Any]]  # inputs, rollouts and weights by name


def find_origin(
    flat: FlatParameters,
    rollouts: Sequence[Rollout],
    inputs: Sequence[torch.Tensor],
    losses: Sequence[float],
    gradient: NDArray[np.float32],
) -> NonFiniteOrigin:
    """Return the cause of a gradient that is not finite.

    flat: holds the weights that it was computed with. inputs: those of its forward passes. losses: those of its
    backward passes. gradient: float32 [parameter_elements].
    """
    weights = flat.arrays(flat.block)
    gradients = dict(zip(flat.names, flat.gradient_arrays(gradient), strict=True))
    cause, text = (
        _in_rollouts(rollouts)
        or _in("weight", weights)
        or next((("loss", f"the loss is {loss}") for loss in losses if not math.isfinite(loss)), None)
        or _in("gradient", gradients)
        or ("gradient", "the gradient is not finite")
    )
    arrays = {f"rollout-{r.source}-{r.sequence}.{name}": getattr(r, name) for r in rollouts for name in FIELDS}
    arrays |= {f"rollout-{r.source}-{r.sequence}.state": r.state for r in rollouts if r.state is not None}
    arrays |= {f"weights.{name}": array for name, array in weights.items()}
    names = ["inputs", *(f"inputs-{number}" for number in range(1, len(inputs)))]
    shown = {name: tensor.detach().cpu().numpy() for name, tensor in zip(names, inputs, strict=False)}
    return NonFiniteOrigin(cause, text, {**shown, **arrays})


def _in_rollouts(rollouts: Sequence[Rollout]) -> tuple[str, str] | None:
    for rollout in rollouts:
        for cause, array in (("observation", rollout.observations), ("reward", rollout.rewards)):
            if (place := _first_bad(array)) is not None:
                where = f"step {place[0]}, environment {place[1]} of rollout {rollout.sequence}"
                return cause, f"collector-{rollout.source} gave the {cause} {array[place]} ({where})"
        if rollout.state is not None and (place := _first_bad(rollout.state)) is not None:
            where = f"environment {place[0]} of rollout {rollout.sequence}"
            return "observation", f"collector-{rollout.source} acted in the state {rollout.state[place]} ({where})"
    return None


def _in(cause: str, arrays: Arrays) -> tuple[str, str] | None:
    for name, array in arrays.items():
        if (place := _first_bad(array)) is not None:
            count = int(np.count_nonzero(~np.isfinite(array)))
            return cause, f"the {cause} of `{name}` is not finite in {count} of {array.size} places ({array[place]})"
    return None


def _first_bad(array: NDArray[Any]) -> tuple[int, ...] | None:
    """Return the index of the first NaN or infinity in an array; None if there is none."""
    if array.dtype.kind != "f":
        return None
    bad = ~np.isfinite(array)
    return tuple(int(i) for i in np.unravel_index(int(bad.argmax()), bad.shape)) if bad.any() else None
