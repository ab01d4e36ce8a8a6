"""Keep the sockets of each run in a private folder (mode 0700), `/tmp/hive-<uid>/<id>/`.

    control             the supervisor's control socket
    supervisor, ...     the inboxes of the supervisor and of every process
    owner               "<pid> <start time> <pid namespace>" of the supervisor; in a second line its run's directory
    callbacks           in a folder of its own: the callbacks of a Python program, which is then the owner

The path is short because Linux limits the path of a unix socket to 107 bytes. The fork server removes the folder when
the supervisor exits; if both were killed, the next `hive` command removes it (`sweep`). A program removes that of its
callbacks, or else the supervisor does. The folders therefore also list this user's active runs,
wherever they were started (`live_owners`).
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path

from hive.errors import PlatformError
from hive.records import RunDirectory, process_start_time
from hive.records.owner import owner_of, pid_namespace
from hive.records.regular import read_regular
from hive.runtime.wire.stream import MAX_PATH_BYTES, fits

CHOOSE = "set TMPDIR to a folder of yours that is writable and has a short path"
NAME_BYTES = len("a1b2c3d4/99/gradient-worker-999-9999")  # longest path of a socket below the root


def socket_root() -> Path:
    """Return the folder that holds this user's socket folders, and create it if needed.

    Raises PlatformError if it cannot be created, belongs to another user, or is accessible to other users.
    """
    name = f"hive-{os.getuid()}"
    try:
        root = Path(tempfile.gettempdir()) / name
        root.mkdir(mode=0o700, exist_ok=True)
        facts = root.lstat()
    except OSError as error:  # also where tempfile finds no folder that can be written
        raise PlatformError(f"cannot make a folder {name} for sockets: {error}", hint=CHOOSE) from None
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or stat.S_IMODE(facts.st_mode) & 0o077:
        raise PlatformError(f"{root} is not a private folder of yours", hint=f"remove it, or: chmod 700 {root}")
    return root


def check_socket_paths() -> None:
    """Raise PlatformError if the path of the sockets' folder leaves no room for the names of the sockets."""
    root = socket_root()
    if not fits(root / ("x" * NAME_BYTES)):
        most = MAX_PATH_BYTES - NAME_BYTES - 1
        raise PlatformError(f"{root} is too long for sockets: it may have {most} bytes at most", hint=CHOOSE)


def make_socket_folder(directory: Path | None = None) -> Path:
    """Create a private folder for the sockets of the run in `directory`, with this process as the owner.

    directory: None in the program that started a run, for its callbacks.

    Raises PlatformError if it cannot be created.
    """
    root = socket_root()
    folder = None
    try:
        folder = Path(tempfile.mkdtemp(prefix="", dir=root))
        _write_owner(folder, directory)
    except OSError as error:  # such as a full disk
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        raise PlatformError(f"cannot make a folder for sockets in {root}: {error.strerror}", hint=CHOOSE) from None
    return folder


def restore_socket_folder(folder: Path, directory: Path) -> bool:
    """Make the socket folder of an active run again if it is gone, and return whether it was.

    False if it cannot be made. The processes of the run bind their sockets in it again.
    """
    if (folder / "owner").exists():
        return False
    try:
        socket_root()
        folder.mkdir(mode=0o700, exist_ok=True)
        _write_owner(folder, directory)
    except (OSError, PlatformError):
        return False  # a full disk, or something lies in its place: the next look tries again
    return True


def _write_owner(folder: Path, directory: Path | None) -> None:
    me = f"{os.getpid()} {process_start_time(os.getpid())} {pid_namespace()}"
    (folder / "owner").write_text(f"{me}\n{directory or ''}")


def live_owners() -> list[tuple[Path, int]]:
    """Return (run directory, pid of the supervisor) of this user's active runs, sorted by directory."""
    owners = []
    for folder in socket_root().iterdir():
        owner, directory = _owner(folder)
        if owner is not None and directory is not None and _alive(owner, directory):
            owners.append((directory, owner[0]))
    return sorted(owners)


def _owner(folder: Path) -> tuple[tuple[int, str, int] | None, Path | None]:
    """Read the owner of a socket folder, as (pid, start time, namespace), and its run's directory; None: unknown."""
    try:
        first, _, directory = read_regular(folder / "owner").decode().partition("\n")
        pid, start, *namespace = first.split()
        return (int(pid), start, int(namespace[0]) if namespace else pid_namespace()), Path(
            directory
        ) if directory else None
    except (OSError, ValueError):
        return None, None  # another process is still writing the file, or it is not one of hive


def _alive(owner: tuple[int, str, int], directory: Path | None) -> bool:
    """Whether a supervisor lives; one of another container, whose pid is no number here, by the lock of its run."""
    pid, start, namespace = owner
    if namespace != pid_namespace():
        return directory is None or owner_of(RunDirectory(directory)) is not None
    return str(process_start_time(pid)) == start


def sweep(*, of_programs: bool = False) -> list[Path]:
    """Remove the socket folders of processes that have exited; return the directories of their runs, sorted.

    of_programs: only those of programs, for callbacks.
    """
    swept = []
    for folder in socket_root().iterdir():
        owner, directory = _owner(folder)
        if owner is not None and not _alive(owner, directory) and not (of_programs and directory):
            shutil.rmtree(folder, ignore_errors=True)
            swept += [] if directory is None else [directory]
    return sorted(swept)
