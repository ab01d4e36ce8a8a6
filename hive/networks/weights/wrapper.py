"""The copies of the network in a process of a run: global, online and target.

    global  ──update_online_network──>  online and target, bound to its block
       ^
       └── gradients, update_target_network: from block v to block v + 1, by the learner

The global network is the learner's state. The learner's process has no other copy; those of collectors and gradient
workers have no memory of their own, except on a device. `hive.compat.coach` has Coach's class, for scripts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from hive.networks.build.layers import placeholder_weights
from hive.networks.build.naming import set_training
from hive.networks.build.network import build_network, compute_natively
from hive.networks.build.parameters import NetworkParameters
from hive.networks.build.spaces import Spaces
from hive.networks.weights.device import DeviceParameters
from hive.networks.weights.flat import FlatParameters, aligned_block
from hive.networks.weights.groups import GroupUpdate
from hive.networks.weights.shared_network import SharedNetwork
from hive.networks.weights.state import StateLayout

Bytes = npt.NDArray[np.uint8]


class BoundNetwork:
    """A network, `module`, whose weights are those of the block that `flat` is bound to, at first its own.

    generator: the source of the initial weights. device: where the module computes, on a copy of its block
    (hive.networks.weights.device); None: on the CPU, in place.
    """

    def __init__(
        self,
        parameters: NetworkParameters,
        spaces: Spaces,
        generator: torch.Generator,
        device: torch.device | None = None,
    ) -> None:
        self.module = build_network(parameters, spaces, generator, device)
        self.flat = FlatParameters(self.module) if device is None else DeviceParameters(self.module, device)
        if device is None:
            compute_natively(self.module, self.flat, parameters.backend)


class NetworkWrapper:
    """The `global_network` of a run, and its `online_network` and `target_network`, each built at its first use.

    state: the layout of the blocks in which the copies lie; it says whether there is a target. generator, device: of
    the online and target networks, see BoundNetwork.
    """

    def __init__(
        self,
        parameters: NetworkParameters,
        spaces: Spaces,
        state: StateLayout,
        generator: torch.Generator,
        device: torch.device | None = None,
    ) -> None:
        self.parameters = parameters
        self.spaces = spaces
        self.generator = generator
        self.device = device
        self.has_target = state.has_target
        self.global_network = SharedNetwork(
            state, parameters.optimizer_settings(), clip_gradients=parameters.clip_gradients or 0.0
        )
        self._online: BoundNetwork | None = None
        self._target: BoundNetwork | None = None
        self._block: Bytes | None = None  # the block that the copies are bound to

    @property
    def online_network(self) -> BoundNetwork:
        """The network that acts and learns."""
        if self._online is None:
            self._online = self._copy()
        return self._online

    @property
    def target_network(self) -> BoundNetwork | None:
        """The network that follows the online one; None without one."""
        if self._target is None and self.has_target:
            self._target = self._copy()
            self._bind_target()
        return self._target

    def bind(self, block: Bytes) -> None:
        """Make all copies those of a block of the run's state, which is read in place."""
        self.global_network.at(block)
        self.update_online_network()

    def update_online_network(self) -> None:
        """Bind the online network, and the target network if it is built, to the block of the global network."""
        self._block = self.global_network.block
        self.online_network.flat.bind(self._block, read_only=True)
        self._bind_target()

    def update_target_network(self, rate: float = 1.0, *, version: int = 0) -> None:
        """Set the next target to rate * the next weights + (1 - rate) * the target; do nothing without one.

        Only the learner calls this, during an update. version: that of the new target, see `SharedNetwork.follow`.
        """
        if self.has_target:
            self.global_network.follow(rate, version)

    def apply_gradients_to_global_network(
        self,
        gradients: npt.NDArray[np.float32],
        *,
        norm: float,
        step: int,
        learning_rate: float,
        groups: Sequence[GroupUpdate] = (),
    ) -> bool:
        """Make one optimizer step on the global network; return whether its result is finite.

        gradients: float32 [parameter_elements], with their norm. step: the number of the update, from 1 on. groups:
        instead of norm, step and learning rate, the updates of all parameter groups.
        """
        whole = [GroupUpdate(slice(0, len(gradients)), norm, step, learning_rate)]
        return self.global_network.apply(gradients, groups or whole)

    def _copy(self) -> BoundNetwork:
        """Build a network with the initial weights of the run."""
        layout = self.global_network.layout.flat
        with placeholder_weights():
            network = self._built()
        block = network.flat.block if self.device is None else aligned_block(layout.block_bytes)
        layout.initialize_into(block)
        if self.device is not None:
            network.flat.bind(block)
        set_training(network.module, True)
        return network

    def _built(self) -> BoundNetwork:
        return BoundNetwork(self.parameters, self.spaces, self.generator, self.device)

    def _bind_target(self) -> None:
        if self._target is not None and self._block is not None:
            self._target.flat.bind(self.global_network.layout.target(self._block), read_only=True)
