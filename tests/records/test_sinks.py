from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest

from hive.errors import RecordError, UsageError
from hive.records.sinks import JsonlSink, MetricsRecord, SinkSet
from hive.records.tensorboard_sink import TensorBoardSink

RECORD = MetricsRecord(updates=3, env_steps=1536, seconds=2.25, values={"learner/loss": 0.5, "learner/nan": math.nan})


class Memory:
    """A sink that stores records and fails in the method `failing`."""

    def __init__(self, failing: str = "") -> None:
        self.failing = failing
        self.records: list[MetricsRecord] = []
        self.closed = 0

    def write(self, record: MetricsRecord) -> None:
        if "write" in self.failing:
            raise OSError("disk gone")
        self.records.append(record)

    def close(self) -> None:
        self.closed += 1
        if "close" in self.failing:
            raise ValueError("cannot")


def test_jsonl_line(tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path / "metrics.jsonl", wall=lambda: 1000.5)
    sink.write(RECORD)
    sink.close()
    assert sink.lost == 0
    assert list(json.loads((tmp_path / "metrics.jsonl").read_text()).items()) == [
        ("t", 1000.5),
        ("steps", 1536),
        ("updates", 3),
        ("seconds", 2.25),
        ("learner/loss", 0.5),
        ("learner/nan", None),
    ]
    with pytest.raises(RecordError):
        JsonlSink(tmp_path / "none" / "metrics.jsonl")


def test_jsonl_counts_what_the_disk_refused() -> None:
    sink = JsonlSink(Path("/dev/full"))
    sink.write(RECORD)
    sink.close()
    assert sink.lost == 1


def test_tensorboard_writes_finite_scalars_over_steps(tmp_path: Path) -> None:
    from tensorboardX.proto.event_pb2 import Event

    sink = TensorBoardSink(tmp_path / "tensorboard")
    sink.write(RECORD)
    sink.close()
    (file,) = (tmp_path / "tensorboard").iterdir()
    events = [Event.FromString(data) for data in records(file.read_bytes())]
    scalars = [(event.step, v.tag, v.simple_value) for event in events for v in event.summary.value]
    assert scalars == [(1536, "learner/loss", 0.5)]


def records(data: bytes) -> list[bytes]:
    """The payloads of an event file: length u64, its checksum u32, payload, its checksum u32."""
    found = []
    while data:
        length = int.from_bytes(data[:8], "little")
        found.append(data[12 : 12 + length])
        data = data[16 + length :]
    return found


def test_tensorboard_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(UsageError, match="needs tensorboardX") as caught:
        TensorBoardSink(tmp_path)
    assert caught.value.hint == "pip install 'hive[tensorboard]'"


def test_a_failing_sink_is_dropped_with_one_warning() -> None:
    warnings: list[str] = []
    good, bad = Memory(), Memory("write")
    sinks = SinkSet([bad, good], warnings.append)
    for _ in range(3):
        sinks.write(RECORD)
    assert good.records == [RECORD] * 3
    assert warnings == ["Memory is dropped: OSError: disk gone"]
    assert (bad.closed, good.closed) == (1, 0)
    sinks.close()
    sinks.close()
    assert (bad.closed, good.closed) == (1, 1)


def test_closing_never_raises() -> None:
    warnings: list[str] = []
    first, second = Memory("close"), Memory("close")
    SinkSet([first, second], warnings.append).close()
    assert (first.closed, second.closed) == (1, 1)
    assert warnings == ["Memory did not close: ValueError: cannot"] * 2


def test_a_sink_that_fails_twice_is_one_warning() -> None:
    warnings: list[str] = []
    sinks = SinkSet([Memory("write close")], warnings.append)
    sinks.write(RECORD)
    assert len(warnings) == 1
