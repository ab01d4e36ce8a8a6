"""Open the files of a run, in whose place anything may lie: a pipe would block, a device never ends, a link leads away.

Only regular files are read and appended to, and new ones are made without following a link. Anything else raises an
OSError that names its kind, as a file does that cannot be read. Files have a limit before they are read: a file of
gigabytes may take no space on the disk.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Collection
from pathlib import Path

BLOCK = 512  # bytes of the unit of st_blocks, on every Linux
KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a link",
    stat.S_IFREG: "a file",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
HOLLOW_BYTES, HOLLOW_SHARE = 1 << 32, 100
"""A file from this size on of which less than a hundredth is on the disk is not one of hive's. Compression may give a
smaller one such a share, where a new network's moments are zero; to read a larger one could take hours."""
LARGE_BYTES = 1 << 26  # the free memory is measured only for larger files: weights and rows, and no documents
# O_NONBLOCK: opening a pipe without a writer would block. O_NOCTTY: a terminal must not become that of this process.
FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY


def open_regular(path: Path) -> io.BufferedReader:
    """Open a regular file to read its bytes. Raises OSError, also for a link or a file that is not regular."""
    return open(_regular(path, FLAGS), "rb")


def read_regular(path: Path, most: int | None = None) -> bytes:
    """Return the content of a regular file. most: of so many bytes; None: as many as there is memory for.

    Raises OSError as `open_regular` does, and for a larger file.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if most is not None and size > most:
            raise OSError(errno.EFBIG, f"it has {size:,} bytes, and at most {most:,} are read", str(path))
        try:
            if size > LARGE_BYTES:
                _check_room(checked_size(file, path), path)
            return file.read()
        except MemoryError:
            short = f"it has {size:,} bytes, more than this process may allocate"
            raise OSError(errno.ENOMEM, short, str(path)) from None


def checked_size(file: io.BufferedReader, path: Path) -> int:
    """Return the size of an open file. Raises OSError for a large one that has nearly all of it as holes."""
    facts = os.fstat(file.fileno())
    if facts.st_size >= HOLLOW_BYTES and facts.st_blocks * BLOCK * HOLLOW_SHARE < facts.st_size:
        raise OSError(errno.EFBIG, f"it has {facts.st_size:,} bytes, and almost none of them on the disk", str(path))
    return facts.st_size


def open_appended(path: Path, mode: int = 0o666) -> int:
    """Return a descriptor that reads and appends to a regular file, which is made if it is missing, or to a device.

    Raises OSError, also for a link.
    """
    return _regular(path, FLAGS | os.O_RDWR | os.O_APPEND | os.O_CREAT, mode, (stat.S_IFREG, stat.S_IFCHR))


def write_new(path: Path, data: bytes | memoryview) -> None:
    """Write a file that did not exist; what has its name is an error, and a link is not followed. Raises OSError."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), "wb", buffering=0) as file:
        left = memoryview(data).cast("B")
        while left:
            left = left[file.write(left) :]


def _regular(path: Path, flags: int, mode: int = 0o666, kinds: Collection[int] = (stat.S_IFREG,)) -> int:
    try:
        descriptor = os.open(path, flags, mode)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a link, not a file of hive", str(path)) from None
        if error.errno == errno.ENXIO:  # a socket cannot be opened
            raise OSError(errno.ENXIO, "it is a socket, not a file", str(path)) from None
        raise
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind in kinds:
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, f"it is {KINDS.get(kind, 'something else')}, not a file", str(path))


def _check_room(size: int, path: Path) -> None:
    """Raise OSError if there is no memory for a file."""
    from hive.free_memory import free_memory

    if size > (free := free_memory()).usable:
        raise OSError(errno.ENOMEM, f"it has {size:,} bytes, and {free} of memory are free", str(path))
