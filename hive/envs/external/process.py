"""The process of a program that hive starts, and the socket that it connects to."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence

from hive import hash_seed
from hive.envs.external import launcher
from hive.envs.processes.ending import MARK, end_processes
from hive.envs.processes.folders import Folder
from hive.runtime.actor.error_location import signal_name
from hive.runtime.process.pidfds import has_exited


class ProgramProcess:
    """A program in a session of its own, which is killed when this thread ends. Raises OSError.

    output: file that it appends its output to. mark: value of MARK.
    """

    def __init__(self, command: Sequence[str], variables: Mapping[str, str], mark: str, output: int) -> None:
        start = [sys.executable, "-I", "-S", launcher.__file__, str(os.getpid())]
        self._mark = mark
        self._process = subprocess.Popen(
            [*start, *command],
            env={**hash_seed.DEFAULT, **os.environ, **variables, MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self.pidfd = os.pidfd_open(self.pid)

    def exited(self, limit_s: float = 0.0) -> str:
        """Return how it has ended, "was killed by SIGSEGV" or "exited with status 3"; "" if it still runs then."""
        if not has_exited(self.pidfd, max(limit_s, 0.0)):
            return ""
        status = self._process.wait()
        return f"was killed by {signal_name(-status)}" if status < 0 else f"exited with status {status}"

    def end(self, limit_s: float) -> None:
        """Wait at most `limit_s` for its exit, then kill it; and kill all that it has started."""
        self.exited(limit_s)
        end_processes(self._process, self._mark)
        os.close(self.pidfd)


class Listener:
    """A Unix socket in a private folder, to which one program connects. Raises OSError."""

    def __init__(self) -> None:
        self._folder = Folder(for_sockets=True)
        path = str(self._folder.path / "socket")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        self._socket.bind(path)
        self._socket.listen(1)
        self.address = f"unix:{path}"

    def fileno(self) -> int:
        """Return the descriptor, to wait for it."""
        return self._socket.fileno()

    def accept(self) -> socket.socket | None:
        """Return the connection of the program, None if it has not connected yet. The socket is gone then."""
        try:
            connected, _ = self._socket.accept()
        except BlockingIOError:
            return None
        self.close()
        return connected

    def close(self) -> None:
        """Remove the socket and its folder."""
        self._socket.close()
        self._folder.close()
