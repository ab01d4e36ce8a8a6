"""Makes the directory of an active run again if somebody removes or renames it, so that the run can be seen and ended.

Folders and the small files that commands and restarted actors need come back: the config, the facts of the processes,
the checkpoint that the run was resumed from. Metrics, logs and checkpoints that were removed stay removed.
"""

from __future__ import annotations

import contextlib

from hive.errors import RecordError
from hive.records import RunDirectory, write_bytes
from hive.records.regular import read_regular

LOOK_S = 1.0  # interval between two looks at the directory, in seconds


class KeptDirectory:
    """The directory of an active run. Nothing is made before `remember` was called."""

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self.contents: dict[str, bytes] = {}  # name of a file -> its content
        self.saved = False  # whether it has held a checkpoint

    def remember(self) -> None:
        """Read the files that would be made again; called after each change of one."""
        own = self.directory
        for path in (own.config_file, own.session_file, own.resolved_file, own.resume_file, own.run_file):
            with contextlib.suppress(OSError):
                self.contents[path.name] = read_regular(path)

    def lacks_checkpoint(self) -> bool:
        """Return whether the directory has no checkpoint although it had one at an earlier call."""
        there = any(self.directory.checkpoints.glob("*/DONE"))
        self.saved = self.saved or there
        return self.saved and not there

    def restore(self) -> bool:
        """Make the directory again if it is gone, and return whether it was. False if it cannot be made."""
        own = self.directory
        needed = (own.run_file, own.resolved_file, own.logs, own.crashes, own.checkpoints)
        if own.run_file.name not in self.contents or all(path.exists() for path in needed):
            return False  # all of them: the removal of a folder takes a while, and may still be going on
        try:
            for folder in (own.logs, own.crashes, own.checkpoints):
                folder.mkdir(parents=True, exist_ok=True)
            for name, content in self.contents.items():
                write_bytes(own.path / name, content)
        except (OSError, RecordError):
            return False  # a full disk, or something lies in its place: the next look tries again
        own.reserve()
        own.point_latest()
        return True
