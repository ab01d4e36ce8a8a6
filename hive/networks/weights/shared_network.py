"""The global network of a run. It has no module: its weights are the blocks of the learner's state.

    learner                                    workers
    between(block v, block v + 1, moments)     at(block v)
    apply(gradient)   v -> v + 1               -> online and target networks are bound to it

It owns no memory. `apply` reads version v and writes v + 1, so version v stays intact if the learner is killed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hive.errors import NetworkError
from hive.networks.weights.clipping import clip_factor
from hive.networks.weights.flat import keep_frozen
from hive.networks.weights.groups import GroupUpdate
from hive.networks.weights.optimizers import FlatOptimizer, OptimizerSettings
from hive.networks.weights.state import StateLayout

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


class Version(NamedTuple):
    """A block of the state, uint8 [bytes], and its optimizer moments, each float32 [parameter_elements]."""

    block: Bytes
    moments: Sequence[Floats] = ()


class SharedNetwork:
    """The weights of the current version and, during an update, those of the next.

    layout: the layout of a state block. settings: the optimizer. clip_gradients: the greatest norm of a gradient; 0: no
        clipping.
    """

    def __init__(self, layout: StateLayout, settings: OptimizerSettings, clip_gradients: float = 0.0) -> None:
        self.layout = layout
        self.configure(settings, clip_gradients)
        self._now: Version | None = None
        self._next: Version | None = None

    def configure(self, settings: OptimizerSettings, clip_gradients: float) -> None:
        """Sets optimizer and clipping from the next update on. The number of moment arrays must not change."""
        self.optimizer = FlatOptimizer(settings)
        self.clip_gradients = clip_gradients

    def at(self, block: Bytes) -> None:
        """Makes `block`, uint8 [bytes], the current version."""
        self._now, self._next = Version(block), None

    def between(self, now: Version, following: Version) -> None:
        """Begins an update that reads `now` and writes `following`."""
        self._now, self._next = now, following

    @property
    def block(self) -> Bytes:
        """The block of the current version, uint8 [bytes]. Raises NetworkError before the first `at` or `between`."""
        if self._now is None:
            raise NetworkError("the global network has no block yet", hint="call at(block), which a run does")
        return self._now.block

    def apply(self, gradient: Floats, updates: Sequence[GroupUpdate]) -> bool:
        """Clip the gradient and step from the current block to the next. Return whether all results are finite.

        gradient: float32 [parameter_elements], finite. updates: of ranges that together are the whole vector. Each
        is clipped by its own norm; groups of step 0 are copied unchanged, as are buffers, advantage moments and frozen
        parameters; `follow` writes the target. Raises NetworkError outside of an update.
        """
        now, following = self._versions()
        layout = self.layout
        finite = True
        weights, new_weights = layout.parameters(now.block), layout.parameters(following.block)
        for elements, norm, step, learning_rate in updates:
            old = [block[elements] for block in now.moments]
            new = [block[elements] for block in following.moments]
            if not step:
                for before, after in zip((weights[elements], *old), (new_weights[elements], *new), strict=True):
                    after[:] = before
                continue
            finite &= self.optimizer.step(
                weights[elements],
                new_weights[elements],
                gradient[elements],
                old,
                new,
                step=step,
                learning_rate=learning_rate,
                gradient_scale=clip_factor(norm, self.clip_gradients),
            )
        keep_frozen(layout.frozen, [weights, *now.moments], [new_weights, *following.moments])
        if finite:
            size = layout.flat.parameter_bytes
            following.block[size : layout.weight_bytes] = now.block[size : layout.weight_bytes]
            layout.moments(following.block)[:] = layout.moments(now.block)
        return finite

    def keep(self) -> None:
        """Copies the current version to the next, for an update without a gradient. Does not write the target."""
        now, following = self._versions()
        following.block[: self.layout.weight_bytes] = now.block[: self.layout.weight_bytes]
        for old, new in zip(now.moments, following.moments, strict=True):
            new[:] = old
        self.layout.moments(following.block)[:] = self.layout.moments(now.block)

    def follow(self, rate: float, version: int) -> None:
        """Sets the target of the next version to rate * its weights + (1 - rate) * the current target.

        rate: from 0 to 1; 0 keeps the target. version: the new target's version, greater than all before; not used
        with rate 0. Raises NetworkError outside of an update.
        """
        now, following = self._versions()
        self.layout.follow(now.block, following.block, rate, version)

    def _versions(self) -> tuple[Version, Version]:
        if self._now is None or self._next is None:
            raise NetworkError("no update of the global network has begun", hint="call between(now, following)")
        return self._now, self._next
