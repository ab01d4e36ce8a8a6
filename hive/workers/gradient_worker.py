"""The gradient worker: turns one share of a round of rollouts into a gradient, in place.

    rollouts -> algorithm.steps -> forward -> loss -> backward -> one copy into the gradient slot

A synchronous object without ports. The weights are read where they lie (`bind`); the gradient enters its slot by one
copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hive.algorithms import Algorithm
from hive.gradients import SAMPLES, clear, put_episodes
from hive.networks import FlatParameters
from hive.runtime import Status
from hive.storage import Purpose, Rollout, stream_seed

__all__ = ["GWorker"]

Arrays = Mapping[str, NDArray[Any]]


class GWorker:
    """Computes gradients of `network` by `algorithm`. `source` is its number in the run."""

    def __init__(
        self,
        network: torch.nn.Module,
        algorithm: Algorithm,
        *,
        seed: int,
        source: int = 0,
        status: Status | None = None,
    ) -> None:
        self.network = network
        self.flat = FlatParameters(network)
        self.algorithm = algorithm
        self.seed = seed
        self.source = source
        self.status = status
        self.phase = status.phase("gradient") if status else 0

    def bind(self, weights: NDArray[np.uint8]) -> None:
        """Computes with these weights from now on; they are read in place."""
        seen = weights.view()
        seen.flags.writeable = False  # what others read is never written: buffers are copied, parameters read in place
        self.flat.bind(seen)

    def compute(self, rollouts: Sequence[Arrays], out: Arrays, *, sequence: int, version: int) -> None:
        """Writes the gradient of these rollouts into the slot `out` (hive.gradients.blocks draws it)."""
        if self.status:
            self.status.enter(self.phase)
        views = [Rollout(arrays) for arrays in rollouts]
        clear(out, version)
        put_episodes(out, [view.episodes() for view in views])
        torch.default_generator.manual_seed(stream_seed(self.seed, Purpose.training_forward, self.source, sequence))
        for step in self.algorithm.steps(views):
            loss = step.loss(self.network(step.inputs))
            self.flat.release_gradients()
            torch.autograd.backward(loss.total)
            out["mask"][:] = self.flat.gradient(out["gradient"])
            out["statistics"][: len(loss.statistics)] = loss.statistics
            out["header"][SAMPLES] = step.samples
        if self.status:
            self.status.enter(self.status.runtime)
