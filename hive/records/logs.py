"""Writes the logs of actors, one text file of limited size per actor, and merges them for reading.

    2026-11-21 01:12:37.221 collector-3 WARN env 12 took 1.9 s to reset
    2026-11-21 01:12:41.007 collector-3 WARN env 12 took 1.9 s to reset [x3]

A file is rotated at 10 MB, and two old files are kept (`collector-3.log.1`, `.2`). A repeated message is written once
and then counted. The count is written on a separate line when another message is logged, after 10 s, or when the log
is closed. A file that was removed is begun again with the next line. Times are local. Lines without a time (a
traceback) belong to the line above. A full disk loses lines but does not end the actor.
"""

from __future__ import annotations

import copy
import heapq
import logging
import os
import re
import sys
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from operator import itemgetter
from pathlib import Path

from hive.records.documents import failure
from hive.records.jsonl import last_lines
from hive.records.regular import open_appended
from hive.records.tail import Tail

# Size and number of files: 30 MB per actor in total, some days of messages; a hundred actors fit on a small disk.
LOG_BYTES = 10_000_000
OLD_LOGS = 2

# Maximum time for which repeated messages are only counted: short enough for a reader to see that they continue.
FOLD_S = 10.0

# Additional lines read before a tail, to find the time of a traceback that the tail begins in. Few are longer.
LEAD_LINES = 300

HEADER = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}) \S+ (.*)")


def open_log(path: Path, name: str, level: int | str = logging.INFO) -> logging.Logger:
    """Return the logger of the actor `name`, which writes only to `path`. A second call redirects it to the new path.

    Raises RecordError if the file cannot be opened.
    """
    logger = logging.getLogger(f"hive.{name}")
    close_log(logger)
    try:
        handler = _FoldingHandler(path)
    except OSError as error:
        raise failure("open", path, error) from error
    handler.setFormatter(_LineFormatter(name))
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
    return logger


def close_log(logger: logging.Logger) -> None:
    """Write the pending count of repeated messages and close the file. Handlers added by other code are kept."""
    for handler in list(logger.handlers):
        if isinstance(handler, _FoldingHandler):
            logger.removeHandler(handler)
            handler.close()


def merge_logs(paths: Iterable[Path], *, tail: int | None = None, actors: Collection[str] = ()) -> Iterator[str]:
    """Yield the lines of several logs sorted by time, each as `collector-3 | 2026-11-21 01:12:37.221 WARN text`.

    tail: yield only this many lines, the last of all logs together; None for all.
    actors: yield only the lines of these actors; empty for all.

    Rotated files are read too, and missing files count as empty. Raises RecordError if a file cannot be read.
    """
    chosen = {path.stem: path for path in paths if not actors or path.stem in actors}
    width = max(map(len, chosen), default=0)
    streams = [_timed(f"{actor:<{width}} | ", _lines(path, tail)) for actor, path in chosen.items()]
    merged = map(itemgetter(1), heapq.merge(*streams, key=itemgetter(0)))
    yield from merged if tail is None else deque(merged, maxlen=tail)


def _timed(prefix: str, lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield (time, line with the prefix instead of the actor's name). A line without a time gets that of the last."""
    time = ""
    for line in lines:
        header = HEADER.fullmatch(line)
        if header:
            time, line = header[1], f"{header[1]} {header[2]}"
        yield time, prefix + line


def _lines(path: Path, tail: int | None) -> Iterator[str]:
    """Yield the lines of a log and its rotated files, oldest first; with `tail`, at least the last `tail` of them."""
    files = [path, *(path.with_name(f"{path.name}.{n}") for n in range(1, OLD_LOGS + 1))]
    if tail is not None:
        found: list[bytes] = []
        for file in files:
            found = last_lines(file, tail + LEAD_LINES - len(found)) + found
        yield from (line.decode(errors="replace") for line in found)
        return
    for file in reversed(files):
        try:
            yield from (line.decode(errors="replace") for line in Tail(file).read())
        except FileNotFoundError:
            continue
        except OSError as error:
            raise failure("read", file, error) from error


class _LineFormatter(logging.Formatter):
    default_msec_format = "%s.%03d"

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def formatMessage(self, record: logging.LogRecord) -> str:
        level = "WARN" if record.levelno == logging.WARNING else record.levelname
        return f"{self.formatTime(record)} {self.name} {level} {record.message}"


class _FoldingHandler(RotatingFileHandler):
    """A rotating handler that counts repetitions of a message instead of writing them."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=LOG_BYTES, backupCount=OLD_LOGS, encoding="utf-8", errors="backslashreplace")
        self.shown: tuple[int, str] | None = None  # level and text of the last line
        self.held: logging.LogRecord | None = None  # the newest repetition that was not written
        self.repeats = 0
        self.since = 0.0  # time of the last line, in seconds since 1970

    def _open(self) -> TextIOWrapper:
        return open(open_appended(Path(self.baseFilename)), "a", encoding=self.encoding, errors=self.errors)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            key = (record.levelno, record.getMessage())
        except Exception:
            self.handleError(record)
            return
        if key == self.shown and not record.exc_info:
            self.held = record
            self.repeats += 1
            if record.created >= self.since + FOLD_S:
                self._write_held()
            return
        self._write_held()
        self._write(record)
        self.shown, self.since = key, record.created

    def close(self) -> None:
        with self.lock:  # type: ignore[union-attr]
            self._write_held()
        try:
            super().close()
        except OSError:
            pass  # the disk is full, so the last lines are lost

    def handleError(self, record: logging.LogRecord) -> None:
        """Report errors of a log call, but not OSErrors: lines that the disk refuses are lost silently."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)

    def _write_held(self) -> None:
        if self.held is None:
            return
        line = copy.copy(self.held)
        line.msg, line.args = f"{line.getMessage()} [x{self.repeats}]", ()
        self.held, self.repeats, self.since = None, 0, line.created
        self._write(line)

    def _write(self, record: logging.LogRecord) -> None:
        if self.stream is not None and not os.path.exists(self.baseFilename):
            self.stream.close()
            self.stream = None  # the handler opens the file again
        super().emit(record)
