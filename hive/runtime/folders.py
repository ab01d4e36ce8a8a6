"""Where sockets lie: `/tmp/hive-<uid>/<id>/`, one private folder (0700) per run.

    control             the supervisor's control socket
    supervisor, ...     the inboxes of the supervisor and of every process
    owner               "<pid> <start time>" of the supervisor, and on a second line the directory of its run

The path is short because a unix socket's may have 107 bytes. The fork server removes the folder when the supervisor
dies; when both were killed at once, the next `hive` command does (`sweep`). So the folders are also the register of
what this user has running, wherever it was started (`live_owners`).
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path

from hive.errors import PlatformError
from hive.records import process_start_time

__all__ = ["live_owners", "make_socket_folder", "socket_root", "sweep"]


def socket_root() -> Path:
    """The folder of this user's socket folders. Raises PlatformError when it is somebody else's."""
    root = Path(tempfile.gettempdir()) / f"hive-{os.getuid()}"
    try:
        root.mkdir(mode=0o700, exist_ok=True)
        facts = root.lstat()
    except OSError as error:
        raise PlatformError(
            f"cannot make {root} for sockets: {error}", hint="set TMPDIR to a folder of yours"
        ) from None
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or stat.S_IMODE(facts.st_mode) & 0o077:
        raise PlatformError(f"{root} is not a private folder of yours", hint=f"remove it, or: chmod 700 {root}")
    return root


def make_socket_folder(directory: Path) -> Path:
    """A new private folder for the sockets of the run in `directory`, which this process supervises."""
    folder = Path(tempfile.mkdtemp(prefix="", dir=socket_root()))
    (folder / "owner").write_text(f"{os.getpid()} {process_start_time(os.getpid())}\n{directory}")
    return folder


def live_owners() -> list[tuple[Path, int]]:
    """(run directory, supervisor's pid) of all runs of this user that live, in the order of their directories."""
    found = []
    for folder in socket_root().iterdir():
        owner, directory = _owner(folder)
        if owner is not None and directory is not None and _lives(*owner):
            found.append((directory, owner[0]))
    return sorted(found)


def _owner(folder: Path) -> tuple[tuple[int, str] | None, Path | None]:
    """Whose folder it is, as (pid, start time), and of which run; None of what is not known (yet)."""
    try:
        first, _, directory = (folder / "owner").read_text().partition("\n")
        pid, start = first.split()
        return (int(pid), start), Path(directory) if directory else None
    except (OSError, ValueError):
        return None, None  # being made this moment, or not ours to judge


def _lives(pid: int, start: str) -> bool:
    return str(process_start_time(pid)) == start


def sweep() -> list[Path]:
    """Removes the socket folders of supervisors that are gone; returns the directories of their runs, in order."""
    swept = []
    for folder in socket_root().iterdir():
        owner, directory = _owner(folder)
        if owner is not None and not _lives(*owner):
            shutil.rmtree(folder, ignore_errors=True)
            swept += [] if directory is None else [directory]
    return sorted(swept)
