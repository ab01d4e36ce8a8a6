"""Main module of the supervisor's process: `python -m hive.runtime.run RUN_DIRECTORY LOG_FOLDER [LOCK]`.

It starts the fork server before its own imports, so that both processes import in parallel: the fork server's import of
torch takes seconds and dominates the start of a run. However this process exits, its connection to the fork server
closes, and the fork server exits too (hive.runtime.process.fork_server). hive.runtime.run.execute runs the run itself.

`python -m hive.runtime.run --early [MODULE ...]` starts before the run has a directory (hive.launch.early_start).
The fork server imports these modules meanwhile, and the two paths follow on stdin, a socket, separated by a zero byte,
and with them the descriptor of the run's lock, which otherwise is the argument LOCK (hive.records.owner).

This module imports only the standard library at the top, to start the fork server without delay. Signals that ask the
run to end are kept from its first line on, until the run can act on them.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from hive.hash_seed import VARIABLE, seed_of
from hive.runtime.process.spawning import (
    EARLY,
    PROGRAM,
    SUPERVISOR_OUTPUT,
    ForkServer,
    modules_to_preload,
    start_fork_server,
)
from hive.runtime.process.stop_signals import record

PATHS_BYTES = 2 * 4096 + 1  # of two paths, each at most PATH_MAX, and what is between them


def main() -> None:
    """Start the fork server, run the run, and exit with its exit code.

    `hive up` starts this process in a session of its own, so closing the terminal does not end it.
    """
    record()
    program = int(os.environ.pop(PROGRAM, 0))  # actors of this run may start others
    if sys.argv[1] == EARLY:
        code = _run(None, start_fork_server(None, sys.argv[2:]), program)
    else:
        directory, log_folder = map(Path, sys.argv[1:3])
        os.environ.setdefault(VARIABLE, seed_of(directory))
        lock, modules = int(sys.argv[3]) if len(sys.argv) > 3 else None, modules_to_preload(directory / "resolved.toml")
        code = _run((directory, lock), start_fork_server(log_folder, modules), program)
    sys.exit(code)


def _run(given: tuple[Path, int | None] | None, server: ForkServer, program: int) -> int:
    """Run the run in this directory, None: in the one that stdin names, and return its exit code.

    given: also the descriptor of its lock; None: this process takes it. program: pid of the Python program that waits
    for the run; 0: none.
    """
    process, _ = server
    try:
        given = given or _from_stdin()
        if given is None:
            return 0
        from hive.records import RunDirectory
        from hive.records.owner import adopt
        from hive.runtime.run.execute import run_forked

        directory, lock = RunDirectory.open(given[0]), given[1]
        if lock is not None:
            adopt(directory, lock)
        return run_forked(directory, server, program)
    finally:
        if process.poll() is None:  # the run failed before it took over the fork server
            process.kill()
            process.wait()


def _from_stdin() -> tuple[Path, int | None] | None:
    """Wait for the run's directory and lock; None if there will be no run.

    The output of this process is appended to the run's log from then on.
    """
    with socket.socket(fileno=os.dup(sys.stdin.fileno())) as line:
        data, locks, _, _ = socket.recv_fds(line, PATHS_BYTES, 1)
        while more := line.recv(PATHS_BYTES):
            data += more
    paths = data.split(b"\0")
    if len(paths) < 2:
        return None
    from hive.records.regular import open_appended

    sys.argv[1:] = map(os.fsdecode, paths)  # those of a supervisor that starts with a directory
    directory, log_folder = map(Path, sys.argv[1:])
    output = open_appended(log_folder / SUPERVISOR_OUTPUT, 0o644)
    for number in (1, 2):
        os.dup2(output, number)
    os.close(output)
    return directory, locks[0] if locks else None


if __name__ == "__main__":
    main()
