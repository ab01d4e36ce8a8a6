from __future__ import annotations

import pytest

from hive.cli.tables import print_table


def test_columns_are_as_wide_as_their_widest_cell(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("RUN", "STEPS"), [("cartpole-1", "9"), ("b", "")])
    assert capsys.readouterr().out.splitlines() == ["RUN         STEPS", "cartpole-1  9", "b"]


def test_a_table_without_rows_is_its_head(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("RUN", "STEPS"), [])
    assert capsys.readouterr().out == "RUN  STEPS\n"


def test_a_row_of_another_length_is_a_fault() -> None:
    with pytest.raises((ValueError, IndexError)):
        print_table(("RUN", "STEPS"), [("a",)])
