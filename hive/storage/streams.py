"""Randomness that belongs to data, not to processes.

Every draw comes from a Philox stream keyed by (seed, purpose) and positioned at (source, sequence): the noise of
rollout 17 of collector 3 is the same numbers in whichever process, after whichever restart, in whichever order it is
made. No generator state exists, so none has to be saved. (Philox: Salmon et al. 2011, counter-based.)
"""

from __future__ import annotations

import enum

import numpy as np

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


def stream(seed: int, purpose: Purpose, source: int, sequence: int) -> np.random.Generator:
    """A generator at the beginning of that stream. Streams are 2^128 draws apart."""
    return np.random.Generator(np.random.Philox(key=[seed, int(purpose)], counter=[0, 0, source, sequence]))


def stream_seed(seed: int, purpose: Purpose, source: int, sequence: int) -> int:
    """A 63-bit seed from that stream, for generators that are not NumPy's."""
    return int(stream(seed, purpose, source, sequence).integers(1 << 63))


def stream_seeds(seed: int, purpose: Purpose, first: int, count: int, sequence: int) -> list[int]:
    """31-bit seeds of `count` successive sources, as `reset(seed=...)` of environments takes them."""
    return [int(stream(seed, purpose, source, sequence).integers(1 << 31)) for source in range(first, first + count)]
