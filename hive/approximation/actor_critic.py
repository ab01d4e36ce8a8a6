"""A policy and a value as one Approximation, for A2C, PPO and IMPALA.

They are outputs of one network, with or without shared layers, and have one loss, one backward pass and one optimizer.
Called with observations [N, ...] it returns (policy outputs float32 [N, W], values float32 [N]); a distribution of
hive.networks defines the meaning of policy outputs.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.optim import Optimizer

from hive.approximation.approximation import Approximation
from hive.approximation.receivers import GradientReceiver

__all__ = ["ActorCritic"]


class ActorCritic(Approximation):
    """An Approximation whose `model` returns (policy [N, W], value [N]). Other arguments: as for Approximation."""

    gives_several = True

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | GradientReceiver | None = None,
        name: str = "actor_critic",
        **kwargs: Any,
    ) -> None:
        super().__init__(model, optimizer, name=name, **kwargs)
