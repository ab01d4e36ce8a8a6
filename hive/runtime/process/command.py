"""The command and the environment of a supervisor's process, for all that start one."""

from __future__ import annotations

import os
import sys

from hive.native import source_folder

__all__ = ["supervisor_command", "supervisor_environment"]


def supervisor_command(*arguments: str) -> list[str]:
    """Return the command of a supervisor's process (hive.runtime.run.__main__)."""
    return [sys.executable, "-P", "-m", "hive.runtime.run", *arguments]


def supervisor_environment() -> dict[str, str]:
    """Return the environment of a run's processes, which import hive from the same folder as this process.

    Python in a source folder imports hive from the current folder, which the option -P hides from those processes.
    """
    folder, path = source_folder(), os.environ.get("PYTHONPATH")
    if folder is None:
        return dict(os.environ)
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *([path] if path else [])])}
