"""Agents of several networks as one module: an actor, critics, and optionally a temperature.

    observations ─ actor ──> policy outputs                         forward(observations), as of any network
    observations, actions ─ critics ──> a value [N] of each critic       the action is a box
    observations ─ critics ──> values of all actions [N, A] of each      the action is discrete

The actor's parameters come first in the flat vector. Actor, critics and temperature are parameter groups
(hive.networks.weights.flat), so an update may step each of them alone. Collectors, evaluations and loaded policies
call `forward` and need not know that there are critics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hive.networks.rows.inputs import ACTION_INPUT, with_observation
from hive.networks.rows.packed import PackedNetwork, StackedNetwork, masked
from hive.networks.weights.dense import Dense
from hive.networks.weights.flat import FlatParameters, Floats

AGENT_PARTS = ("critic", "temperature")
"""Names that an algorithm lists among the heads of its network: "critic" for each critic, and "temperature"."""


class Critics(nn.Module):
    """Separate networks for the same inputs, `branches`. Each returns a tuple whose first element is its value.

    takes_actions: whether an action is an input.
    """

    def __init__(self, branches: Sequence[nn.Module], *, takes_actions: bool) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)
        self.takes_actions = takes_actions
        self.dense: Dense | None = None  # set by hive.networks.build.network.compute_natively

    def forward(self, observations: Any, actions: Tensor | None = None, count: int | None = None) -> Tensor:
        """Return the values of the first `count` critics, float32 [count, N] or [count, N, A]; None: of all.

        actions: float32 [N, *shape], scaled to -1 ... 1; None if the action is no input, or among the observations.
        """
        inputs = observations
        if self.takes_actions and actions is not None:
            inputs = {"observation": observations, ACTION_INPUT: actions}
        if self.dense is not None:
            joined = inputs if self.joins is None else with_observation(inputs, self.joins.joined)
            if (found := self.dense(joined, count)) is not None:
                networks: Any = self.networks
                pairs = zip(networks, found, strict=False)
                values = [network.from_columns(columns)[0] for network, columns in pairs]
                if self.joins is not None and (forbidden := self.joins.forbidden(inputs)) is not None:
                    values = [masked(each, forbidden) for each in values]
                return torch.stack(values)
        return torch.stack([branch(inputs)[0] for branch in self.branches[:count]])

    @property
    def joins(self) -> StackedNetwork | PackedNetwork | None:
        """The first critic, which joins the frames or takes the rows apart that all critics see; None if none does."""
        first = self.branches[0]
        return first if isinstance(first, StackedNetwork | PackedNetwork) else None

    @property
    def networks(self) -> list[nn.Module]:
        """The networks of the critics, which are called with what `joins` returns."""
        return [branch if self.joins is None else cast(nn.Module, branch.network) for branch in self.branches]


class LogSlope:
    """The place of a temperature's logarithm in gradient blocks of `flat`, written as the layers of a Dense are."""

    def __init__(self, flat: FlatParameters, log: nn.Parameter) -> None:
        self.flat = flat
        self.mask: NDArray[np.uint8] = np.array([name == flat.field_of(log).name for name in flat.names], np.uint8)
        """uint8 [parameters of `flat`]: 1 for the logarithm."""
        self.place = flat.field_of(log).offset // 4

    def differentiate(self, slopes: Sequence[Floats], gradient: Floats) -> None:
        """Write the only one of `slopes`, float32 [], into `gradient`, float32 [flat.parameter_elements]."""
        (gradient[self.place],) = slopes


class Temperature(nn.Module):
    """The factor by which the temperature of a soft actor-critic has changed: exp(log). It is 1 at first."""

    def __init__(self) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.zeros(()))

    def forward(self) -> Tensor:
        """Return the logarithm, float32 []."""
        return self.log.view(())


class AgentNetwork(nn.Module):
    """`actor`, `critic` and, if learned, `temperature`. Maps observations to the tuple of the actor's outputs."""

    def __init__(self, actor: nn.Module, critic: Critics, temperature: Temperature | None = None) -> None:
        super().__init__()
        self.actor = actor
        self.critic = critic
        self.temperature = temperature
        self.parameter_groups = ("actor", "critic", *(() if temperature is None else ("temperature",)))

    def forward(self, observations: Any) -> tuple[Tensor, ...]:
        outputs: Any = self.actor(observations)
        return tuple(outputs)
