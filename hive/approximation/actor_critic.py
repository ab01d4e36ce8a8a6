"""A policy and a value as one Approximation: what A2C, PPO and IMPALA hold.

They are outputs of one network, with layers in common or not, and have one loss, one backward pass and one optimizer.
Called with observations [N, ...] it returns (policy outputs [N, W], values [N]); a distribution of hive.networks says
what policy outputs mean.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.optim import Optimizer

from hive.approximation.approximation import Approximation
from hive.approximation.receivers import GradientReceiver

__all__ = ["ActorCritic"]


class ActorCritic(Approximation):
    """`model` returns (policy [N, W], value [N]). Other arguments: as of Approximation."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | GradientReceiver | None = None,
        name: str = "actor_critic",
        **kwargs: Any,
    ) -> None:
        super().__init__(model, optimizer, name=name, **kwargs)
