"""Main module of the supervisor's process: `python -m hive.runtime.run RUN_DIRECTORY LOG_FOLDER`.

It starts the fork server before its own imports, so that both processes import in parallel: the fork server's import of
torch takes seconds and dominates the start of a run. However this process exits, its connection to the fork server
closes, and the fork server exits too (hive.runtime.process.fork_server). hive.runtime.run.execute runs the run itself.

This module imports only the standard library at the top, to start the fork server without delay.
"""

from __future__ import annotations

import sys
from pathlib import Path

from hive.runtime.process.spawning import modules_to_preload, start_fork_server

__all__ = ["main"]


def main() -> None:
    """Start the fork server, run the run, and exit with its exit code.

    `hive up` starts this process in a session of its own, so closing the terminal does not end it.
    """
    directory, log_folder = map(Path, sys.argv[1:3])
    preload = modules_to_preload(directory / "resolved.toml")
    server, connection = start_fork_server(log_folder, preload)
    try:
        from hive.records import RunDirectory
        from hive.runtime.run.execute import run_forked

        code = run_forked(RunDirectory.open(directory), (server, connection))
    finally:
        if server.poll() is None:  # the run failed before it took over the fork server
            server.kill()
            server.wait()
    sys.exit(code)


if __name__ == "__main__":
    main()
