"""Batches: messages of one type that travel together, as channels send them. One message is a batch of one.

    frame 0      msgpack [name of their type, [field, field, ...], [field, field, ...], ...]
    frame 1...   the bytes of their arrays, which share the frames

A small message alone costs the wire more than itself: two frames, two calls of ZeroMQ, an envelope. What is checked of
a message (see hive.runtime.messages) is checked of each here; one that may not be read spoils its batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hive.errors import WireError
from hive.runtime.messages import (
    MAX_FRAMES,
    Frame,
    Frames,
    Message,
    compiled,
    open_frames,
    pack,
    read_body,
    unpack,
    write_fields,
)

__all__ = ["MAX_BATCH", "batch_length", "batch_of", "decode_batch", "encode_batch"]

MAX_BATCH = 1024  # messages: some 20 KB of small ones, which a loop reads in a few milliseconds


def batch_of(messages: Sequence[Message]) -> int:
    """How many of these, from the first on, fit one batch, whose arrays share its frames."""
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
    """The frames of messages of one type. Raises TypeError when a value is not what its field declares."""
    frames: list[Any] = []
    cls = type(messages[0])
    return [pack(cls.__hive_name__, [write_fields(message, frames, cls) for message in messages]), *frames]


def decode_batch(frames: Frames, allowed: Mapping[str, type[Message]]) -> list[Message]:
    """The messages of a batch, in order. Raises WireError for anything else, and then for all of them."""
    cls, bodies = open_frames(frames, allowed)
    if not 0 < len(bodies) <= MAX_BATCH:
        raise WireError(f"a batch of {len(bodies)} messages")
    return [read_body(body, frames, cls, (None, cls.__hive_name__)) for body in bodies]


def batch_length(frame: Frame) -> int:
    """How many messages a batch holds, from its first frame. Raises WireError."""
    body = unpack(frame)
    return len(body) - 1 if type(body) is list else 0
