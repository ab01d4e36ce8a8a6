"""Randomness that belongs to data, not to processes.

Every draw comes from a Philox stream keyed by (seed, purpose) and positioned at (source, sequence): the noise of
rollout 17 of collector 3 is the same numbers in whichever process, after whichever restart, in whichever order it is
made. No generator state exists, so none has to be saved. (Philox: Salmon et al. 2011, counter-based.)
"""

from __future__ import annotations

import enum
import threading
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray

__all__ = ["Purpose", "stream", "stream_seed", "stream_seeds"]


class Purpose(enum.IntEnum):
    """What a stream is for. The numbers are part of every run's results: never change or reuse one."""

    initial_weights = 0  # source 0, sequence 0
    environment = 1  # source: environment of the run, sequence: incarnation of its collector
    action = 2  # source: collector, sequence: rollout
    acting_forward = 3  # torch's generator while acting; source: collector, sequence: rollout
    minibatches = 5  # the order of samples; source: gradient worker, sequence: round
    training_forward = 4  # torch's generator while training; source: gradient worker, sequence: gradient
    evaluation = 6  # source: environment of the evaluator, sequence: turn
    evaluation_forward = 7  # torch's generator while evaluating; source 0, sequence: turn
    evaluation_action = 8  # of an evaluation whose actions are drawn; source 0, sequence: turn


class _Unseeded(ISeedSequence):
    """Zeros, for a bit generator that is positioned at once: by itself it would ask the system for entropy first."""

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> NDArray[Any]:
        return np.zeros(n_words, dtype)


class _Own(threading.local):
    """A bit generator of each thread, for draws that are over before anybody else draws."""

    def __init__(self) -> None:
        self.philox = np.random.Philox(UNSEEDED)


UNSEEDED: Any = _Unseeded()  # NumPy's annotations do not name the interface that it takes
OWN = _Own()


def stream(
    seed: int, purpose: Purpose, source: int, sequence: int, used: np.random.Generator | None = None
) -> np.random.Generator:
    """A generator at the beginning of that stream. Streams are 2^128 draws apart.

    used: a generator of an earlier stream, with which the caller is done: it is moved there instead of making another.
    """
    generator = used or np.random.Generator(np.random.Philox(UNSEEDED))
    _move(generator.bit_generator, seed, purpose, source, sequence)
    return generator


def stream_seed(seed: int, purpose: Purpose, source: int, sequence: int) -> int:
    """A 63-bit seed from that stream, for generators that are not NumPy's: `stream(...).integers(1 << 63)`."""
    return _first_word(seed, purpose, source, sequence) >> 1


def stream_seeds(seed: int, purpose: Purpose, first: int, count: int, sequence: int) -> list[int]:
    """31-bit seeds of `count` successive sources, as `reset(seed=...)` of environments takes them.

    Each is `stream(...).integers(1 << 31)`.
    """
    words = [_first_word(seed, purpose, source, sequence) for source in range(first, first + count)]
    return [(word & 0xFFFFFFFF) >> 1 for word in words]


def _first_word(seed: int, purpose: Purpose, source: int, sequence: int) -> int:
    _move(OWN.philox, seed, purpose, source, sequence)
    return int(OWN.philox.random_raw())


def _move(philox: np.random.BitGenerator, seed: int, purpose: Purpose, source: int, sequence: int) -> None:
    """Moves the bit generator to the beginning of a stream: to what `Philox(key=..., counter=...)` is, but sooner."""
    philox.state = {
        "bit_generator": "Philox",
        "state": {"counter": (0, 0, source, sequence), "key": (seed, int(purpose))},
        "buffer": (0, 0, 0, 0),
        "buffer_pos": 4,  # used up: the next draw makes the stream's first block
        "has_uint32": 0,
        "uinteger": 0,
    }
