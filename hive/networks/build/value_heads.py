"""Heads of action values, for a discrete action: Q, and the distribution of the return of every action.

The latter is learned by categories (C51) or by quantiles (QR-DQN). Each has a version with two streams of layers, for
the value of the state and the advantages of the actions (dueling).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from hive import _native
from hive.errors import NetworkError
from hive.networks.act.projection import categorical_support
from hive.networks.build.heads import ColumnsHead, Head, ParameterSlopes
from hive.networks.build.layers import HIDDEN_GAIN, NoisyLinear, orthogonal
from hive.networks.build.parameters import (
    CategoricalQHeadParameters,
    DuelingQHeadParameters,
    HeadParameters,
    QuantileQHeadParameters,
)
from hive.networks.build.spaces import ActionSpec, DiscreteAction
from hive.networks.rows.packed import FORBIDDEN
from hive.networks.weights.flat import Floats


class QHead(ColumnsHead, direct=True):
    """A value of every action, float32 [N, actions]. Raises NetworkError for an action that is not discrete."""

    gain = 1.0

    def __init__(self, parameters: HeadParameters, action: ActionSpec) -> None:
        super().__init__(parameters)
        self.actions = action_count(parameters.name, action)
        self.action = action
        self.width = self.actions
        self.output_shape = (self.actions,)


class TwoStreams(Head):
    """A base of heads with two streams, the value of the state and the advantages of the actions.

    Q(s, a) = V(s) + A(s, a) - mean of A(s, .), as in Wang et al. 2016, "Dueling Network Architectures for Deep
    Reinforcement Learning", equation 9; with atoms, for each of them (Hessel et al. 2018, "Rainbow"). The paper scales
    the gradient that enters the layers below by 1/sqrt(2), see `rescale_gradient_from_head_by_factor`.

    A native pass joins the streams in its last layer (hive.networks.weights.derived), so `numpy_output` and
    `numpy_slopes` have the columns of all actions, [N, actions * atoms], instead of those that `forward` joins.
    """

    value: nn.Linear | NoisyLinear | None
    advantage: nn.Linear | NoisyLinear | None
    streams: tuple[int, int]  # outputs of each

    def split_streams(self, hidden: int, actions: int, atoms: int = 1) -> None:
        """Make the streams, each with a hidden layer of this width; 0: they are columns of the last layer."""
        self.streams = (atoms, actions * atoms)
        self.width = 2 * hidden or sum(self.streams)
        self.value = self.advantage = None
        if hidden:
            self.value, self.advantage = (orthogonal(nn.Linear(hidden, width), self.gain) for width in self.streams)
            self.gain = HIDDEN_GAIN  # gain of the columns, which are the hidden layer

    def initialize(self, weight: Tensor, bias: Tensor, *, orthogonal: bool) -> None:
        super().initialize(weight, bias, orthogonal=orthogonal)
        for stream in (self.value, self.advantage):
            if not orthogonal and isinstance(stream, nn.Linear):
                stream.reset_parameters()

    def joined(self, columns: Tensor) -> Tensor:
        """Return Q of all actions, [N, actions * atoms], from the columns [N, width]."""
        if self.value is None or self.advantage is None:
            value, advantage = columns.split_with_sizes(self.streams, -1)
        else:
            first, second = torch.relu(columns).chunk(2, -1)
            value, advantage = self.value(first), self.advantage(second)
        advantage = advantage.unflatten(-1, (-1, self.streams[0]))
        values: Tensor = value.unsqueeze(-2) + advantage - advantage.mean(-2, keepdim=True)
        return values.flatten(-2)


class DuelingQHead(TwoStreams, QHead, direct=True):
    """Action values float32 [N, actions] from two streams. With `hidden` each stream begins with a hidden layer."""

    def __init__(self, parameters: HeadParameters, action: ActionSpec) -> None:
        super().__init__(parameters, action)
        self.split_streams(parameters.hidden if isinstance(parameters, DuelingQHeadParameters) else 0, self.actions)

    def forward(self, columns: Tensor) -> Tensor:
        return self.joined(columns)


def action_count(name: str, action: ActionSpec) -> int:
    """Return the number of actions. Raises NetworkError if `action` is not discrete, which head `name` needs."""
    if not isinstance(action, DiscreteAction):
        raise NetworkError(
            f"a `{name}` head needs a discrete action, not {action!r}",
            hint="for other actions use a `value` head and the input `action`",
        )
    if action.n < 1:
        raise NetworkError(f"{action!r} leaves nothing to choose", hint="a discrete action has at least one value")
    return int(action.n)


def select_actions(values: Tensor, actions: Tensor) -> Tensor:
    """Select from `values` [N, actions, ...] those of `actions` int64 [N]; return [N, ...]."""
    return values[torch.arange(len(actions), device=values.device), actions]


def expected_return(output: Tensor, support: Tensor | None) -> Tensor:
    """Return the expected returns [..., actions] of distributions [..., actions, atoms].

    support: float32 [atoms], of outputs that are log probabilities; None: the outputs are quantiles. An action that is
        FORBIDDEN (hive.networks.rows.packed) in all atoms is so in the result.
    """
    if support is None:
        return output.mean(-1)
    return (output.exp() * support).sum(-1).masked_fill(output.amax(-1) <= FORBIDDEN, FORBIDDEN)


def quantile_midpoints(atoms: int) -> Tensor:
    """Return (2 i + 1) / (2 atoms) for each quantile i, float32 [atoms]."""
    return (torch.arange(atoms, dtype=torch.float32, device="cpu") + 0.5) / atoms


class CategoricalQHead(Head, direct=True):
    """Log probabilities float32 [N, actions, atoms] of returns, the atoms of `support` (a buffer float32 [atoms]).

    See Bellemare, Dabney and Munos 2017. Raises NetworkError for an action that is not discrete.
    """

    gain = 0.01
    support: Tensor

    def __init__(self, parameters: CategoricalQHeadParameters, action: ActionSpec) -> None:
        super().__init__(parameters)
        self.action = action
        self.actions, self.atoms = action_count(parameters.name, action), parameters.atoms
        self.register_buffer("support", categorical_support(parameters.v_min, parameters.v_max, self.atoms))
        self.width = self.actions * self.atoms
        self.output_shape = (self.actions, self.atoms)

    def forward(self, columns: Tensor) -> Tensor:
        return columns.view(-1, *self.output_shape).log_softmax(-1)

    @property
    def as_columns(self) -> bool:
        return self.is_direct

    @property
    def softmax(self) -> int:
        return self.atoms

    def numpy_output(self, columns: Floats) -> Floats:
        output = np.empty((len(columns), *self.output_shape), np.float32)
        _native.log_softmax(np.ascontiguousarray(columns).reshape(output.shape), output)
        return output

    def numpy_slopes(self, slopes: Floats, columns: Floats) -> tuple[Floats, ParameterSlopes]:
        to_columns = np.empty_like(slopes)
        _native.log_softmax_back(self.numpy_output(columns), slopes, to_columns)
        return to_columns.reshape(columns.shape), ()

    def values(self, output: Tensor) -> Tensor:
        """The expected returns [..., actions] of an output [..., actions, atoms]."""
        return expected_return(output, self.support)


class QuantileQHead(Head, direct=True):
    """Quantiles float32 [N, actions, atoms] of the return, at the midpoints (2 i + 1) / (2 atoms).

    See Dabney et al. 2018, "Distributional Reinforcement Learning with Quantile Regression".
    """

    gain = 1.0
    midpoints: Tensor

    def __init__(self, parameters: QuantileQHeadParameters, action: ActionSpec) -> None:
        super().__init__(parameters)
        self.action = action
        self.actions, self.atoms = action_count(parameters.name, action), parameters.atoms
        self.register_buffer("midpoints", quantile_midpoints(self.atoms))
        self.width = self.actions * self.atoms
        self.output_shape = (self.actions, self.atoms)

    def forward(self, columns: Tensor) -> Tensor:
        return columns.view(-1, *self.output_shape)

    @property
    def as_columns(self) -> bool:
        return self.is_direct

    def numpy_output(self, columns: Floats) -> Floats:
        return columns.reshape(-1, *self.output_shape)

    def values(self, output: Tensor) -> Tensor:
        """The expected returns [..., actions] of an output [..., actions, atoms]."""
        return expected_return(output, None)


class DuelingCategoricalQHead(TwoStreams, CategoricalQHead, direct=True):
    """A CategoricalQHead whose unnormalized log probabilities are joined from two streams, as in Rainbow."""

    def __init__(self, parameters: CategoricalQHeadParameters, action: ActionSpec) -> None:
        super().__init__(parameters, action)
        self.split_streams(parameters.dueling, self.actions, self.atoms)

    def forward(self, columns: Tensor) -> Tensor:
        return super().forward(self.joined(columns))


class DuelingQuantileQHead(TwoStreams, QuantileQHead, direct=True):
    """A QuantileQHead whose quantiles are joined from two streams."""

    def __init__(self, parameters: QuantileQHeadParameters, action: ActionSpec) -> None:
        super().__init__(parameters, action)
        self.split_streams(parameters.dueling, self.actions, self.atoms)

    def forward(self, columns: Tensor) -> Tensor:
        return super().forward(self.joined(columns))
