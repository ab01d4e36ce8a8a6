"""GWorker of a script: it collects, computes gradients and applies them.

    collector.queue -> get_data() -> get_grads() -> Gradients -> apply_gradients() -> weights, version + 1

`apply_gradients` makes one turn of the learner on the worker's own blocks (hive.training.update.replica). Collectors
receive weights when the collection broadcasts them, never between two gradients of a round.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from torch import Tensor

from hive.algorithms.algorithm import Algorithm
from hive.algorithms.parameters import update_parameter
from hive.compat.pytorchrl.collection import CWorker, CWorkerSet, Weights, check_device
from hive.compat.pytorchrl.collector_thread import CollectedRollout, CollectorThread
from hive.compat.pytorchrl.gradients import Gradients, Info, compression_of
from hive.compat.pytorchrl.weights import Snapshot, snapshot_of
from hive.errors import NetworkError, RecordError
from hive.gradients import PLAIN, SAMPLES, Codec, clear, gradient_layout
from hive.networks.weights.flat import aligned_block
from hive.records import JSON, write_checkpoint
from hive.runtime import Layout
from hive.runtime.memory.segments import Arrays
from hive.training import GWorker as WorkerOfRun
from hive.training.update.learner import Count, LearnerStep, mean_return
from hive.training.update.replica import Replica


class RoundStorage:
    """The rollouts of one round, in the order of their workers. `left`: gradients not yet made of it."""

    def __init__(self) -> None:
        self.rollouts: list[CollectedRollout] = []
        self.left = 0

    def insert(self, rollouts: Sequence[CollectedRollout], gradients: int) -> None:
        """Replace the round by a new one, of which `gradients` gradients are made."""
        self.rollouts = list(rollouts)
        self.left = gradients

    @property
    def samples(self) -> int:
        """Valid steps of the round."""
        return sum(rollout.n_samples for rollout in self.rollouts)


class GWorker(WorkerOfRun):
    """Collects rollouts, computes their gradients and applies them.

    index_worker: its number; together with the collectors' numbers it determines their seeds.
    col_workers_factory: a function of (device, initial_weights, index_worker) that returns a CWorkerSet.
    col_communication, col_execution: modes of collection; the module of CollectorThread lists the valid combinations.
    compress_grads_to_send: False: the codec of the config; True: the same, or bf16 if it is "none"; or a codec's name.
    col_fraction_workers: fraction of the collectors that must finish before a round ends, in (0, 1].
    initial_weights: a Snapshot or a mapping, as for `set_weights`. device: "cpu" or None; the config has the device of
        gradients.
    broadcast_interval: collection steps between two broadcasts of the weights.
    algorithm: default: the blueprint's, sharing no rounds with other workers.

    Raises TopologyError for an invalid combination of modes, and for an algorithm that learns from a replay memory.
    """

    def __init__(
        self,
        index_worker: int,
        col_workers_factory: Callable[..., CWorkerSet],
        col_communication: str = "synchronous",
        compress_grads_to_send: bool | str = False,
        col_execution: str = "Central",
        col_fraction_workers: float = 1.0,
        initial_weights: Weights | None = None,
        device: str | None = None,
        *,
        broadcast_interval: int = 1,
        algorithm: Algorithm | None = None,
    ) -> None:
        check_device(device)
        self.iter = 0
        self.col_communication = col_communication
        self.compress_grads_to_send = compress_grads_to_send
        self.col_workers = col_workers_factory(device, initial_weights, index_worker)
        self.collector = CollectorThread(
            index_worker,
            self.local_worker,
            self.remote_workers,
            col_fraction_workers,
            col_communication,
            col_execution,
            broadcast_interval,
            fraction_samples=self.col_workers.col_fraction_samples,
            first_source=self.col_workers.first_source,
            collectors=self.col_workers.collectors,
        )
        blueprint = self.col_workers.blueprint
        codec = compression_of(compress_grads_to_send, blueprint.codec)
        algorithm = algorithm or cast(Algorithm, blueprint.algorithm(alone=True))
        super().__init__(blueprint, index_worker, algorithm=algorithm, codec=codec)
        self.storage = RoundStorage()
        # The weights and the optimizer state that `apply_gradients` updates.
        self.state = Replica(blueprint.learner(), blueprint.state.bytes)
        self.state.begin(blueprint)
        self.bind(self.state.weights)
        self._sequence = 0
        self._last: Gradients | None = None
        if initial_weights is not None:
            self.set_weights(initial_weights)

    @property
    def local_worker(self) -> CWorker:
        """The collection worker that holds the newest weights."""
        return self.col_workers.local_worker()

    @property
    def remote_workers(self) -> list[CWorker]:
        """The collection workers of a parallel collection; empty for a central one."""
        return self.col_workers.remote_workers()

    @property
    def inqueue(self) -> queue.Queue[list[CollectedRollout]]:
        """The queue of collection steps not yet used."""
        return self.collector.queue

    @property
    def actor_version(self) -> int:
        """Number of updates of the weights."""
        return self.state.turn

    # --- gradients

    def step(self, distribute_gradients: bool = False) -> tuple[Gradients, Info]:
        """Call `get_data`, then `get_grads`."""
        self.get_data()
        return self.get_grads(distribute_gradients)

    def get_data(self) -> dict[str, Any]:
        """Return the batch of the next gradient: {"rollouts": list[CollectedRollout], "sequence": int}.

        A round's batch is returned for each of its gradients, then a new round is collected. Raises what collection
        raises.
        """
        if not self.storage.left:
            self.local_worker.set_weights(self.get_weights())
            self.storage.insert(self.collector.get(), self.algo.gradients_per_round)
        return {"rollouts": self.storage.rollouts, "sequence": self._sequence}

    def get_grads(self, distribute_gradients: bool = False) -> tuple[Gradients, Info]:
        """Compute the next gradient of the batch of `get_data`, and return it with a summary (Gradients.describe).

        distribute_gradients: apply the gradient too. A worker by itself has no peers; GWorkerSet.step has.
        """
        grads, info = self.compute_gradients(self.get_data(), distribute_gradients)
        self.storage.left -= 1
        self._sequence += 1
        self.iter += 1
        return grads, info

    def compute_gradients(self, batch: Mapping[str, Any], distribute_gradients: bool = False) -> tuple[Gradients, Info]:
        """Compute the gradient of a batch of `get_data`. Batches of a round must be passed in order of their number."""
        begun = time.perf_counter()
        rollouts: Sequence[CollectedRollout] = batch["rollouts"]
        sequence: int = batch["sequence"]
        version = self.actor_version
        layout = self._layout(self.codec, len(rollouts))
        slot = layout.views(aligned_block(layout.bytes))
        self.compute([rollout.data for rollout in rollouts], slot, sequence=sequence, version=version)
        grads = self._last = Gradients(slot, self.codec, self.flat, self.index_worker, version)
        is_first = sequence % self.algo.gradients_per_round == 0
        info = grads.describe(self.algo, min((rollout.version_collected for rollout in rollouts), default=version))
        collection_s = sum(rollout.seconds for rollout in rollouts) if is_first else 0.0
        info["Time"] = {"Collection": collection_s, "Gradient": time.perf_counter() - begun}
        if distribute_gradients:
            self.apply_gradients(grads)
        return grads, info

    def apply_gradients(self, gradients: Gradients | Sequence[Any] | None = None) -> LearnerStep:
        """Make one update and return its LearnerStep.

        gradients: None: the gradient computed last; Gradients or a sequence of them: their mean, weighted by samples; a
        sequence of tensors, one for each parameter: these. A gradient that is not finite changes nothing, and `cause`
        of the LearnerStep names it. Raises RuntimeError before the first gradient, and NetworkError for an empty
        sequence and for gradients of another network or of different codecs.
        """
        if gradients is None:
            gradients = self._last
        if gradients is None:
            raise RuntimeError("no gradient has been computed yet: call step() or get_grads() first")
        several = [gradients] if isinstance(gradients, Gradients) else list(gradients)
        if not several:
            raise NetworkError("the sequence of gradients is empty", hint="pass None for the gradient computed last")
        if all(isinstance(item, Gradients) for item in several):
            self._check_compatible(several)
            slots, codec = [item.slot for item in several], several[0].codec
        else:
            slots, codec = [self._slot_of(several)], PLAIN
        if codec != self.state.learner.codec:
            self.state.learner.use_codec(codec)
        step = self.state.apply(slots)
        self.bind(self.state.weights)
        return step

    # --- weights

    def get_weights(self) -> Snapshot:
        """Return a copy of the weights, which `set_weights` of another worker accepts."""
        return Snapshot.of(self.actor_version, self.blueprint.state.weights(self.state.weights))

    def set_weights(self, actor_weights: Weights) -> None:
        """Replace the weights by a Snapshot, {"version": n, "weights": {name: tensor}}, or {name: tensor}.

        Raises NetworkError, and changes nothing, if they do not fit this network or are not finite.
        """
        state = self.state
        snapshot = snapshot_of(actor_weights, self.flat, state.turn)
        state.turn = snapshot.version
        layout = self.blueprint.state
        layout.weights(state.weights)[:] = snapshot.block[: layout.weight_bytes]
        if layout.has_target:
            layout.begin_target(state.weights)
        self.bind(state.weights)

    def save_model(self, fname: str | Path) -> str:
        """Write a checkpoint `fname`/<version> atomically and return its path.

        It contains the weights as safetensors and the optimizer state. Raises RecordError if a checkpoint of this
        version already exists or it cannot be written.
        """
        own = self.state
        views = own.learner.views(own.optimizer_state)
        episodes = int(views["counters"][Count.episodes])
        state: dict[str, JSON] = {
            "updates": self.actor_version,
            "mean_return": mean_return(views["returns"], episodes),
            "info": list[JSON](self.blueprint.episode_values),
        }
        root = Path(fname)
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = "it is a file" if root.is_file() else error.strerror
            raise RecordError(f"`{root}` cannot hold checkpoints: {reason}", hint="pass a directory") from None
        parts = {"weights": own.weights, "optimizer_state": own.optimizer_state}
        tensors = self.flat.arrays(self.blueprint.state.weights(own.weights))
        return str(write_checkpoint(root, self.actor_version, tensors=tensors, parts=parts, state=state))

    def update_algorithm_parameter(self, parameter_name: str, new_parameter_value: object) -> None:
        """Change one hyper-parameter of the algorithm, and of the learner that updates the weights.

        Raises ConfigError, and changes nothing, if the algorithm has no such parameter or the value is invalid.
        """
        update_parameter(self.algo, parameter_name, new_parameter_value)  # type: ignore[arg-type]
        update_parameter(self.state.learner, parameter_name, new_parameter_value)

    def stop(self) -> None:
        """Stop collecting and close the environments. Further calls do nothing."""
        self.collector.stop()

    def __enter__(self) -> GWorker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    # --- slots of gradients

    def _check_compatible(self, several: Sequence[Gradients]) -> None:
        """Raise NetworkError unless all gradients have one codec and this network's layout."""
        for gradients in several:
            if gradients.codec.name != several[0].codec.name:
                names = f"{several[0].codec.name} and {gradients.codec.name}"
                raise NetworkError(f"gradients of different compressions cannot be applied together: {names}")
            if gradients.layout != self.flat.parameters:
                raise NetworkError(
                    "the gradients are of another network", hint=f"its parameters are {', '.join(gradients.names)}"
                )

    def _layout(self, codec: Codec, rollouts: int) -> Layout:
        collection = self.blueprint.config.collection
        return gradient_layout(
            self.flat.parameter_elements,
            len(self.flat.parameters),
            len(self.algo.statistics),
            rollouts * collection.rollout * collection.envs,
            codec,
            len(self.blueprint.episode_values),
            self.blueprint.normalized,
        )

    def _slot_of(self, tensors: Sequence[Any]) -> Arrays:
        """Return a plain slot of one sample that holds these tensors."""
        flat, layout = self.flat, self._layout(PLAIN, 0)
        slot = layout.views(aligned_block(layout.bytes))
        clear(slot, self.actor_version)
        shapes = [tuple(getattr(tensor, "shape", ())) for tensor in tensors]
        if shapes != list(flat.shapes):
            raise NetworkError(f"expected gradients of shapes {list(flat.shapes)}, got {len(shapes)}: {shapes}")
        for view, tensor in zip(flat.gradient_arrays(slot["gradient"]), tensors, strict=True):
            view[...] = tensor.detach().cpu().numpy() if isinstance(tensor, Tensor) else tensor
        slot["header"][SAMPLES] = 1
        slot["mask"][:] = 1
        return slot
