"""Copies of one network that change at different times: global, online and target.

    global  ──update_online_network──>  online  ──update_target_network──>  target
       ^                                   │
       └──── gradients ────────────────────┘

The online network acts and learns. With a global network, gradients of the online one are applied there and
the new weights come back; in a run that role belongs to the learner's state. The target network follows
slowly. Without one of them its updates do nothing, so an agent is written once for all four combinations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from hive.errors import NetworkError
from hive.networks.architecture import Array, Inputs, Targets, TrainingResult
from hive.networks.parameters import network_parameters_of
from hive.networks.spaces import Spaces
from hive.networks.torch_architecture import TorchArchitecture

__all__ = ["NetworkWrapper"]


class NetworkWrapper:
    """`online_network`, and `global_network` and `target_network` or None.

    agent_parameters, spaces, name: as for `Architecture`. All copies start with equal weights.
    has_target, has_global: which copies there are.
    replicated_device, worker_device: where the global network and the others live; None or "cpu".
    generator: the source of the initial weights, see `TorchArchitecture`.
    """

    def __init__(
        self,
        agent_parameters: Any,
        has_target: bool,
        has_global: bool,
        name: str,
        spaces: Spaces,
        replicated_device: Any = None,
        worker_device: Any = None,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        for device in (replicated_device, worker_device):
            if device is not None and torch.device(device).type != "cpu":
                raise NetworkError(
                    f"network `{name}` cannot live on {device}", hint="flat blocks are host memory: use cpu"
                )
        self.name = name
        self.network_parameters = network_parameters_of(agent_parameters, name)

        def copy_called(role: str) -> TorchArchitecture:
            return TorchArchitecture(agent_parameters, spaces, f"{name}/{role}", generator=generator)

        self.global_network = copy_called("global") if has_global else None
        self.online_network = copy_called("online")
        self.target_network = copy_called("target") if has_target else None
        self.networks = [
            network
            for network in (self.global_network, self.online_network, self.target_network)
            if network is not None
        ]
        self.sync()

    def sync(self) -> None:
        """Makes the weights equal: global to online, then online to target."""
        self.update_online_network()
        self.update_target_network()

    def update_target_network(self, rate: float = 1.0) -> None:
        """target = rate * online + (1 - rate) * target; nothing without a target network."""
        if self.target_network is not None:
            self.target_network.copy_weights_from(self.online_network, rate)

    def update_online_network(self, rate: float = 1.0) -> None:
        """online = rate * global + (1 - rate) * online; nothing without a global network."""
        if self.global_network is not None:
            self.online_network.copy_weights_from(self.global_network, rate)

    def apply_gradients_to_global_network(self, gradients: Sequence[Array] | None = None) -> None:
        """One optimizer step on the global network.

        gradients: None: those accumulated in the online network.
        The optimizer is the global network's if `shared_optimizer`, else the online network's own.
        """
        if self.global_network is None:
            raise NetworkError(
                f"network `{self.name}` has no global copy",
                hint="apply_gradients_and_sync_networks works with and without one",
            )
        gradients = self.online_network.accumulated_gradients if gradients is None else gradients
        owner = self.global_network if self.network_parameters.shared_optimizer else self.online_network
        owner.apply_gradients_to(self.global_network, gradients)

    def apply_gradients_to_online_network(self, gradients: Sequence[Array] | None = None) -> None:
        """One optimizer step on the online network, with `gradients` or those accumulated in it."""
        self.online_network.apply_gradients(
            self.online_network.accumulated_gradients if gradients is None else gradients
        )

    def apply_gradients_and_sync_networks(self, reset_gradients: bool = True) -> None:
        """Applies what was accumulated to the global network and fetches its weights, or to the online one.

        reset_gradients: set the accumulated gradients to 0 afterwards, as Coach's code does; its text says
            the opposite.
        """
        if self.global_network is None:
            self.apply_gradients_to_online_network()
        else:
            self.apply_gradients_to_global_network()
            self.update_online_network()
        if reset_gradients:
            self.online_network.reset_accumulated_gradients()

    def train_and_sync_networks(
        self,
        inputs: Inputs,
        targets: Targets,
        additional_fetches: Sequence[Any] | None = None,
        importance_weights: Array | Sequence[Array] | None = None,
    ) -> TrainingResult:
        """One step of training on a batch; replaces what was accumulated and leaves 0.

        Arguments and result are those of `Architecture.accumulate_gradients`.
        """
        result = self.online_network.accumulate_gradients(
            inputs, targets, additional_fetches, importance_weights, no_accumulation=True
        )
        self.apply_gradients_and_sync_networks()
        return result

    def parallel_prediction(
        self, network_input_tuples: Sequence[tuple[TorchArchitecture, Inputs]]
    ) -> tuple[Array, ...]:
        """The outputs of several of these networks, in order; one network may appear several times."""
        return TorchArchitecture.parallel_predict(None, network_input_tuples)

    def set_is_training(self, state: bool) -> None:
        """Switches all copies between training (True) and evaluation (False)."""
        for network in self.networks:
            network.set_is_training(state)

    def get_local_variables(self) -> list[Array]:
        """The live weights of the online network, then of the target network: those only this worker uses."""
        return [
            variable
            for network in self.networks
            if network is not self.global_network
            for variable in network.weights_view.values()
        ]

    def get_global_variables(self) -> list[Array]:
        """The live weights of the global network, which workers share; none without it."""
        return [] if self.global_network is None else list(self.global_network.weights_view.values())
