"""The global network of a run: not a module of its own, but the blocks of the learner's state.

    learner                                    workers
    between(block v, block v + 1, moments)     at(block v)
    apply(gradient)   v -> v + 1               -> online and target networks are bound to it

It owns no memory. `apply` reads version v and writes v + 1, so a learner that is killed has spoilt nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hive.errors import NetworkError
from hive.networks.clipping import clip_factor
from hive.networks.optimizers import FlatOptimizer, OptimizerSettings
from hive.networks.state import StateLayout

__all__ = ["SharedNetwork", "Version"]

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


class Version(NamedTuple):
    """A block of the state, and the optimizer's moments of the same version, each float32 [parameter_elements]."""

    block: Bytes
    moments: Sequence[Floats] = ()


class SharedNetwork:
    """The weights of a version, and while an update is made also those of the next.

    clip_gradients: the greatest norm of a gradient; 0: no clipping.
    """

    def __init__(self, layout: StateLayout, settings: OptimizerSettings, clip_gradients: float = 0.0) -> None:
        self.layout = layout
        self.configure(settings, clip_gradients)
        self._now: Version | None = None
        self._next: Version | None = None

    def configure(self, settings: OptimizerSettings, clip_gradients: float) -> None:
        """Steps by these from the next update on. They need as many moments as those before."""
        self.optimizer = FlatOptimizer(settings)
        self.clip_gradients = clip_gradients

    def at(self, block: Bytes) -> None:
        """This block is the present version."""
        self._now, self._next = Version(block), None

    def between(self, now: Version, following: Version) -> None:
        """An update leads from `now` to `following`."""
        self._now, self._next = now, following

    @property
    def block(self) -> Bytes:
        """The block of the present version. Raises NetworkError before there is one."""
        if self._now is None:
            raise NetworkError("the global network has no block yet", hint="at(block), which a run does")
        return self._now.block

    def apply(self, gradient: Floats, *, norm: float, step: int, learning_rate: float) -> bool:
        """Clips and steps, from the present block to the next. Returns whether all that was written is finite.

        gradient: float32 [parameter_elements], finite. norm: its norm. step: the number of this update, from 1 on.
        Buffers and moments of advantages are carried over; the target is `follow`'s business.
        """
        now, following = self._versions()
        layout = self.layout
        finite = self.optimizer.step(
            layout.parameters(now.block),
            layout.parameters(following.block),
            gradient,
            now.moments,
            following.moments,
            step=step,
            learning_rate=learning_rate,
            gradient_scale=clip_factor(norm, self.clip_gradients),
        )
        if finite:
            size = layout.flat.parameter_bytes
            following.block[size : layout.weight_bytes] = now.block[size : layout.weight_bytes]
            layout.moments(following.block)[:] = layout.moments(now.block)
        return finite

    def keep(self) -> None:
        """The next version is the present one: nothing was applied."""
        now, following = self._versions()
        following.block[: self.layout.weight_bytes] = now.block[: self.layout.weight_bytes]
        for old, new in zip(now.moments, following.moments, strict=True):
            new[:] = old
        self.layout.moments(following.block)[:] = self.layout.moments(now.block)

    def follow(self, rate: float, version: int) -> None:
        """The target of the next version = rate * its weights + (1 - rate) * the present target.

        version: that of the new target, above all before; not used with a rate of 0, which keeps the target.
        """
        now, following = self._versions()
        self.layout.follow(now.block, following.block, rate, version)

    def _versions(self) -> tuple[Version, Version]:
        if self._now is None or self._next is None:
            raise NetworkError("no update of the global network has begun", hint="between(now, following)")
        return self._now, self._next
