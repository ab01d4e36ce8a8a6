"""Following a file: complete lines, each once; truncated, replaced and missing files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hive.records import tail as module
from hive.records.tail import Tail


def test_lines_come_once_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    tail = Tail(path)
    assert [*tail.lines()] == []
    path.write_bytes(b"one\ntwo\nthr")
    assert [*tail.lines()] == [b"one", b"two"]
    with path.open("ab") as file:
        file.write(b"ee\n")
    assert [*tail.lines()] == [b"three"]
    assert [*tail.lines()] == []


def test_only_the_end_of_a_long_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"".join(b"line %03d\n" % n for n in range(100)))
    assert [*Tail(path, 25).lines()] == [b"line 098", b"line 099"]
    assert len([*Tail(path, 10_000).lines()]) == 100


@pytest.mark.parametrize("how", ["cut", "replaced"])
def test_a_file_that_begins_again_is_read_from_its_beginning(tmp_path: Path, how: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"one\ntwo\n")
    tail = Tail(path)
    assert len([*tail.lines()]) == 2
    assert not tail.restarted
    other = tmp_path / "other"
    other.write_bytes(b"1\n" if how == "cut" else b"one\ntwo\nthree\n")
    if how == "cut":
        path.write_bytes(other.read_bytes())
    else:
        os.replace(other, path)
    assert [*tail.lines()] == ([b"1"] if how == "cut" else [b"one", b"two", b"three"])
    assert tail.restarted
    assert [*tail.lines()] == []
    assert not tail.restarted


def test_lines_longer_than_a_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE_BYTES", 4)
    path = tmp_path / "a.log"
    path.write_bytes(b"0123456789\nabc\nrest")
    tail = Tail(path)
    assert [*tail.lines()] == [b"0123456789", b"abc"]
    monkeypatch.setattr(module, "LINE_BYTES", 8)
    with path.open("ab") as file:
        file.write(b"x" * 20)
    assert [*tail.lines()] == []  # longer than any line of hive
    assert tail.position == path.stat().st_size
