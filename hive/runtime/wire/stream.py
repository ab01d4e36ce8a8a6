"""Messages over a byte stream: the control socket, and the connection to the fork server; paths of unix sockets.

    | length u32, little endian | frame 0 of the message |

Messages with arrays cannot be sent this way. A length beyond the limit raises before any byte of the message is read.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hive.errors import WireError
from hive.runtime.wire.messages import Message, decode, encode

if TYPE_CHECKING:
    import asyncio

MAX_PATH_BYTES = 107  # maximum bytes of a unix socket's path (`sun_path`)
LENGTH = struct.Struct("<I")
MAX_BYTES = 64 << 20  # maximum message size: the status or the plan of a thousand actors, with a margin


def pack(message: Message) -> bytes:
    """Encode a message with its length. Raises TypeError for a message with arrays."""
    frames = encode(message)
    if len(frames) != 1:
        raise TypeError(f"{type(message).__name__} carries arrays and cannot be sent over a stream")
    return LENGTH.pack(len(frames[0])) + bytes(frames[0])


def _length(head: bytes, limit: int | None = None) -> int:
    length: int = LENGTH.unpack(head)[0]
    most = MAX_BYTES if limit is None else limit
    if length > most:
        raise WireError(f"a message of {length} bytes; the limit is {most}")
    return length


async def read(
    reader: asyncio.StreamReader, types: Mapping[str, type[Message]], *, limit: int | None = None, begun: bytes = b""
) -> Message:
    """Return the next message, of at most `limit` bytes (default MAX_BYTES).

    `begun`: its first bytes, if they were read already.

    Raises WireError, or asyncio.IncompleteReadError at the stream's end.
    """
    head = begun + await reader.readexactly(LENGTH.size - len(begun))
    return decode([await reader.readexactly(_length(head, limit))], types)


def send(line: socket.socket, message: Message) -> None:
    """Send a message; blocks. Raises TypeError for a message with arrays, OSError when the connection is lost."""
    line.sendall(pack(message))


def receive(line: socket.socket, types: Mapping[str, type[Message]]) -> Message | None:
    """Return the next message, or None at the stream's end; blocks.

    Raises WireError, and TimeoutError if the whole message has not arrived within the timeout of `line`.
    """
    timeout = line.gettimeout()
    deadline = time.monotonic() + timeout if timeout is not None else None
    try:
        head = _exactly(line, LENGTH.size, deadline)
        body = _exactly(line, _length(head), deadline) if head else None
    finally:
        line.settimeout(timeout)
    return decode([body], types) if body is not None else None


def _exactly(line: socket.socket, count: int, deadline: float | None) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            line.settimeout(left)
        part = line.recv(min(count - len(parts), 1 << 16))
        if not part:
            return None
        parts += part
    return bytes(parts)


def fits(path: Path) -> bool:
    """Return whether a unix socket can have this path."""
    return len(os.fsencode(path)) <= MAX_PATH_BYTES


def is_removed(path: Path) -> bool:
    """Return whether the path of a socket is gone although its folder exists, so that it can be bound again.

    Connections continue without the path, but no process can make a new one. Only the supervisor makes the folder
    again (hive.runtime.run.folders), so that no process brings back the folder of a run that has ended.
    """
    return not path.exists() and path.parent.is_dir()
