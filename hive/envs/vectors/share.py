"""The environments of a process that another one orders to step: a helper, or an environment process.

collector            writes actions, seeds     word.order(step)                    word.answered(): done
the other process    word.ordered(): step      steps its columns of the block      word.answer(done)
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from hive import _native
from hive.envs.vectors.attributes import set_attributes
from hive.envs.vectors.row_block import REFUSED_BYTES, RowBlock
from hive.envs.vectors.vector import VectorEnvironment, let_play, refused
from hive.runtime.process.stop_signals import do_nothing

IDLE_S = 60.0  # limit of one wait for an order; the process then waits again

Build = Callable[[Mapping[str, Any]], VectorEnvironment]
"""Builds the environments of a process, with options that callbacks have set."""


class Order(enum.IntEnum):
    """What the other process is asked to do."""

    make = 1
    reset = 2
    step = 3
    look = 4
    close = 5
    measure = 6
    change = 7


class Answer(enum.IntEnum):
    """How it answers an order."""

    done = 0
    failed = 1


class Share:
    """The environments whose rows are columns `first` to `end` of the block, and a method that follows orders.

    number: of the process in the block.
    """

    def __init__(self, build: Build, block: RowBlock, first: int, end: int, number: int) -> None:
        self.build = build
        self.block = block
        self.row = block.row(first, end)
        self._actions, self._seeds = block.arrays["actions"][first:end], block.arrays["seeds"][first:end]
        self._plays, self._played = block.arrays["plays"], 0
        self._own, self._refused = slice(first, end), block.arrays["refused"][number]
        self.vector: VectorEnvironment | None = None

    def follow(self, order: Order) -> None:
        """Follow an order."""
        if order == Order.step:
            self.step()
        elif order == Order.make:
            self.make()
        elif order == Order.change:
            set_attributes(self.vector, self.block.read_changes()[1])
        elif order == Order.reset:
            self.reset()

    def make(self) -> None:
        """Close the environments, if there are any, and build new ones."""
        self.close()
        self.vector = self.build(self.block.read_changes()[0])
        do_nothing()  # again: environments may have set handlers, and the collector alone ends this process

    def reset(self) -> None:
        """Begin an episode in each environment."""
        assert self.vector is not None
        self.vector.reset([int(seed) for seed in self._seeds], self.row.observations)
        if text := refused(self.vector).encode()[:REFUSED_BYTES]:
            self._refused[: len(text)] = np.frombuffer(text, np.uint8)

    def step(self) -> None:
        """Step each environment once."""
        assert self.vector is not None
        self.row.finals.count = 0
        if self._plays[-1] != self._played:
            self._played = int(self._plays[-1])
            let_play(self.vector, self._plays[self._own])
        with as_collector():
            self.vector.step(self._actions, self.row)

    def close(self) -> None:
        """Close the environments, if there are any."""
        if self.vector is not None:
            self.vector.close()


def follow_orders(
    word: _native.RowWord, share: Share, *, spins: bool = True, stepped: Callable[[], object] = lambda: None
) -> None:
    """Follow orders until the one to close. Answers `failed` before it raises.

    spins: as of `RowWord.ordered`. stepped: is called after the answer to each order to step.
    """
    try:
        while (order := word.ordered(IDLE_S, spins)) != Order.close:
            if order is not None:
                share.follow(Order(order))
                word.answer(Answer.done)
                if order == Order.step:
                    stepped()
        share.close()
    except BaseException:
        word.answer(Answer.failed)
        raise


def as_collector() -> AbstractContextManager[object]:
    """Return the context in which a collector steps its environments, in a process that may not have torch."""
    torch = sys.modules.get("torch")
    return nullcontext() if torch is None else torch.inference_mode()
