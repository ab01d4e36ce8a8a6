"""GWorker: a gradient worker in library mode, with its collection workers, its algorithm and its weights.

    collector.get() ─> get_data() ─> get_grads() ─> Gradients ─> apply_gradients() ─> weights, version + 1
                       a batch       GradientWorker              Learner              └─> local_worker, for broadcasts

It is made of what a run is made of: GradientWorker computes, Learner applies, both on blocks. An algorithm makes S
gradients of a round, so every S-th get_data brings new rollouts, all of a round at once. Collection workers get weights
when the task broadcasts them, never between the minibatches of a round. One object, one thread at a time, but for
`actor_version`; the collection beside it only sees snapshots. PyTorchRL documents the class.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from hive.algorithms import Algorithm, update_parameter
from hive.errors import NetworkError, RecordError, TopologyError
from hive.gradients import PLAIN, SAMPLES, Codec, GradAccumulator, clear, codec_for, gradient_layout
from hive.networks import aligned_block
from hive.records import write_checkpoint
from hive.runtime import Layout
from hive.workers.c_worker import CollectedRollout, CWorker, CWorkerSet, Snapshot, snapshot_of
from hive.workers.collector_task import CollectorTask
from hive.workers.exchange import GradientExchange
from hive.workers.gradient_worker import GradientWorker
from hive.workers.learner import Learner, Turn, mean_return
from hive.workers.legality import check_device, check_modes
from hive.workers.storage import RoundStorage

__all__ = ["GWorker", "Gradients"]

DEFAULT_COMPRESSION = "bf16"  # of `compress_grads_to_send=True`: half of the bytes, and hardly an error

Info = dict[str, Any]


class Gradients(Sequence[Tensor]):
    """The gradients of one computation: a sequence of tensors float32, one for each parameter, in their order.

    slot: what was computed, as hive.gradients.blocks draws it; compressed where that was asked for, and then the
    tensors are what a receiver gets. sent_bytes: what the gradient takes there; plain_bytes: what it would as float32.
    """

    def __init__(self, worker: GradientWorker, layout: Layout, memory: NDArray[np.uint8], version: int) -> None:
        self.slot = layout.views(memory)
        self.codec: Codec = worker.codec
        self.names = worker.flat.names
        self.worker_id = worker.source
        self.version_gradient = version
        self.n_samples = int(self.slot["header"][SAMPLES])
        self.sent_bytes = self.codec.sent_bytes(self.slot)
        self.plain_bytes = worker.flat.parameter_bytes
        self._flat = worker.flat
        self._tensors: list[Tensor] | None = None

    @property
    def tensors(self) -> list[Tensor]:
        if self._tensors is None:
            elements, parameters = self._flat.parameter_elements, self._flat.describe()
            accumulator = GradAccumulator.for_slots(elements, 1, self.codec, parameters=parameters)
            accumulator.adopt(self.slot, self.n_samples)
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

    index_worker: its number; with the collection workers' own it decides their seeds.
    col_workers_factory: called with (device, initial_weights, index_worker), gives a CWorkerSet.
    col_communication, col_execution: hive.workers.legality says what goes together.
    compress_grads_to_send: False: as the config says; True: bf16, or what the config says; or "bf16", "fp16", "top-k".
    col_fraction_workers: share of the collection workers that ends a round, in (0, 1].
    initial_weights: a Snapshot or a mapping, as `set_weights` takes it.
    device: "cpu" or None.
    collects: False where others of its set collect; then there is no `collector`.

    Raises TopologyError for what does not go together.
    """

    def __init__(
        self,
        index_worker: int,
        col_workers_factory: Callable[..., CWorkerSet],
        col_communication: str = "synchronous",
        compress_grads_to_send: bool | str = False,
        col_execution: str = "Central",
        col_fraction_workers: float = 1.0,
        initial_weights: Snapshot | Mapping[str, Any] | None = None,
        device: str | None = None,
        *,
        collects: bool = True,
        broadcast_interval: int = 1,
    ) -> None:
        check_device(device)
        self.index_worker = index_worker
        self.iter = 0
        self.col_communication = col_communication
        self.compress_grads_to_send = compress_grads_to_send
        self.col_workers = col_workers_factory(device, initial_weights, index_worker)
        self.local_worker: CWorker = self.col_workers.local_worker()
        self.remote_workers = self.col_workers.remote_workers()
        modes = col_execution, col_communication, len(self.remote_workers), col_fraction_workers, broadcast_interval
        check_modes(*modes)
        blueprint = self.local_worker.blueprint
        codec = _codec(compress_grads_to_send, blueprint.codec)
        self.exchange: GradientExchange | None = None
        algorithm = blueprint.algorithm(alone=True)  # who collects for it, collects for nobody else
        self.worker = GradientWorker(
            blueprint.wrapper(), algorithm, seed=blueprint.config.run.seed, source=index_worker, codec=codec
        )
        self.actor = self.worker.network
        self.algo: Algorithm = self.worker.algorithm
        self.learner: Learner = blueprint.learner()
        self.storage = RoundStorage()
        self._begin(self.local_worker.get_weights())
        self.collector: CollectorTask | None = None
        if collects:
            self.collector = self._new_collector(col_execution, col_fraction_workers, broadcast_interval)
        self.inqueue = self.collector.queue if self.collector else None

    def _begin(self, snapshot: Snapshot) -> None:
        """Two blocks of weights and two of the learner's ledger, which take turns."""
        flat = self.local_worker.blueprint.flat
        self._refuse_not_finite(snapshot)
        self._version = snapshot.version
        self._weights = [aligned_block(flat.block_bytes) for _ in range(2)]
        self._ledgers = [aligned_block(self.learner.layout.bytes) for _ in range(2)]
        self._weights[0][:] = snapshot.block[: flat.block_bytes]
        self.worker.bind(self._weights[0])
        self._layouts: dict[str, Layout] = {}
        self._slot = np.zeros(0, np.uint8), self._layout(self.worker.codec, 0)
        self._sequence = 0
        self._last: Gradients | None = None

    def _new_collector(self, execution: str, fraction_workers: float, interval: int) -> CollectorTask:
        return CollectorTask(
            self.index_worker,
            self.local_worker,
            self.remote_workers,
            fraction_workers,
            self.col_communication,
            execution,
            interval,
            quota=self.col_workers.quota,
        )

    @property
    def actor_version(self) -> int:
        """Number of times the actor has been updated."""
        return self._version

    # --- one step

    def step(self, distribute_gradients: bool = False) -> tuple[Gradients, Info]:
        """get_data, then get_grads. Distributing, it applies the gradients of all peers too."""
        self.get_data()
        return self.get_grads(distribute_gradients)

    def get_data(self) -> dict[str, Any]:
        """The batch of the next gradient: the rollouts of a round, new ones when the last has had all its gradients.

        Raises what collection raises.
        """
        if not self.storage.left:
            if self.collector is None:
                raise RuntimeError(f"gradient worker {self.index_worker} has no collection workers of its own")
            self.storage.insert(self.collector.get(), self.algo.gradients_per_round)
        return {"rollouts": self.storage.rollouts, "sequence": self._sequence}

    def get_grads(self, distribute_gradients: bool = False) -> tuple[Gradients, Info]:
        """The next gradient of what get_data has brought, and what there is to say of it.

        Distributing, it is shared with all peers and an update is made of all of them, equal in every peer.
        """
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
        memory, layout = self._slot_for(len(rollouts))
        version = self._version
        self.worker.compute([one.data for one in rollouts], layout.views(memory), sequence=sequence, version=version)
        kept = aligned_block(len(memory))
        kept[:] = memory
        grads = self._last = Gradients(self.worker, layout, kept, version)
        info = self._info(grads, rollouts, sequence % self.algo.gradients_per_round == 0)
        info["Time"]["Gradient"] = time.perf_counter() - begun
        if distribute_gradients:
            everybody = [grads] if self.exchange is None else self.exchange.share(self.index_worker, grads)
            self.apply_gradients(everybody)
        return grads, info

    def apply_gradients(self, gradients: Gradients | Sequence[Any] | None = None) -> Turn:
        """One update. None: by the gradient computed last. A sequence of Gradients: by their mean, weighted by samples.

        A list of tensors: by these, one for each parameter. What is not finite changes nothing (`Turn.cause`).
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
        if codec != self.learner.codec:
            self.learner.use_codec(codec)
        turn = self.learner.turn(slots, self._weights[0], self._ledgers[0], self._weights[1], self._ledgers[1])
        self._weights.reverse()
        self._ledgers.reverse()
        self._version += turn.applied
        self.worker.bind(self._weights[0])
        self._publish()
        return turn

    # --- weights

    def get_weights(self) -> Snapshot:
        """What `set_weights` of another one takes."""
        return self.local_worker.get_weights()

    def set_weights(self, actor_weights: Snapshot | Mapping[str, Any]) -> None:
        """Goes on with these: a Snapshot, {"version": n, "weights": {name: tensor}}, or {name: tensor}.

        Raises NetworkError, and changes nothing, where they are not those of this network or not finite.
        """
        snapshot = snapshot_of(actor_weights, self.local_worker.blueprint, self._version)
        self._refuse_not_finite(snapshot)
        self._version = snapshot.version
        self._weights[0][:] = snapshot.block[: len(self._weights[0])]
        self.worker.bind(self._weights[0])
        self.local_worker.set_weights(snapshot)

    def _publish(self) -> None:
        block = self._weights[0].copy()
        block.flags.writeable = False
        self.local_worker.set_weights(Snapshot(self._version, block))

    def save_model(self, fname: str | Path) -> str:
        """Writes a checkpoint `fname`/<version>: weights as safetensors, the optimizer's state. Atomic; its path.

        Raises RecordError where there is one of this version already, or it cannot be written.
        """
        flat = self.local_worker.blueprint.flat
        views = self.learner.views(self._ledgers[0])
        state = {"updates": self._version, "mean_return": mean_return(views["returns"], int(views["counters"][3]))}
        root = Path(fname)
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = "it is a file" if root.is_file() else error.strerror
            raise RecordError(f"`{root}` cannot hold checkpoints: {reason}", hint="name a folder") from None
        parts = {"weights": self._weights[0], "ledger": self._ledgers[0]}
        tensors = flat.arrays(self._weights[0])
        return str(write_checkpoint(root, self._version, tensors=tensors, parts=parts, state=state))

    def update_algorithm_parameter(self, parameter_name: str, new_parameter_value: object) -> None:
        """Changes one hyper-parameter of the algorithm, here, in the optimizer and in all collection workers.

        Raises ConfigError, and changes nothing, for a name or a value that the algorithm does not take.
        """
        update_parameter(self.algo, parameter_name, new_parameter_value)  # type: ignore[arg-type]
        update_parameter(self.learner, parameter_name, new_parameter_value)
        for worker in (self.local_worker, *self.remote_workers):
            worker.update_algorithm_parameter(parameter_name, new_parameter_value)

    def stop(self) -> None:
        """Stops collecting: joins the task within its limit, closes environments. Again does nothing."""
        if self.exchange is not None:
            self.exchange.abort()
        if self.collector is not None:
            self.collector.stop()
        self.col_workers.stop()

    def __enter__(self) -> GWorker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    # --- inside

    def _refuse_not_finite(self, snapshot: Snapshot) -> None:
        flat = self.local_worker.blueprint.flat
        for name, values in zip(flat.names, flat.arrays(snapshot.block).values(), strict=False):
            if not np.isfinite(values).all():
                raise NetworkError(f"weights `{name}` are not finite; they were not set")

    def _refuse_foreign(self, several: Sequence[Gradients]) -> None:
        """The learner reads all gradients of an update by one codec and one layout."""
        for one in several:
            if one.codec.name != several[0].codec.name:
                names = f"{several[0].codec.name} and {one.codec.name}"
                raise NetworkError(f"gradients of different compressions cannot be applied together: {names}")
            if one._flat.parameters != self.worker.flat.parameters:
                raise NetworkError(
                    "these are not gradients of this network", hint=f"they are of {', '.join(one.names)}"
                )

    def _layout(self, codec: Codec, rollouts: int) -> Layout:
        blueprint = self.local_worker.blueprint
        episodes = rollouts * blueprint.config.collection.rollout * blueprint.config.collection.envs
        flat = self.worker.flat
        return gradient_layout(
            flat.parameter_elements,
            len(flat.parameters),
            len(self.algo.statistics),
            episodes,
            codec,
            blueprint.observed,
        )

    def _slot_for(self, rollouts: int) -> tuple[NDArray[np.uint8], Layout]:
        """The worker always sees the same memory, which it remembers; it grows with the rounds."""
        layout = self._layout(self.worker.codec, rollouts)
        if len(self._slot[0]) != layout.bytes:
            self._slot = aligned_block(layout.bytes), layout
        return self._slot

    def _slot_of(self, tensors: Sequence[Any]) -> Mapping[str, NDArray[Any]]:
        """A slot of one sample that holds these tensors."""
        flat = self.worker.flat
        slot = self._layout(PLAIN, 0).views(aligned_block(self._layout(PLAIN, 0).bytes))
        clear(slot, self._version)
        shapes = [tuple(getattr(tensor, "shape", ())) for tensor in tensors]
        if shapes != list(flat.shapes):
            raise NetworkError(f"these are {len(shapes)} gradients {shapes}, the network has {list(flat.shapes)}")
        for view, tensor in zip(flat.gradient_arrays(slot["gradient"]), tensors, strict=True):
            view[...] = tensor.detach().cpu().numpy() if isinstance(tensor, Tensor) else tensor
        slot["header"][SAMPLES] = 1
        slot["mask"][:] = 1
        return slot

    def _info(self, grads: Gradients, rollouts: Sequence[CollectedRollout], is_new: bool) -> Info:
        """A dictionary of its own each time; a round's samples and episodes are told once."""
        statistics = grads.slot["statistics"].tolist()
        versions = [one.version_collected for one in rollouts]
        returns = [value for one in rollouts for value in one.episodes[0].tolist()] if is_new else []
        return {
            "Algorithm": dict(zip(self.algo.statistics, statistics, strict=False)),
            "Version": {"Collection": min(versions, default=0), "Gradient": grads.version_gradient},
            "Time": {"Collection": sum(one.seconds for one in rollouts) if is_new else 0.0},
            "NumberSamples": sum(one.n_samples for one in rollouts) if is_new else 0,
            "Episodes": {"TrainReward": returns},
            "PolicyLag": grads.version_gradient - min(versions, default=grads.version_gradient),
            "CompressionRatio": grads.plain_bytes / grads.sent_bytes,
        }


def _codec(wanted: bool | str, configured: Codec) -> Codec:
    if wanted is False:
        return configured
    if wanted is True:
        return codec_for(DEFAULT_COMPRESSION) if configured.in_place else configured
    if not isinstance(wanted, str):
        raise TopologyError(f"compress_grads_to_send is {wanted!r}, and can be False, True or a name of a compression")
    return configured if wanted == configured.name else codec_for(wanted)
