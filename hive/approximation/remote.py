"""Calls models that compute on a device: tensors go there, and the results come back, with their graphs.

In a run everything around a network stays in host memory: rollouts, advantages, losses, noise and targets. So an
algorithm is the same for every device, and a loss that hive._native differentiates has the same bits for the same
outputs:

    inputs ──> model on the device ──> outputs, host ── loss, native ──> slopes ──> backward pass on the device

A large input that several passes read is moved once, by the algorithm (`hive.algorithms.rows.input_rows`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hive.losses import Floats
from hive.networks.agents import Critics
from hive.networks.captured import CapturedPasses
from hive.networks.device import to_device, to_host

__all__ = ["Remote", "on_host"]


class Remote:
    """`model` on `device`, with the call of a model in host memory."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self.model = model
        self.device = device
        self._captured = CapturedPasses(model)

    def __call__(self, *inputs: Any) -> Any:
        return to_host(self.outputs(*inputs))

    def outputs(self, *inputs: Any) -> Any:
        """Return the outputs on the device."""
        return self.model(*to_device(inputs, self.device))

    def repeated(self, inputs: Any) -> Any:
        """Return the same of a model that returns a tuple. The next call overwrites these outputs."""
        return self._captured(to_device(inputs, self.device))

    def climb(
        self, observations: Any, actions: Tensor, count: int | None, slopes: Callable[[Floats], Floats]
    ) -> tuple[Floats, Floats] | None:
        """Return the values of critics and the gradient of the actions; see hive.losses.CriticOfActions."""
        if not isinstance(self.model, Critics):
            return None
        with torch.enable_grad():
            given = actions.detach().to(self.device).requires_grad_()
            values = self.outputs(observations, given, count)
        found = on_host(values)
        (gradient,) = torch.autograd.grad(values, given, torch.from_numpy(slopes(found)).to(self.device))
        return found, on_host(gradient)


def on_host(tensor: Tensor) -> Floats:
    """Return the values of a tensor as a contiguous array in host memory."""
    return np.ascontiguousarray(tensor.detach().cpu().numpy())
