"""The logs of all actors, merged by time, as they grow; filtered and searched.

The first read takes the end of every log, later ones the lines that were added. The file name gives a line's actor and
its header the level (hive.records.logs). A line without a header, as in a traceback, belongs to the line above.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path

from hive.monitor.drawing import BAD, DIM, MARKED, PLAIN, SECOND, WARN, Spans, printable_line
from hive.records.logs import HEADER
from hive.records.tail import Tail

KEPT = 5000  # lines kept: some minutes of busy logs
BACK_BYTES = 1 << 15  # bytes that the first read takes from the end of each log: some hundred lines
LEVELS = ("all", "info", "warn", "error")
RANKS = {"DEBUG": 0, "INFO": 1, "WARN": 2, "WARNING": 2, "ERROR": 3, "CRITICAL": 3}


@dataclass(frozen=True)
class LogEntry:
    """One line of a log."""

    time: str  # as written in the log: this form sorts by time
    actor: str
    rank: int  # rank of the level, 0 (debug) to 3 (error)
    text: str

    def matches(self, level: int, actor: str, search: str) -> bool:
        """Return whether it has at least this level rank, is of this actor ("": any), and contains `search`."""
        wanted = search.lower()
        return (
            self.rank >= level
            and (not actor or self.actor == actor)
            and (wanted in self.text.lower() or wanted in self.actor)
        )


class MergedLog:
    """The last `KEPT` lines of all logs of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tails: dict[str, Tail] = {}
        self.last: dict[str, tuple[str, int]] = {}  # actor -> time and rank of its last line with a header
        self.entries: deque[LogEntry] = deque(maxlen=KEPT)

    def read(self) -> list[LogEntry]:
        """Read the lines that were added since the last call; return them in the order of time."""
        new: list[LogEntry] = []
        for path in sorted(self.folder.glob("*.log")):
            tail = self.tails.setdefault(path.stem, Tail(path, BACK_BYTES))
            new += [self._entry(path.stem, raw) for raw in tail.lines()]
        new.sort(key=lambda entry: entry.time)
        self.entries.extend(new)
        return new

    def _entry(self, actor: str, raw: bytes) -> LogEntry:
        line = raw.decode(errors="replace")
        header = HEADER.fullmatch(line)
        if header is None:
            time, rank = self.last.get(actor, ("", 0))
            return LogEntry(time, actor, rank, line)
        level, _, text = header[2].partition(" ")
        rank = RANKS.get(level, 1)
        self.last[actor] = header[1], rank
        return LogEntry(header[1], actor, rank, f"{level} {text}")

    @property
    def actors(self) -> list[str]:
        return sorted(self.tails)

    def of(self, actor: str, count: int) -> list[str]:
        """Return the last `count` lines of one actor."""
        texts = [f"{entry.time[11:]} {entry.text}" for entry in self.entries if entry.actor == actor]
        return texts[-count:]

    def chosen(self, *, level: int = 0, actor: str = "", search: str = "") -> list[LogEntry]:
        """Return the entries with at least this level rank, of this actor ("": all), that contain `search`.

        Case is ignored.
        """
        return [entry for entry in self.entries if entry.matches(level, actor, search)]


def entry_line(entry: LogEntry, search: str = "", name_width: int = 18) -> Spans:
    """Draw one line of a log; `search` is highlighted. name_width: cells of the actor's name; 0: as few as possible."""
    style = (DIM, PLAIN, WARN, BAD)[entry.rank]
    time, gap = (entry.time[11:], "  ") if name_width else (entry.time[11:19], " ")
    head = f" {time} {entry.actor:<{name_width}}{gap}"
    return printable_line([(head, SECOND), *_marked(entry.text, search, style)])


def _marked(text: str, search: str, style: str) -> Spans:
    """Highlight the first occurrence of `search` in the text."""
    at = text.lower().find(search.lower()) if search else -1
    if at < 0:
        return [(text, style)]
    end = at + len(search)
    return [(text[:at], style), (text[at:end], MARKED), (text[end:], style)]
