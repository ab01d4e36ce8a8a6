"""The paths of unix sockets: how long one may be, and whether somebody has removed one that a process listens on.

Connections live on without the path, but nobody new can connect. So a process that listens looks at its path again and
again, and binds it again once its folder is there. The supervisor makes the folder (hive.runtime.run.folders); the
others only wait for it, so that no process brings back the folder of a run that has ended.
"""

from __future__ import annotations

import os
from pathlib import Path

MAX_PATH_BYTES = 107  # maximum bytes of a unix socket's path (`sun_path`)


def fits(path: Path) -> bool:
    """Return whether a socket can have this path."""
    return len(os.fsencode(path)) <= MAX_PATH_BYTES


def is_removed(path: Path) -> bool:
    """Return whether the path of a socket is gone although its folder is there, so that it can be bound again."""
    return not path.exists() and path.parent.is_dir()
