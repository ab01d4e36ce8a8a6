"""The identity as an Approximation: what stands in for a FeatureNetwork where there are no features to learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from hive.approximation.approximation import Approximation
from hive.losses import Loss

__all__ = ["Identity"]


class Identity(Approximation):
    """Answers with its input. It has nothing to learn: `reinforce`, `accumulate` and `step` do nothing.

    device: which there are no parameters to tell. Other arguments: as of Approximation, but for model and optimizer.
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
