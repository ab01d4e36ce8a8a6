"""Copies of one network that change at different times: global, online and target.

    global  ──update_online_network──>  online  ──update_target_network──>  target
       ^                                   │
       └──── gradients ────────────────────┘

The online network acts and learns. With a global network, the gradients of the online network are applied to the
global one, whose new weights are then copied back. The target network follows the online one slowly. Updates of a
missing copy do nothing, so the same agent code works for all four combinations.

Each copy is a TorchArchitecture with separate memory, and an update copies weights. In a run the class of this name in
hive.networks.weights.wrapper has the same copies, in blocks.

Wrappers of several workers share the global network through a WorkerGroup. Unless `async_training` is set, all workers
then apply their gradients to it together, and each must do so equally often.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from hive.compat.coach.architecture import Array, Inputs, Targets, TrainingResult, network_parameters_of
from hive.compat.coach.arrays import common_rows, merged_inputs, refuse_misfits
from hive.compat.coach.losses import caller_array, one_for_each
from hive.compat.coach.torch_architecture import TorchArchitecture
from hive.compat.coach.worker_group import WorkerGroup
from hive.compat.rlpack import GradAccumulator, MapOfTensors
from hive.errors import NetworkError
from hive.networks.build.spaces import Spaces
from hive.networks.rows.inputs import RECURRENT_STATE


class NetworkWrapper:
    """An `online_network`, and optionally a `global_network` and a `target_network` (None without one).

    agent_parameters, spaces, name: as for `Architecture`. All copies start with equal weights.
    has_target, has_global: whether these copies exist; has_target None: the value of `create_target_network`.
    replicated_device, worker_device: the devices of the global network and of the others; None or "cpu", or any
        device if `force_cpu` is set.
    generator: the source of the initial weights, see `TorchArchitecture`.
    group, worker: the workers that share the global network, and the number of this one; None: a single worker.

    Raises NetworkError for invalid parameters, another device, and an unknown worker.
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

        self.global_network: TorchArchitecture | None = None
        if has_global:
            self.global_network = self.group.global_network(name, lambda: copy_called("global"))
        self.online_network = copy_called("online")
        self.target_network = copy_called("target") if has_target else None
        self.sync()

    @property
    def networks(self) -> list[TorchArchitecture]:
        """All copies: global, online, target."""
        copies = (self.global_network, self.online_network, self.target_network)
        return [network for network in copies if network is not None]

    def sync(self) -> None:
        """Copy the weights from global to online, then from online to target."""
        self.update_online_network()
        self.update_target_network()

    def update_target_network(self, rate: float = 1.0) -> None:
        """Set target = rate * online + (1 - rate) * target; do nothing without a target network.

        Raises NetworkError for a rate outside of 0 to 1.
        """
        if self.target_network is not None:
            self.target_network.copy_weights_from(self.online_network, rate)

    def update_online_network(self, rate: float = 1.0) -> None:
        """Set online = rate * global + (1 - rate) * online; do nothing without a global network."""
        if self.global_network is not None:
            self.online_network.copy_weights_from(self.global_network, rate)

    def apply_gradients_to_global_network(self, gradients: Sequence[Array] | None = None) -> None:
        """Make one optimizer step on the global network, with `gradients` (None: those accumulated in the online one).

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
        own = self.online_network.accumulated_gradients if gradients is None else gradients
        if self.network_parameters.async_training or self.group.workers == 1:
            owner = self.global_network if self.network_parameters.shared_optimizer else self.online_network
            owner.apply_gradients_to(self.global_network, own)
        else:
            self.group.together(self.name, self.worker, (self.online_network, own), self._apply_of_all)

    def apply_gradients_to_online_network(self, gradients: Sequence[Array] | None = None) -> None:
        """Make one optimizer step on the online network, with `gradients` (None: those accumulated in it)."""
        self.online_network.apply_gradients(
            self.online_network.accumulated_gradients if gradients is None else gradients
        )

    def apply_gradients_and_sync_networks(self, reset_gradients: bool = True) -> None:
        """Apply the accumulated gradients to the global network and copy its weights back.

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
        """Train on one batch. It replaces the accumulated gradients and resets them to 0 afterwards.

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
        """Call `train_and_sync_networks` for consecutive batches of `batch_size` samples.

        inputs, targets, importance_weights: of N samples, as for that method; the last batch may be smaller.
        Return the result of every batch. Raises NetworkError, before the first batch, for a recurrent network, whose
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
        """Return the outputs of several networks as one flat tuple, in order; a network may appear several times."""
        return TorchArchitecture.parallel_predict(None, network_input_tuples)

    def set_is_training(self, state: bool) -> None:
        """Switch all copies between training (True) and evaluation (False)."""
        for network in self.networks:
            network.set_is_training(state)

    def get_local_variables(self) -> list[Array]:
        """Return live views of the weights that only this worker uses: online network, then target network."""
        return [
            variable
            for network in self.networks
            if network is not self.global_network
            for variable in network.weights_view.values()
        ]

    def get_global_variables(self) -> list[Array]:
        """Return live views of the weights of the global network, which workers share; an empty list without one."""
        return [] if self.global_network is None else list(self.global_network.weights_view.values())

    def _apply_of_all(self, contributions: Mapping[int, tuple[TorchArchitecture, Sequence[Array]]]) -> None:
        """Apply the gradients of all workers, {number: (online network, gradients)}, to the global network."""
        assert self.global_network is not None
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
            arrays = [np.require(caller_array(array, "a gradient"), np.float32, ["C", "W"]) for array in gradients]
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
