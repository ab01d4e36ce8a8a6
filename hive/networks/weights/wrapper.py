"""The copies of the network in a process of a run: global, online and target.

    global  ──update_online_network──>  online and target, bound to its block
       ^
       └── gradients, update_target_network: from block v to block v + 1, by the learner

The global network has no module: it is a block of the learner's state, and during an update also the next one. An
update reads version v and writes v + 1, so version v stays intact if the learner is killed. The learner's process has
no other copy; those of collectors and gradient workers have no memory of their own, except on a device.
`hive.compat.coach` has Coach's class, for scripts.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from hive.errors import NetworkError
from hive.networks.build.layers import placeholder_weights
from hive.networks.build.naming import set_training
from hive.networks.build.network import build_network, compute_natively
from hive.networks.build.parameters import NetworkParameters
from hive.networks.build.spaces import Spaces
from hive.networks.weights.device import DeviceParameters
from hive.networks.weights.flat import Bytes, FlatParameters, Floats, GroupUpdate, aligned_block, keep_frozen
from hive.networks.weights.optimizers import FlatOptimizer, OptimizerSettings, clip_factor
from hive.networks.weights.state import StateLayout, Version


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

    global_network: the current version; None before the first `bind` or `begin_update`. state: the layout of its
    blocks; it says whether there is a target. generator, device: of the online and target networks, see BoundNetwork.
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
        self.state = state
        self.generator = generator
        self.device = device
        self.global_network: Version | None = None
        self._next: Version | None = None
        self._online: BoundNetwork | None = None
        self._target: BoundNetwork | None = None
        self._block: Bytes | None = None  # the block that the copies are bound to
        self.configure(parameters.optimizer_settings(), parameters.clip_gradients or 0.0)

    @property
    def online_network(self) -> BoundNetwork:
        """The network that acts and learns."""
        if self._online is None:
            self._online = self._copy()
        return self._online

    @property
    def target_network(self) -> BoundNetwork | None:
        """The network that follows the online one; None without one."""
        if self._target is None and self.state.has_target:
            self._target = self._copy()
            self._bind_target()
        return self._target

    def bind(self, block: Bytes) -> None:
        """Make all copies those of a block of the run's state, which is read in place."""
        self.global_network = Version(block)
        self.update_online_network()

    def update_online_network(self) -> None:
        """Bind the online network, and the target network if it is built, to the block of the global network."""
        if self.global_network is None:
            raise NetworkError("the global network has no block yet", hint="call bind(block), which a run does")
        self._block = self.global_network.block
        self.online_network.flat.bind(self._block, read_only=True)
        self._bind_target()

    def configure(self, settings: OptimizerSettings, clip_gradients: float) -> None:
        """Set the optimizer and the greatest norm of a gradient, 0 without a limit, from the next update on.

        The number of moment arrays must not change.
        """
        self.optimizer = FlatOptimizer(settings)
        self.clip_gradients = clip_gradients

    def begin_update(self, now: Version, following: Version) -> None:
        """Begin an update that reads `now` and writes `following`. Only the learner makes updates."""
        self.global_network, self._next = now, following

    def apply_gradients_to_global_network(self, gradients: Floats, updates: Sequence[GroupUpdate]) -> bool:
        """Clip the gradient and step from the current version to the next. Return whether all results are finite.

        gradients: float32 [parameter_elements], finite. updates: of ranges that together are the whole vector. Each
        is clipped by its own norm; groups of step 0 are copied unchanged, as are buffers, advantage moments and frozen
        parameters. Raises NetworkError outside of an update.
        """
        now, following = self._versions()
        finite = True
        weights, new_weights = self.state.parameters(now.block), self.state.parameters(following.block)
        for elements, norm, step, learning_rate in updates:
            old = [block[elements] for block in now.moments]
            new = [block[elements] for block in following.moments]
            if not step:
                for before, after in zip((weights[elements], *old), (new_weights[elements], *new), strict=True):
                    after[:] = before
                continue
            finite &= self.optimizer.step(
                weights[elements],
                new_weights[elements],
                gradients[elements],
                old,
                new,
                step=step,
                learning_rate=learning_rate,
                gradient_scale=clip_factor(norm, self.clip_gradients),
            )
        keep_frozen(self.state.frozen, [weights, *now.moments], [new_weights, *following.moments])
        if finite:
            first, end = self.state.flat.parameter_bytes, self.state.weight_bytes
            following.block[first:end] = now.block[first:end]
            self.state.moments(following.block)[:] = self.state.moments(now.block)
        return finite

    def keep_global_network(self) -> None:
        """Copy the current version to the next, for an update without a gradient. Does not write the target."""
        now, following = self._versions()
        following.block[: self.state.weight_bytes] = now.block[: self.state.weight_bytes]
        for old, new in zip(now.moments, following.moments, strict=True):
            new[:] = old
        self.state.moments(following.block)[:] = self.state.moments(now.block)

    def update_target_network(self, rate: float = 1.0, *, version: int = 0) -> None:
        """Set the next target to rate * the next weights + (1 - rate) * the target; do nothing without one.

        rate: from 0 to 1; 0 keeps the target. version: the new target's version, greater than all before; not used
        with rate 0. Raises NetworkError outside of an update.
        """
        if self.state.has_target:
            now, following = self._versions()
            self.state.follow(now.block, following.block, rate, version)

    def _versions(self) -> tuple[Version, Version]:
        if self.global_network is None or self._next is None:
            raise NetworkError("no update of the global network has begun", hint="call begin_update(now, following)")
        return self.global_network, self._next

    def _copy(self) -> BoundNetwork:
        """Build a network with the initial weights of the run."""
        layout = self.state.flat
        with placeholder_weights():
            network = BoundNetwork(self.parameters, self.spaces, self.generator, self.device)
        block = network.flat.block if self.device is None else aligned_block(layout.block_bytes)
        layout.initialize_into(block)
        if self.device is not None:
            network.flat.bind(block)
        set_training(network.module, True)
        return network

    def _bind_target(self) -> None:
        if self._target is not None and self._block is not None:
            self._target.flat.bind(self.state.target(self._block), read_only=True)
