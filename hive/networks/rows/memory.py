"""The memory of a recurrent network that acts: its state between two calls."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hive.networks.rows.inputs import RECURRENT_STATE, state_width_of

__all__ = ["Memory"]


class Memory:
    """The recurrent state of B environments that one network acts in, between its calls.

    network: a recurrent network, or one around it. state: float32 [B, S], at first zeros.
    """

    def __init__(self, network: nn.Module, count: int) -> None:
        self.network = network
        self.state = torch.zeros(count, state_width_of(network), dtype=torch.float32, device="cpu")

    @classmethod
    def of(cls, network: nn.Module, count: int) -> Memory | None:
        """Return the memory of a network for `count` environments; None if it has none."""
        return cls(network, count) if state_width_of(network) else None

    def __call__(self, observations: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs of the heads for observations [B, ...], and remember the state."""
        *outputs, self.state = self.network({"observation": observations, RECURRENT_STATE: self.state})
        return tuple(outputs)

    def forget(self, ended: NDArray[np.bool_]) -> None:
        """Set the state to zeros where `ended`, bool [B], is true."""
        self.state.numpy()[ended] = 0.0
