"""Read the files of a run, in whose place anything may lie: a pipe would block, a device never ends, a link leads away.

Only regular files are read. Anything else raises an OSError that names its kind, as a file does that cannot be read.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path

KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a link",
    stat.S_IFREG: "a file",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
# O_NONBLOCK: opening a pipe without a writer would block. O_NOCTTY: a terminal must not become that of this process.
FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY


def open_regular(path: Path) -> io.BufferedReader:
    """Open a regular file to read its bytes. Raises OSError, also for a link or a file that is not regular."""
    try:
        descriptor = os.open(path, FLAGS)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a link, not a file of hive", str(path)) from None
        if error.errno == errno.ENXIO:  # a socket cannot be opened
            raise OSError(errno.ENXIO, "it is a socket, not a file", str(path)) from None
        raise
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind == stat.S_IFREG:
        return open(descriptor, "rb")
    os.close(descriptor)
    raise OSError(errno.EINVAL, f"it is {KINDS.get(kind, 'something else')}, not a file", str(path))


def read_regular(path: Path) -> bytes:
    """Return the content of a regular file. Raises OSError as `open_regular` does."""
    with open_regular(path) as file:
        return file.read()
