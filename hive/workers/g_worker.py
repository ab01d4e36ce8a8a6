"""GWorker: computes the gradients of one share of the rounds. What the gradient worker's actor wraps.

    rollouts -> algorithm.gradients -> forward, loss, backward -> one copy into the gradient slot

A synchronous object without ports. Its networks are the online and target copies of a NetworkWrapper, which read the
learner's state where it lies (`bind`). An algorithm makes S gradients of a round, each on its own version of the
weights; gradient g is number g mod S of round g // S. What it cannot make (a share without samples, a round that a
killed worker began) is a gradient of zero samples: the numbers stay whole. One that is not finite is noted in its
header and never applied; `slot.on_not_finite` is called while all that made it is there.

In a run the actor calls `bind` and `compute`, and the rollouts come through a port. In a script the same object has
collectors of its own, and is what PyTorchRL documents:

    collector.queue -> get_data() -> get_grads() -> Gradients -> apply_gradients() -> weights, version + 1

`apply_gradients` is one turn of the learner on blocks of its own (hive.workers.replica). Collectors get weights when
the collection broadcasts them, never between two gradients of a round. Nothing here starts a thread.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hive.algorithms import Algorithm, Moments, update_parameter
from hive.algorithms import Gradients as AlgorithmGradients
from hive.approximation import SharedTarget
from hive.errors import NetworkError, RecordError, TopologyError
from hive.gradients import (
    ENV_STEPS,
    EPISODES,
    PLAIN,
    POLICY,
    SAMPLES,
    Codec,
    GradAccumulator,
    clear,
    codec_for,
    gradient_layout,
    put_episodes,
)
from hive.networks import SharedNetwork, aligned_block, moments_of
from hive.records import write_checkpoint
from hive.runtime import Layout, Status
from hive.storage import Purpose, Rollout, stream, stream_seed
from hive.workers.blueprint import Blueprint
from hive.workers.gradient_slot import GradientSlot
from hive.workers.learner import Count, LearnerStep, mean_return
from hive.workers.replica import Replica
from hive.workers.rollouts import CollectedRollout, RoundStorage, Snapshot, snapshot_of
from hive.workers.validate_modes import check_device

__all__ = [
    "CollectionTask",
    "CollectionWorker",
    "CollectionWorkers",
    "CollectorsElsewhere",
    "GWorker",
    "Gradients",
    "compression_of",
    "describe_gradient",
]

DEFAULT_COMPRESSION = "bf16"  # of `compress_grads_to_send=True`: half of the bytes, and hardly an error

Arrays = Mapping[str, NDArray[Any]]
Info = dict[str, Any]


class CollectionWorker(Protocol):
    """Holds the weights that collectors act with: hive.facades.CWorker."""

    @property
    def actor_version(self) -> int: ...

    def get_weights(self) -> Snapshot: ...

    def set_weights(self, actor_weights: Snapshot | Mapping[str, Any]) -> None: ...

    def update_algorithm_parameter(self, parameter_name: str, new_parameter_value: object) -> None: ...


class CollectionTask(Protocol):
    """Brings rollouts: hive.facades.CollectorThread."""

    queue: queue.Queue[list[CollectedRollout]]

    def get(self) -> list[CollectedRollout]:
        """The oldest collection step; one is made if there is none."""


class CollectionWorkers(Protocol):
    """The collectors of one GWorker: hive.facades.CWorkerSet."""

    @property
    def blueprint(self) -> Blueprint: ...

    def local_worker(self) -> CollectionWorker: ...

    def remote_workers(self) -> Sequence[CollectionWorker]: ...

    def task(
        self, index_worker: int, fraction_workers: float, communication: str, execution: str, interval: int
    ) -> CollectionTask: ...

    def stop(self) -> None: ...


@dataclass(frozen=True)
class CollectorsElsewhere:
    """Stands for the collectors of a run: they are other actors, and rollouts come through a port."""

    blueprint: Blueprint

    def local_worker(self) -> CollectionWorker:
        raise TopologyError("the collectors of this gradient worker are other actors of its run")

    def remote_workers(self) -> Sequence[CollectionWorker]:
        return []

    def task(self, *_: Any) -> CollectionTask:
        raise TopologyError("the collectors of this gradient worker are other actors of its run")

    def stop(self) -> None:
        """They are stopped by the run."""


class Gradients(Sequence[Tensor]):
    """The gradients of one computation: a sequence of tensors float32, one for each parameter, in their order.

    slot: what was computed, as hive.gradients.blocks draws it; compressed where that was asked for, and then the
    tensors are what a receiver gets. sent_bytes: what the gradient takes there; plain_bytes: what it would as float32.
    """

    def __init__(self, worker: GWorker, slot: Arrays, version: int) -> None:
        self.slot = slot
        self.codec: Codec = worker.codec
        self.names = worker.flat.names
        self.worker_id = worker.index_worker
        self.version_gradient = version
        self.n_samples = int(slot["header"][SAMPLES])
        self.sent_bytes = self.codec.sent_bytes(slot)
        self.plain_bytes = worker.flat.parameter_bytes
        self.layout = worker.flat.parameters
        self._described = worker.flat.parameter_elements, worker.flat.describe()
        self._tensors: list[Tensor] | None = None

    @property
    def tensors(self) -> list[Tensor]:
        if self._tensors is None:
            elements, parameters = self._described
            accumulator = GradAccumulator.for_slots(elements, 1, self.codec, parameters=parameters)
            accumulator.adopt(self.slot, 1)
            self._tensors = list(accumulator.mean_reduce().values())
        return self._tensors

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, index: int) -> Tensor: ...
    @overload
    def __getitem__(self, index: slice) -> list[Tensor]: ...
    def __getitem__(self, index: int | slice) -> Tensor | list[Tensor]:
        return self.tensors[index]


class GWorker:
    """A gradient worker. See the module.

    index_worker: its number; with the collectors' own it decides their seeds.
    col_workers_factory: called with (device, initial_weights, index_worker), gives the CollectionWorkers.
    col_communication, col_execution: hive.workers.validate_modes says what goes together.
    compress_grads_to_send: False: as the config says; True: bf16, or what the config says; or "bf16", "fp16", "top-k".
    col_fraction_workers: share of the collectors that ends a round, in (0, 1].
    initial_weights: a Snapshot or a mapping, as `set_weights` takes it. device: "cpu" or None.
    broadcast_interval: collection steps between two broadcasts of the weights.
    algorithm: None: one that shares no rounds with other workers. status: where its phases are shown.

    Raises TopologyError for what does not go together.
    """

    def __init__(
        self,
        index_worker: int,
        col_workers_factory: Callable[..., CollectionWorkers],
        col_communication: str = "synchronous",
        compress_grads_to_send: bool | str = False,
        col_execution: str = "Central",
        col_fraction_workers: float = 1.0,
        initial_weights: Snapshot | Mapping[str, Any] | None = None,
        device: str | None = None,
        *,
        broadcast_interval: int = 1,
        algorithm: Algorithm | None = None,
        status: Status | None = None,
    ) -> None:
        check_device(device)
        self.index_worker = index_worker
        self.iter = 0
        self.col_communication = col_communication
        self.compress_grads_to_send = compress_grads_to_send
        self.col_workers = col_workers_factory(device, initial_weights, index_worker)
        self.blueprint = self.col_workers.blueprint
        self._collection = col_fraction_workers, col_communication, col_execution, broadcast_interval
        self._collector: CollectionTask | None = None
        if not isinstance(self.col_workers, CollectorsElsewhere):
            self._collector = self.col_workers.task(index_worker, *self._collection)
        self.seed = self.blueprint.config.run.seed
        self.codec = compression_of(compress_grads_to_send, self.blueprint.codec)
        self.networks = self.blueprint.wrapper()
        self.actor = self.networks.online_network.module
        self.flat = self.networks.online_network.flat
        self.slot = GradientSlot(self.flat, self.codec)
        self.algo: Algorithm = algorithm or self.blueprint.algorithm(alone=True)
        target = self.networks.target_network
        self.algo.connect(self.actor, self.slot, SharedTarget(self.actor, target.module) if target else None)
        self.status = status
        self._phase = status.phase("gradient") if status else 0
        self._noise: np.random.Generator | None = None  # of the round in progress
        self._round: tuple[int, AlgorithmGradients] | None = None  # the round in progress and what is left of it
        self._rollouts: Sequence[Rollout] = ()  # what it is made of
        self.storage = RoundStorage()
        self._initial_weights = initial_weights
        self._own_state: Replica | None = None
        self._version = 0  # of the weights that the last gradient was computed with
        self._slots: dict[int, tuple[NDArray[np.uint8], Layout]] = {}
        self._sequence = 0
        self._last: Gradients | None = None

    @classmethod
    def of_run(cls, blueprint: Blueprint, index_worker: int, status: Status | None = None) -> GWorker:
        """Make number `index_worker` of a run: its collectors are elsewhere, its rounds shared with peers."""
        elsewhere = CollectorsElsewhere(blueprint)
        return cls(index_worker, lambda *_: elsewhere, algorithm=blueprint.algorithm(), status=status)

    # --- gradients, as in a run

    def bind(self, state: NDArray[np.uint8]) -> None:
        """Computes with this block of the learner's state from now on; it is read in place."""
        assert isinstance(self.networks.global_network, SharedNetwork)
        self.networks.global_network.at(state)
        self.networks.update_online_network()
        self.slot.rebound()

    def let_go(self) -> None:
        """Forgets what the codec has kept back, at a cut."""
        self.slot.residual[:] = 0.0

    def compute(
        self,
        rollouts: Sequence[Arrays],
        out: Arrays,
        *,
        sequence: int,
        version: int,
        moments: tuple[float, float] | None = None,
    ) -> None:
        """Writes gradient `sequence` into the slot `out` (hive.gradients.blocks draws it).

        `rollouts` are those of its round. `moments`: mean and deviation of the round over all workers, for the
        gradient after the one that asked.
        """
        if self.status:
            self.status.enter(self._phase)
        self._version = version
        number, step = divmod(sequence, self.algo.gradients_per_round)
        clear(out, version, sequence)
        if step == 0:
            rounds, start = self.blueprint.rounds, self.blueprint.schedule_start
            self._begin(number, [Rollout(arrays, rounds, start) for arrays in rollouts], out)
        if self._round is not None and self._round[0] == number:
            torch.default_generator.manual_seed(
                stream_seed(self.seed, Purpose.training_forward, self.index_worker, sequence)
            )
            self._advance(self._round[1], out, moments)
            if "observed" in out and step == self.algo.gradients_per_round - 1:
                self._observe(out["observed"])
        if self.status:
            self.status.enter(self.status.runtime)

    def _begin(self, number: int, views: list[Rollout], out: Arrays) -> None:
        put_episodes(out, [view.episodes() for view in views])
        samples = sum(view.samples for view in views)
        out["header"][ENV_STEPS] = samples
        out["header"][POLICY] = min((view.version for view in views), default=-1)
        self._round = None
        if samples:
            self._noise = stream(self.seed, Purpose.minibatches, self.index_worker, number, self._noise)
            self._round, self._rollouts = (number, self.algo.gradients(views, self._noise)), views

    def _observe(self, out: NDArray[np.float64]) -> None:
        """What the rollouts of the round saw: with its last gradient, so that a round is of one normalisation."""
        for view in self._rollouts:
            moments_of(view.observations[: view.length][view.valid != 0], out)

    def _advance(self, gradients: AlgorithmGradients, out: Arrays, moments: tuple[float, float] | None) -> None:
        """Runs the algorithm to its next yield, and so to the next gradient; one that is through makes none."""
        self.slot.open(out, self._rollouts)
        try:
            made = next(gradients, None) if moments is None else gradients.send(moments)
        except StopIteration:
            made = None
        finally:
            self.slot.close()
        if isinstance(made, Moments):
            out["moments"][:] = made.count, made.total, made.squares

    # --- with collectors of its own

    @property
    def local_worker(self) -> CollectionWorker:
        """The collection worker that holds the newest weights."""
        return self.col_workers.local_worker()

    @property
    def remote_workers(self) -> Sequence[CollectionWorker]:
        """The collection workers that work for it, if the collection is parallel."""
        return self.col_workers.remote_workers()

    @property
    def collector(self) -> CollectionTask | None:
        """What brings rollouts; None in a run."""
        return self._collector

    @property
    def inqueue(self) -> queue.Queue[list[CollectedRollout]] | None:
        """The queue of collection steps that wait; None in a run."""
        return None if self._collector is None else self._collector.queue

    @property
    def state(self) -> Replica:
        """The weights and the optimizer state that `apply_gradients` steps, made when they are first asked for.

        Raises RuntimeError in a run, where the learner has them.
        """
        if self._collector is None:
            raise RuntimeError(f"the learner of its run has the weights of gradient worker {self.index_worker}")
        if self._own_state is None:
            self._own_state = own = self.blueprint.replica()
            own.begin(self.blueprint.initialize)
            self.bind(own.weights)
            if self._initial_weights is not None:
                self.set_weights(self._initial_weights)
        return self._own_state

    @property
    def actor_version(self) -> int:
        """Number of times the actor has been updated; in a run, the version that the last gradient is of."""
        return self._version if self._collector is None else self.state.turn

    def step(self, distribute_gradients: bool = False) -> tuple[Gradients, Info]:
        """get_data, then get_grads. Distributing, its gradient is applied at once: alone it has no peers."""
        self.get_data()
        return self.get_grads(distribute_gradients)

    def get_data(self) -> dict[str, Any]:
        """The batch of the next gradient: the rollouts of a round, new ones when the last has had all its gradients.

        Raises what collection raises.
        """
        if not self.storage.left:
            if self._collector is None:
                raise RuntimeError(f"the rollouts of gradient worker {self.index_worker} come through its run")
            self._publish()
            self.storage.insert(self._collector.get(), self.algo.gradients_per_round)
        return {"rollouts": self.storage.rollouts, "sequence": self._sequence}

    def get_grads(self, distribute_gradients: bool = False) -> tuple[Gradients, Info]:
        """The next gradient of what get_data has brought, and a summary of it."""
        grads, info = self.compute_gradients(self.get_data(), distribute_gradients)
        self.storage.left -= 1
        self._sequence += 1
        self.iter += 1
        return grads, info

    def compute_gradients(self, batch: Mapping[str, Any], distribute_gradients: bool = False) -> tuple[Gradients, Info]:
        """The gradient of a batch of get_data. Its number says which of its round's it is: they come in order."""
        begun = time.perf_counter()
        rollouts: Sequence[CollectedRollout] = batch["rollouts"]
        sequence: int = batch["sequence"]
        version = self.actor_version  # makes and binds the state, the first time
        layout = self._layout(self.codec, len(rollouts))
        slot = layout.views(aligned_block(layout.bytes))
        self.compute([one.data for one in rollouts], slot, sequence=sequence, version=version)
        grads = self._last = Gradients(self, slot, version)
        is_first = sequence % self.algo.gradients_per_round == 0
        info = describe_gradient(self.algo, grads, min((one.version_collected for one in rollouts), default=version))
        collection_s = sum(one.seconds for one in rollouts) if is_first else 0.0
        info["Time"] = {"Collection": collection_s, "Gradient": time.perf_counter() - begun}
        if distribute_gradients:
            self.apply_gradients(grads)
        return grads, info

    def apply_gradients(self, gradients: Gradients | Sequence[Any] | None = None) -> LearnerStep:
        """One update. None: by the gradient computed last. A sequence of Gradients: by their mean, weighted by samples.

        A list of tensors: by these, one for each parameter. What is not finite changes nothing (`LearnerStep.cause`).
        Raises RuntimeError before the first gradient, NetworkError for an empty sequence and for what does not fit.
        """
        given = self._last if gradients is None else gradients
        if given is None:
            raise RuntimeError("no gradient has been computed yet: call step() or get_grads() first")
        several = [given] if isinstance(given, Gradients) else list(given)
        if not several:
            raise NetworkError("there are no gradients to apply", hint="None: those computed last")
        if all(isinstance(one, Gradients) for one in several):
            self._refuse_foreign(several)
            slots, codec = [one.slot for one in several], several[0].codec
        else:
            slots, codec = [self._slot_of(several)], PLAIN
        turn = self.state.apply(slots, codec)
        self.bind(self.state.weights)
        return turn

    # --- weights

    def get_weights(self) -> Snapshot:
        """What `set_weights` of another one takes."""
        return Snapshot.of(self.actor_version, self.blueprint.state.weights(self.state.weights))

    def set_weights(self, actor_weights: Snapshot | Mapping[str, Any]) -> None:
        """Goes on with these: a Snapshot, {"version": n, "weights": {name: tensor}}, or {name: tensor}.

        Raises NetworkError, and changes nothing, where they are not those of this network or not finite.
        """
        state = self.state
        snapshot = snapshot_of(actor_weights, self.flat, state.turn)
        state.turn = snapshot.version
        layout = self.blueprint.state
        layout.weights(state.weights)[:] = snapshot.block[: layout.weight_bytes]
        if layout.has_target:
            layout.begin_target(state.weights)
        self.bind(state.weights)

    def _publish(self) -> None:
        self.local_worker.set_weights(self.get_weights())

    def save_model(self, fname: str | Path) -> str:
        """Writes a checkpoint `fname`/<version>: weights as safetensors, the optimizer's state. Atomic; its path.

        Raises RecordError where there is one of this version already, or it cannot be written.
        """
        own = self.state
        views = own.learner.views(own.optimizer_state)
        episodes = int(views["counters"][Count.episodes])
        state = {"updates": self.actor_version, "mean_return": mean_return(views["returns"], episodes)}
        root = Path(fname)
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = "it is a file" if root.is_file() else error.strerror
            raise RecordError(f"`{root}` cannot hold checkpoints: {reason}", hint="name a folder") from None
        parts = {"weights": own.weights, "optimizer_state": own.optimizer_state}
        tensors = self.flat.arrays(self.blueprint.state.weights(own.weights))
        return str(write_checkpoint(root, self.actor_version, tensors=tensors, parts=parts, state=state))

    def update_algorithm_parameter(self, parameter_name: str, new_parameter_value: object) -> None:
        """Changes one hyper-parameter of the algorithm, and of the learner that steps its own state.

        Raises ConfigError, and changes nothing, for a name or a value that the algorithm does not take.
        """
        update_parameter(self.algo, parameter_name, new_parameter_value)  # type: ignore[arg-type]
        if self._collector is not None:
            update_parameter(self.state.learner, parameter_name, new_parameter_value)

    def stop(self) -> None:
        """Stops collecting and closes environments. Again does nothing."""
        self.col_workers.stop()

    def __enter__(self) -> GWorker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    # --- inside

    def _refuse_foreign(self, several: Sequence[Gradients]) -> None:
        """The learner reads all gradients of an update by one codec and one layout."""
        for one in several:
            if one.codec.name != several[0].codec.name:
                names = f"{several[0].codec.name} and {one.codec.name}"
                raise NetworkError(f"gradients of different compressions cannot be applied together: {names}")
            if one.layout != self.flat.parameters:
                raise NetworkError(
                    "these are not gradients of this network", hint=f"they are of {', '.join(one.names)}"
                )

    def _layout(self, codec: Codec, rollouts: int) -> Layout:
        collection = self.blueprint.config.collection
        return gradient_layout(
            self.flat.parameter_elements,
            len(self.flat.parameters),
            len(self.algo.statistics),
            rollouts * collection.rollout * collection.envs,
            codec,
            self.blueprint.observed,
        )

    def _slot_of(self, tensors: Sequence[Any]) -> Mapping[str, NDArray[Any]]:
        """A slot of one sample that holds these tensors."""
        flat, layout = self.flat, self._layout(PLAIN, 0)
        slot = layout.views(aligned_block(layout.bytes))
        clear(slot, self.actor_version)
        shapes = [tuple(getattr(tensor, "shape", ())) for tensor in tensors]
        if shapes != list(flat.shapes):
            raise NetworkError(f"these are {len(shapes)} gradients {shapes}, the network has {list(flat.shapes)}")
        for view, tensor in zip(flat.gradient_arrays(slot["gradient"]), tensors, strict=True):
            view[...] = tensor.detach().cpu().numpy() if isinstance(tensor, Tensor) else tensor
        slot["header"][SAMPLES] = 1
        slot["mask"][:] = 1
        return slot


def describe_gradient(algorithm: Algorithm, grads: Gradients, collected_with: int) -> Info:
    """Return a summary of a gradient, a new dictionary each time. Samples and episodes of a round are counted once.

    collected_with: the oldest version that its rollouts were made with.
    """
    header = grads.slot["header"].tolist()
    return {
        "Algorithm": dict(zip(algorithm.statistics, grads.slot["statistics"].tolist(), strict=False)),
        "Version": {"Collection": collected_with, "Gradient": grads.version_gradient},
        "NumberSamples": header[ENV_STEPS],
        "Episodes": {"TrainReward": grads.slot["episode_returns"][: header[EPISODES]].tolist()},
        "PolicyLag": grads.version_gradient - collected_with,
        "CompressionRatio": grads.plain_bytes / grads.sent_bytes,
    }


def compression_of(wanted: bool | str, configured: Codec) -> Codec:
    """The codec that `compress_grads_to_send` asks for. Raises TopologyError."""
    if wanted is False:
        return configured
    if wanted is True:
        return codec_for(DEFAULT_COMPRESSION) if configured.in_place else configured
    if not isinstance(wanted, str):
        raise TopologyError(f"compress_grads_to_send is {wanted!r}, and can be False, True or a name of a compression")
    return configured if wanted == configured.name else codec_for(wanted)
