"""The supervisor's process from its first instruction: `python -m hive.runtime.supervise RUN_DIRECTORY LOG_FOLDER`.

It starts the fork server before it imports what it itself needs: importing torch takes seconds, and all of them are in
the start of a run. Whatever happens to this process then, the fork server's line ends with it, and so does the fork
server (hive.runtime.fork_server). The run itself is hive.runtime.run's.

This module loads nothing but Python's own.
"""

from __future__ import annotations

import sys
from pathlib import Path

from hive.runtime.spawning import start_fork_server

__all__ = ["main"]


def main() -> None:
    """The supervisor's process: its own session, so that closing the terminal does not reach it."""
    directory, log_folder = map(Path, sys.argv[1:3])
    server, line = start_fork_server(log_folder)
    try:
        from hive.records import RunDirectory
        from hive.runtime.run import run_forked

        code = run_forked(RunDirectory.open(directory), (server, line))
    finally:
        if server.poll() is None:  # the run did not get as far as to need it
            server.kill()
            server.wait()
    sys.exit(code)


if __name__ == "__main__":
    main()
