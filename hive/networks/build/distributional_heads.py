"""Heads that learn the distribution of the return of every action: by categories (C51) and by quantiles (QR-DQN).

Both need a discrete action. Each has a version with two streams of layers, for the value of the state and the
advantages of the actions (dueling).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hive.networks.act.projection import categorical_support
from hive.networks.build.head_parameters import CategoricalQHeadParameters, QuantileQHeadParameters
from hive.networks.build.heads import Floats, Head, ParameterSlopes
from hive.networks.build.spaces import ActionSpec
from hive.networks.build.value_heads import TwoStreams, action_count
from hive.networks.rows.packed import FORBIDDEN


def expected_return(output: Tensor, support: Tensor | None) -> Tensor:
    """Returns the expected returns [..., actions] of distributions [..., actions, atoms].

    support: float32 [atoms], of outputs that are log probabilities; None: the outputs are quantiles. An action that is
        FORBIDDEN (hive.networks.rows.packed) in all atoms is so in the result.
    """
    if support is None:
        return output.mean(-1)
    return (output.exp() * support).sum(-1).masked_fill(output.amax(-1) <= FORBIDDEN, FORBIDDEN)


def quantile_midpoints(atoms: int) -> Tensor:
    """Returns (2 i + 1) / (2 atoms) for each quantile i, float32 [atoms]."""
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

    def numpy_slopes(self, slopes: Floats, columns: Floats) -> tuple[Floats, ParameterSlopes]:
        chances = np.exp(self.numpy_output(columns))  # the derivative of the logarithm of softmax
        return (slopes - chances * slopes.sum(-1, keepdims=True)).reshape(columns.shape), ()

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

    def values(self, output: Tensor) -> Tensor:
        """The expected returns [..., actions] of an output [..., actions, atoms]."""
        return expected_return(output, None)


class DuelingCategoricalQHead(TwoStreams, CategoricalQHead):
    """A CategoricalQHead whose unnormalised log probabilities are joined from two streams, as in Rainbow."""

    def __init__(self, parameters: CategoricalQHeadParameters, action: ActionSpec) -> None:
        super().__init__(parameters, action)
        self.split_streams(parameters.dueling, self.actions, self.atoms)

    def forward(self, columns: Tensor) -> Tensor:
        return super().forward(self.joined(columns))


class DuelingQuantileQHead(TwoStreams, QuantileQHead):
    """A QuantileQHead whose quantiles are joined from two streams."""

    def __init__(self, parameters: QuantileQHeadParameters, action: ActionSpec) -> None:
        super().__init__(parameters, action)
        self.split_streams(parameters.dueling, self.actions, self.atoms)

    def forward(self, columns: Tensor) -> Tensor:
        return super().forward(self.joined(columns))
