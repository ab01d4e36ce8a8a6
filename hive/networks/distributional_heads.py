"""Heads that learn the distribution of the return of every action: by categories (C51) and by quantiles (QR-DQN).

Both need a discrete action. Each has a version with two streams of layers, for the value of the state and the
advantages of the actions (dueling). Extra input of their losses: the actions taken, int64 [N].
"""

from __future__ import annotations

import torch
from torch import Tensor

from hive.errors import NetworkError
from hive.networks.head_parameters import CategoricalQHeadParameters, QuantileQHeadParameters
from hive.networks.heads import Head, refuse_unknown_actions
from hive.networks.packed import FORBIDDEN
from hive.networks.projection import categorical_support
from hive.networks.spaces import ActionSpec
from hive.networks.value_heads import TwoStreams, action_count, select_actions

__all__ = [
    "CategoricalQHead",
    "DuelingCategoricalQHead",
    "DuelingQuantileQHead",
    "QuantileQHead",
    "cross_entropies",
    "expected_return",
    "quantile_losses",
    "quantile_midpoints",
]

# The greatest distance of a target's sum from 1; the rounding of float32 sums of hundreds of atoms stays below it.
MASS_TOLERANCE = 1e-3


def expected_return(output: Tensor, support: Tensor | None) -> Tensor:
    """Returns the expected returns [..., actions] of distributions [..., actions, atoms].

    support: float32 [atoms], of outputs that are log probabilities; None: the outputs are quantiles. An action that is
        FORBIDDEN (hive.networks.packed) in all atoms is so in the result.
    """
    if support is None:
        return output.mean(-1)
    return (output.exp() * support).sum(-1).masked_fill(output.amax(-1) <= FORBIDDEN, FORBIDDEN)


def cross_entropies(log_probabilities: Tensor, targets: Tensor) -> Tensor:
    """Returns -sum of target * log probability over the atoms, [N] from [N, atoms]; an impossible atom counts 0."""
    return -(targets * log_probabilities).sum(-1)


def quantile_losses(quantiles: Tensor, targets: Tensor, midpoints: Tensor, kappa: float = 1.0) -> Tensor:
    """Returns the loss of quantile regression [N] of quantiles [N, atoms] against targets [N, any]; see QuantileQHead.

    midpoints: float32 [atoms], those of `quantile_midpoints`. No gradient flows through the side of an error.
    """
    errors = targets.unsqueeze(-2) - quantiles.unsqueeze(-1)  # [N, quantiles, targets]
    sizes = errors.abs()
    if kappa:
        inside = 0.5 * errors.square() / kappa
        sizes = torch.where(sizes <= kappa, inside, sizes - 0.5 * kappa)
    sides = (midpoints.unsqueeze(-1) - (errors.detach() < 0).to(errors.dtype)).abs()
    return (sides * sizes).mean(-1).sum(-1)


def quantile_midpoints(atoms: int) -> Tensor:
    """Returns (2 i + 1) / (2 atoms) for each quantile i, float32 [atoms]."""
    return (torch.arange(atoms, dtype=torch.float32, device="cpu") + 0.5) / atoms


class CategoricalQHead(Head):
    """Log probabilities float32 [N, actions, atoms] of returns, the atoms of `support` (a buffer float32 [atoms]).

    Target: probabilities [N, atoms] of the return of the action taken, projected by `project_categorical`.
    Loss: the cross entropy of both (Bellemare, Dabney and Munos 2017, algorithm 1). Raises NetworkError for a
    target that is not a distribution, unknown actions, and an action that is not discrete.
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
        self.target_shape = (self.atoms,)
        self.extra_inputs = (("int64", ()),)

    def forward(self, columns: Tensor) -> Tensor:
        return columns.view(-1, *self.output_shape).log_softmax(-1)

    def loss(self, output: Tensor, target: Tensor, *extra: Tensor) -> Tensor:
        refuse_unknown_actions(extra[0], self.action)
        wrong = (target < 0).any(-1) | ((target.sum(-1) - 1).abs() > MASS_TOLERANCE)
        if bool(wrong.any()):
            row = int(wrong.to(torch.uint8).argmax())
            raise NetworkError(
                f"the target of sample {row} is not a distribution: its sum is {float(target[row].sum()):.4g}",
                hint="project_categorical keeps all mass",
            )
        return cross_entropies(select_actions(output, extra[0]), target)

    def values(self, output: Tensor) -> Tensor:
        """The expected returns [..., actions] of an output [..., actions, atoms]."""
        return expected_return(output, self.support)


class QuantileQHead(Head):
    """Quantiles float32 [N, actions, atoms] of the return, at the midpoints (2 i + 1) / (2 atoms).

    Target: [N, atoms], equally likely returns of the action taken, in any order. Loss: the sum over the quantiles of
    the mean over the targets of |tau - [u < 0]| L(u) / kappa, where u is the target minus the quantile and L the
    Huber loss (Dabney et al. 2018, "Distributional Reinforcement Learning with Quantile Regression", equation 10;
    divided by kappa as in "Implicit Quantile Networks"). With kappa = 0 the terms are |tau - [u < 0]| |u|.
    """

    gain = 1.0
    midpoints: Tensor

    def __init__(self, parameters: QuantileQHeadParameters, action: ActionSpec) -> None:
        super().__init__(parameters)
        self.action = action
        self.actions, self.atoms = action_count(parameters.name, action), parameters.atoms
        self.kappa = parameters.huber_loss_interval
        self.register_buffer("midpoints", quantile_midpoints(self.atoms))
        self.width = self.actions * self.atoms
        self.output_shape = (self.actions, self.atoms)
        self.target_shape = (self.atoms,)
        self.extra_inputs = (("int64", ()),)

    def forward(self, columns: Tensor) -> Tensor:
        return columns.view(-1, *self.output_shape)

    def loss(self, output: Tensor, target: Tensor, *extra: Tensor) -> Tensor:
        refuse_unknown_actions(extra[0], self.action)
        return quantile_losses(select_actions(output, extra[0]), target, self.midpoints, self.kappa)

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
