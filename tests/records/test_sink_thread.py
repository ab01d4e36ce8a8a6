from __future__ import annotations

import threading
from pathlib import Path

import pytest

from hive.records.sinks.sink_thread import SinkThread
from hive.records.sinks.sinks import ConfigTables, MetricsRecord, Sink, Video

LIMIT_S = 20.0


def record(n: int) -> MetricsRecord:
    return MetricsRecord(n, n, float(n), {})


class Plain:
    """Stores its records with the names of the threads; raises `error` in the method `failing`."""

    def __init__(self, failing: str = "", error: BaseException | None = None) -> None:
        self.got: list[object] = []
        self.threads = {threading.current_thread().name}
        self.failing, self.error = failing, error or OSError("disk full")
        self.closed = 0

    def write(self, record: MetricsRecord) -> None:
        self.threads.add(threading.current_thread().name)
        if self.failing == "write":
            raise self.error
        self.got.append(record)

    def close(self) -> None:
        self.closed += 1
        if self.failing == "close":
            raise self.error


class Whole(Plain):
    def write_config(self, config: ConfigTables) -> None:
        self.got.append(config)

    def write_video(self, video: Video) -> None:
        self.got.append(video)


def run(sink: Plain, warnings: list[str]) -> SinkThread:
    thread = SinkThread("the sink `x`", lambda: sink, warnings.append, close_s=LIMIT_S)
    thread.write_config({"run": {"seed": 1}})
    thread.write(record(1))
    thread.write_video(Video(Path("a.gif"), 1, 1))
    thread.close()
    return thread


def test_everything_arrives_in_order_in_one_other_thread() -> None:
    made: list[Whole] = []

    def make() -> Sink:
        made.append(Whole())
        return made[0]

    warnings: list[str] = []
    thread = SinkThread("x", make, warnings.append, close_s=LIMIT_S)
    for n in range(3):
        thread.write(record(n))
    thread.close()
    assert (made[0].got, made[0].threads, made[0].closed) == ([record(n) for n in range(3)], {"sink x"}, 1)
    assert not warnings


def test_a_sink_without_the_optional_methods_gets_records_only() -> None:
    plain, whole, warnings = Plain(), Whole(), list[str]()
    run(plain, warnings)
    run(whole, warnings)
    assert plain.got == [record(1)]
    assert whole.got == [{"run": {"seed": 1}}, record(1), Video(Path("a.gif"), 1, 1)]
    assert not warnings


@pytest.mark.parametrize("error", [OSError("disk full"), SystemExit(3), KeyboardInterrupt()])
def test_a_sink_that_raises_anything_is_closed_and_dropped_with_one_warning(error: BaseException) -> None:
    sink, warnings = Plain("write", error), list[str]()
    run(sink, warnings).write(record(2))
    assert sink.closed == 1
    (warning,) = warnings
    assert warning.startswith(f"the sink `x` is dropped: {type(error).__name__}")


def test_a_sink_that_cannot_be_made_or_closed_is_one_warning() -> None:
    def make() -> Sink:
        raise ValueError("two\nlines")

    warnings: list[str] = []
    thread = SinkThread("the sink `x`", make, warnings.append, close_s=LIMIT_S)
    thread.close()
    assert warnings == ["the sink `x` is dropped: ValueError: two lines"]
    run(Plain("close"), warnings)
    assert warnings[1:] == ["the sink `x` did not close: OSError: disk full"]


class Stuck(Plain):
    """Blocks in its first `write` until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.writing, self.released = threading.Event(), threading.Event()

    def write(self, record: MetricsRecord) -> None:
        self.writing.set()
        assert self.released.wait(LIMIT_S)
        super().write(record)


def test_a_slow_sink_never_blocks_and_what_does_not_fit_is_counted() -> None:
    sink, warnings = Stuck(), list[str]()
    thread = SinkThread("x", lambda: sink, warnings.append, most_queued=2, close_s=LIMIT_S)
    thread.write(record(0))
    assert sink.writing.wait(LIMIT_S)
    for n in range(1, 6):
        thread.write(record(n))
    sink.released.set()
    thread.close()
    assert sink.got == [record(0), record(1), record(2)]
    assert warnings == ["x was too slow: 3 records were left out"]


def test_closing_a_stuck_sink_ends_after_the_limit() -> None:
    sink, warnings = Stuck(), list[str]()
    thread = SinkThread("x", lambda: sink, warnings.append, most_queued=1, close_s=0.01)
    thread.write(record(0))
    assert sink.writing.wait(LIMIT_S)
    thread.write(record(1))
    thread.close()
    assert warnings == ["x did not close within 0.01 s: its last records may be missing"]
    sink.released.set()
