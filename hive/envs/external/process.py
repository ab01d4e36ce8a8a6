"""The process of a program that hive starts, and the socket that it connects to."""

from __future__ import annotations

import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from hive.envs.external import launcher
from hive.envs.processes.ending import MARK, end_processes
from hive.runtime.actor.error_location import signal_name

SHORT = 60  # bytes of a temporary folder in which the path of a socket still fits
FOLDER = "hive-env"


class ProgramProcess:
    """A program in a session of its own, which is killed when this thread ends. Raises OSError.

    output: file that it appends its output to. mark: value of MARK.
    """

    def __init__(self, command: Sequence[str], variables: Mapping[str, str], mark: str, output: int) -> None:
        start = [sys.executable, "-I", "-S", launcher.__file__, str(os.getpid())]
        self._mark = mark
        self._process = subprocess.Popen(
            [*start, *command],
            env={**os.environ, **variables, MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self.pidfd = os.pidfd_open(self.pid)

    def exited(self, limit_s: float = 0.0) -> str:
        """Return how it has ended, "was killed by SIGSEGV" or "exited with status 3"; "" if it still runs then."""
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        if not poll.poll(max(limit_s, 0.0) * 1e3):
            return ""
        status = self._process.wait()
        return f"was killed by {signal_name(-status)}" if status < 0 else f"exited with status {status}"

    def end(self, limit_s: float) -> None:
        """Wait at most `limit_s` for its exit, then kill it; and kill all that it has started."""
        self.exited(limit_s)
        end_processes(self.pid, self._mark, self._process.poll)
        self._process.wait()  # at once, but for threads that are still exiting
        os.close(self.pidfd)


class Listener:
    """A Unix socket in a private folder, to which one program connects. Raises OSError."""

    def __init__(self) -> None:
        root = Path(tempfile.gettempdir())
        root = root if len(os.fsencode(root)) <= SHORT else Path("/tmp")
        _remove_left(root)
        self._folder = Path(tempfile.mkdtemp(prefix=f"{FOLDER}-{os.getuid()}-{os.getpid()}-", dir=root))
        path = str(self._folder / "socket")
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
        shutil.rmtree(self._folder, ignore_errors=True)


def _remove_left(root: Path) -> None:
    """Remove the folders of processes that were killed before their program had connected."""
    for folder in root.glob(f"{FOLDER}-{os.getuid()}-*"):
        pid = folder.name.split("-")[3]
        if pid.isdigit() and not Path("/proc", pid).exists():
            shutil.rmtree(folder, ignore_errors=True)
