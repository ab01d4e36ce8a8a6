"""Where sockets lie: `/tmp/hive-<uid>/<id>/`, one private folder (0700) per run.

    control             the supervisor's control socket
    supervisor, ...     the inboxes of the supervisor and of every process
    owner               "<pid> <start time>" of the supervisor

The path is short because a unix socket's may have 107 bytes. The fork server removes the folder when the supervisor
dies; when both were killed at once, the next `hive` command does (`sweep`).
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path

from hive.errors import PlatformError
from hive.records import process_start_time

__all__ = ["make_socket_folder", "socket_root", "sweep"]


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


def make_socket_folder() -> Path:
    """A new private folder for the sockets of a run that this process supervises."""
    folder = Path(tempfile.mkdtemp(prefix="", dir=socket_root()))
    (folder / "owner").write_text(f"{os.getpid()} {process_start_time(os.getpid())}")
    return folder


def sweep() -> list[Path]:
    """Removes the socket folders of supervisors that are gone; returns them."""
    swept = []
    for folder in socket_root().iterdir():
        try:
            pid, start = (folder / "owner").read_text().split()
            gone = str(process_start_time(int(pid))) != start
        except (OSError, ValueError):
            continue  # being made this moment, or not ours to judge
        if gone:
            shutil.rmtree(folder, ignore_errors=True)
            swept.append(folder)
    return swept
