"""Heads: the meaning of the last layer's outputs, and the standard loss of each.

The linear layers of all heads on one trunk are a single matrix, computed at once (see network.py). A head
owns `width` columns of its result, converts them to its output and computes the loss. This module has the two heads
of an actor-critic; `value_heads`, `distributional_heads` and `policy_heads` have the others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import prod

import torch
from torch import Tensor, nn

from hive.errors import NetworkError
from hive.networks.distributions import ActionDistribution, DiagonalGaussian, distribution_for
from hive.networks.head_parameters import PolicyHeadParameters
from hive.networks.parameters import HeadParameters
from hive.networks.spaces import ActionSpec, DiscreteAction, MultiDiscreteAction

__all__ = ["Head", "PolicyHead", "ValueHead", "refuse_unknown_actions"]


class Head(nn.Module, ABC):
    """The base class of heads. `width` is the number of columns it reads, `gain` initialises their weights.

    `output_shape` and `target_shape` are those of one sample. `extra_inputs` has the dtype and the shape of one
    sample of each array that the loss needs in addition to the target.
    """

    width: int
    gain: float
    output_shape: tuple[int, ...] = ()
    target_shape: tuple[int, ...] = ()
    extra_inputs: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def __init__(self, parameters: HeadParameters) -> None:
        super().__init__()
        self.settings = parameters

    @abstractmethod
    def forward(self, columns: Tensor) -> Tensor:
        """Returns the head's output, float32 [N, *output_shape], from its columns, float32 [N, width]."""

    @abstractmethod
    def loss(self, output: Tensor, target: Tensor, *extra: Tensor) -> Tensor:
        """Returns the loss of each sample, float32 [N], without the head's `loss_weight`.

        target: [N, *target_shape]. extra: an array [N, ...] for each of `extra_inputs`.
        """


class ValueHead(Head):
    """A value float32 [N] of states or, if the action is an input, of states and actions. Target: returns [N].

    Loss: the squared error, or the Huber loss with delta 1.
    """

    width = 1
    gain = 1.0

    def __init__(self, parameters: HeadParameters, *, huber: bool = False) -> None:
        super().__init__(parameters)
        self.huber = huber

    def forward(self, columns: Tensor) -> Tensor:
        return columns.squeeze(-1)

    def loss(self, output: Tensor, target: Tensor, *extra: Tensor) -> Tensor:
        loss = nn.functional.huber_loss if self.huber else nn.functional.mse_loss
        return loss(output, target, reduction="none")


class PolicyHead(Head):
    """The policy: logits [N, n] or [N, sum(nvec)], or mean and log standard deviation [N, 2 * D], all float32.

    The log standard deviation of a Gaussian is a parameter that does not depend on the observation, initially
    0 (Schulman et al. 2015; Andrychowicz et al. 2021). Target: advantages [N]; extra input: the actions.
    Loss: -log_prob(action) * advantage - beta_entropy * entropy (Williams 1992; Mnih et al. 2016).
    """

    gain = 0.01

    def __init__(self, parameters: HeadParameters, action: ActionSpec) -> None:
        super().__init__(parameters)
        distribution: ActionDistribution = distribution_for(action)
        self.action = action
        self.distribution = distribution
        self.beta_entropy = parameters.beta_entropy if isinstance(parameters, PolicyHeadParameters) else 0.0
        self.extra_inputs = ((distribution.action_dtype, distribution.action_shape),)
        self.output_shape = (distribution.width,)
        self.log_std: nn.Parameter | None = None
        self.width = distribution.width
        if isinstance(distribution, DiagonalGaussian):
            self.width = prod(distribution.shape)
            self.log_std = nn.Parameter(torch.zeros(self.width))

    def forward(self, columns: Tensor) -> Tensor:
        if self.log_std is None:
            return columns
        return torch.cat([columns, self.log_std.expand_as(columns)], -1)

    def loss(self, output: Tensor, target: Tensor, *extra: Tensor) -> Tensor:
        refuse_unknown_actions(extra[0], self.action)
        loss = -self.distribution.log_prob(output, extra[0]) * target
        return loss - self.beta_entropy * self.distribution.entropy(output) if self.beta_entropy else loss


def refuse_unknown_actions(actions: Tensor, action: ActionSpec) -> None:
    """Raises NetworkError unless 0 <= action < number of actions for all `actions`, int64 [N, ...]."""
    if isinstance(action, DiscreteAction):
        limits = torch.tensor(int(action.n))
    elif isinstance(action, MultiDiscreteAction):
        limits = torch.tensor([int(n) for n in action.nvec])
    else:
        return
    if bool(((actions < 0) | (actions >= limits)).any()):
        raise NetworkError(
            f"actions range from {int(actions.min())} to {int(actions.max())}, but there are only {limits.tolist()}",
            hint="actions are counted from 0",
        )
