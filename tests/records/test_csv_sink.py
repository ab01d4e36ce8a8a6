from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from hive.errors import RecordError
from hive.records.jsonl import read_jsonl
from hive.records.sinks.csv_sink import CsvSink
from hive.records.sinks.sinks import JsonlSink, MetricsRecord


def record(n: int, **values: float) -> MetricsRecord:
    return MetricsRecord(n, 10 * n, n / 4, {name.replace("__", "/"): value for name, value in values.items()})


def test_rows_and_cells(tmp_path: Path) -> None:
    sink = CsvSink(tmp_path / "metrics.csv")
    sink.write(record(1, a__x=0.5, a__y=math.nan))
    sink.write(record(2, a__y=math.inf))
    sink.close()
    sink.close()
    assert (tmp_path / "metrics.csv").read_text() == "steps,updates,seconds,a/x,a/y\n10,1,0.25,0.5,\n20,2,0.5,,\n"


def test_a_new_metric_extends_all_rows(tmp_path: Path) -> None:
    """Also where names have commas, quotes and newlines."""
    sink = CsvSink(tmp_path / "metrics.csv")
    odd = 'a,"b\nc'
    sink.write(record(1, a__x=1.0))
    sink.write(MetricsRecord(2, 20, 0.5, {odd: 2.0}))
    sink.write(record(3, a__x=3.0, a__z=4.0))
    sink.close()
    with (tmp_path / "metrics.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [
            ["steps", "updates", "seconds", "a/x", odd, "a/z"],
            ["10", "1", "0.25", "1.0", "", ""],
            ["20", "2", "0.5", "", "2.0", ""],
            ["30", "3", "0.75", "3.0", "", "4.0"],
        ]


def test_a_resumed_run_continues_after_the_lines_of_metrics_jsonl(tmp_path: Path) -> None:
    """Rows that a checkpoint does not have go; lines that only metrics.jsonl has come."""
    jsonl, path = JsonlSink(tmp_path / "metrics.jsonl"), tmp_path / "metrics.csv"
    first = CsvSink(path)
    for n in (1, 2):
        jsonl.write(record(n, a__x=float(n), a__nan=math.nan, episodes=5.0))
    for n in (1, 8, 9):
        first.write(record(n, b__later=1.0))
    first.close()
    jsonl.close()
    resumed = CsvSink(path, read_jsonl(tmp_path / "metrics.jsonl"))
    resumed.write(record(3, a__x=3.0))
    resumed.close()
    assert path.read_text().splitlines() == [
        "steps,updates,seconds,a/x,a/nan,episodes",
        "10,1,0.25,1.0,,5.0",
        "20,2,0.5,2.0,,5.0",
        "30,3,0.75,3.0,,",
    ]


def test_what_cannot_be_written_raises(tmp_path: Path) -> None:
    with pytest.raises(RecordError):
        CsvSink(tmp_path / "none" / "metrics.csv")
    sink = CsvSink(tmp_path / "metrics.csv")
    (tmp_path / "metrics.csv").unlink()
    with pytest.raises(RecordError, match=r"metrics\.csv"):
        sink.write(record(1, a__x=1.0))
