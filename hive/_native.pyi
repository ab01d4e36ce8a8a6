"""hive._native, the C++ part: slots, boards, status pages, gradient reduction, optimizers, returns.

The headers under native/include/hive say how each unit works; this file gives the types. Arrays of numeric
functions are C-contiguous and never converted: another dtype is a TypeError; another shape, a read-only or an
overlapping output is a ValueError; each names the argument. The GIL is released meanwhile.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

# Gradient reduction (accumulator.hpp). Blocks are float32 [P].

class Reduction:
    """What `reduce` found in one pass."""

    @property
    def norm(self) -> float:
        """Euclidean norm of the result; NaN or infinite if the result is not finite."""
    @property
    def finite(self) -> bool:
        """Whether the result holds no NaN and no infinity."""
    @property
    def bad_input(self) -> int:
        """The first gradient that holds a NaN or infinity, or -1."""
    @property
    def bad_index(self) -> int:
        """Its first bad element; the result's, where finite gradients overflowed; or -1."""

def reduce(
    gradients: Sequence[NDArray[np.float32]], weights: Sequence[float], out: NDArray[np.float32]
) -> Reduction:
    """Write the sum of weight * gradient to `out`, in order. A gradient of weight zero is not read."""

def norm_and_finite(block: NDArray[np.float32]) -> tuple[float, bool]:
    """The Euclidean norm of a block, and whether every element is finite."""

# Optimizers (optimizers.hpp). Blocks are float32 [P]; an `_out` block may be its `_in` block.

def adam_step(
    parameters_in: NDArray[np.float32],
    parameters_out: NDArray[np.float32],
    gradient: NDArray[np.float32],
    exp_avg_in: NDArray[np.float32],
    exp_avg_out: NDArray[np.float32],
    exp_avg_sq_in: NDArray[np.float32],
    exp_avg_sq_out: NDArray[np.float32],
    *,
    step: int,
    learning_rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
    decoupled: bool,
    gradient_scale: float,
) -> None:
    """One step of torch.optim.Adam, or of AdamW if `decoupled`; `step` counts from 1."""

def rmsprop_step(
    parameters_in: NDArray[np.float32],
    parameters_out: NDArray[np.float32],
    gradient: NDArray[np.float32],
    square_avg_in: NDArray[np.float32],
    square_avg_out: NDArray[np.float32],
    momentum_in: NDArray[np.float32] | None,
    momentum_out: NDArray[np.float32] | None,
    *,
    learning_rate: float,
    decay: float,
    epsilon: float,
    momentum: float,
    weight_decay: float,
    gradient_scale: float,
) -> None:
    """One step of torch.optim.RMSprop, not centred; `decay` is torch's alpha. Both buffers or none."""

def sgd_step(
    parameters_in: NDArray[np.float32],
    parameters_out: NDArray[np.float32],
    gradient: NDArray[np.float32],
    momentum_in: NDArray[np.float32] | None,
    momentum_out: NDArray[np.float32] | None,
    *,
    learning_rate: float,
    momentum: float,
    weight_decay: float,
    gradient_scale: float,
) -> None:
    """One step of torch.optim.SGD without dampening and Nesterov. Both buffers or none."""

def polyak(
    target_in: NDArray[np.float32], source: NDArray[np.float32], target_out: NDArray[np.float32], rate: float
) -> None:
    """Write (1 - rate) * target + rate * source; a rate of 1 copies `source` exactly."""

# Returns (returns.hpp). Arrays are [T, B].

def gae(
    rewards: NDArray[np.float32],
    values: NDArray[np.float32],
    next_values: NDArray[np.float32],
    terminated: NDArray[np.uint8],
    truncated: NDArray[np.uint8],
    valid: NDArray[np.uint8],
    advantages: NDArray[np.float32],
    targets: NDArray[np.float32],
    *,
    discount: float,
    gae_lambda: float,
) -> None:
    """Write generalised advantage estimates (Schulman et al. 2016), and targets = advantages + values."""

def n_step_returns(
    rewards: NDArray[np.float32],
    values: NDArray[np.float32],
    next_values: NDArray[np.float32],
    terminated: NDArray[np.uint8],
    truncated: NDArray[np.uint8],
    valid: NDArray[np.uint8],
    advantages: NDArray[np.float32],
    targets: NDArray[np.float32],
    *,
    discount: float,
    n: int,
) -> None:
    """Write n-step returns (Sutton and Barto 2018, 7.1) to `targets`, and advantages = targets - values."""
