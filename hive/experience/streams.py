"""Random streams that are tied to data, not to processes.

Every draw comes from a Philox stream keyed by (seed, purpose) and positioned at (source, sequence). The noise of
rollout 17 of collector 3 is therefore the same in every process, after every restart and in any order of creation.
There is no generator state that a checkpoint would have to save. (Philox: Salmon et al. 2011, counter-based.)
"""

from __future__ import annotations

import enum
import threading
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray


class Purpose(enum.IntEnum):
    """The use of a stream. The numbers determine every run's results: never change or reuse one."""

    initial_weights = 0  # source 0, sequence 0
    environment = 1  # source: index of the environment in the run, sequence: incarnation of its collector
    action = 2  # source: collector, sequence: rollout
    acting_forward = 3  # torch's generator while acting; source: collector, sequence: rollout
    minibatches = 5  # the order of samples; source: gradient worker, sequence: round
    training_forward = 4  # torch's generator while training; source: gradient worker, sequence: gradient
    evaluation = 6  # source: environment of the evaluator, sequence: turn
    evaluation_forward = 7  # torch's generator while evaluating; source 0, sequence: turn
    evaluation_action = 8  # actions of an evaluation that samples them; source 0, sequence: turn
    replay = 9  # draws from a replay memory; source: gradient worker, sequence: number of the plan
    # Global generators, for what draws from them in an environment's code (hive.training.collect.collector).
    describing = 10  # while one environment is built to read its spaces; source 0, sequence 0
    building = 11  # while environments are built; source: collector, sequence: as of `environment`
    resetting = 12  # while they are reset after that; the same
    stepping = 13  # while a rollout is made; source: collector, sequence: rollout
    evaluation_building = 14  # while environments of an evaluator are built; source 0, sequence 0
    evaluation_stepping = 15  # while they are reset and stepped; source: first environment, sequence: turn
    policy = 16  # the seed of a policy of several, with which it makes all its own draws; source: its number
    callback = 17  # global generators, while a callback is called; source: its number, sequence: event
    restarted = 18  # seeds of an environment after a restart of its process; source: its index, sequence: incarnation


class _Unseeded(ISeedSequence):
    """Seeds a bit generator with zeros, because `_move` positions it at once; the default would read system entropy."""

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> NDArray[Any]:
        return np.zeros(n_words, dtype)


class _ThreadLocal(threading.local):
    """One bit generator per thread, for functions that draw from one stream before they return."""

    def __init__(self) -> None:
        self.philox = np.random.Philox(UNSEEDED)


UNSEEDED: Any = _Unseeded()  # Any, because NumPy's annotations lack the interface ISeedSequence here
THREAD_LOCAL = _ThreadLocal()


def stream(
    seed: int, purpose: Purpose, source: int, sequence: int, used: np.random.Generator | None = None
) -> np.random.Generator:
    """Return a generator at the beginning of a stream. Streams are 2^128 draws apart.

    used: a generator that the caller no longer needs; it is moved to the stream and returned, which saves making one.
    """
    generator = used or np.random.Generator(np.random.Philox(UNSEEDED))
    _move(generator.bit_generator, seed, purpose, source, sequence)
    return generator


def stream_seed(seed: int, purpose: Purpose, source: int, sequence: int) -> int:
    """Return a 63-bit seed for other generators than NumPy's, equal to `stream(...).integers(1 << 63)`."""
    return _first_word(seed, purpose, source, sequence) >> 1


def stream_seeds(seed: int, purpose: Purpose, first: int, count: int, sequence: int) -> list[int]:
    """Return 31-bit seeds of `count` successive sources, for `reset(seed=...)` of environments.

    Each equals `stream(...).integers(1 << 31)`.
    """
    words = [_first_word(seed, purpose, source, sequence) for source in range(first, first + count)]
    return [(word & 0xFFFFFFFF) >> 1 for word in words]


def _first_word(seed: int, purpose: Purpose, source: int, sequence: int) -> int:
    _move(THREAD_LOCAL.philox, seed, purpose, source, sequence)
    return int(THREAD_LOCAL.philox.random_raw())


def _move(philox: np.random.BitGenerator, seed: int, purpose: Purpose, source: int, sequence: int) -> None:
    """Move a bit generator to the beginning of a stream: faster than a new `Philox(key=..., counter=...)`."""
    philox.state = {
        "bit_generator": "Philox",
        "state": {"counter": (0, 0, source, sequence), "key": (seed, int(purpose))},
        "buffer": (0, 0, 0, 0),
        "buffer_pos": 4,  # marks the buffer of 4 words as used up: the next draw computes the stream's first block
        "has_uint32": 0,
        "uinteger": 0,
    }
