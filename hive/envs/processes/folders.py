"""Temporary folders of environments, which are removed with them, also after a kill."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

SHORT = 60  # bytes of a temporary folder in which the path of a socket still fits
FOLDER = "hive-env"
ATTEMPTS = 10  # to lock a new folder before another process takes it for one that is left, and removes it


class Folder:
    """A private folder. Raises OSError.

    It is locked as long as this process lives, so that others, of any PID namespace, see whether it is left. Those that
    are left are removed where a new one is made.
    """

    def __init__(self, *, for_sockets: bool = False) -> None:
        """for_sockets: below /tmp where the path of the usual folder is too long for that of a socket."""
        root = Path(tempfile.gettempdir())
        if for_sockets and len(os.fsencode(root)) > SHORT:
            root = Path("/tmp")
        _remove_left(root)
        self._lock: int | None
        self.path, self._lock = _locked_folder(root)

    @property
    def variables(self) -> Mapping[str, str]:
        """The variables with which a process makes its temporary files there."""
        return {"TMPDIR": str(self.path)}

    def close(self) -> None:
        """Remove the folder with all that it has."""
        if self._lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
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
        shutil.rmtree(folder, ignore_errors=True)  # a file system without locks would keep one of each attempt
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
