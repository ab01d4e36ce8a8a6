"""The identity as an Approximation, which replaces a FeatureNetwork if there are no features to learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from hive.approximation.approximation import Approximation
from hive.losses import Loss

__all__ = ["Identity"]


class Identity(Approximation):
    """Returns its input. It has no parameters, so `reinforce`, `accumulate` and `step` do nothing.

    device: required, because no parameters determine it. Other arguments: as for Approximation, without model and
        optimizer.
    """

    def __init__(self, device: torch.device | str, name: str = "identity", **kwargs: Any) -> None:
        super().__init__(nn.Identity(), device=device, name=name, **kwargs)

    def reinforce(
        self, loss: Tensor | Loss | None = None, *, samples: int | None = None, statistics: Sequence[float] = ()
    ) -> Self:
        """Does nothing, with a loss or without; returns self."""
        return self

    def accumulate(self, loss: Tensor | Loss | None = None, weight: float = 1.0) -> Self:
        return self

    def refuse_untrainable(self) -> None:
        """Does nothing."""

    def finish_backward(self, *losses: Tensor) -> Self:
        return self

    def count_backward(self, weight: float = 1.0) -> None:
        pass

    def step(self, loss: Tensor | None = None) -> Self:
        """Does nothing, with a loss or without; returns self."""
        return self
