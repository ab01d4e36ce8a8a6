"""Addresses of programs: `unix:/path`, or a port of this machine as `127.0.0.1:47000` or `[::1]:47000`."""

from __future__ import annotations

import errno
import ipaddress
import socket

from hive.errors import ConfigError

LOCALHOST = "127.0.0.1"
UNIX = "unix:"
MOST_PATH = 107  # bytes of a Unix socket's path, of Linux
PORT_DIGITS = 5


class Address:
    """Where a program listens. Raises ConfigError for anything but a Unix socket and a port of this machine."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._family: socket.AddressFamily
        self._to: str | tuple[str, int]
        if text.startswith(UNIX):
            path = text.removeprefix(UNIX)
            if not path.startswith("/") or "\0" in path or len(path.encode()) > MOST_PATH:
                raise _refused(text, f"the path of a Unix socket begins with / and has at most {MOST_PATH} bytes")
            self._family, self._to = socket.AF_UNIX, path
            return
        host, _, port = text.rpartition(":")
        host = LOCALHOST if host == "localhost" else host.removeprefix("[").removesuffix("]")
        try:
            local = ipaddress.ip_address(host).is_loopback
        except ValueError:
            local = False
        if not local:
            raise _refused(text, "hive connects to programs of this machine only")
        if not (port.isascii() and port.isdigit() and len(port) <= PORT_DIGITS and 0 < int(port) < 1 << 16):
            raise _refused(text, "a port is a number from 1 to 65535")
        self._family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._to = (host, int(port))

    def attempt(self) -> socket.socket | None:
        """Return a socket that connects; it can be written to at the end of that. None if nothing listens there yet."""
        sock = socket.socket(self._family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        sock.setblocking(False)
        if sock.connect_ex(self._to) in (0, errno.EINPROGRESS):
            return sock
        sock.close()
        return None


def is_connected(sock: socket.socket) -> bool:
    """Return whether an attempt has succeeded, at its end."""
    if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        return False
    try:  # A port of the range that the system chooses from may be given to this very socket: it connects to itself.
        return sock.family == socket.AF_UNIX or sock.getsockname() != sock.getpeername()
    except OSError:  # it was reset at once
        return False


def _refused(text: str, why: str) -> ConfigError:
    return ConfigError(
        f"env.connect `{text}`: {why}",
        hint='set env.connect to "127.0.0.1:{index + 47000}" or "unix:/path/of/socket-{index}"',
    )
