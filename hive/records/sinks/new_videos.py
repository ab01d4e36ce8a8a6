"""Finds the videos of a run that its sinks have not received yet.

Writers of `videos/` rename complete files to their names (hive.records.atomic), so every visible file is complete.
Names that were passed on are kept in `videos/.passed`, one JSON line each: a restarted or resumed run passes on only
what is new, also videos that were made while it did not run.
"""

from __future__ import annotations

import os
from pathlib import Path

from hive.errors import RecordError
from hive.records.jsonl import JsonlWriter, read_jsonl

PASSED_FILE = ".passed"
SUFFIXES = (".gif", ".mp4", ".webm", ".ogg", ".webp", ".apng")


class NewVideos:
    """The videos in `folder`, which need not exist yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._passed: set[str] | None = None
        self._changed_ns = -1

    def take(self) -> list[Path]:
        """Return the new videos, oldest first, and mark them as passed on. Costs one `stat` if nothing has changed.

        Raises RecordError if the marks cannot be read or written, and OSError if the folder cannot be read.
        """
        try:
            changed_ns = self.folder.stat().st_mtime_ns
        except FileNotFoundError:
            return []
        if changed_ns == self._changed_ns:
            return []
        self._changed_ns = changed_ns
        file = self.folder / PASSED_FILE
        if self._passed is None:
            self._passed = {str(line.get("name")) for line in read_jsonl(file)}
        with os.scandir(self.folder) as entries:
            found = [entry for entry in entries if _is_video(entry) and entry.name not in self._passed]
        if not found:
            return []
        found.sort(key=lambda entry: (entry.stat().st_mtime_ns, entry.name))
        writer = JsonlWriter(file)
        for entry in found:
            self._passed.add(entry.name)
            writer.write({"name": entry.name})
        writer.close()
        if writer.lost:
            raise RecordError(f"`{file}` could not be written: videos may reach sinks twice")
        return [self.folder / entry.name for entry in found]


def _is_video(entry: os.DirEntry[str]) -> bool:
    name = entry.name
    return name[0] != "." and name.lower().endswith(SUFFIXES) and entry.is_file(follow_symlinks=False)
