"""Event ids of the stream: how far a viewer has read the files of a run.

An id is made of byte offsets in metrics.jsonl and events.jsonl, each with the inode of its file. So a viewer that
reconnects receives exactly the lines that it lacks, also from a server that was started in the meantime. Where a file
was replaced (by a resumed run) the id no longer fits, and the viewer receives everything again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hive.records.regular import open_regular
from hive.records.tail import Tail

MOST_MISSED_BYTES = 1 << 22  # lines that a reconnect reads again; a viewer that missed more gets thinned curves instead
ID = re.compile(r"([0-9a-f]{1,16})\.([0-9a-f]{1,16})\.([0-9a-f]{1,16})\.([0-9a-f]{1,16})")
SEPARATOR = "~"  # between the positions of several runs


@dataclass(frozen=True)
class Position:
    """Inode and offset of the next line of the metrics and of the event log; an inode of 0: the file does not exist."""

    metrics_inode: int
    metrics_offset: int
    events_inode: int
    events_offset: int

    @property
    def text(self) -> str:
        numbers = (self.metrics_inode, self.metrics_offset, self.events_inode, self.events_offset)
        return ".".join(f"{number:x}" for number in numbers)

    @classmethod
    def parse(cls, text: str) -> Position | None:
        """Return the position with this text; None for any other text."""
        match = ID.fullmatch(text)
        return cls(*(int(part, 16) for part in match.groups())) if match else None


def parse_ids(text: str, runs: int) -> list[Position | None]:
    """Return the position of each of `runs` runs in an event id; None for those that have none."""
    parts = text.split(SEPARATOR)
    return [Position.parse(part) for part in parts] if len(parts) == runs else [None] * runs


class RecordingTail(Tail):
    """A Tail that keeps the lines it has returned until `take`, and whether the file was replaced since then."""

    def __init__(self, path: Path, back: int | None = None) -> None:
        super().__init__(path, back)
        self.fresh: list[bytes] = []
        self.replaced = False

    def lines(self) -> Iterator[bytes]:
        inode, position = self.inode, self.position
        for line in super().lines():
            self.fresh.append(line)
            yield line
        self.replaced |= inode != 0 and (self.inode != inode or self.position < position)

    def take(self) -> tuple[list[bytes], bool]:
        """Return the lines since the last call, and whether the file was replaced."""
        lines, replaced = self.fresh, self.replaced
        self.fresh, self.replaced = [], False
        return lines, replaced


def lines_between(path: Path, inode: int, start: int, end: int) -> list[bytes] | None:
    """Return the lines of a file from byte `start` to byte `end`.

    None where the file is another one, where `start` is not the beginning of a line, and where the lines are longer
    than MOST_MISSED_BYTES.
    """
    if start == end:
        return []
    if not 0 <= start <= end <= start + MOST_MISSED_BYTES:
        return None
    try:
        with open_regular(path) as file:
            if os.fstat(file.fileno()).st_ino != inode:
                return None
            before = os.pread(file.fileno(), 1, start - 1) if start else b"\n"
            content = os.pread(file.fileno(), end - start, start)
    except OSError:
        return None
    whole = before == b"\n" and content.endswith(b"\n") and len(content) == end - start
    return content.split(b"\n")[:-1] if whole else None


def flat(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line of metrics, events or evaluations without nested values: pages use none, and some are too deep."""
    return {key: value for key, value in line.items() if not isinstance(value, dict | list)}
