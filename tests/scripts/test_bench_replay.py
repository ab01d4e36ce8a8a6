"""`bench replay`: a row is what its fields add up to, and the checks use the bytes of a million rows."""

from __future__ import annotations

import pytest
from benchmarks.replay_memory import bytes_of_a_row, checks_of, resident_bytes, stored


def test_a_row_has_one_frame_and_the_fields_of_a_step() -> None:
    action, reward, flags, leaf = 8, 4, 3, 4
    assert bytes_of_a_row() == 84 * 84 + action + reward + flags + leaf


@pytest.mark.parametrize(("measured", "passed"), [(7_490.0, [True, True]), (7_510.0, [True, False])])
def test_checks_use_a_million_rows(measured: float, passed: list[bool]) -> None:
    checks = checks_of(7_075, measured)
    assert [check.passed for check in checks] == passed
    assert checks[0].measured == "7.08 GB"


def test_a_filled_memory_holds_its_rows() -> None:
    rows = 5_000  # above 32 MiB malloc takes no memory that an earlier test gave back
    before = resident_bytes()
    replay = stored(rows)
    assert len(replay) == rows - 2  # transitions of three steps
    assert replay.sample(8).observations.shape == (8, 4, 84, 84)
    assert resident_bytes() - before > rows * 84 * 84 / 2
