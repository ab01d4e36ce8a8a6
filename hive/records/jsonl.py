"""Writes and reads growing files of JSON objects, one per line: metrics and events.

Each line is one `write` to a file opened for appending, so lines of several writers never mix. A line is valid once its
newline is written. A full disk loses lines, which are counted, but does not end the run. A line truncated by a full
disk or a killed writer does not affect others: the next writer starts a new line, and readers ignore the truncated one.

Lines are not synced to the disk, so a power cut may lose the last seconds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hive.records.documents import failure, is_json_number, json_text, parse_object
from hive.records.regular import open_appended, open_regular
from hive.records.tail import LINE_BYTES, Tail

# Bytes of the first read of a tail, in which most tails (a hundred lines) fit.
TAIL_BYTES = 1 << 16


SPLIT_BYTES = 4 << 20  # bytes at the end of a file that are split first: an hour of metrics
SETTLED_LINES = 1000

# A line of metrics has 900 bytes, so that a run of a month writes 2.4 GB. Where an overview is enough, a file of more
# than some 20 hours is not read as a whole.
OVERVIEW_BYTES = 64 << 20
OVERVIEW_LINES = 10_000  # read in a second
OVERVIEW_PIECE_BYTES = 1 << 14
OVERVIEW_TAIL_BYTES = 2 << 20

# Keys that readers rely on in every file of lines. "t" is in seconds since 1970.
NUMBERS = ("t", "steps", "updates", "seconds", "episodes")
TEXTS = ("kind", "text", "actor")
LAST_T = 1e11  # the year 5138: later times are damage, which calendars refuse


class JsonlWriter:
    """Appends lines to a file. `lost` counts lines that could not be written or were longer than `line_bytes`."""

    def __init__(self, path: Path, line_bytes: int = LINE_BYTES) -> None:
        """Open the file for appending. Raises RecordError if it cannot be opened."""
        self.path = path
        self.line_bytes = line_bytes
        self.lost = 0
        try:
            self._open()
        except OSError as error:
            raise failure("open", path, error) from error

    def _open(self) -> None:
        self._descriptor = open_appended(self.path)
        self._torn = _ends_torn(self._descriptor)

    def _reopen(self) -> None:
        """Begin a new file if the file was removed or renamed; without its folder, keep the old one."""
        if self._descriptor < 0 or self.path.exists():
            return
        old = self._descriptor
        try:
            self._open()
        except OSError:
            return
        os.close(old)

    def write(self, value: Mapping[str, Any]) -> None:
        """Append one line. Errors of the disk are counted in `lost`, not raised. NaN and infinities become null."""
        self.write_all([value])

    def write_all(self, values: Iterable[Mapping[str, Any]]) -> None:
        """Append a line for each value, in one write; see `write`. If it fails, all of them are lost."""
        lines = [f"{json_text(value)}\n".encode() for value in values]
        fit = [line for line in lines if len(line) <= self.line_bytes]
        self.lost += len(lines) - len(fit)
        if not fit:
            return
        self._reopen()
        text = b"".join(fit)
        try:
            written = os.write(self._descriptor, b"\n" + text if self._torn else text)
        except OSError:
            self.lost += len(fit)
            return
        missing = len(text) + self._torn - written
        self.lost += text[max(0, len(text) - missing) :].count(b"\n")
        self._torn = missing > 0

    def close(self) -> None:
        """Close the file; a second call has no effect."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1


def parse_line(line: bytes) -> dict[str, Any] | None:
    """Parse a line of metrics or events; None if it is not a JSON object. Values of a wrong type are left out.

    These are values of the keys in NUMBERS and TEXTS, and of metrics, whose names contain a `/`. A metric can be None.
    """
    value = parse_object(line)
    return value and {key: item for key, item in value.items() if _has_type(key, item)}


def _has_type(key: str, value: object) -> bool:
    if key in TEXTS:
        return isinstance(value, str)
    number = is_json_number(value)
    if key == "t":
        return number and 0 <= value < LAST_T  # type: ignore[operator]
    if key in NUMBERS:
        return number
    return "/" not in key or number or value is None


def read_jsonl(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file in order; invalid lines are ignored. Yields nothing if the file does not exist.

    Raises RecordError if the file exists and cannot be read.
    """
    yield from (value for _, value in _raw_and_parsed(Tail(path)))


def by_steps(line: Mapping[str, Any]) -> tuple[float, float]:
    """Return the key that sorts lines by steps, then by updates: several evaluators write out of order."""
    return line.get("steps", 0), line.get("updates", 0)


class Split(NamedTuple):
    """Where a file of lines was split: its first `start` bytes and then `kept` are kept, `rest` is not."""

    start: int
    kept: bytes
    rest: bytes


def split_lines(path: Path, keep: Callable[[Mapping[str, Any]], bool]) -> Split:
    """Split a file by whether `keep` is true of a line, byte for byte, without invalid lines.

    It is read from its end back to SETTLED_LINES lines in a row that are kept: lines have nearly the order of their
    steps. Raises RecordError.
    """
    span = SPLIT_BYTES
    while True:
        tail = Tail(path, span)
        lines = [(raw, keep(value)) for raw, value in _raw_and_parsed(tail)]
        kept_first = next((number for number, (_, kept) in enumerate(lines) if not kept), len(lines))
        if tail.began == 0 or kept_first >= SETTLED_LINES:
            parts = (b"".join(raw for raw, kept in lines if kept is which) for which in (True, False))
            return Split(tail.began, *parts)
        span *= 4


def read_overview(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file as `read_jsonl` does; of a large file, OVERVIEW_LINES at equal distances and its end.

    Raises RecordError if the file exists and cannot be read.
    """
    try:
        with open_regular(path) as file:
            end = os.fstat(file.fileno()).st_size - OVERVIEW_TAIL_BYTES
            for number in range(OVERVIEW_LINES if end > OVERVIEW_BYTES else 0):
                _, *lines = os.pread(file.fileno(), OVERVIEW_PIECE_BYTES, end * number // OVERVIEW_LINES).split(b"\n")
                if len(lines) > 1 and (value := parse_line(lines[0])) is not None:
                    yield value
    except FileNotFoundError:
        return
    except OSError as error:
        raise failure("read", path, error) from error
    yield from (
        value for _, value in _raw_and_parsed(Tail(path, OVERVIEW_TAIL_BYTES if end > OVERVIEW_BYTES else None))
    )


def _raw_and_parsed(tail: Tail) -> Iterator[tuple[bytes, dict[str, Any]]]:
    try:
        for line in tail.read():
            if (value := parse_line(line)) is not None:
                yield line + b"\n", value
    except FileNotFoundError:
        return
    except OSError as error:
        raise failure("read", tail.path, error) from error


def tail_jsonl(path: Path, n: int) -> list[dict[str, Any]]:
    """Return the objects in the last `n` lines, reading only the end of the file. Raises RecordError."""
    values = (parse_line(line) for line in last_lines(path, n))
    return [value for value in values if value is not None]


def last_lines(path: Path, n: int) -> list[bytes]:
    """Return the last `n` complete lines without newlines; [] if the file does not exist. Raises RecordError."""
    if n <= 0:
        return []
    try:
        span, size = TAIL_BYTES, path.stat().st_size
        while len(lines := [*Tail(path, span).read()]) < n and span < min(size, n * LINE_BYTES):
            span *= 4
        return lines[-n:]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise failure("read", path, error) from error


def _ends_torn(descriptor: int) -> bool:
    """Whether the file ends in the middle of a line."""
    size = os.lseek(descriptor, 0, os.SEEK_END)
    return size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
