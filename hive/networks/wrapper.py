"""Copies of one network that change at different times: global, online and target.

    global  ──update_online_network──>  online  ──update_target_network──>  target
       ^                                   │
       └──── gradients ────────────────────┘

The online network acts and learns. With a global network, the gradients of the online network are applied to the
global one, whose new weights are then copied back. The target network follows the online one slowly. Updates of a
missing copy do nothing, so the same agent code works for all four combinations.

In a script each copy is a TorchArchitecture with separate memory, and an update copies weights. In a run (`state`)
the global network is a SharedNetwork, the blocks of the learner's state. The learner's process has no other copy: it
applies gradients from block v to block v + 1 and moves the target there. The online and target networks of collectors
and gradient workers have no separate memory; `update_online_network` binds them to the block.

Wrappers of several workers share the global network through a WorkerGroup. Unless `async_training` is set, all workers
then apply their gradients to it together, and each must do so equally often.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch

from hive.compat.rlpack import GradAccumulator, MapOfTensors
from hive.errors import NetworkError, UpdateNotFinite
from hive.networks.architecture import Array, Inputs, Targets, TrainingResult
from hive.networks.arrays import common_rows, merged_inputs, refuse_misfits
from hive.networks.flat import aligned_block
from hive.networks.groups import GroupUpdate
from hive.networks.inputs import RECURRENT_STATE
from hive.networks.layers import placeholder_weights
from hive.networks.losses import as_array, one_for_each
from hive.networks.parameters import GradientClippingMethod, network_parameters_of
from hive.networks.shared_network import SharedNetwork
from hive.networks.spaces import Spaces
from hive.networks.state import StateLayout
from hive.networks.torch_architecture import TorchArchitecture
from hive.networks.worker_group import WorkerGroup

__all__ = ["NetworkWrapper"]


class NetworkWrapper:
    """An `online_network`, and optionally a `global_network` and a `target_network` (None without one).

    agent_parameters, spaces, name: as for `Architecture`. All copies start with equal weights.
    has_target, has_global: whether these copies exist; has_target None: the value of `create_target_network`.
    replicated_device, worker_device: the devices of the global network and of the others; None or "cpu", or any
        device if `force_cpu` is set. In a run `worker_device` may be a torch.device: the online and target networks
        then compute there, on copies of the blocks that they are bound to (hive.networks.device).
    generator: the source of the initial weights, see `TorchArchitecture`.
    group, worker: the workers that share the global network, and the number of this one; None: a single worker.
    state: the layout of a run's state block, in which the copies lie, see above; None: each has separate memory.

    Raises NetworkError for invalid parameters, another device, an unknown worker, and in a run for a clipping method
    other than the global norm.
    """

    def __init__(
        self,
        agent_parameters: Any,
        has_target: bool | None,
        has_global: bool,
        name: str,
        spaces: Spaces,
        replicated_device: Any = None,
        worker_device: Any = None,
        *,
        generator: torch.Generator | None = None,
        group: WorkerGroup[TorchArchitecture] | None = None,
        worker: int = 0,
        state: StateLayout | None = None,
    ) -> None:
        self.name = name
        self.network_parameters = network_parameters_of(agent_parameters, name)
        self.device: torch.device | None = None
        """Where online and target networks compute in a run; None: on the CPU, on the blocks themselves."""
        if state is not None and isinstance(worker_device, torch.device):
            self.device, worker_device = worker_device, None
        self._refuse_devices(replicated_device, worker_device)
        if has_target is None:
            has_target = self.network_parameters.create_target_network
        self.group: WorkerGroup[TorchArchitecture] = group or WorkerGroup(1)
        self.worker = worker
        self.group.check_worker(worker)

        def copy_called(role: str) -> TorchArchitecture:
            full_name = f"{name}/{role}"
            return TorchArchitecture(agent_parameters, spaces, full_name, generator=generator, device=self.device)

        self._copy_called = copy_called
        self._online: TorchArchitecture | None = None
        self._target: TorchArchitecture | None = None
        self._is_training = True  # the mode of copies that are built later
        self._block: npt.NDArray[np.uint8] | None = None  # the state block of a run that the copies are bound to
        self.has_target = has_target
        self.global_network: TorchArchitecture | SharedNetwork | None = None
        self._state = state
        if state is not None:
            self.global_network = self._shared(state)
            return  # the other copies are built at their first use; the learner's process needs none
        if has_global:
            self.global_network = self.group.global_network(name, lambda: copy_called("global"))
        self._online = copy_called("online")
        self._target = copy_called("target") if has_target else None
        self.sync()

    @property
    def online_network(self) -> TorchArchitecture:
        """The network that acts and learns; in a run it is built at the first access."""
        if self._online is None:
            self._online = self._late_copy("online")
        return self._online

    @property
    def target_network(self) -> TorchArchitecture | None:
        """The network that follows the online one, or None; in a run it is built at the first access."""
        if self._target is None and self.has_target:
            self._target = self._late_copy("target")
            if self._block is not None:
                self._bind_target(self._block)
        return self._target

    @property
    def networks(self) -> list[TorchArchitecture]:
        """All copies built so far, without the SharedNetwork of a run."""
        found = (self.global_network, self._online, self._target)
        return [network for network in found if isinstance(network, TorchArchitecture)]

    def sync(self) -> None:
        """Copies the weights from global to online, then from online to target."""
        self.update_online_network()
        self.update_target_network()

    def update_target_network(self, rate: float = 1.0, *, version: int = 0) -> None:
        """Sets target = rate * online + (1 - rate) * target; does nothing without a target network.

        In a run only the learner calls this, during an update, and the weights of the next block take the place of the
        online network's. version: that of the new target, see `SharedNetwork.follow`. Raises NetworkError for a rate
        outside of 0 to 1.
        """
        if not self.has_target:
            return
        if isinstance(self.global_network, SharedNetwork):
            self.global_network.follow(rate, version)
        elif self.target_network is not None:
            self.target_network.copy_weights_from(self.online_network, rate)

    def update_online_network(self, rate: float = 1.0) -> None:
        """Sets online = rate * global + (1 - rate) * online; does nothing without a global network.

        In a run this binds the online network, and the target network if this process has built one, to the block of
        the global network. No weights are copied, so a rate other than 1 raises NetworkError.
        """
        if isinstance(self.global_network, SharedNetwork):
            self._bind(self.global_network, rate)
        elif self.global_network is not None:
            self.online_network.copy_weights_from(self.global_network, rate)

    def bind(self, block: npt.NDArray[np.uint8]) -> None:
        """Makes the global, online and target networks those of a block of a run's state, which is read in place.

        Raises NetworkError if the wrapper was not made with the `state` of a run.
        """
        if not isinstance(self.global_network, SharedNetwork):
            raise NetworkError("only networks of a run can be bound to a block", hint="pass state=... to the wrapper")
        self.global_network.at(block)
        self.update_online_network()

    def _shared(self, state: StateLayout) -> SharedNetwork:
        parameters = self.network_parameters
        limit, method = parameters.clip_gradients or 0.0, parameters.gradients_clipping_method
        if limit and method is not GradientClippingMethod.ClipByGlobalNorm:
            raise NetworkError(f"network `{self.name}` of a run must be clipped by global norm, not {method.name}")
        return SharedNetwork(state, parameters.optimizer_settings(), limit)

    def _late_copy(self, role: str) -> TorchArchitecture:
        assert self._state is not None
        with placeholder_weights():
            made = self._copy_called(role)
        block = made.flat.block if self.device is None else aligned_block(self._state.flat.block_bytes)
        self._state.flat.initialize_into(block)
        if self.device is not None:
            made.flat.bind(block)
        made.set_is_training(self._is_training)
        return made

    def _bind(self, shared: SharedNetwork, rate: float) -> None:
        if rate != 1.0:
            raise NetworkError(
                f"network `{self.name}` is read in place, so its rate cannot be {rate}", hint="leave it at 1"
            )
        self._block = shared.block
        self.online_network.flat.bind(self._block, read_only=True)
        if self._target is not None:
            self._bind_target(self._block)

    def _bind_target(self, block: npt.NDArray[np.uint8]) -> None:
        assert isinstance(self.global_network, SharedNetwork)
        assert self._target is not None
        self._target.flat.bind(self.global_network.layout.target(block), read_only=True)

    def apply_gradients_to_global_network(
        self,
        gradients: Sequence[Array] | Array | None = None,
        *,
        norm: float = 0.0,
        step: int = 0,
        learning_rate: float | None = None,
        groups: Sequence[GroupUpdate] = (),
    ) -> None:
        """Makes one optimizer step on the global network.

        gradients: None: those accumulated in the online network. In a run one block, float32 [parameter_elements], with
        its norm, the number of the step and its learning rate: see `SharedNetwork.apply`. groups: instead of these
        three, the updates of all parameter groups: see `SharedNetwork.apply_groups`.

        The optimizer is that of the global network if `shared_optimizer`, else that of the online network.

        In a group, unless `async_training` is set, this waits for the gradients of all workers. They are summed,
        or averaged if `scale_down_gradients_by_number_of_workers_for_sync_training` is set, and applied as one. Without
        `shared_optimizer` they are applied one after the other, in the order of the workers. Raises NetworkError in
        every worker, and changes nothing, if a gradient is not finite or a worker does not arrive in time.
        """
        if self.global_network is None:
            raise NetworkError(
                f"network `{self.name}` has no global copy",
                hint="apply_gradients_and_sync_networks works with and without one",
            )
        if isinstance(self.global_network, SharedNetwork):
            rate = self.network_parameters.learning_rate if learning_rate is None else learning_rate
            if not isinstance(gradients, np.ndarray):
                found = "no gradient" if gradients is None else f"a {type(gradients).__name__}"
                raise NetworkError(
                    f"network `{self.name}` of a run is given {found}", hint="give one block, from mean_reduce"
                )
            shared = self.global_network
            if groups:
                finite = shared.apply_groups(gradients, groups)
            else:
                finite = shared.apply(gradients, norm=norm, step=step, learning_rate=rate)
            if not finite:
                number = max((one.step for one in groups), default=step)
                raise UpdateNotFinite(f"update {number} of network `{self.name}` is not finite; it was not applied")
            return
        own = self.online_network.accumulated_gradients if gradients is None else cast("Sequence[Array]", gradients)
        if self.network_parameters.async_training or self.group.workers == 1:
            owner = self.global_network if self.network_parameters.shared_optimizer else self.online_network
            owner.apply_gradients_to(self.global_network, own)
        else:
            self.group.together(self.name, self.worker, (self.online_network, own), self._apply_of_all)

    def apply_gradients_to_online_network(self, gradients: Sequence[Array] | None = None) -> None:
        """Makes one optimizer step on the online network, with `gradients` (None: those accumulated in it)."""
        self.online_network.apply_gradients(
            self.online_network.accumulated_gradients if gradients is None else gradients
        )

    def apply_gradients_and_sync_networks(self, reset_gradients: bool = True) -> None:
        """Applies the accumulated gradients to the global network and copies its weights back.

        Without a global network, applies them to the online one.

        reset_gradients: set the accumulated gradients to 0 afterwards, as Coach's code does; Coach's documentation
            describes the opposite.
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
        """Trains on one batch. It replaces the accumulated gradients and resets them to 0 afterwards.

        Arguments and result are those of `Architecture.accumulate_gradients`.
        """
        result = self.online_network.accumulate_gradients(
            inputs, targets, additional_fetches, importance_weights, no_accumulation=True
        )
        self.apply_gradients_and_sync_networks()
        return result

    def train_in_batches(
        self, inputs: Inputs, targets: Array | Sequence[Array], importance_weights: Array | None = None
    ) -> list[TrainingResult]:
        """Calls `train_and_sync_networks` for consecutive batches of `batch_size` samples.

        inputs, targets, importance_weights: of N samples, as for that method; the last batch may be smaller.
        Returns the result of every batch. Raises NetworkError, before the first batch, for a recurrent network, whose
        sequences cannot be split, and for arrays of different numbers of samples.
        """
        if self.online_network.state_width or RECURRENT_STATE in inputs:
            raise NetworkError(
                f"the rows of recurrent network `{self.name}` cannot be split into batches",
                hint="call train_and_sync_networks with whole sequences",
            )
        each_target = one_for_each(targets, len(self.online_network.heads), "targets")
        weights = [] if importance_weights is None else [importance_weights]
        count = common_rows(merged_inputs(inputs).values(), each_target, weights)
        size = self.network_parameters.batch_size
        results = []
        for start in range(0, count, size):
            rows = slice(start, start + size)
            results.append(
                self.train_and_sync_networks(
                    {name: array[rows] for name, array in inputs.items()},
                    [target[rows] for target in each_target],
                    importance_weights=None if importance_weights is None else importance_weights[rows],
                )
            )
        return results

    def parallel_prediction(
        self, network_input_tuples: Sequence[tuple[TorchArchitecture, Inputs]]
    ) -> tuple[Array, ...]:
        """Returns the outputs of several networks as one flat tuple, in order; a network may appear several times."""
        return TorchArchitecture.parallel_predict(None, network_input_tuples)

    def set_is_training(self, state: bool) -> None:
        """Switches all copies between training (True) and evaluation (False), those built later included."""
        self._is_training = state
        for network in self.networks:
            network.set_is_training(state)

    def get_local_variables(self) -> list[Array]:
        """Returns live views of the weights that only this worker uses: online network, then target network."""
        return [
            variable
            for network in self.networks
            if network is not self.global_network
            for variable in network.weights_view.values()
        ]

    def get_global_variables(self) -> list[Array]:
        """Returns live views of the weights of the global network, which workers share; an empty list without one."""
        if self.global_network is None:
            return []
        if isinstance(self.global_network, SharedNetwork):
            return list(self.online_network.flat.arrays(self.global_network.block).values())
        return list(self.global_network.weights_view.values())

    def _apply_of_all(self, contributions: Mapping[int, tuple[TorchArchitecture, Sequence[Array]]]) -> None:
        """Applies the gradients of all workers, {number: (online network, gradients)}, to the global network."""
        assert isinstance(self.global_network, TorchArchitecture)
        parameters = self.network_parameters
        for worker, (online, gradients) in contributions.items():
            what = f"gradients of worker {worker} for network `{self.name}`"
            refuse_misfits(online.accumulated_gradients, gradients, what)
            if not all(np.isfinite(gradient).all() for gradient in gradients):
                raise NetworkError(f"{what} are not finite; none were applied")
        average = parameters.scale_down_gradients_by_number_of_workers_for_sync_training
        if not parameters.shared_optimizer:
            for online, gradients in contributions.values():
                online.apply_gradients_to(self.global_network, gradients, 1.0 / self.group.workers if average else 1.0)
            return
        names = self.global_network.flat.names
        accumulator = GradAccumulator(names, self.group.workers, non_finite="report")
        for _, gradients in contributions.values():
            arrays = [np.require(as_array(gradient, "a gradient"), np.float32, ["C", "W"]) for gradient in gradients]
            accumulator.accumulate(MapOfTensors(zip(names, map(torch.from_numpy, arrays), strict=True)))
        total = accumulator.mean_reduce() if average else accumulator.sum_reduce()
        self.global_network.apply_gradients([tensor.numpy() for tensor in total.values()])

    def _refuse_devices(self, *devices: Any) -> None:
        for device in devices:
            if device is None or self.network_parameters.force_cpu or str(device).partition(":")[0] == "cpu":
                continue
            raise NetworkError(
                f"network `{self.name}` cannot be placed on {device}",
                hint="only networks of a run can: use cpu, or set force_cpu to ignore devices",
            )
