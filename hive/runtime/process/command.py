"""Start a supervisor's process: its command, its environment, and where its output goes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType

from hive.native import source_folder
from hive.runtime.process.spawning import CALLBACKS, PROGRAM, SUPERVISOR_OUTPUT
from hive.runtime.process.stop_signals import blocked

of_program: ContextVar[Mapping[str, str]] = ContextVar("of_program", default=MappingProxyType({}))
"""PROGRAM and CALLBACKS of the supervisors that a call of a Python program starts; those of commands have none."""


def start_supervisor(directory: Path, log_folder: Path, lock: int | None = None) -> subprocess.Popen[bytes]:
    """Start the supervisor of the run in this directory, in a session of its own.

    lock: descriptor of the run's lock (hive.records.owner), which the supervisor gets, too; None: it takes the lock.
    The signals that ask a run to end are blocked until it handles them.
    """
    from hive.records.regular import open_appended  # a supervisor that starts early needs nothing of the records

    with os.fdopen(open_appended(log_folder / SUPERVISOR_OUTPUT), "ab") as out, blocked():
        return subprocess.Popen(
            supervisor_command(str(directory), str(log_folder), *([] if lock is None else [str(lock)])),
            env=supervisor_environment() | dict(of_program.get()),
            pass_fds=[] if lock is None else [lock],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )


def supervisor_command(*arguments: str) -> list[str]:
    """Return the command of a supervisor's process (hive.runtime.run.__main__)."""
    return [sys.executable, "-P", "-m", "hive.runtime.run", *arguments]


def supervisor_environment() -> dict[str, str]:
    """Return the environment of a run's processes, which import hive from the same folder as this process.

    Python in a source folder imports hive from the current folder, which the option -P hides from those processes. If
    this is a process of a run itself, the new one has another program.
    """
    inherited = {name: value for name, value in os.environ.items() if name not in (PROGRAM, CALLBACKS)}
    folder, path = source_folder(), os.environ.get("PYTHONPATH")
    if folder is None:
        return inherited
    return inherited | {"PYTHONPATH": os.pathsep.join([str(folder), *([path] if path else [])])}
