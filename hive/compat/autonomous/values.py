"""Values of states and actions as Approximations.

    VNetwork      states -> [*leading]
    QNetwork      states -> [*leading, actions];   states, actions -> [*leading]
    QContinuous   states, actions -> [*leading]
    ActorCritic   observations [N, *shape] -> policy [N, W], value [N]

states.py defines states: a tensor of observations, or observations with a mask. The value of a terminal state is
0 and does not depend on the model. The model is called with observations [N, *shape].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from hive.compat.autonomous.approximation import Approximation
from hive.compat.autonomous.states import States, action_tensor, leading_shape, masked, over_live_states
from hive.errors import NetworkError


class VModule(nn.Module):
    """Computes the values [*leading] of states from `model`, which returns [N] or [N, 1]."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, states: States) -> Tensor:
        return masked(_one_value(over_live_states(self.model, states), states), states)


class QModule(nn.Module):
    """Computes action values [*leading, actions], or [*leading] of given actions. `model` returns [N, actions]."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    @property
    def computes_as(self) -> nn.Module:
        """The module whose output this module returns for rows of observations."""
        return self.model

    def forward(self, states: States, actions: Tensor | Sequence[Any] | None = None) -> Tensor:
        values, leading = over_live_states(self.model, states), leading_shape(states)
        if values.dim() != len(leading) + 1:
            raise NetworkError(
                f"the model returns values {list(values.shape)} for states {list(leading)}",
                hint="return one value for each action, [N, actions]",
            )
        values = masked(values, states)
        if actions is None:
            return values
        return values.gather(
            -1, action_tensor(actions, leading, values.device, values.shape[-1]).unsqueeze(-1)
        ).squeeze(-1)


class QContinuousModule(nn.Module):
    """Computes the values [*leading] of states and continuous actions.

    `model` takes [N, d + k], floating-point, and returns [N] or [N, 1]. The d numbers of an observation and the k of an
    action are flattened; use a FeatureNetwork for images.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, states: States, actions: Any) -> Tensor:
        leading = leading_shape(states)
        if not isinstance(actions, Tensor):
            kind = type(actions).__name__
            raise NetworkError(f"continuous actions must be a tensor, not {kind}", hint="one action for each state")
        if actions.shape[: len(leading)] != leading:
            raise NetworkError(
                f"actions {list(actions.shape)} do not fit states {list(leading)}", hint="one action for each state"
            )
        rows = actions.flatten(len(leading)) if actions.dim() > len(leading) else actions.unsqueeze(-1)
        return masked(_one_value(over_live_states(self._side_by_side, states, rows), states), states)

    def _side_by_side(self, observations: Tensor, actions: Tensor) -> Any:
        rows = observations.flatten(1) if observations.dim() > 1 else observations.unsqueeze(1)
        dtype = rows.dtype if rows.is_floating_point() else torch.get_default_dtype()
        return self.model(torch.cat([rows.to(dtype), actions.to(dtype)], 1))


class ActorCritic(Approximation):
    """An Approximation whose `model` returns (policy [N, W], value [N]). Other arguments: as for Approximation."""

    def __init__(
        self, model: nn.Module, optimizer: Optimizer | None = None, name: str = "actor_critic", **kwargs: Any
    ) -> None:
        super().__init__(model, optimizer, name=name, **kwargs)


class VNetwork(Approximation):
    """The value [*leading] of states. `model` returns [N] or [N, 1]. Other arguments: as for Approximation.

    A call raises NetworkError for another shape.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer | None, name: str = "v", **kwargs: Any) -> None:
        super().__init__(VModule(model), optimizer, name=name, **kwargs)


class QNetwork(Approximation):
    """The values of all discrete actions, [*leading, actions], or of the given ones, [*leading].

    `model` returns [N, actions]. Actions: an integer tensor [*leading], or a list. Other arguments: as for
    Approximation. A call raises NetworkError for another shape and for unknown actions.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer | None = None, name: str = "q", **kwargs: Any) -> None:
        super().__init__(QModule(model), optimizer, name=name, **kwargs)


class QContinuous(Approximation):
    """The value [*leading] of states and continuous actions [*leading, ...].

    `model` is called with both in one row, [N, d + k], and returns [N] or [N, 1]. Other arguments: as for
    Approximation. A call raises NetworkError for another shape.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer | None, name: str = "q", **kwargs: Any) -> None:
        super().__init__(QContinuousModule(model), optimizer, name=name, **kwargs)


def _one_value(values: Tensor, states: States) -> Tensor:
    """Return values [*leading] or [*leading, 1] as [*leading]. Raises NetworkError for another shape."""
    leading = leading_shape(states)
    if values.shape == leading:
        return values
    if values.shape != (*leading, 1):
        raise NetworkError(
            f"the model returns values {list(values.shape)} for states {list(leading)}",
            hint="return one value for each state, [N] or [N, 1]",
        )
    return values.squeeze(-1)
