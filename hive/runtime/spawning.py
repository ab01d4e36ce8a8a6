"""Spawning a fork server. Loads nothing but Python's own: the supervisor does it before it imports anything else.

What a fork server is, hive.runtime.fork_server tells; who starts which one, hive.runtime.supervise and
hive.runtime.forked.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

__all__ = ["OUTPUT", "THREADS", "ForkServer", "start_fork_server"]

THREADS = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1")
OUTPUT = "fork-server.out"  # in the log folder

ForkServer = tuple["subprocess.Popen[bytes]", socket.socket]  # and our end of the line to it


def start_fork_server(log_folder: Path) -> ForkServer:
    """A new fork server, which waits for requests and writes what it prints into the log folder."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-P", "-m", "hive.runtime.fork_server", str(theirs.fileno())]
    with theirs, (log_folder / OUTPUT).open("ab") as out:
        server = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            env={**os.environ, **THREADS},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    return server, ours
