"""Copies of one network that change at different times: global, online and target.

    global  ──update_online_network──>  online  ──update_target_network──>  target
       ^                                   │
       └──── gradients ────────────────────┘

The online network acts and learns. With a global network, gradients of the online one are applied there and
the new weights come back. The target network follows slowly. Without one of them its updates do nothing, so an agent
is written once for all four combinations.

In a script each copy is a TorchArchitecture with memory of its own, and an update copies weights. In a run (`state`)
the global network is a SharedNetwork, the blocks of the learner's state. The learner's process has no other copy: it
applies gradients from block v to block v + 1 and moves the target there. The processes that collect or compute
gradients have online and target networks without memory of their own, and `update_online_network` binds them to the
block.

Wrappers of several workers share the global network through a WorkerGroup. Unless `async_training` is set, applying
gradients to it is then something that all workers do together: each of them has to do it equally often.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch

from hive.errors import NetworkError
from hive.gradients import GradAccumulator, MapOfTensors
from hive.networks.architecture import Array, Inputs, Targets, TrainingResult
from hive.networks.arrays import common_rows, merged_inputs, refuse_misfits
from hive.networks.losses import as_array, one_for_each
from hive.networks.parameters import GradientClippingMethod, network_parameters_of
from hive.networks.recurrent import RECURRENT_STATE
from hive.networks.shared_network import SharedNetwork
from hive.networks.spaces import Spaces
from hive.networks.state import StateLayout
from hive.networks.torch_architecture import TorchArchitecture
from hive.networks.worker_group import WorkerGroup

__all__ = ["NetworkWrapper"]


class NetworkWrapper:
    """`online_network`, and `global_network` and `target_network` or None.

    agent_parameters, spaces, name: as for `Architecture`. All copies start with equal weights.
    has_target, has_global: which copies there are; has_target None: as `create_target_network` says.
    replicated_device, worker_device: where the global network and the others live; None or "cpu", or anything
        where `force_cpu` is set.
    generator: the source of the initial weights, see `TorchArchitecture`.
    group, worker: the workers that share the global network, and the number of this one; None: it is alone.
    state: where the copies lie in a block of a run's state, see above; None: each has memory of its own.
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
        self._refuse_devices(replicated_device, worker_device)
        if has_target is None:
            has_target = self.network_parameters.create_target_network
        self.group: WorkerGroup[TorchArchitecture] = group or WorkerGroup(1)
        self.worker = worker
        self.group.check_worker(worker)

        def copy_called(role: str) -> TorchArchitecture:
            return TorchArchitecture(agent_parameters, spaces, f"{name}/{role}", generator=generator)

        self._copy_called = copy_called
        self._online: TorchArchitecture | None = None
        self._target: TorchArchitecture | None = None
        self._is_training = True  # the mode of copies that are made later
        self._block: npt.NDArray[np.uint8] | None = None  # of a run's state, that the copies read
        self.has_target = has_target
        self.global_network: TorchArchitecture | SharedNetwork | None = None
        if state is not None:
            self.global_network = self._shared(state)
            return  # the other copies are made when a process asks for them; the learner needs none
        if has_global:
            self.global_network = self.group.global_network(name, lambda: copy_called("global"))
        self._online = copy_called("online")
        self._target = copy_called("target") if has_target else None
        self.sync()

    @property
    def online_network(self) -> TorchArchitecture:
        """The network that acts and learns; in a run it is made when it is first asked for."""
        if self._online is None:
            self._online = self._late_copy("online")
        return self._online

    @property
    def target_network(self) -> TorchArchitecture | None:
        """The network that follows, or None; in a run it is made when it is first asked for."""
        if self._target is None and self.has_target:
            self._target = self._late_copy("target")
            if self._block is not None:
                self._bind_target(self._block)
        return self._target

    @property
    def networks(self) -> list[TorchArchitecture]:
        """All copies that are modules, with weights that can be asked for."""
        found = (self.global_network, self._online, self._target)
        return [network for network in found if isinstance(network, TorchArchitecture)]

    def sync(self) -> None:
        """Makes the weights equal: global to online, then online to target."""
        self.update_online_network()
        self.update_target_network()

    def update_target_network(self, rate: float = 1.0, *, version: int = 0) -> None:
        """target = rate * online + (1 - rate) * target; nothing without a target network.

        In a run this is the learner's, on the block that is being written, whose weights are the newest; version: that
        of the new target, see `SharedNetwork.follow`.
        """
        if not self.has_target:
            return
        if isinstance(self.global_network, SharedNetwork):
            self.global_network.follow(rate, version)
        elif self.target_network is not None:
            self.target_network.copy_weights_from(self.online_network, rate)

    def update_online_network(self, rate: float = 1.0) -> None:
        """online = rate * global + (1 - rate) * online; nothing without a global network.

        In a run the online network, and the target network if this process has made one, read the block of the global
        one from now on. Nothing is copied, so the rate is 1.
        """
        if isinstance(self.global_network, SharedNetwork):
            self._bind(self.global_network, rate)
        elif self.global_network is not None:
            self.online_network.copy_weights_from(self.global_network, rate)

    def _shared(self, state: StateLayout) -> SharedNetwork:
        parameters = self.network_parameters
        limit, method = parameters.clip_gradients or 0.0, parameters.gradients_clipping_method
        if limit and method is not GradientClippingMethod.ClipByGlobalNorm:
            raise NetworkError(f"network `{self.name}` of a run is clipped by its global norm, not {method.name}")
        return SharedNetwork(state, parameters.optimizer_settings(), limit)

    def _late_copy(self, role: str) -> TorchArchitecture:
        made = self._copy_called(role)
        made.set_is_training(self._is_training)
        return made

    def _bind(self, shared: SharedNetwork, rate: float) -> None:
        if rate != 1.0:
            raise NetworkError(
                f"network `{self.name}` is read in place, it has no rate of {rate}", hint="leave it at 1"
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
    ) -> None:
        """One optimizer step on the global network.

        gradients: None: those accumulated in the online network. In a run one block, float32 [parameter_elements], with
        its norm, the number of the step and its learning rate: see `SharedNetwork.apply`.

        The optimizer is the global network's if `shared_optimizer`, else the online network's own.

        In a group, unless `async_training` is set, this waits for the gradients of all workers. They are added up,
        or averaged if `scale_down_gradients_by_number_of_workers_for_sync_training` is set, and applied as one; with
        optimizers of their own, one after the other in the order of the workers. Raises NetworkError in every worker,
        and changes nothing, if those of one are not finite; and where a worker has not come in time.
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
            if not self.global_network.apply(gradients, norm=norm, step=step, learning_rate=rate):
                raise NetworkError(f"update {step} of network `{self.name}` is not finite; it was not applied")
            return
        own = self.online_network.accumulated_gradients if gradients is None else cast("Sequence[Array]", gradients)
        if self.network_parameters.async_training or self.group.workers == 1:
            owner = self.global_network if self.network_parameters.shared_optimizer else self.online_network
            owner.apply_gradients_to(self.global_network, own)
        else:
            self.group.together(self.name, self.worker, (self.online_network, own), self._apply_of_all)

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

    def train_in_batches(
        self, inputs: Inputs, targets: Array | Sequence[Array], importance_weights: Array | None = None
    ) -> list[TrainingResult]:
        """`train_and_sync_networks` on one batch of `batch_size` samples after the other, in the order given.

        inputs, targets, importance_weights: of N samples, as for that method; the last batch holds what is left.
        Returns the result of every batch. Raises NetworkError for a recurrent network, whose rows belong together, and
        before the first batch for arrays of different numbers of samples.
        """
        if self.online_network.state_width or RECURRENT_STATE in inputs:
            raise NetworkError(
                f"the rows of recurrent network `{self.name}` cannot be cut into batches",
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
        """The outputs of several of these networks, in order and flat; one network may appear several times."""
        return TorchArchitecture.parallel_predict(None, network_input_tuples)

    def set_is_training(self, state: bool) -> None:
        """Switches all copies between training (True) and evaluation (False), those made later too."""
        self._is_training = state
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
        if self.global_network is None:
            return []
        if isinstance(self.global_network, SharedNetwork):
            return list(self.online_network.flat.arrays(self.global_network.block).values())
        return list(self.global_network.weights_view.values())

    def _apply_of_all(self, brought: Mapping[int, tuple[TorchArchitecture, Sequence[Array]]]) -> None:
        """Applies the gradients of all workers, {number: (online network, gradients)}, to the global network."""
        assert isinstance(self.global_network, TorchArchitecture)
        parameters = self.network_parameters
        for worker, (online, gradients) in brought.items():
            what = f"gradients of worker {worker} for network `{self.name}`"
            refuse_misfits(online.accumulated_gradients, gradients, what)
            if not all(np.isfinite(gradient).all() for gradient in gradients):
                raise NetworkError(f"{what} are not finite; none were applied")
        average = parameters.scale_down_gradients_by_number_of_workers_for_sync_training
        if not parameters.shared_optimizer:
            for online, gradients in brought.values():
                online.apply_gradients_to(self.global_network, gradients, 1.0 / self.group.workers if average else 1.0)
            return
        names = self.global_network.flat.names
        accumulator = GradAccumulator(names, self.group.workers, non_finite="report")
        for _, gradients in brought.values():
            arrays = [np.require(as_array(gradient, "a gradient"), np.float32, ["C", "W"]) for gradient in gradients]
            accumulator.accumulate(MapOfTensors(zip(names, map(torch.from_numpy, arrays), strict=True)))
        total = accumulator.mean_reduce() if average else accumulator.sum_reduce()
        self.global_network.apply_gradients([tensor.numpy() for tensor in total.values()])

    def _refuse_devices(self, *devices: Any) -> None:
        for device in devices:
            if device is None or self.network_parameters.force_cpu or str(device).partition(":")[0] == "cpu":
                continue
            raise NetworkError(
                f"network `{self.name}` cannot live on {device}",
                hint="flat blocks are host memory: use cpu, or set force_cpu to have devices passed over",
            )
