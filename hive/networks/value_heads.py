"""Heads of action values, for a discrete action: Q and dueling Q.

Target: [N], the return of the action taken; extra input: those actions, int64 [N]. The other actions do not enter the
loss. (Coach's targets are [N, actions], a copy of the prediction with one number replaced in each row,
and its loss is the mean over them, so one sample has weight 1 / actions; here it has weight 1.)
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hive.errors import NetworkError
from hive.networks.head_parameters import DuelingQHeadParameters
from hive.networks.heads import Head, refuse_unknown_actions
from hive.networks.layers import HIDDEN_GAIN, orthogonal
from hive.networks.parameters import HeadParameters
from hive.networks.spaces import ActionSpec, DiscreteAction

__all__ = ["DuelingQHead", "QHead", "action_count", "select_actions"]


class QHead(Head):
    """A value of every action, float32 [N, actions]. Loss: the squared error, or the Huber loss with delta 1.

    The loss raises NetworkError for unknown actions, the constructor for an action that is not discrete.
    """

    gain = 1.0

    def __init__(self, parameters: HeadParameters, action: ActionSpec, *, huber: bool = False) -> None:
        super().__init__(parameters)
        self.actions = action_count(parameters.name, action)
        self.action = action
        self.huber = huber
        self.width = self.actions
        self.output_shape = (self.actions,)
        self.extra_inputs = (("int64", ()),)

    def forward(self, columns: Tensor) -> Tensor:
        return columns

    def loss(self, output: Tensor, target: Tensor, *extra: Tensor) -> Tensor:
        refuse_unknown_actions(extra[0], self.action)
        loss = nn.functional.huber_loss if self.huber else nn.functional.mse_loss
        return loss(select_actions(output, extra[0]), target, reduction="none")


class DuelingQHead(QHead):
    """Action values float32 [N, actions] from two streams, the value of the state and the advantages of the actions.

    Q(s, a) = V(s) + A(s, a) - mean of A(s, .), as in Wang et al. 2016, "Dueling Network Architectures for Deep
    Reinforcement Learning", equation 9. With `hidden` each stream begins with a hidden layer. The paper scales
    the gradient that enters the layers below by 1/sqrt(2), see `rescale_gradient_from_head_by_factor`.
    """

    def __init__(self, parameters: HeadParameters, action: ActionSpec, *, huber: bool = False) -> None:
        super().__init__(parameters, action, huber=huber)
        hidden = parameters.hidden if isinstance(parameters, DuelingQHeadParameters) else 0
        self.width = 2 * hidden or 1 + self.actions
        self.value: nn.Linear | None = None
        self.advantage: nn.Linear | None = None
        if hidden:
            self.value = orthogonal(nn.Linear(hidden, 1), self.gain)
            self.advantage = orthogonal(nn.Linear(hidden, self.actions), self.gain)
            self.gain = HIDDEN_GAIN  # gain of the columns, which are the hidden layer

    def initialize(self, weight: Tensor, bias: Tensor, *, orthogonal: bool) -> None:
        super().initialize(weight, bias, orthogonal=orthogonal)
        if not orthogonal and self.value is not None and self.advantage is not None:
            self.value.reset_parameters()
            self.advantage.reset_parameters()

    def forward(self, columns: Tensor) -> Tensor:
        if self.value is None or self.advantage is None:
            value, advantage = columns.split_with_sizes((1, self.actions), -1)
        else:
            first, second = torch.relu(columns).chunk(2, -1)
            value, advantage = self.value(first), self.advantage(second)
        return value + advantage - advantage.mean(-1, keepdim=True)


def action_count(name: str, action: ActionSpec) -> int:
    """Returns the number of actions. Raises NetworkError if `action` is not discrete, which head `name` needs."""
    if not isinstance(action, DiscreteAction):
        raise NetworkError(
            f"a `{name}` head needs a discrete action, not {action!r}",
            hint="for other actions use a `value` head and the input `action`",
        )
    if action.n < 1:
        raise NetworkError(f"{action!r} leaves nothing to choose", hint="a discrete action has at least one value")
    return int(action.n)


def select_actions(values: Tensor, actions: Tensor) -> Tensor:
    """Selects from `values` [N, actions, ...] those of `actions` int64 [N]; returns [N, ...]."""
    return values[torch.arange(len(actions), device=values.device), actions]
