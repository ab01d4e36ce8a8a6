"""Writes metrics as one table, `metrics.csv`: a row per record, a column per metric, empty cells without a value.

The columns `steps`, `updates` and `seconds` come first, then metrics in the order of their first appearance. A new
metric extends every row of the file: the file is rewritten atomically, which happens a few times in a run. Values that
are not finite are empty cells.

The table is made again from `metrics.jsonl` whenever the sink is made. So a resumed run continues after the rows of
its checkpoint, rows that a killed process could not write are there, and a run may get the sink when it is resumed.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hive.records.atomic import write_bytes
from hive.records.documents import failure
from hive.records.jsonl import NUMBERS
from hive.records.sinks.sinks import MetricsRecord

AXES = ("steps", "updates", "seconds")


class CsvSink:
    """Writes a CSV file. `earlier`: the lines of `metrics.jsonl`, which become its first rows."""

    def __init__(self, path: Path, earlier: Iterable[Mapping[str, Any]] = ()) -> None:
        """Write the earlier rows. Raises RecordError if the file cannot be written."""
        self.path = path
        rows = [row for line in earlier if (row := _row(line))]
        self._descriptor = -1
        self._columns = list(dict.fromkeys([*AXES, *(name for row in rows for name in row)]))
        write_bytes(path, _text([dict(zip(self._columns, self._columns, strict=True)), *rows], self._columns))
        self._open()

    def write(self, record: MetricsRecord) -> None:
        """Append a row. Raises RecordError if it cannot be written."""
        axes = {"steps": record.env_steps, "updates": record.updates, "seconds": round(record.seconds, 3)}
        row = {**axes, **record.values}
        if new := [name for name in row if name not in self._columns]:
            self._extend(new)
        text = _text([row], self._columns)
        try:
            if os.write(self._descriptor, text) != len(text):
                raise OSError("a row was written in part")
        except OSError as error:
            raise failure("write", self.path, error) from error

    def close(self) -> None:
        """Close the file; a second call has no effect."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def _open(self) -> None:
        try:
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError as error:
            raise failure("open", self.path, error) from error

    def _extend(self, new: list[str]) -> None:
        """Add columns on the right: a longer header, and empty cells at the end of each row."""
        try:
            with self.path.open(newline="") as file:
                next(csv.reader(file))  # reads the lines of the header only: the names of metrics may contain newlines
                old = file.read()
        except (OSError, StopIteration) as error:
            raise failure("read", self.path, error if isinstance(error, OSError) else OSError("empty")) from error
        self._columns += new
        header = _text([dict(zip(self._columns, self._columns, strict=True))], self._columns)
        write_bytes(self.path, header + old.replace("\n", "," * len(new) + "\n").encode())
        self.close()
        self._open()


def _row(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cells of a line of `metrics.jsonl`; {} for a damaged one."""
    if not {*AXES} <= line.keys():
        return {}
    return {name: value for name, value in line.items() if name in AXES or name not in NUMBERS or name == "episodes"}


def _text(rows: Iterable[Mapping[str, Any]], columns: list[str]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([_cell(row.get(name)) for name in columns] for row in rows)
    return text.getvalue().encode()


def _cell(value: Any) -> Any:
    return "" if isinstance(value, float) and not math.isfinite(value) else value
