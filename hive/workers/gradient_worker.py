"""The gradient worker: turns one share of a round of rollouts into gradients, in place.

    rollouts -> algorithm.steps -> forward -> loss -> backward -> one copy into the gradient slot

A synchronous object without ports. The weights are read where they lie (`bind`). The gradient enters its slot by one
copy, or compressed (hive.gradients.codecs): what that keeps back lies here. An algorithm makes S gradients of a round,
each on its own version of the weights; gradient g is number g mod S of round g // S. What it cannot make (a share
without samples, a round that a dead worker began) is a gradient of zero samples: the numbers stay whole. One that is
not finite says so in its header and is never applied; `on_not_finite` hears of it while all that made it is there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hive import _native
from hive.algorithms import Algorithm, Evaluate, Moments, Step, Steps
from hive.gradients import CAUSE, CAUSES, ENV_STEPS, PLAIN, POLICY, SAMPLES, Codec, clear, put_episodes
from hive.networks import FlatParameters, aligned_block
from hive.runtime import Status
from hive.storage import Purpose, Rollout, stream, stream_seed
from hive.workers.numerics import Finding, find

__all__ = ["GradientWorker"]

Arrays = Mapping[str, NDArray[Any]]


class GradientWorker:
    """Computes gradients of `network` by `algorithm`. `source` is its number in the run."""

    def __init__(
        self,
        network: torch.nn.Module,
        algorithm: Algorithm,
        *,
        seed: int,
        source: int = 0,
        codec: Codec = PLAIN,
        status: Status | None = None,
    ) -> None:
        self.network = network
        self.flat = FlatParameters(network)
        self.codec = codec
        self.residual = codec.residual(self.flat.parameter_elements)
        """What the codec has kept back so far."""
        elements = 0 if codec.in_place else self.flat.parameter_elements
        self._gradient = aligned_block(4 * elements).view(np.float32)  # before it is compressed
        self.algorithm = algorithm
        self.seed = seed
        self.source = source
        self.status = status
        self.phase = status.phase("gradient") if status else 0
        self._noise: np.random.Generator | None = None  # of the round in progress
        self._round: tuple[int, Steps] | None = None  # the round in progress and the steps that are left of it
        self._rollouts: Sequence[Rollout] = ()  # what it is made of
        self.on_not_finite: Callable[[Finding, NDArray[np.int64]], None] = lambda finding, header: None

    def bind(self, weights: NDArray[np.uint8]) -> None:
        """Computes with these weights from now on; they are read in place."""
        self.flat.bind(weights, read_only=True)

    def let_go(self) -> None:
        """Forgets what the codec has kept back, at a cut."""
        self.residual[:] = 0.0

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
            self.status.enter(self.phase)
        number, step = divmod(sequence, self.algorithm.gradients_per_round)
        clear(out, version, sequence)
        if step == 0:
            self._begin(number, [Rollout(arrays) for arrays in rollouts], out)
        if self._round is not None and self._round[0] == number:
            torch.default_generator.manual_seed(stream_seed(self.seed, Purpose.training_forward, self.source, sequence))
            self._advance(self._round[1], out, moments)
        if self.status:
            self.status.enter(self.status.runtime)

    def _begin(self, number: int, views: list[Rollout], out: Arrays) -> None:
        put_episodes(out, [view.episodes() for view in views])
        samples = sum(view.samples for view in views)
        out["header"][ENV_STEPS] = samples
        out["header"][POLICY] = min((view.version for view in views), default=-1)
        self._round = None
        if samples:
            self._noise = stream(self.seed, Purpose.minibatches, self.source, number, self._noise)
            self._round, self._rollouts = (number, self.algorithm.steps(views, self._noise)), views

    def _advance(self, steps: Steps, out: Arrays, moments: tuple[float, float] | None) -> None:
        item = next(steps, None) if moments is None else steps.send(moments)
        while isinstance(item, Evaluate):
            with torch.no_grad():
                item = steps.send(self.network(item.inputs))
        if isinstance(item, Moments):
            out["moments"][:] = item.count, item.total, item.squares
        elif isinstance(item, Step) and item.samples:
            self._differentiate(item, out)

    def _differentiate(self, step: Step, out: Arrays) -> None:
        loss = step.loss(self.network(step.inputs))
        self.flat.release_gradients()
        torch.autograd.backward(loss.total)
        gradient = out["gradient"] if self.codec.in_place else self._gradient
        out["mask"][:] = self.flat.gradient(gradient)
        out["statistics"][: len(loss.statistics)] = loss.statistics
        out["header"][SAMPLES] = step.samples
        if not (_native.norm_and_finite(gradient)[1] and math.isfinite(loss.total.item())):
            finding = find(self.flat, self._rollouts, step.inputs, loss, gradient)
            out["header"][CAUSE] = CAUSES.index(finding.cause)
            self.codec.clear(out)
            self.on_not_finite(finding, out["header"])
        elif not self.codec.in_place:
            self.codec.encode(gradient, out, self.residual)
