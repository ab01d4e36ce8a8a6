"""Gradients: one gradient of a GWorker, and its summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from torch import Tensor

from hive.algorithms.algorithm import Algorithm
from hive.errors import TopologyError
from hive.gradients import ENV_STEPS, EPISODES, SAMPLES, Codec, GradAccumulator, codec_for
from hive.networks.weights.flat import FlatParameters
from hive.runtime.memory.segments import Arrays

DEFAULT_COMPRESSION = "bf16"  # codec of `compress_grads_to_send=True`: half the bytes at a relative error below 1 %

Info = dict[str, Any]


class Gradients(Sequence[Tensor]):
    """One gradient as a sequence of float32 tensors, one for each parameter of the network, in the network's order.

    slot: the gradient as laid out in hive.gradients.blocks, compressed if the worker compresses; the tensors are then
    decoded from it, as a receiver does. worker_id: number of its worker. version_gradient: version of the weights it
    was computed with. n_samples: the number of samples it is the mean of. sent_bytes: its size in the slot.
    plain_bytes: its size as float32.
    """

    def __init__(self, slot: Arrays, codec: Codec, flat: FlatParameters, worker_id: int, version: int) -> None:
        self.slot = slot
        self.codec = codec
        self.names = flat.names
        self.worker_id = worker_id
        self.version_gradient = version
        self.n_samples = int(slot["header"][SAMPLES])
        self.sent_bytes = codec.sent_bytes(slot)
        self.plain_bytes = flat.parameter_bytes
        self.layout = flat.parameters
        self._described = flat.parameter_elements, flat.describe()
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

    def describe(self, algorithm: Algorithm, collected_with: int) -> Info:
        """Return a summary, a new dictionary. A round's samples and episodes are in its first gradient only.

        algorithm: the one that made it. collected_with: the oldest version that its rollouts were made with.
        """
        header = self.slot["header"].tolist()
        return {
            "Algorithm": dict(zip(algorithm.statistics, self.slot["statistics"].tolist(), strict=False)),
            "Version": {"Collection": collected_with, "Gradient": self.version_gradient},
            "NumberSamples": header[ENV_STEPS],
            "Episodes": {"TrainReward": self.slot["episode_returns"][: header[EPISODES]].tolist()},
            "PolicyLag": self.version_gradient - collected_with,
            "CompressionRatio": self.plain_bytes / self.sent_bytes,
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
