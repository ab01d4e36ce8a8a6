"""The mean of the gradients of several backward passes, for one step of a torch optimizer.

    backward pass   .grad ──add(optimizer, weight)──> GradAccumulator      .grad is None again
    step            .grad <──restore()── sum of weight * gradient / sum of weights

hive.gradients computes the sums. They need one block, whatever the number of passes, and use the reduction of a run.
The parameters are all those of the optimizer, even if other models own them.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable

from torch import Tensor
from torch.optim import Optimizer

from hive.compat.rlpack import GradAccumulator


class GradientMean:
    """The weighted mean of the gradients since the last step. `rounds` is the number of added gradients."""

    def __init__(self) -> None:
        self.rounds = 0
        self._parameters: dict[str, Tensor] = {}
        self._layout: Hashable = None
        self._accumulator: GradAccumulator | None = None

    def add(self, optimizer: Optimizer, weight: float) -> bool:
        """Add the gradients of all trainable parameters of `optimizer` and set their `.grad` to None.

        Returns False, and adds nothing, if no parameter has a gradient. Non-finite gradients are added too, because the
        step checks the mean.
        """
        held = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        if all(parameter.grad is None for parameter in held):
            return False
        if not self.rounds:
            self._lay_out(held)
        assert self._accumulator is not None
        self._accumulator.accumulate(self._parameters, weight)
        for parameter in self._parameters.values():
            parameter.grad = None
        self.rounds += 1
        return True

    def restore(self) -> bool:
        """Add the mean to `.grad` and clear the sums. Return whether the sum of the weights was not 1."""
        if not self.rounds or self._accumulator is None:
            return False
        later = {name: parameter.grad for name, parameter in self._parameters.items()}
        self._accumulator.mean_reduce(into=self._parameters)
        report = self._accumulator.report
        for name, gradient in later.items():
            parameter = self._parameters[name]
            if gradient is not None:
                parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
        self.clear()
        return report is not None and report.weight != 1.0

    def clear(self) -> None:
        """Clear the sums; keep their memory for the next step."""
        self.rounds = 0
        if self._accumulator is not None:
            self._accumulator.clear()

    def _lay_out(self, parameters: list[Tensor]) -> None:
        """Create an accumulator, unless the parameters, their dtypes and devices are those of the last step."""
        layout = tuple((id(parameter), parameter.dtype, parameter.device) for parameter in parameters)
        if layout != self._layout:
            self._parameters = {f"{number}": parameter for number, parameter in enumerate(parameters)}
            self._accumulator = GradAccumulator(None, sys.maxsize, store="running", non_finite="report")
            self._layout = layout
