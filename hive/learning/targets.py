"""Target networks, which compute `Approximation.target(...)` without a graph. In a run the learner updates them."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from hive.errors import NetworkError
from hive.learning.passes import NativePasses, native_passes
from hive.networks.build.layers import acting


class TargetNetwork(ABC):
    """The base class of target networks. A custom one implements the three abstract methods."""

    @abstractmethod
    def __call__(self, *inputs: Any) -> Any:
        """Return the target's outputs, without a graph."""

    @abstractmethod
    def init(self, model: nn.Module) -> None:
        """The Approximation calls this once, with the network to follow."""

    @abstractmethod
    def update(self) -> None:
        """Follow the network after an update. In a run the learner does so, and nothing calls this."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state for checkpoints, by default empty."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state from `state_dict`. Raises NetworkError if it does not fit, by default if it is not empty."""
        if state:
            raise NetworkError(f"`{type(self).__name__}` has no state, but is given {', '.join(state)}")


class SharedTarget(TargetNetwork):
    """The Approximation's model with `target` in place of `online`, or with parts of them.

    online: the network that this model contains, or of which it contains a part, such as the critic of an agent.
    target: a network of the same layout, whose weights the caller updates. It is called in evaluation mode, but with
        the noise of NoisyNet, which belongs to the target.
    device: that on which both compute in a run; None: the CPU.

    Several Approximations need a copy of this object each (`copy.copy`), because it holds one model.
    """

    def __init__(self, online: nn.Module, target: nn.Module, device: torch.device | None = None) -> None:
        self._online = online
        self._target = target
        self._device = device
        self._passes: NativePasses | None = None

    def __call__(self, *inputs: Any) -> Any:
        if self._passes is None:
            raise NetworkError("this target has no network yet", hint="call init(model), as an Approximation does")
        return self._passes(*inputs)

    def init(self, model: nn.Module) -> None:
        """Copy `model` with the target's modules in place of those of the online network.

        Raises NetworkError if the model contains no part of the online network.
        """
        pairs = zip(self._online.modules(), self._target.modules(), strict=True)
        targets = {id(online): target for online, target in pairs}
        if not any(id(child) in targets for child in model.modules()):
            raise NetworkError("the model contains no part of the online network of this target")
        copied = acting(copy.deepcopy(model, dict(targets)).requires_grad_(False))
        self._passes = native_passes(copied, self._device)

    def update(self) -> None:
        """Do nothing: its weights are updated elsewhere."""
