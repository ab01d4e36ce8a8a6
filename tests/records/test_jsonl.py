from __future__ import annotations

import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hive.errors import RecordError
from hive.records import jsonl
from hive.records.jsonl import (
    LINE_BYTES,
    TAIL_BYTES,
    JsonlWriter,
    last_lines,
    read_jsonl,
    read_overview,
    split_lines,
    tail_jsonl,
)


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """A write past `size` bytes is cut short, the next one refused: what a disk does that fills up."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    assert signal.getsignal(signal.SIGXFSZ) == signal.SIG_IGN
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_lines_are_there_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    writer = JsonlWriter(path)
    for i in range(3):
        writer.write({"i": i, "loss": float("nan")})
        assert list(read_jsonl(path)) == [{"i": j, "loss": None} for j in range(i + 1)]
    writer.close()
    writer.close()
    again = JsonlWriter(path)
    again.write({"i": 3})
    again.close()
    assert path.read_text().splitlines()[2:] == ['{"i": 2, "loss": null}', '{"i": 3}']


def test_a_full_disk_is_counted() -> None:
    writer = JsonlWriter(Path("/dev/full"))
    for _ in range(3):
        writer.write({"i": 1})
    assert writer.lost == 3
    writer.close()


def test_a_disk_that_fills_up_in_the_middle_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    writer = JsonlWriter(path)
    with file_size_limit(25):
        for i in range(5):
            writer.write({"i": i, "x": 0})  # 17 bytes
    assert path.stat().st_size == 25
    assert writer.lost == 4
    writer.write({"i": 5})
    writer.write({"i": 6})
    writer.close()
    assert [value["i"] for value in read_jsonl(path)] == [0, 5, 6]
    assert path.read_text() == '{"i": 0, "x": 0}\n{"i": 1,\n{"i": 5}\n{"i": 6}\n'


def test_lines_that_are_written_together(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    writer = JsonlWriter(path)
    with file_size_limit(51):
        writer.write_all([{"i": i, "x": 0} for i in range(5)])  # 17 bytes each
        assert writer.lost == 2, "three lines fit exactly"
        writer.write_all([{"i": 7}])
        assert writer.lost == 3
    writer.write_all([{"i": 8}, {"i": 9}])
    writer.write_all([])
    writer.close()
    assert [value["i"] for value in read_jsonl(path)] == [0, 1, 2, 8, 9]


def test_a_torn_end_is_left_alone_on_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"i": 0}\n{"i": 1}')
    assert list(read_jsonl(path)) == [{"i": 0}]
    assert tail_jsonl(path, 5) == [{"i": 0}]
    writer = JsonlWriter(path)
    writer.write({"i": 2})
    writer.close()
    assert [value["i"] for value in read_jsonl(path)] == [0, 1, 2]


def test_a_line_too_long_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    writer = JsonlWriter(path, line_bytes=20)
    writer.write({"i": 0})
    writer.write({"text": "x" * 20})
    assert writer.lost == 1
    writer.close()
    assert len(list(read_jsonl(path))) == 1


def test_what_is_no_json_is_a_mistake_of_the_caller(tmp_path: Path) -> None:
    writer = JsonlWriter(tmp_path / "a.jsonl")
    with pytest.raises(TypeError):
        writer.write({"a": object})
    writer.close()
    assert (tmp_path / "a.jsonl").read_bytes() == b""


def test_two_writers_of_one_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines, start = 400, threading.Barrier(2)

    def write(source: int) -> None:
        writer = JsonlWriter(path)
        start.wait()
        for i in range(lines):
            writer.write({"source": source, "i": i, "padding": "x" * (i % 97)})
        assert writer.lost == 0
        writer.close()

    threads = [threading.Thread(target=write, args=(source,)) for source in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    values = list(read_jsonl(path))
    assert len(values) == 2 * lines
    for source in range(2):
        assert [value["i"] for value in values if value["source"] == source] == list(range(lines))


def test_garbage_lines_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    overlong = b"x" * LINE_BYTES + b'{"hidden": 1}\n'
    path.write_bytes(b'{"i": 0}\n\n\xff\n[1]\n3\n{"i"\n' + overlong + b'{"i": 1}\n{"i": 2')
    assert list(read_jsonl(path)) == [{"i": 0}, {"i": 1}]


@given(st.lists(st.one_of(st.binary(max_size=30), st.just(b'{"i": 1}\n')), max_size=8))
@settings(max_examples=50, derandomize=True)
def test_any_bytes_can_be_read(tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]) -> None:
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_bytes(b"".join(parts))
    values = list(read_jsonl(path))
    assert all(isinstance(value, dict) for value in values)
    assert tail_jsonl(path, 100_000) == values


@pytest.mark.parametrize("n", [0, 1, 7, 100, 4000, 5001])
def test_tail(tmp_path: Path, n: int) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"i": {i}, "padding": "{"x" * 20}"}}\n' for i in range(5000)))
    assert path.stat().st_size > 2 * TAIL_BYTES
    assert [value["i"] for value in tail_jsonl(path, n)] == list(range(5000))[5000 - min(n, 5000) :]


def test_a_tail_that_begins_at_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"a" * 15 + b"\n" + (b"b" * 15 + b"\n") * (TAIL_BYTES // 16))
    assert last_lines(path, TAIL_BYTES // 16) == [b"b" * 15] * (TAIL_BYTES // 16)
    assert last_lines(path, 1 << 30)[0] == b"a" * 15


def test_a_tail_that_begins_inside_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes((b"b" * 22 + b"\n") * 5000)
    for n in range(TAIL_BYTES // 23 - 1, TAIL_BYTES // 23 + 3):
        assert last_lines(path, n) == [b"b" * 22] * n


def test_files_that_are_not_there_or_no_files(tmp_path: Path) -> None:
    assert list(read_jsonl(tmp_path / "none")) == []
    assert tail_jsonl(tmp_path / "none", 3) == []
    with pytest.raises(RecordError, match="is a directory"):
        list(read_jsonl(tmp_path))
    with pytest.raises(RecordError, match="is a directory"):
        tail_jsonl(tmp_path, 3)
    with pytest.raises(RecordError, match="cannot open"):
        JsonlWriter(tmp_path / "none" / "a.jsonl")


def test_a_file_that_is_removed_is_begun_anew_once_its_folder_is_there(tmp_path: Path) -> None:
    path = tmp_path / "run" / "a.jsonl"
    path.parent.mkdir()
    writer = JsonlWriter(path)
    writer.write({"i": 0})
    path.parent.rename(tmp_path / "gone")
    writer.write({"i": 1})
    path.parent.mkdir()
    writer.write({"i": 2})
    writer.close()
    assert list(read_jsonl(path)) == [{"i": 2}]
    assert list(read_jsonl(tmp_path / "gone" / "a.jsonl")) == [{"i": 0}, {"i": 1}]


@pytest.mark.parametrize("after", [0, 1, 700, 2000])
def test_a_large_file_is_split_from_its_end(after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SPLIT_BYTES": 2000, "SETTLED_LINES": 20}.items():
        monkeypatch.setattr(jsonl, name, value)
    path, lines = tmp_path / "metrics.jsonl", JsonlWriter(tmp_path / "metrics.jsonl")
    lines.write_all({"updates": n - 5 * (n % 7 == 0)} for n in range(2000))  # every seventh line is an evaluation
    lines.close()
    last, text = 1999 - after, path.read_bytes().splitlines(keepends=True)
    split = split_lines(path, lambda line: line["updates"] <= last)
    kept = [n for n in range(2000) if n - 5 * (n % 7 == 0) <= last]
    assert path.read_bytes()[: split.start] + split.kept == b"".join(text[n] for n in kept)
    assert split.rest == b"".join(text[n] for n in range(2000) if n not in kept)
    assert after > 1000 or split.start > 2000, "its beginning is not read"


def test_of_a_large_file_an_overview_and_its_end_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"OVERVIEW_BYTES": 4096, "OVERVIEW_TAIL_BYTES": 500, "OVERVIEW_LINES": 10, "OVERVIEW_PIECE_BYTES": 60}
    path, lines = tmp_path / "metrics.jsonl", JsonlWriter(tmp_path / "metrics.jsonl")
    lines.write_all({"updates": 1000 + n} for n in range(1000))
    lines.close()
    whole = list(read_overview(path))
    for name, value in small.items():
        monkeypatch.setattr(jsonl, name, value)
    found = list(read_overview(path))
    assert whole == list(read_jsonl(path))
    assert found == sorted(found, key=lambda line: int(line["updates"]))
    assert found[-20:] == whole[-20:]
    assert [line["updates"] for line in found[:3]] == [1001, 1098, 1195]
    assert list(read_overview(tmp_path / "none")) == []
