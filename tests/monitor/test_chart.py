"""Curves in braille: positions of dots, axes, several curves, and empty charts."""

from __future__ import annotations

import pytest

from hive.monitor.chart import LABEL, Drawn, chart
from hive.monitor.drawing import BRAILLE, GOOD, SECOND, Spans, plain, width_of


def dots(lines: list[Spans]) -> list[str]:
    """Return the cells of the curve, without axes."""
    return ["".join(text for text, _ in line)[LABEL + 1 :] for line in lines[:-1]]


def test_a_rising_line_goes_from_corner_to_corner() -> None:
    lines = chart([Drawn([(float(n), float(n)) for n in range(100)])], LABEL + 1 + 10, 6, unit="steps")
    picture = dots(lines)
    assert [len(row) for row in picture] == [10] * 5
    assert (picture[0][:8].strip(), picture[-1][3:].strip()) == ("", "")
    assert ord(picture[-1][0]) - BRAILLE & 0x40  # the lowest dot of the left column
    assert ord(picture[0][-1]) - BRAILLE & 0x08  # the highest of the right one
    assert plain(lines).splitlines()[-1].split() == ["0", "99", "steps"]
    assert [row[:LABEL].strip() for row in plain(lines).splitlines()[:-1]] == ["99", "", "49.5", "", "0"]


def test_a_flat_line_is_in_the_middle() -> None:
    lines = chart([Drawn([(0.0, 5.0), (1.0, 5.0)])], 28, 6)
    picture = dots(lines)
    assert picture[2].strip("⠤⠒⠉⣀") == ""
    assert [row.strip() for row in (picture[0], picture[4])] == ["", ""]


def test_one_point_is_one_dot() -> None:
    picture = "".join(dots(chart([Drawn([(3.0, 3.0)])], 20, 4)))
    assert sum(0 < ord(cell) - BRAILLE < 256 for cell in picture) == 1


def test_places_without_a_point_are_bridged() -> None:
    picture = dots(chart([Drawn([(0.0, 0.0), (100.0, 0.0)])], 30, 3))
    assert picture[1] == "⠉" * 21


def test_many_points_are_as_wide_as_few() -> None:
    many = chart([Drawn([(float(n), float(n % 2)) for n in range(10_000)])], 30, 6)
    assert {width_of(line) for line in many[:-1]} == {30}
    assert [bool(row.strip()) for row in dots(many)] == [False, False, True, False, False]  # the mean


def test_the_first_curve_is_drawn_over_the_others() -> None:
    mine, theirs = Drawn([(0.0, 0.0), (9.0, 9.0)], GOOD), Drawn([(0.0, 0.0), (9.0, 18.0)], SECOND)
    lines = chart([mine, theirs], 30, 8)
    styles = [style for line in lines[:-1] for text, style in line[1:] if text.strip()]
    assert {*styles} == {GOOD, SECOND}
    assert lines[-2][1][1] == GOOD  # where both begin
    assert plain(lines).splitlines()[0][:LABEL].strip() == "18"  # one frame for both


def test_nothing_to_draw_is_an_empty_frame() -> None:
    for curves in ([], [Drawn([])]):
        lines = chart(curves, 20, 5)
        assert len(lines) == 5
        assert "".join(dots(lines)).strip() == ""


def test_a_logarithmic_axis_has_the_middle_where_it_belongs() -> None:
    points = [(float(n), 10.0**n) for n in range(-3, 4)] + [(4.0, 0.0), (5.0, -1.0)]
    lines = chart([Drawn(points)], 30, 6, logarithmic=True)
    assert [row[:LABEL].strip() for row in plain(lines).splitlines()[:-1]] == ["1000", "", "1", "", "0.001"]


@pytest.mark.parametrize(("width", "height"), [(1, 1), (8, 2), (9, 3)])
def test_it_fits_into_next_to_nothing(width: int, height: int) -> None:
    assert chart([Drawn([(0.0, 1.0), (1.0, 2.0)])], width, height)
