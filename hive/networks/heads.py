"""Heads: the meaning of the last layer's outputs, and the standard loss of each.

The linear layers of all heads on one trunk are a single matrix, computed at once (see network.py). A head
owns `width` columns of its result, sets their initial weights, converts them to its output and computes the loss.
This module has the two heads of an actor-critic; `value_heads`, `distributional_heads` and `policy_heads` have the
others.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from hive.errors import NetworkError
from hive.networks.distributions import ActionDistribution, GaussianColumns
from hive.networks.head_parameters import PolicyHeadParameters
from hive.networks.parameters import HeadParameters
from hive.networks.product import ProductDistribution, distribution_for
from hive.networks.spaces import ActionSpec, CompositeAction, DiscreteAction, MultiDiscreteAction, simple_actions
from hive.networks.squashed import LOG_STD_BOUNDS, clamp_log_std

__all__ = ["Head", "PolicyHead", "ValueHead", "refuse_unknown_actions"]


class Head(nn.Module, ABC):
    """The base class of heads. `width` is the number of columns it reads, `gain` that of their orthogonal weights.

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
        if parameters.gain is not None:
            self.gain = parameters.gain

    def initialize(self, weight: Tensor, bias: Tensor, *, orthogonal: bool) -> None:
        """Sets the initial values of the last layer's rows for this head, weight [width, F] and bias [width], in place.

        orthogonal: False keeps their values, which are the initial ones of torch.nn.Linear.
        """
        if orthogonal:
            nn.init.orthogonal_(weight, self.gain)
            nn.init.zeros_(bias)

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

    With action_distribution = "squashed" a Gaussian is mapped into the bounds by tanh. The outputs of a composite
    action are those of its parts, side by side.

    The log standard deviation of a Gaussian is by default a parameter that does not depend on the observation,
    initially 0 (Schulman et al. 2015; Andrychowicz et al. 2021). As an output of the last layer (as the variance of
    Mnih et al. 2016, section 9) it is clamped to LOG_STD_BOUNDS. The weights of these columns are 0 at first, so that
    every observation has the initial deviation. Target: advantages [N]; extra input: the actions.
    Loss: -log_prob(action) * advantage - beta_entropy * entropy (Williams 1992; Mnih et al. 2016).

    Raises NetworkError for an initial deviation outside of the bounds, and for settings of the deviation where no part
    of the policy is a Gaussian.
    """

    gain = 0.01

    def __init__(self, parameters: HeadParameters, action: ActionSpec) -> None:
        super().__init__(parameters)
        given = parameters if isinstance(parameters, PolicyHeadParameters) else PolicyHeadParameters()
        distribution: ActionDistribution = distribution_for(action, given.action_distribution)
        self.action = action
        self.distribution = distribution
        self.beta_entropy = given.beta_entropy
        self.extra_inputs = ((distribution.action_dtype, distribution.action_shape),)
        self.output_shape = (distribution.width,)
        self.initial_log_std = math.log(given.initial_deviation)
        self.log_std: nn.Parameter | None = None
        parts = distribution.parts if isinstance(distribution, ProductDistribution) else (distribution,)
        means = [part.width // 2 if isinstance(part, GaussianColumns) else 0 for part in parts]
        _refuse_deviations(given, action, gaussian=any(means))
        self.outputs_log_std = given.action_deviation == "output"
        self._parts = [*zip([part.width for part in parts], means, strict=True)]  # outputs of each, its Gaussian means
        self.width = distribution.width
        if any(means) and not self.outputs_log_std:
            self.width -= sum(means)
            self.log_std = nn.Parameter(torch.full((sum(means),), self.initial_log_std))
        self._widths = [width if self.outputs_log_std else width - count for width, count in self._parts]

    def initialize(self, weight: Tensor, bias: Tensor, *, orthogonal: bool) -> None:
        split = weight.split_with_sizes(self._widths), bias.split_with_sizes(self._widths)
        for (_, means), rows, biases in zip(self._parts, *split, strict=True):
            if not (means and self.outputs_log_std):
                super().initialize(rows, biases, orthogonal=orthogonal)
                continue
            super().initialize(rows[:means], biases[:means], orthogonal=orthogonal)
            rows[means:] = 0.0
            biases[means:] = self.initial_log_std

    def forward(self, columns: Tensor) -> Tensor:
        if len(self._parts) > 1:
            return self._forward_parts(columns)
        if self.log_std is not None:
            return torch.cat([columns, self.log_std.expand_as(columns)], -1)
        return clamp_log_std(columns) if self.outputs_log_std else columns

    def _forward_parts(self, columns: Tensor) -> Tensor:
        """Returns the outputs of each part, side by side."""
        outputs, first = [], 0
        for (_, means), own in zip(self._parts, columns.split_with_sizes(self._widths, -1), strict=True):
            if means and self.log_std is not None:
                log_std = self.log_std[first : first + means]
                outputs += [own, log_std.expand_as(own)]
                first += means
            else:
                outputs.append(clamp_log_std(own) if means else own)
        return torch.cat(outputs, -1)

    def loss(self, output: Tensor, target: Tensor, *extra: Tensor) -> Tensor:
        refuse_unknown_actions(extra[0], self.action)
        loss = -self.distribution.log_prob(output, extra[0]) * target
        return loss - self.beta_entropy * self.distribution.entropy(output) if self.beta_entropy else loss


def _refuse_deviations(given: PolicyHeadParameters, action: ActionSpec, *, gaussian: bool) -> None:
    usual = PolicyHeadParameters()
    for name in ("action_distribution", "action_deviation", "initial_deviation"):
        if not gaussian and getattr(given, name) != getattr(usual, name):
            raise NetworkError(
                f"{name} = {getattr(given, name)!r} has no effect: the policy of {action!r} has no Gaussian",
                hint="leave it out; only box actions are normally distributed",
            )
    low, high = map(math.exp, LOG_STD_BOUNDS)
    if given.action_deviation == "output" and not low <= given.initial_deviation <= high:
        raise NetworkError(
            f'initial_deviation = {given.initial_deviation} with action_deviation = "output" is not between '
            f"{low:.3g} and {high:.3g}",
            hint="deviations that are outputs are clamped to these bounds",
        )


def refuse_unknown_actions(actions: Tensor, action: ActionSpec) -> None:
    """Raises NetworkError unless 0 <= action < number of actions for all discrete `actions` [N, ...]."""
    if isinstance(action, CompositeAction):
        parts = simple_actions(action)
        sizes = [math.prod(getattr(part, "shape", ())) for part in parts]
        for part, columns in zip(parts, actions.split_with_sizes(sizes, -1), strict=True):
            refuse_unknown_actions(columns, part)
        return
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
