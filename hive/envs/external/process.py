"""The process of a program that hive starts, and the socket that it connects to."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from hive import hash_seed
from hive.envs.external import launcher
from hive.envs.processes.ending import MARK, end_processes
from hive.runtime.actor.error_location import signal_name
from hive.runtime.process.pidfds import has_exited

SHORT = 60  # bytes of a temporary folder in which the path of a socket still fits
FOLDER = "hive-env"
ATTEMPTS = 10  # to lock a new folder before another process takes it for one that is left, and removes it


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
    """A Unix socket in a private folder, to which one program connects. Raises OSError.

    The folder is locked as long as the process lives, so that others, of any PID namespace, see whether it is left.
    """

    def __init__(self) -> None:
        root = Path(tempfile.gettempdir())
        root = root if len(os.fsencode(root)) <= SHORT else Path("/tmp")
        _remove_left(root)
        self._lock: int | None
        self._folder, self._lock = _locked_folder(root)
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
        if self._lock is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


def _locked_folder(root: Path) -> tuple[Path, int]:
    """Make a folder and lock it. Raises OSError, also where the file system has no locks."""
    for _ in range(ATTEMPTS):
        folder = Path(tempfile.mkdtemp(prefix=f"{FOLDER}-{os.getuid()}-", dir=root))
        if (lock := _lock(folder)) is not None:
            if folder.is_dir():
                return folder, lock
            os.close(lock)
    raise OSError(errno.ENOLCK, "Cannot lock a folder", str(root))


def _lock(folder: Path) -> int | None:
    """Return the locked descriptor of a folder of this user; None if another process has locked or removed it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _remove_left(root: Path) -> None:
    """Remove the folders of processes that were killed before their program had connected."""
    for folder in root.glob(f"{FOLDER}-{os.getuid()}-*"):
        if (lock := _lock(folder)) is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)
