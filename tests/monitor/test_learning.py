"""Small multiples: how many fit, what each shows, the curves of another run, bands."""

from __future__ import annotations

from pathlib import Path

import pytest

from hive.monitor.drawing import DIM, GOOD, SECOND, Line, plain, width_of
from hive.monitor.learning import multiples, per_page
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


def styles(lines: list[Line]) -> set[str]:
    """Return the styles of everything drawn inside the frames."""
    return {style for line in lines for text, style in line if any(0x2800 < ord(c) < 0x2900 for c in text)}


@pytest.mark.parametrize(("size", "count"), [((80, 20), 4), ((120, 36), 15), ((200, 56), 40), ((20, 5), 1)])
def test_as_many_as_fit(size: tuple[int, int], count: int) -> None:
    across, down = per_page(*size)
    assert across * down == count
    names = series(60).names[:count]
    lines = multiples(series(60), *size, names=names)
    assert len(lines) <= size[1]
    assert {width_of(line) for line in lines} == {size[0]}
    shown = plain(lines)
    assert all(name[: size[0] // across - 6] in shown for name in names)


def test_each_chart_has_its_name_and_newest_value() -> None:
    text = plain(multiples(series(), 80, 20, names=[RETURN, "learner/loss_0"]))
    assert " return/mean_100 49" in text
    assert " learner/loss_0 0" in text


@pytest.mark.parametrize(
    ("axis", "end"), [("steps", "4900 steps"), ("seconds", "4.9 seconds"), ("updates", "49 updates")]
)
def test_over_each_axis(axis: str, end: str) -> None:
    assert axis in AXES
    assert end in plain(multiples(series(), 80, 20, names=[RETURN], axis=axis))  # type: ignore[arg-type]


def test_another_run_is_drawn_behind_this_one() -> None:
    lines = multiples(series(), 80, 20, names=[RETURN], other=series(slope=2.0))
    assert " return/mean_100 49 / 98" in plain(lines)
    assert styles(lines) == {GOOD, SECOND}
    without = multiples(series(), 80, 20, names=["collectors/busy"], other=Series(Path("nothing")))
    assert styles(without) == {GOOD}


def test_the_band_is_between_the_least_and_the_greatest() -> None:
    lines = multiples(series(), 80, 12, names=["collectors/busy"], band=True)
    assert styles(lines) == {GOOD, DIM}
    assert "0.9" in plain(lines)
    assert styles(multiples(series(), 80, 12, names=["collectors/busy"])) == {GOOD}
    assert styles(multiples(series(), 80, 12, names=[RETURN], band=True)) == {GOOD}


def test_an_unknown_metric_is_an_empty_frame() -> None:
    text = plain(multiples(series(), 80, 12, names=["nothing/here"]))
    assert " nothing/here –" in text


def test_before_the_first_metric() -> None:
    assert "no metrics yet" in plain(multiples(Series(Path("nothing")), 80, 20, names=[]))
