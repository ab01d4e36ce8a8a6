"""The gradient worker: turns one share of a round of rollouts into gradients, in place.

    rollouts -> algorithm.gradients -> forward, loss, backward -> one copy into the gradient slot

A synchronous object without ports. Its networks are the online and target copies of a NetworkWrapper, which read the
learner's state where it lies (`bind`). An algorithm makes S gradients of a round, each on its own version of the weights;
gradient g is number g mod S of round g // S. What it cannot make (a share without samples, a round that a killed worker
began) is a gradient of zero samples: the numbers stay whole. One that is not finite is noted in its header and never
applied; `on_not_finite` is called while all that made it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hive.algorithms import Algorithm, Gradients, Moments
from hive.approximation import SharedTarget
from hive.gradients import ENV_STEPS, PLAIN, POLICY, Codec, clear, put_episodes
from hive.networks import NetworkWrapper, SharedNetwork, moments_of
from hive.runtime import Status
from hive.storage import Purpose, Rollout, stream, stream_seed
from hive.workers.gradient_slot import GradientSlot
from hive.workers.numerics import Finding

__all__ = ["GradientWorker"]

Arrays = Mapping[str, NDArray[Any]]


class GradientWorker:
    """Computes gradients of the networks of `wrapper` by `algorithm`. `source` is its number in the run."""

    def __init__(
        self,
        wrapper: NetworkWrapper,
        algorithm: Algorithm,
        *,
        seed: int,
        source: int = 0,
        codec: Codec = PLAIN,
        status: Status | None = None,
    ) -> None:
        self.wrapper = wrapper
        self.network = wrapper.online_network.module
        self.flat = wrapper.online_network.flat
        self.slot = GradientSlot(self.flat, codec)
        target = None
        if wrapper.target_network is not None:
            target = SharedTarget(self.network, wrapper.target_network.module)
        algorithm.connect(self.network, self.slot, target)
        self.codec = codec
        self.algorithm = algorithm
        self.seed = seed
        self.source = source
        self.status = status
        self.phase = status.phase("gradient") if status else 0
        self._noise: np.random.Generator | None = None  # of the round in progress
        self._round: tuple[int, Gradients] | None = None  # the round in progress and what is left of it
        self._rollouts: Sequence[Rollout] = ()  # what it is made of

    @property
    def on_not_finite(self) -> Callable[[Finding, NDArray[np.int64]], None]:
        """Called with the cause and the header of a gradient that is not finite."""
        return self.slot.on_not_finite

    @on_not_finite.setter
    def on_not_finite(self, call: Callable[[Finding, NDArray[np.int64]], None]) -> None:
        self.slot.on_not_finite = call

    @property
    def residual(self) -> NDArray[np.float32]:
        """What the codec has kept back so far."""
        return self.slot.residual

    def bind(self, state: NDArray[np.uint8]) -> None:
        """Computes with this block of the learner's state from now on; it is read in place."""
        assert isinstance(self.wrapper.global_network, SharedNetwork)
        self.wrapper.global_network.at(state)
        self.wrapper.update_online_network()
        self.slot.rebound()

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
            if "observed" in out and step == self.algorithm.gradients_per_round - 1:
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
            self._noise = stream(self.seed, Purpose.minibatches, self.source, number, self._noise)
            self._round, self._rollouts = (number, self.algorithm.gradients(views, self._noise)), views

    def _observe(self, out: NDArray[np.float64]) -> None:
        """What the rollouts of the round saw: with its last gradient, so that a round is of one normalisation."""
        for view in self._rollouts:
            moments_of(view.observations[: view.length][view.valid != 0], out)

    def _advance(self, gradients: Gradients, out: Arrays, moments: tuple[float, float] | None) -> None:
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
