"""Batches: messages of one type that a channel sends together. One message is a batch of one.

    frame 0      msgpack [type name, [field, field, ...], [field, field, ...], ...]
    frame 1...   the bytes of the arrays of all messages

Sent alone, a small message costs more in overhead than in content: two frames, two calls of ZeroMQ, an envelope. Each
message of a batch is checked as a single message is (see hive.runtime.wire.messages); one invalid message invalidates
the whole batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hive.errors import WireError
from hive.runtime.wire.arrays import MAX_FRAMES, Frame, Frames
from hive.runtime.wire.messages import Message, compiled, open_frames, pack, read_body, unpack, write_fields

MAX_BATCH = 1024  # maximum messages per batch: some 20 KB of small ones, which a loop reads in a few milliseconds


def batch_of(messages: Sequence[Message]) -> int:
    """Return how many of the first messages fit one batch: at most MAX_BATCH, with at most MAX_FRAMES arrays in all."""
    most = min(len(messages), MAX_BATCH)
    if most < 2 or (compiled(type(messages[0])) and type(messages[0]).__hive_kinds__ is not None):
        return most
    arrays = 0
    for number, message in enumerate(messages[:most]):
        arrays += _arrays_in(message)
        if arrays > MAX_FRAMES:
            return max(number, 1)
    return most


def _arrays_in(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return 1
    if isinstance(value, Message):
        value = vars(value)
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return sum(map(_arrays_in, inside))


def encode_batch(messages: Sequence[Message]) -> list[Frame]:
    """Encode messages of one type as frames. Raises TypeError for a value that does not fit its field's declaration."""
    frames: list[Any] = []
    cls = type(messages[0])
    return [pack(cls.__hive_name__, [write_fields(message, frames, cls) for message in messages]), *frames]


def decode_batch(frames: Frames, allowed: Mapping[str, type[Message]]) -> list[Message]:
    """Return the messages of a batch, in order. Raises WireError if any of them is invalid."""
    cls, bodies = open_frames(frames, allowed)
    if not 0 < len(bodies) <= MAX_BATCH:
        raise WireError(f"a batch of {len(bodies)} messages")
    return [read_body(body, frames, cls, (None, cls.__hive_name__)) for body in bodies]


def batch_length(frame: Frame) -> int:
    """Count the messages of a batch from its first frame. Raises WireError if that is not msgpack."""
    body = unpack(frame)
    return len(body) - 1 if type(body) is list else 0
