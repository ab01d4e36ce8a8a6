"""Logs of all actors, merged as they grow; levels, actors, words."""

from __future__ import annotations

from pathlib import Path

import pytest

from hive.monitor import log_view as module
from hive.monitor.drawing import BAD, MARKED, plain
from hive.monitor.log_view import MergedLog, entry_line


def write(folder: Path, actor: str, *lines: str) -> None:
    with (folder / f"{actor}.log").open("a") as file:
        file.writelines(f"2026-11-21 01:12:{line}\n" if line[:2].isdigit() else f"{line}\n" for line in lines)


@pytest.fixture
def book(tmp_path: Path) -> MergedLog:
    write(
        tmp_path,
        "collector-0",
        "30.000 collector-0 INFO hello",
        "35.500 collector-0 ERROR it fell",
        "Traceback:",
        "  x",
    )
    write(tmp_path, "learner-0", "31.000 learner-0 WARN slow", "36.000 learner-0 DEBUG Detail")
    made = MergedLog(tmp_path)
    made.read()
    return made


def texts(book: MergedLog, **chosen: object) -> list[str]:
    return [entry.text for entry in book.chosen(**chosen)]  # type: ignore[arg-type]


def test_lines_are_merged_by_time_and_a_traceback_stays_with_its_line(book: MergedLog) -> None:
    assert texts(book) == ["INFO hello", "WARN slow", "ERROR it fell", "Traceback:", "  x", "DEBUG Detail"]
    assert book.actors == ["collector-0", "learner-0"]


def test_added_lines_follow_the_old_ones(book: MergedLog) -> None:
    write(book.folder, "recorder", "37.000 recorder INFO saved")
    write(book.folder, "learner-0", "36.500 learner-0 INFO on")
    book.read()
    assert texts(book)[-2:] == ["INFO on", "INFO saved"]
    book.read()
    assert len(book.entries) == 8


def test_by_level_actor_and_word(book: MergedLog) -> None:
    assert texts(book, level=3) == ["ERROR it fell", "Traceback:", "  x"]
    assert texts(book, level=2, actor="learner-0") == ["WARN slow"]
    assert texts(book, search="DETAIL") == ["DEBUG Detail"]
    assert texts(book, search="learner") == ["WARN slow", "DEBUG Detail"]
    assert texts(book, search="nothing") == []
    assert book.of("learner-0", 1) == ["01:12:36.000 DEBUG Detail"]


def test_what_is_kept_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert module.KEPT * 200 < 10 << 20
    write(tmp_path, "a-0", *(f"30.000 a-0 INFO line {n}" for n in range(10_000)))
    book = MergedLog(tmp_path)
    book.read()
    assert len(book.entries) < module.BACK_BYTES / 20
    assert book.entries[-1].text == "INFO line 9999"


def test_a_rotated_log_is_followed(book: MergedLog) -> None:
    path = book.folder / "learner-0.log"
    path.rename(book.folder / "learner-0.log.1")
    write(book.folder, "learner-0", "39.000 learner-0 INFO new file")
    book.read()
    assert texts(book)[-1] == "INFO new file"
    assert book.actors == ["collector-0", "learner-0"]


def test_a_line_has_time_actor_level_and_text(book: MergedLog) -> None:
    assert plain([entry_line(book.chosen()[-1])]) == " 01:12:36.000 learner-0           DEBUG Detail"
    assert plain([entry_line(book.chosen()[-1], name_width=0)]) == " 01:12:36 learner-0 DEBUG Detail"


def test_matches_of_a_search_are_highlighted(book: MergedLog) -> None:
    line = entry_line(book.chosen(search="fell")[0], "FELL")
    assert ("fell", MARKED) in line
    assert ("ERROR it ", BAD) in line


def test_logs_cannot_command_the_terminal(tmp_path: Path) -> None:
    write(tmp_path, "a-0", "30.000 a-0 INFO \x1b[2J\x1b]0;gone\x07")
    book = MergedLog(tmp_path)
    book.read()
    assert "\x1b" not in plain(map(entry_line, book.chosen()))
