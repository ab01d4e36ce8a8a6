from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from hive.errors import HiveError, RecordError, UsageError
from hive.records.sinks.sinks import ConfigTables, JsonlSink, MetricsRecord, Sink, SinkSet, Video, cause

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


class Listening(Memory):
    """A sink that has the optional methods too."""

    def write_config(self, config: ConfigTables) -> None:
        self.config = config

    def write_video(self, video: Video) -> None:
        self.video = video


def test_config_and_videos_reach_sinks_that_have_methods_for_them() -> None:
    warnings: list[str] = []
    plain, listening = Memory(), Listening()
    sinks = SinkSet([plain, listening], warnings.append)
    video = Video(Path("videos/a.gif"), 3, 1536)
    sinks.write_config({"run": {"seed": 1}})
    sinks.write_video(video)
    sinks.write(RECORD)
    assert (listening.config, listening.video) == ({"run": {"seed": 1}}, video)
    assert plain.records == listening.records == [RECORD]
    assert not warnings


def test_a_sink_that_cannot_be_made_is_one_warning_with_the_hint() -> None:
    def make() -> Sink:
        raise UsageError("it needs a package", hint="pip install it")

    warnings: list[str] = []
    SinkSet([], warnings.append).add("the sink `x`", make)
    assert warnings == ["the sink `x` is dropped: it needs a package; pip install it"]


def test_a_cause_is_one_line() -> None:
    assert cause(HiveError("no\n  disk", hint="make\nroom")) == "no disk; make room"
    assert cause(OSError("no\ndisk")) == "OSError: no disk"
