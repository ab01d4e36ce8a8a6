"""A mark outlives the process that drew, and only it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hive.errors import RecordError
from hive.records.sinks.drawing_marks import DrawingMarks, Lost, marks_in


def test_a_finished_recording_leaves_no_mark(tmp_path: Path) -> None:
    marks = DrawingMarks(tmp_path, 0)
    marks.begin(400, drawn=False)
    assert marks_in(tmp_path) == [tmp_path / ".drawing-0"]
    marks.end(complete=True)
    assert DrawingMarks(tmp_path, 0).take_lost() is None


def test_an_unfinished_one_is_found_once_by_the_same_evaluator(tmp_path: Path) -> None:
    DrawingMarks(tmp_path, 0).begin(400, drawn=False)
    assert DrawingMarks(tmp_path, 1).take_lost() is None
    following = DrawingMarks(tmp_path, 0)
    assert following.take_lost() == Lost(400, False, 1)
    assert following.take_lost() is None


def test_recordings_lost_in_a_row_are_counted(tmp_path: Path) -> None:
    marks = DrawingMarks(tmp_path, 0)
    for times in (1, 2):
        marks.begin(times, drawn=True)
        marks = DrawingMarks(tmp_path, 0)
        assert marks.take_lost() == Lost(times, True, times)
    marks.begin(3, drawn=True)
    marks.end(complete=True)
    marks.begin(4, drawn=True)
    assert DrawingMarks(tmp_path, 0).take_lost() == Lost(4, True, 1)


def test_a_damaged_mark_counts_as_one_without_a_picture(tmp_path: Path) -> None:
    (tmp_path / ".drawing-0").write_text("{")
    assert DrawingMarks(tmp_path, 0).take_lost() == Lost(0, False, 1)


def test_off_holds_for_all_until_it_is_forgotten(tmp_path: Path) -> None:
    one, other = DrawingMarks(tmp_path, 0), DrawingMarks(tmp_path, 1)
    one.turn_off("no paint")
    assert other.off
    other.forget()
    assert not one.off


def test_without_the_folder(tmp_path: Path) -> None:
    marks = DrawingMarks(tmp_path / "videos", 0)
    assert (marks.off, marks.take_lost()) == (False, None)
    marks.forget()
    with pytest.raises(RecordError, match="no such file"):
        marks.begin(1, drawn=False)
