"""Native losses: shared parts of the losses that hive._native computes, with their gradients and without torch.

Such a loss has a method `differentiate(outputs) -> LossSlopes`, and a property `is_native`: whether it can be called.
Its results are those of the loss on tensors up to rounding: means are float64 sums in the order of the rows.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from hive import _native
from hive.networks.distributions import ActionDistribution, Categorical, DiagonalGaussian, MultiCategorical
from hive.networks.scaled import ScaledActions

__all__ = ["native_actions", "policy_losses"]


@functools.lru_cache(maxsize=64)  # more distributions than a program has
def policy_losses(distribution: ActionDistribution) -> _native.PolicyLosses | None:
    """Return the native losses of a policy with this distribution; None if there are none."""
    if type(distribution) is Categorical:
        return _native.PolicyLosses([distribution.n])
    if type(distribution) is MultiCategorical:
        return _native.PolicyLosses(list(distribution.nvec))
    if isinstance(distribution, ScaledActions):
        return policy_losses(distribution.inner)
    if type(distribution) is DiagonalGaussian and distribution.width:
        return _native.PolicyLosses([], math.prod(distribution.shape))
    return None


def native_actions(distribution: ActionDistribution, actions: Tensor) -> NDArray[Any]:
    """Return the actions [M, ...] that these losses take: stored ones, in the scale in which the policy acts."""
    given = actions.numpy()
    return distribution.scaled_numpy(given) if isinstance(distribution, ScaledActions) else given
