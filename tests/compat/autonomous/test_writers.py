"""Writers: the records of losses and learning rates."""

from __future__ import annotations

from pathlib import Path

import torch

from hive.compat.autonomous import DummyWriter, SinkWriter
from hive.records import JsonlSink, MetricsRecord, read_jsonl


class Kept:
    def __init__(self) -> None:
        self.records: list[MetricsRecord] = []
        self.closed = False

    def write(self, record: MetricsRecord) -> None:
        self.records.append(record)

    def close(self) -> None:
        self.closed = True


def test_the_dummy_drops_and_has_the_librarys_folder() -> None:
    writer = DummyWriter()
    assert writer.log_dir == "runs"
    assert writer.add_loss("q", torch.tensor(1.0)) is None
    assert writer.add_schedule("q/lr", 1.0) is None


def test_a_sink_gets_records_with_all_three_axes() -> None:
    sink, seconds = Kept(), iter([10.0, 11.0, 12.5, 13.0, 14.0])
    writer = SinkWriter(sink, "runs/a", now_s=lambda: next(seconds))
    writer.add_loss("q", torch.tensor(0.5))
    writer.frames = 40
    writer.add_loss("q", 0.25)
    writer.add_schedule("q/lr", 0.1)
    writer.add_loss("v", 2.0)
    writer.close()
    assert writer.log_dir == "runs/a"
    assert sink.records == [
        MetricsRecord(1, 0, 1.0, {"loss/q": 0.5}),
        MetricsRecord(2, 40, 2.5, {"loss/q": 0.25}),
        MetricsRecord(2, 40, 3.0, {"schedule/q/lr": 0.1}),
        MetricsRecord(1, 40, 4.0, {"loss/v": 2.0}),
    ]
    assert sink.closed


def test_sinks_of_runs_serve(tmp_path: Path) -> None:
    writer = SinkWriter(JsonlSink(tmp_path / "metrics.jsonl"))
    writer.add_loss("q", torch.tensor(0.5))
    writer.close()
    assert [line["loss/q"] for line in read_jsonl(tmp_path / "metrics.jsonl")] == [0.5]
