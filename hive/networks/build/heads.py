"""Heads: the meaning of the last layer's outputs.

The linear layers of all heads on one trunk are a single matrix, computed at once (see network.py). A head
owns `width` columns of its result, sets their initial weights and converts them to its output.
This module has the policies and the value of a state; `value_heads` and `distributional_heads` have those of actions.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from hive import _native
from hive.errors import NetworkError
from hive.networks.act.bounded import LOG_STD_BOUNDS, ScaledActions, clamp_log_std, squashed_distribution_for
from hive.networks.act.distributions import ActionDistribution, GaussianColumns
from hive.networks.act.gsde import StateDependentGaussian, noise_products
from hive.networks.act.product import ProductDistribution, distribution_for
from hive.networks.build.parameters import HeadParameters, PolicyHeadParameters, PPOHeadParameters
from hive.networks.build.spaces import ActionSpec
from hive.networks.weights.flat import Floats

ParameterSlopes: TypeAlias = Sequence[tuple[nn.Parameter, Floats]]

BOXES = (GaussianColumns, StateDependentGaussian, ScaledActions)  # the distributions of box actions


class Head(nn.Module, ABC):
    """The base class of heads. `width` is the number of columns it reads, `gain` that of their orthogonal weights.

    `takes_features` heads are called with the outputs of the last layer too, which have `features` columns.
    `output_shape` is that of one sample.

    A class with `direct=True` also has its output and its gradient in NumPy, for the native pass
    (hive.networks.weights.dense). Its subclasses do not unless they say so too, because they may compute another
    output.
    """

    width: int
    gain: float
    takes_features: bool = False
    output_shape: tuple[int, ...] = ()
    _direct: ClassVar[bool] = False

    def __init_subclass__(cls, *, direct: bool = False, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._direct = direct

    def __init__(self, parameters: HeadParameters) -> None:
        super().__init__()
        self.settings = parameters
        if parameters.gain is not None:
            self.gain = parameters.gain

    def initialize(self, weight: Tensor, bias: Tensor, *, orthogonal: bool) -> None:
        """Set the initial values of the last layer's rows for this head, weight [width, F] and bias [width], in place.

        orthogonal: False keeps their values, which are the initial ones of torch.nn.Linear.
        """
        if orthogonal:
            nn.init.orthogonal_(weight, self.gain)
            nn.init.zeros_(bias)

    @abstractmethod
    def forward(self, columns: Tensor) -> Tensor:
        """Return the head's output, float32 [N, *output_shape], from its columns, float32 [N, width]."""

    @property
    def is_direct(self) -> bool:
        """Whether `numpy_output` and `numpy_slopes` belong to `forward`."""
        return self._direct

    def numpy_output(self, columns: Floats) -> Floats:
        """Return what `forward` does, from columns float32 [N, width], without a graph."""
        with torch.no_grad():
            output: Floats = self(torch.from_numpy(columns)).numpy()
        return output

    @property
    def as_columns(self) -> bool:
        """Whether a native pass makes the output of the columns.

        The output is the columns, clamped if `clamps`, or their logarithms of softmax, and the parameter `appended` in
        every row.
        """
        return False

    @property
    def clamps(self) -> bool:
        """Whether the second half of the columns, logarithms of deviations, is clamped to LOG_STD_BOUNDS."""
        return False

    @property
    def softmax(self) -> int:
        """The number of adjacent columns whose logarithms of softmax are the output; 0: the output is the columns."""
        return 0

    @property
    def appended(self) -> nn.Parameter | None:
        """A parameter [width] that `numpy_output` appends to every row; None: none."""
        return None

    def numpy_slopes(self, slopes: Floats, columns: Floats) -> tuple[Floats, ParameterSlopes]:
        """Return the gradients of the columns, float32 [N, width], and of the head's parameters, from the output's."""
        return np.ascontiguousarray(slopes).reshape(columns.shape), ()


class ColumnsHead(Head, direct=True):
    """A base of heads whose output, float32 [N, width], is their columns."""

    def forward(self, columns: Tensor) -> Tensor:
        return columns

    @property
    def as_columns(self) -> bool:
        return self.is_direct

    def numpy_output(self, columns: Floats) -> Floats:
        return columns

    def numpy_slopes(self, slopes: Floats, columns: Floats) -> tuple[Floats, ParameterSlopes]:
        return slopes, ()


class ValueHead(Head, direct=True):
    """A value float32 [N] of states or, if the action is an input, of states and actions."""

    width = 1
    gain = 1.0

    def __init__(self, parameters: HeadParameters, action: ActionSpec | None = None) -> None:
        """action: not used; every head is called with it."""
        super().__init__(parameters)

    def forward(self, columns: Tensor) -> Tensor:
        return columns.squeeze(-1)

    @property
    def as_columns(self) -> bool:
        return self.is_direct

    def numpy_output(self, columns: Floats) -> Floats:
        return columns.reshape(-1)


class PolicyHead(Head, direct=True):
    """The policy: logits [N, n] or [N, sum(nvec)], or mean and log standard deviation [N, 2 * D], all float32.

    With action_distribution = "squashed" a Gaussian is mapped into the bounds by tanh. With "gsde" the outputs are the
    means and products of the features and deviations (hive.networks.act.gsde): no gradient flows into these features,
    as in Stable-Baselines3. The outputs of a composite action are those of its parts, side by side.

    The log standard deviation of a Gaussian is by default a parameter that does not depend on the observation,
    initially 0 (Schulman et al. 2015; Andrychowicz et al. 2021). As an output of the last layer (as the variance of
    Mnih et al. 2016, section 9) it is clamped to LOG_STD_BOUNDS. The weights of these columns are 0 at first, so that
    every observation has the initial deviation.

    Raises NetworkError for an initial deviation outside of the bounds, and for settings of the deviation where no part
    of the policy is a Gaussian.
    """

    gain = 0.01

    def __init__(self, parameters: HeadParameters, action: ActionSpec) -> None:
        super().__init__(parameters)
        given = parameters if isinstance(parameters, PolicyHeadParameters) else PolicyHeadParameters()
        box, self.features = given.action_distribution, given.features
        distribution: ActionDistribution = distribution_for(action, box, features=self.features)
        self.action = action
        self.distribution = distribution
        self.output_shape = (distribution.width,)
        self.initial_log_std = math.log(given.initial_deviation)
        self.outputs_log_std = given.action_deviation == "output"
        self.takes_features = box == "gsde"
        parts = distribution.parts if isinstance(distribution, ProductDistribution) else (distribution,)
        self._means = [math.prod(part.action_shape) if isinstance(part, BOXES) else 0 for part in parts]
        _refuse_deviations(given, action, gaussian=any(self._means))
        self._widths = [
            part.width if not means else means * (2 if self.outputs_log_std else 1)
            for part, means in zip(parts, self._means, strict=True)
        ]
        self.width = sum(self._widths)
        self.log_std: nn.Parameter | None = None
        if any(self._means) and not self.outputs_log_std:
            shape = (self.features, sum(self._means)) if self.takes_features else (sum(self._means),)
            self.log_std = nn.Parameter(torch.full(shape, self.initial_log_std))
        # Whether the output is means, the columns, and a log standard deviation, a parameter.
        alone = len(self._means) == 1 and self.output_shape == (2 * self.width,)
        self._appends_log_std = self.log_std is not None and alone

    def initialize(self, weight: Tensor, bias: Tensor, *, orthogonal: bool) -> None:
        split = weight.split_with_sizes(self._widths), bias.split_with_sizes(self._widths)
        for means, rows, biases in zip(self._means, *split, strict=True):
            if not (means and self.outputs_log_std):
                super().initialize(rows, biases, orthogonal=orthogonal)
                continue
            super().initialize(rows[:means], biases[:means], orthogonal=orthogonal)
            rows[means:] = 0.0
            biases[means:] = self.initial_log_std

    def forward(self, columns: Tensor, features: Tensor | None = None) -> Tensor:
        if len(self._means) > 1 or self.takes_features:
            return self._forward_parts(columns, features)
        if self.log_std is not None:
            return torch.cat([columns, self.log_std.expand_as(columns)], -1)
        return clamp_log_std(columns) if self.outputs_log_std else columns

    def _forward_parts(self, columns: Tensor, features: Tensor | None) -> Tensor:
        """Return the outputs of each part, side by side."""
        outputs, first = [], 0
        for means, own in zip(self._means, columns.split_with_sizes(self._widths, -1), strict=True):
            if means and self.log_std is not None:
                log_std = self.log_std[..., first : first + means]
                outputs += [own, log_std.expand_as(own) if features is None else noise_products(features, log_std)]
                first += means
            else:
                outputs.append(clamp_log_std(own) if means else own)
        return torch.cat(outputs, -1)

    @property
    def is_direct(self) -> bool:
        as_they_are = self.output_shape == (self.width,) and not self.outputs_log_std  # these are clamped
        return super().is_direct and (as_they_are or self._appends_log_std)

    @property
    def as_columns(self) -> bool:
        return self.is_direct

    @property
    def appended(self) -> nn.Parameter | None:
        return self.log_std if self._appends_log_std else None

    def numpy_output(self, columns: Floats) -> Floats:
        if not self._appends_log_std:
            return columns
        assert self.log_std is not None
        deviations = self.log_std.detach().numpy()
        return np.concatenate([columns, np.broadcast_to(deviations, columns.shape)], 1)

    def numpy_slopes(self, slopes: Floats, columns: Floats) -> tuple[Floats, ParameterSlopes]:
        if not self._appends_log_std:
            return slopes, ()
        assert self.log_std is not None
        to_deviations = np.empty(self.width, np.float32)
        _native.column_sums(np.ascontiguousarray(slopes), self.width, to_deviations)
        return np.ascontiguousarray(slopes[:, : self.width]), [(self.log_std, to_deviations)]


class SquashedPolicyHead(Head, direct=True):
    """A Gaussian squashed into the action's bounds (Haarnoja et al. 2018): float32 [N, 2 * D].

    The outputs are means and log standard deviations. Both depend on the observation; the latter are clamped to
    LOG_STD_BOUNDS.

    Raises NetworkError for an action without finite bounds.
    """

    gain = 0.01

    def __init__(self, parameters: HeadParameters, action: ActionSpec) -> None:
        super().__init__(parameters)
        self.distribution = squashed_distribution_for(action)
        self.width = self.distribution.width
        self.output_shape = (self.width,)

    def forward(self, columns: Tensor) -> Tensor:
        return clamp_log_std(columns)

    @property
    def as_columns(self) -> bool:
        return self.is_direct

    @property
    def clamps(self) -> bool:
        return True

    def numpy_output(self, columns: Floats) -> Floats:
        output = np.empty_like(columns)
        _native.clamp_deviations(columns, output)
        return output

    def numpy_slopes(self, slopes: Floats, columns: Floats) -> tuple[Floats, ParameterSlopes]:
        to_columns = np.empty_like(columns)
        _native.clamp_deviations_back(columns, slopes, to_columns)
        return to_columns, ()


class DeterministicPolicyHead(ColumnsHead, direct=True):
    """A deterministic policy (Silver et al. 2014; Lillicrap et al. 2016): float32 [N, D], before tanh.

    `hive.networks.act.exploration.NoisyActions` reads the outputs. Raises NetworkError for an action without
    finite bounds.
    """

    gain = 0.01

    def __init__(self, parameters: HeadParameters, action: ActionSpec) -> None:
        super().__init__(parameters)
        self.width = squashed_distribution_for(action).width // 2
        self.output_shape = (self.width,)


class PPOHead(PolicyHead, direct=True):
    """The plain policy and a buffer float32 [], `kl_coefficient`: the factor of the divergence in Coach's loss."""

    kl_coefficient: Tensor

    def __init__(self, parameters: PPOHeadParameters, action: ActionSpec) -> None:
        super().__init__(parameters, action)
        self.register_buffer("kl_coefficient", torch.tensor(parameters.initial_kl_coefficient, dtype=torch.float32))


def _refuse_deviations(given: PolicyHeadParameters, action: ActionSpec, *, gaussian: bool) -> None:
    usual = PolicyHeadParameters()
    for name in ("action_distribution", "action_deviation", "initial_deviation"):
        if not gaussian and getattr(given, name) != getattr(usual, name):
            raise NetworkError(
                f"{name} = {getattr(given, name)!r} has no effect: the policy of {action!r} has no Gaussian",
                hint="leave it out; only box actions are normally distributed",
            )
    if given.action_distribution == "gsde" and (given.features < 1 or given.action_deviation == "output"):
        raise NetworkError(
            f'action_distribution = "gsde" with features = {given.features} and action_deviation = '
            f"{given.action_deviation!r}",
            hint='features is the width of the last layer before the head, and action_deviation is "parameter"',
        )
    low, high = map(math.exp, LOG_STD_BOUNDS)
    if given.action_deviation == "output" and not low <= given.initial_deviation <= high:
        raise NetworkError(
            f'initial_deviation = {given.initial_deviation} with action_deviation = "output" is not between '
            f"{low:.3g} and {high:.3g}",
            hint="deviations that are outputs are clamped to these bounds",
        )


def takes_features(heads: Sequence[Head], width: int) -> tuple[bool, ...]:
    """Return whether each head takes the features, of which the last layer has `width`.

    Raises NetworkError if a head expects another width.
    """
    expected = [head.features for head in heads if isinstance(head, PolicyHead) and head.takes_features]
    if any(features != width for features in expected):
        raise NetworkError(
            f'action_distribution = "gsde" with features = {expected[0]}, but the last layer has {width} outputs',
            hint="set features of PolicyHeadParameters to the width of the last layer before the heads",
        )
    return tuple([head.takes_features for head in heads])


class OutputLayer(nn.Linear):
    """The linear layers of all `heads` as one; each head initializes its rows.

    A head's rescaling r, a constant, affects only the gradient to the layers below: with x the input,
    y = r * layer(x) + (1 - r) * layer(x without gradient).
    """

    def __init__(self, inputs: int, heads: Sequence[Head], *, orthogonal: bool = True) -> None:
        widths = [head.width for head in heads]
        super().__init__(inputs, sum(widths))
        with torch.no_grad():
            rows = self.weight.split_with_sizes(widths), self.bias.split_with_sizes(widths)
            for head, weight, bias in zip(heads, *rows, strict=True):
                head.initialize(weight, bias, orthogonal=orthogonal)
        factors = [head.settings.rescale_gradient_from_head_by_factor for head in heads]
        rescaled = any(factor != 1.0 for factor in factors)
        parts = [torch.full((w if rescaled else 0,), float(factor)) for factor, w in zip(factors, widths, strict=True)]
        self.rescale: Tensor | None
        self.register_buffer("rescale", torch.cat(parts) if rescaled else None)

    def forward(self, input: Tensor) -> Tensor:
        outputs = super().forward(input)
        if self.rescale is None:
            return outputs
        return self.rescale * outputs + (1.0 - self.rescale) * super().forward(input.detach())
