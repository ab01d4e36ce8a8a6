"""Event ids, and the lines between two of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hive.web import positions
from hive.web.positions import Position, RecordingTail, lines_between, parse_ids


def test_a_position_and_its_text() -> None:
    position = Position(10, 300, 11, 0)
    assert position.text == "a.12c.b.0"
    assert Position.parse(position.text) == position
    assert parse_ids("a.12c.b.0~0", 2) == [position, None]
    assert parse_ids("a.12c.b.0", 2) == [None, None]


@pytest.mark.parametrize(
    "text", ["", "0", "1.2.3", "1.2.3.4.5", "-1.2.3.4", "g.1.1.1", "1.2.3.4\n", "1" * 17 + ".1.1.1"]
)
def test_other_texts_are_no_position(text: str) -> None:
    assert Position.parse(text) is None


def test_lines_between_two_offsets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntwo\nthree\n")
    inode = path.stat().st_ino
    assert lines_between(path, inode, 0, 14) == [b"one", b"two", b"three"]
    assert lines_between(path, inode, 4, 8) == [b"two"]
    assert lines_between(path, inode, 8, 8) == []
    for start, end in ((1, 8), (4, 7), (8, 4), (0, 99)):
        assert lines_between(path, inode, start, end) is None
    assert lines_between(path, inode + 1, 0, 4) is None
    assert lines_between(tmp_path / "missing", inode, 0, 4) is None
    monkeypatch.setattr(positions, "MOST_MISSED_BYTES", 5)
    assert lines_between(path, inode, 0, 14) is None


def test_a_tail_records_its_lines_and_a_replaced_file(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    tail = RecordingTail(path)
    assert list(tail.lines()) == []
    path.write_bytes(b"one\ntwo\nthr")
    assert [*tail.lines(), *tail.lines()] == [b"one", b"two"]
    assert tail.take() == ([b"one", b"two"], False)
    assert tail.take() == ([], False)
    path.write_bytes(b"new\n")
    assert list(tail.lines()) == [b"new"]
    assert tail.take() == ([b"new"], True)
