"""Tables of commands as text."""

from __future__ import annotations

import pytest

from hive.table import markdown_text, table_text


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    text = table_text(("RUN", "STEPS"), [("cartpole-1", "9"), ("b", "")])
    assert text.splitlines() == ["RUN         STEPS", "cartpole-1  9", "b"]


def test_a_table_without_rows_is_its_head() -> None:
    assert table_text(("RUN", "STEPS"), []) == "RUN  STEPS"


def test_a_table_without_titles_is_its_rows() -> None:
    assert table_text(("", ""), [("ok", "a"), ("warn", "b")]).splitlines() == ["ok    a", "warn  b"]


def test_a_row_of_another_length_is_a_fault() -> None:
    with pytest.raises(ValueError, match="another number of cells"):
        table_text(("RUN", "STEPS"), [("a",)])


def test_markdown_escapes_bars() -> None:
    assert markdown_text(("A", "B"), [("x|y", "1")]).splitlines() == ["| A | B |", "| --- | --- |", r"| x\|y | 1 |"]
