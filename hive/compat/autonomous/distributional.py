"""Distributions of returns over a fixed support: C51's QDist.

Source: Bellemare, Dabney and Munos 2017, "A Distributional Perspective on Reinforcement Learning". The support and
the projection are in hive.networks.act.projection.
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
from hive.networks.act.projection import categorical_support, point_mass, project_categorical
from hive.networks.build.field_rules import FieldRule


class QDistModule(nn.Module):
    """Computes probabilities from `model`, which returns logits [N, n_actions * n_atoms] or [N, n_actions, n_atoms].

    `atoms` is the support, `terminal` the distribution of the return 0 on it (the mass is on the atom at 0, or split
    between the two atoms beside 0), both float32 [n_atoms]. They are buffers, so they are saved, moved and copied with
    the parameters.
    """

    atoms: Tensor
    terminal: Tensor

    def __init__(self, model: nn.Module, n_actions: int, n_atoms: int, v_min: float, v_max: float) -> None:
        super().__init__()
        for name, value in (("n_actions", n_actions), ("n_atoms", n_atoms)):
            FieldRule.whole(1).checked("QDist", name, value)
        self.model = model
        self.n_actions = n_actions
        device = next((tensor.device for tensor in model.parameters()), None)
        atoms = categorical_support(v_min, v_max, n_atoms)
        self.register_buffer("atoms", atoms.to(device))
        self.register_buffer(
            "terminal", point_mass(torch.zeros((), dtype=torch.float32, device="cpu"), atoms).to(device)
        )

    def forward(self, states: States, actions: Tensor | Sequence[Any] | None = None) -> Tensor:
        logits, leading = over_live_states(self.model, states), leading_shape(states)
        shape = (*leading, self.n_actions, len(self.atoms))
        if logits.numel() != torch.Size(shape).numel():
            raise NetworkError(
                f"the model returns {list(logits.shape)} for states {list(leading)}",
                hint=f"return logits [N, {self.n_actions} * {len(self.atoms)}]",
            )
        distributions = masked(logits.reshape(shape).softmax(-1), states, self.terminal)
        if actions is None:
            return distributions
        chosen = action_tensor(actions, leading, logits.device, self.n_actions).reshape(*leading, 1, 1)
        return distributions.gather(-2, chosen.expand(*leading, 1, len(self.atoms))).squeeze(-2)


class QDist(Approximation):
    """The distribution of the return of all discrete actions, or of the given ones.

    Called with states it returns probabilities [*leading, n_actions, n_atoms]; with states and actions (as for
    QNetwork) [*leading, n_atoms]. The return after a terminal state is 0.

    v_min, v_max: the ends of the support, in the unit of the returns; 0 must lie between them.
    Other arguments: as for Approximation.

    Raises NetworkError if 0 is not between v_min and v_max, and for fewer than 2 atoms.
    """

    model: QDistModule

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | None,
        n_actions: int,
        n_atoms: int,
        v_min: float,
        v_max: float,
        name: str = "q_dist",
        **kwargs: Any,
    ) -> None:
        super().__init__(QDistModule(model, n_actions, n_atoms, v_min, v_max), optimizer, name=name, **kwargs)
        self.n_actions = n_actions
        self.n_atoms = n_atoms

    @property
    def atoms(self) -> Tensor:
        """The support, float32 [n_atoms], on the device of the model."""
        return self.model.atoms

    def project(self, dist: Tensor, support: Tensor) -> Tensor:
        """Project the distribution with mass `dist` at `support` onto `atoms` (Bellemare et al. 2017, equation 7).

        dist, support: [..., n_atoms], for example support = reward + discount * atoms. Returns [..., n_atoms] with
        the mass of `dist`; mass beyond an end of `atoms` moves to that end. Raises NetworkError for a support that is
        not finite or does not fit.
        """
        return project_categorical(support, dist, self.atoms)
