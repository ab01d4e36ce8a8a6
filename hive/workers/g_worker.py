"""GWorker computes the gradients of one share of the rounds. The gradient worker's actor wraps it.

    rollouts -> algorithm.gradients -> forward, loss, backward -> one copy into the gradient slot

A GWorker is a synchronous object without ports. Its networks are the online and target copies of a NetworkWrapper,
which read the learner's state in place (`bind`). An algorithm makes S gradients of a round, each on its own version of
the weights; gradient g is number g mod S of round g // S. A gradient that cannot be made has zero samples, so no number
is ever missing: that of a share without samples, or of a round that a killed worker began. A gradient that is not
finite is marked in its header and never applied; `slot.on_not_finite` is called while its inputs still exist.

In a run the actor calls `bind` and `compute`, and rollouts arrive through a port. In a script the object has its own
collectors, and the interface that PyTorchRL documents:

    collector.queue -> get_data() -> get_grads() -> Gradients -> apply_gradients() -> weights, version + 1

`apply_gradients` makes one turn of the learner on the worker's own blocks (hive.workers.replica). Collectors receive
weights when the collection broadcasts them, never between two gradients of a round. Nothing here starts a thread.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, cast, overload

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from hive.algorithms.algorithm import Algorithm, Moments
from hive.algorithms.algorithm import Gradients as AlgorithmGradients
from hive.algorithms.parameters import update_parameter
from hive.approximation import SharedTarget
from hive.config.refusals import IN_SCRIPTS
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
from hive.networks.flat import aligned_block
from hive.networks.normalization import moments_of, observed_elements, scaled_rewards
from hive.records import JSON, write_checkpoint
from hive.runtime import Layout, Status
from hive.runtime.process.free_memory import size_text
from hive.storage import Purpose, Rollout, stream
from hive.workers.blueprint import Blueprint
from hive.workers.devices import device_errors, seed_forward
from hive.workers.gradient_slot import GradientSlot
from hive.workers.learner import Count, LearnerStep, mean_return
from hive.workers.observed import observe
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

SMALLER = "more algorithm.minibatches, fewer collection.envs, a shorter collection.rollout"
DEFAULT_COMPRESSION = "bf16"  # codec of `compress_grads_to_send=True`: half the bytes at a relative error below 1 %

Arrays = Mapping[str, NDArray[Any]]
Info = dict[str, Any]


class CollectionWorker(Protocol):
    """Protocol of an object that holds the weights of collectors: hive.facades.CWorker."""

    @property
    def actor_version(self) -> int: ...

    def get_weights(self) -> Snapshot: ...

    def set_weights(self, actor_weights: Snapshot | Mapping[str, Any]) -> None: ...

    def update_algorithm_parameter(self, parameter_name: str, new_parameter_value: object) -> None: ...


class CollectionTask(Protocol):
    """Protocol of an object that delivers rollouts: hive.facades.CollectorThread."""

    queue: queue.Queue[list[CollectedRollout]]

    def get(self) -> list[CollectedRollout]:
        """Return the oldest collection step in the queue; if it is empty, make one."""


class CollectionWorkers(Protocol):
    """Protocol of the collectors of one GWorker: hive.facades.CWorkerSet."""

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
    """Stands for the collectors of a run, which are other actors and send rollouts through a port."""

    blueprint: Blueprint

    def local_worker(self) -> CollectionWorker:
        raise TopologyError("the collectors of this gradient worker are other actors of its run")

    def remote_workers(self) -> Sequence[CollectionWorker]:
        return []

    def task(self, *_: Any) -> CollectionTask:
        raise TopologyError("the collectors of this gradient worker are other actors of its run")

    def stop(self) -> None:
        """Do nothing: the run stops its collectors."""


class Gradients(Sequence[Tensor]):
    """One gradient as a sequence of float32 tensors, one for each parameter of the network, in the network's order.

    slot: the gradient as laid out in hive.gradients.blocks, compressed if the worker compresses; the tensors are then
    decoded from it, as a receiver does. version_gradient: version of the weights it was computed with. n_samples: the
    number of samples it is the mean of. sent_bytes: its size in the slot. plain_bytes: its size as float32.
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
        """The decoded tensors, float32 on the CPU, computed on first access."""
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
    """Computes gradients of rollouts. `GWorker.of_run(blueprint, 0)` is that of a run, with `bind` and `compute`.

    With the constructor's arguments it is the class of PyTorchRL, which also collects and applies (hive.compat).


    index_worker: its number; together with the collectors' numbers it determines their seeds.
    col_workers_factory: a function of (device, initial_weights, index_worker) that returns the CollectionWorkers.
    col_communication, col_execution: modes of collection; hive.workers.validate_modes lists the valid combinations.
    compress_grads_to_send: False: the codec of the config; True: the same, or bf16 if it is "none"; or a codec's name.
    col_fraction_workers: fraction of the collectors that must finish before a round ends, in (0, 1].
    initial_weights: a Snapshot or a mapping, as for `set_weights`. device: "cpu" or None; the config has the device of
        gradients.
    broadcast_interval: collection steps between two broadcasts of the weights.
    algorithm: default: the blueprint's, sharing no rounds with other workers. status: the status page for its phases.

    Raises TopologyError for an invalid combination of modes, and for an algorithm that learns from a replay memory.
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
        self.networks = self.blueprint.wrapper(self.blueprint.device)
        self.actor = self.networks.online_network.module
        self.flat = self.networks.online_network.flat
        self.slot = GradientSlot(self.flat, self.codec, self.blueprint.threads)
        self.algo: Algorithm = algorithm or cast(Algorithm, self.blueprint.algorithm(alone=True))
        if not hasattr(self.algo, "gradients"):
            raise TopologyError(f"{self.blueprint.config.algorithm.name} {IN_SCRIPTS.reason}", hint=IN_SCRIPTS.instead)
        target = self.networks.target_network
        shared = SharedTarget(self.actor, target.module, self.slot.device) if target else None
        self.algo.connect(self.actor, self.slot, shared)
        self.status = status
        self._phase = status.phase("gradient") if status else 0
        self._noise: np.random.Generator | None = None  # random stream of the round in progress
        self._round: tuple[int, AlgorithmGradients] | None = None  # round in progress and the gradients left of it
        self._rollouts: Sequence[Rollout] = ()  # rollouts of the round in progress
        self.storage = RoundStorage()
        self._initial_weights = initial_weights
        self._own_state: Replica | None = None
        self._version = 0  # version of the weights of the last gradient
        self._slots: dict[int, tuple[NDArray[np.uint8], Layout]] = {}
        self._sequence = 0
        self._last: Gradients | None = None

    @classmethod
    def of_run(cls, blueprint: Blueprint, index_worker: int, status: Status | None = None) -> GWorker:
        """Make gradient worker `index_worker` of a run, which shares its rounds with the other gradient workers."""
        elsewhere = CollectorsElsewhere(blueprint)
        return cls(index_worker, lambda *_: elsewhere, algorithm=cast(Algorithm, blueprint.algorithm()), status=status)

    # --- gradients, as in a run

    def bind(self, state: NDArray[np.uint8]) -> None:
        """Compute with this block of the learner's state from now on: uint8 [state.bytes], read in place."""
        self.networks.bind(state)
        self.slot.rebound()

    def clear_residual(self) -> None:
        """Discard the codec's residual, at a resume barrier: checkpoints do not contain it."""
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
        """Write gradient `sequence` into the slot `out` (layout: hive.gradients.blocks).

        rollouts: those of its round. version: that of the bound state. moments: mean and standard deviation of the
        round over all workers, passed with the gradient after the one that yielded Moments.
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
            seed_forward(self.seed, self.index_worker, sequence, self.slot.device)
            self._advance(self._round[1], out, moments)
            if step == self.algo.gradients_per_round - 1:
                self._observe(out)
        if self.status:
            self.status.enter(self.status.runtime)

    def _begin(self, number: int, views: list[Rollout], out: Arrays) -> None:
        put_episodes(out, [view.episodes() for view in views], [view.episode_infos() for view in views])
        samples = sum(view.samples for view in views)
        out["header"][ENV_STEPS] = samples
        out["header"][POLICY] = min((view.version for view in views), default=-1)
        self._round = None
        if samples:
            for view in views:
                view.lagged = self.blueprint.is_lagged(number, view.version)
            self._scale_rewards(views)
            self._noise = stream(self.seed, Purpose.minibatches, self.index_worker, number, self._noise)
            self._round, self._rollouts = (number, self.algo.gradients(views, self._noise)), views

    def _observe(self, out: Arrays) -> None:
        """Add the statistics of the round to its last gradient: one normalisation holds for a round."""
        for view in self._rollouts:
            observe(view, self.blueprint.environment.observation, out)

    def _scale_rewards(self, views: Sequence[Rollout]) -> None:
        """Normalises the rewards of the round by the statistics of the weights that are bound."""
        if (normalizer := getattr(self.actor, "reward_normalizer", None)) is None:
            return
        own = np.zeros(observed_elements(()))
        for view in views:
            assert view.discounted is not None
            moments_of(view.discounted[view.valid != 0], own)
        for view in views:
            view.rewards = scaled_rewards(view.rewards, normalizer.seen.cpu().numpy(), own)

    def _advance(self, gradients: AlgorithmGradients, out: Arrays, moments: tuple[float, float] | None) -> None:
        """Run the algorithm to its next yield, which makes the next gradient; a finished algorithm makes none."""
        self.slot.open(out, self._rollouts)
        try:
            with device_errors(self.slot.device, self._describe, SMALLER):
                made = next(gradients, None) if moments is None else gradients.send(moments)
        except StopIteration:
            made = None
        finally:
            self.slot.close()
        if isinstance(made, Moments):
            out["moments"][:] = made.count, made.total, made.squares

    def _describe(self) -> str:
        """Describe the work of a gradient and its sizes."""
        rows = sum(prod(rollout.observations.shape[:2]) for rollout in self._rollouts)
        each = self._rollouts[0].observations[0, 0].nbytes
        parameters = size_text(self.flat.parameter_bytes)
        return f"a gradient of {rows:,} observations of {each:,} bytes by a network of {parameters}"

    # --- with its own collectors, in a script

    @property
    def local_worker(self) -> CollectionWorker:
        """The collection worker that holds the newest weights."""
        return self.col_workers.local_worker()

    @property
    def remote_workers(self) -> Sequence[CollectionWorker]:
        """The collection workers of a parallel collection; empty for a central one."""
        return self.col_workers.remote_workers()

    @property
    def collector(self) -> CollectionTask | None:
        """The task that delivers rollouts; None in a run."""
        return self._collector

    @property
    def inqueue(self) -> queue.Queue[list[CollectedRollout]] | None:
        """The queue of collection steps not yet used; None in a run."""
        return None if self._collector is None else self._collector.queue

    @property
    def state(self) -> Replica:
        """The weights and the optimizer state that `apply_gradients` updates, made on first access.

        Raises RuntimeError in a run, where the learner owns them.
        """
        if self._collector is None:
            raise RuntimeError(f"the weights of gradient worker {self.index_worker} belong to the learner of its run")
        if self._own_state is None:
            self._own_state = own = self.blueprint.replica()
            own.begin(self.blueprint.initialize)
            self.bind(own.weights)
            if self._initial_weights is not None:
                self.set_weights(self._initial_weights)
        return self._own_state

    @property
    def actor_version(self) -> int:
        """Number of updates of the weights; in a run, the version of the weights of the last gradient."""
        return self._version if self._collector is None else self.state.turn

    def step(self, distribute_gradients: bool = False) -> tuple[Gradients, Info]:
        """Call `get_data`, then `get_grads`. `distribute_gradients`: apply the gradient too, as there are no peers."""
        self.get_data()
        return self.get_grads(distribute_gradients)

    def get_data(self) -> dict[str, Any]:
        """Return the batch of the next gradient: {"rollouts": list[CollectedRollout], "sequence": int}.

        A round's batch is returned for each of its gradients, then a new round is collected. Raises what collection
        raises, and RuntimeError in a run.
        """
        if not self.storage.left:
            if self._collector is None:
                raise RuntimeError(f"gradient worker {self.index_worker} receives its rollouts through its run")
            self._publish()
            self.storage.insert(self._collector.get(), self.algo.gradients_per_round)
        return {"rollouts": self.storage.rollouts, "sequence": self._sequence}

    def get_grads(self, distribute_gradients: bool = False) -> tuple[Gradients, Info]:
        """Compute the next gradient of the batch of `get_data`, and return it with a summary (`describe_gradient`)."""
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
        version = self.actor_version  # the first access makes and binds the state
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
        """Make one update and return its LearnerStep.

        gradients: None: the gradient computed last; Gradients or a sequence of them: their mean, weighted by samples; a
        sequence of tensors, one for each parameter: these. A gradient that is not finite changes nothing, and `cause`
        of the LearnerStep names it. Raises RuntimeError before the first gradient, and NetworkError for an empty
        sequence and for gradients of another network or of different codecs.
        """
        given = self._last if gradients is None else gradients
        if given is None:
            raise RuntimeError("no gradient has been computed yet: call step() or get_grads() first")
        several = [given] if isinstance(given, Gradients) else list(given)
        if not several:
            raise NetworkError("the sequence of gradients is empty", hint="pass None for the gradient computed last")
        if all(isinstance(one, Gradients) for one in several):
            self._check_compatible(several)
            slots, codec = [one.slot for one in several], several[0].codec
        else:
            slots, codec = [self._slot_of(several)], PLAIN
        turn = self.state.apply(slots, codec)
        self.bind(self.state.weights)
        return turn

    # --- weights

    def get_weights(self) -> Snapshot:
        """Return a copy of the weights, which `set_weights` of another worker accepts."""
        return Snapshot.of(self.actor_version, self.blueprint.state.weights(self.state.weights))

    def set_weights(self, actor_weights: Snapshot | Mapping[str, Any]) -> None:
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

    def _publish(self) -> None:
        self.local_worker.set_weights(self.get_weights())

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
            "info": list[JSON](self.blueprint.config.env.info),
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
        """Change one hyper-parameter of the algorithm, and in a script of the learner that updates its weights.

        Raises ConfigError, and changes nothing, if the algorithm has no such parameter or the value is invalid.
        """
        update_parameter(self.algo, parameter_name, new_parameter_value)  # type: ignore[arg-type]
        if self._collector is not None:
            update_parameter(self.state.learner, parameter_name, new_parameter_value)

    def stop(self) -> None:
        """Stop collecting and close the environments. Further calls do nothing."""
        self.col_workers.stop()

    def __enter__(self) -> GWorker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    # --- inside

    def _check_compatible(self, several: Sequence[Gradients]) -> None:
        """Raise NetworkError unless all gradients have one codec and this network's layout."""
        for one in several:
            if one.codec.name != several[0].codec.name:
                names = f"{several[0].codec.name} and {one.codec.name}"
                raise NetworkError(f"gradients of different compressions cannot be applied together: {names}")
            if one.layout != self.flat.parameters:
                raise NetworkError(
                    "the gradients are of another network", hint=f"its parameters are {', '.join(one.names)}"
                )

    def _layout(self, codec: Codec, rollouts: int) -> Layout:
        collection = self.blueprint.config.collection
        return gradient_layout(
            self.flat.parameter_elements,
            len(self.flat.parameters),
            len(self.algo.statistics),
            rollouts * collection.rollout * collection.envs,
            codec,
            len(self.blueprint.config.env.info),
            self.blueprint.normalized,
        )

    def _slot_of(self, tensors: Sequence[Any]) -> Mapping[str, NDArray[Any]]:
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


def describe_gradient(algorithm: Algorithm, grads: Gradients, collected_with: int) -> Info:
    """Return a summary of a gradient, a new dictionary. A round's samples and episodes are in its first gradient only.

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
    """Return the codec that `compress_grads_to_send` selects. Raises TopologyError for an unknown value."""
    if wanted is False:
        return configured
    if wanted is True:
        return codec_for(DEFAULT_COMPRESSION) if configured.in_place else configured
    if not isinstance(wanted, str):
        raise TopologyError(f"compress_grads_to_send is {wanted!r}: expected False, True or the name of a codec")
    return configured if wanted == configured.name else codec_for(wanted)
