"""Becomes a program that is killed when the process that started it ends; a file of the standard library only.

    python -I -S launcher.py PID COMMAND ARGUMENT ...

PID is the process that starts it. Setting this between fork and exec there would run Python code in a copy of a process
with threads, where a lock that another thread holds is never released.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
NOT_STARTED = 127  # exit status of a shell that does not find a command


def main(parent: int, command: list[str]) -> int:
    """Become `command`; return the exit status if that fails."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before that
        return 1
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"cannot start {command[0]}: {error.strerror}\n")
        return NOT_STARTED


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
