"""Messages of the simulator protocol on a socket that does not block.

    4 bytes        length of the rest, little-endian
    the rest       one msgpack map whose keys are texts

The length is compared with what the caller expects before anything is allocated for it. What is read holds None,
booleans, numbers, texts, bytes, lists and maps, and nothing else.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from typing import Any

import msgpack

from hive.printable import printable

LENGTH = struct.Struct("<I")
MOST_BYTES = (1 << 32) - 1  # of a message: what LENGTH can say
MOST_TEXT = 4096  # bytes of a text: an error of a program
MOST_ITEMS = 1 << 14  # of an array: the choices of a multi_discrete space
MOST_KEYS = 1024  # of a map: the parts of a dict space
CHUNK = 1 << 16  # bytes of a new buffer; one grows only as bytes arrive


class Misbehaved(Exception):
    """What a program did against the protocol, as a predicate: "sent a message of 5 bytes, ..."."""


class Closed(Misbehaved):
    """The program closed its end of the connection."""


class Reset(Closed):
    """The connection was reset: its other end has gone, or a forwarder of ports found nobody behind it."""


class Connection:
    """The end of a connection that hive has. It owns the socket. Raises Misbehaved, and Closed at its end."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = sock
        self._unsent = memoryview(b"")
        self._length = bytearray()
        self._body: bytearray | None = None  # of the message that arrives, at most as long as that is
        self._filled = 0

    def fileno(self) -> int:
        """Return the descriptor, to wait for it."""
        return self._socket.fileno()

    def order(self, message: bytes) -> None:
        """Take a message with its length for `flush`. Raises Misbehaved if there is an answer already."""
        if self._length or self._body is not None or self._is_readable():
            raise Misbehaved("sent a message without a request")
        self._unsent = memoryview(message)

    def flush(self) -> bool:
        """Send what the socket takes now; return whether all is sent."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent, socket.MSG_NOSIGNAL) :]
        except BlockingIOError:
            return False
        except OSError as error:
            raise _closed(error) from None
        return True

    def receive(self, limit: int) -> dict[str, Any] | None:
        """Return the next message, of at most `limit` bytes; None if it has not arrived yet as a whole."""
        while len(self._length) < LENGTH.size:
            if not (part := self._read(LENGTH.size - len(self._length))):
                return None
            self._length += part
        (size,) = LENGTH.unpack(self._length)
        if self._body is None:
            if not 0 < size <= limit:
                raise Misbehaved(f"sent a message of {size:,} bytes, at most {limit:,} are expected")
            self._body, self._filled = bytearray(min(size, CHUNK)), 0
        while self._filled < size:
            if self._filled == len(self._body):
                self._body += bytes(min(len(self._body), size - len(self._body)))
            with memoryview(self._body) as view:
                if not (read := self._read_into(view[self._filled :])):
                    return None
            self._filled += read
        body, self._body = self._body, None
        self._length.clear()
        return unpacked(body)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _read(self, size: int) -> bytes:
        """Return up to `size` bytes; none if there are none yet."""
        buffer = bytearray(size)
        return bytes(buffer[: self._read_into(memoryview(buffer))])

    def _read_into(self, view: memoryview) -> int:
        try:
            read = self._socket.recv_into(view)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise _closed(error) from None
        if not read:
            raise Closed("closed its connection")
        return read

    def _is_readable(self) -> bool:
        try:
            return bool(self._socket.recv(1, socket.MSG_PEEK))  # an end is found by the next read
        except BlockingIOError:
            return False
        except OSError as error:
            raise _closed(error) from None


def packed(message: Mapping[str, Any]) -> bytes:
    """Return a message with its length. Raises ValueError for one that is too long, TypeError for other values."""
    body: bytes = msgpack.packb(message, use_bin_type=True)
    if len(body) > MOST_BYTES:
        raise ValueError(f"a message of {len(body):,} bytes")
    return LENGTH.pack(len(body)) + body


def unpacked(body: bytes | bytearray) -> dict[str, Any]:
    """Return the map that a message is. Raises Misbehaved."""
    try:
        message = msgpack.unpackb(
            body,
            raw=False,
            strict_map_key=True,
            max_str_len=MOST_TEXT,
            max_bin_len=len(body),
            max_array_len=MOST_ITEMS,
            max_map_len=MOST_KEYS,
            max_ext_len=0,
            object_pairs_hook=_map,
            ext_hook=_no_extension,
        )
    except (ValueError, TypeError, RecursionError, OverflowError, msgpack.UnpackException) as error:
        why = printable(" ".join(str(error).split()) or type(error).__name__, 100)
        raise Misbehaved(f"sent a message that is not msgpack within the limits of the protocol ({why})") from None
    if not isinstance(message, dict):
        raise Misbehaved(f"sent a message that is a {type(message).__name__}, expected a map")
    return message


def _map(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice")
    if not all(type(key) is str for key in found):
        raise ValueError("a key is not a text")
    return found


def _no_extension(code: int, data: bytes) -> Any:
    raise ValueError(f"extension type {code}")


def _closed(error: OSError) -> Closed:
    return Reset(f"closed its connection ({error.strerror})")
