"""Curves of metrics: which come first, how many fit, what each shows, the curves of another run, bands."""

from __future__ import annotations

from pathlib import Path

import pytest

from hive.monitor.drawing import DIM, GOOD, SECOND, Spans, plain
from hive.monitor.learning import curve_chart, per_page, ranked
from hive.monitor.series import AXES, RETURN, Series


def series(count: int = 8, slope: float = 1.0) -> Series:
    made = Series(Path("nothing"))
    for n in range(50):
        at = {"steps": 100.0 * n, "updates": float(n), "seconds": n / 10}
        made._add(
            {**at, "t": 0.0, RETURN: slope * n, **{f"learner/loss_{i}": float(n % 7 + i) for i in range(count - 1)}}
        )
        made.add_group("collectors/busy", [0.1, 0.9])
    return made


def styles(lines: list[Spans]) -> set[str]:
    """Return the styles of everything drawn inside the frames."""
    return {style for line in lines for text, style in line if any(0x2800 < ord(c) < 0x2900 for c in text)}


@pytest.mark.parametrize(("size", "count"), [((80, 20), 4), ((120, 36), 15), ((200, 56), 40), ((20, 5), 1)])
def test_as_many_as_fit(size: tuple[int, int], count: int) -> None:
    across, down = per_page(*size)
    assert across * down == count


def test_return_evaluations_entropy_and_kl_come_first() -> None:
    names = ["episodes", "learner/kl", RETURN, "learner/clipped", "learner/entropy", "evaluation/mean_return"]
    assert ranked(names) == [
        *(RETURN, "evaluation/mean_return", "learner/entropy", "learner/kl"),
        *("episodes", "learner/clipped"),
    ]


def test_each_chart_has_its_name_and_newest_value() -> None:
    lines = curve_chart(series(), RETURN, 79, 12)
    assert plain(lines[:1]) == " return/mean_100 49"
    assert len(lines) == 12


@pytest.mark.parametrize(
    ("axis", "end"), [("steps", "4900 steps"), ("seconds", "4.9 seconds"), ("updates", "49 updates")]
)
def test_over_each_axis(axis: str, end: str) -> None:
    assert axis in AXES
    assert end in plain(curve_chart(series(), RETURN, 79, 20, axis=axis))  # type: ignore[arg-type]


def test_another_run_is_drawn_behind_this_one() -> None:
    lines = curve_chart(series(), RETURN, 79, 20, other=series(slope=2.0))
    assert " return/mean_100 49 / 98" in plain(lines)
    assert styles(lines) == {GOOD, SECOND}
    without = curve_chart(series(), "collectors/busy", 79, 20, other=Series(Path("nothing")))
    assert styles(without) == {GOOD}


def test_the_band_is_between_the_least_and_the_greatest() -> None:
    lines = curve_chart(series(), "collectors/busy", 79, 12, band=True)
    assert styles(lines) == {GOOD, DIM}
    assert "0.9" in plain(lines)
    assert styles(curve_chart(series(), "collectors/busy", 79, 12)) == {GOOD}
    assert styles(curve_chart(series(), RETURN, 79, 12, band=True)) == {GOOD}


def test_an_unknown_metric_is_an_empty_frame() -> None:
    text = plain(curve_chart(series(), "nothing/here", 79, 12))
    assert " nothing/here –" in text
