"""Spans, bars and numbers; control characters are replaced."""

from __future__ import annotations

import pytest

from hive.monitor.drawing import (
    BOLD,
    LEVELS,
    PLAIN,
    Spans,
    amount,
    ascii_of,
    bar,
    counted,
    duration,
    fitted,
    level,
    plain,
    printable_line,
    rule,
    share,
    size,
    width_of,
)


@pytest.mark.parametrize("width", [0, 1, 3, 5, 6, 9])
def test_a_line_is_fitted_to_the_cell(width: int) -> None:
    line: Spans = [("abc", BOLD), ("def", PLAIN)]
    made = fitted(line, width)
    assert width_of(made) == width
    text = plain([made])
    assert text == ("abcdef" if width >= 6 else "abcdef"[: max(width - 1, 0)] + "…" * (width > 0))


def test_a_rule_fills_the_line() -> None:
    assert plain([rule("rates", 14)]) == "─ rates ──────"
    assert "rates" in plain([rule("rates", 3)])


@pytest.mark.parametrize(
    ("part", "drawn"), [(0.0, "    "), (0.5, "██  "), (0.53, "██▏ "), (1.0, "████"), (7.0, "████"), (-1.0, "    ")]
)
def test_a_bar_is_a_share_in_eighths(part: float, drawn: str) -> None:
    assert bar(part, 4) == drawn


def test_a_level_is_one_cell() -> None:
    assert [level(part) for part in (None, 0.0, 0.5, 1.0, 3.0)] == [" ", LEVELS[0], LEVELS[4], LEVELS[7], LEVELS[7]]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((None, "–"), (0, "0"), (7, "7"), (0.25, "0.25"), (3.14159, "3.14"), (1234.6, "1235"), (9999, "9999")),
        *(
            (12_345, "12.35k"),
            (500_000, "500k"),
            (18_400_000, "18.4M"),
            (2e9, "2G"),
            (3e15, "3.0e+15"),
            (-20_000, "-20k"),
        ),
    ],
)
def test_an_amount_fits_seven_cells(value: float | None, text: str) -> None:
    assert amount(value) == text
    assert len(text) <= 7


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((-1, "0.0 s"), (0.34, "0.3 s"), (9.94, "9.9 s"), (9.96, "9 s"), (59.9, "59 s"), (60, "1 min")),
        *((250, "4 min 10 s"), (3_600, "1 h"), (68_040, "18 h 54 min"), (86_400 * 3 + 4 * 3_600 + 59, "3 d 4 h")),
    ],
)
def test_a_duration_has_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_nouns_agree_with_their_number() -> None:
    assert [counted(n, "actor") for n in (0, 1, 2, 1_000)] == ["0 actors", "1 actor", "2 actors", "1,000 actors"]


def test_shares_and_sizes() -> None:
    assert [share(part) for part in (None, 0.0, 0.746, 1.0)] == ["–", "0%", "75%", "100%"]
    assert [size(value) for value in (None, 190 << 20, 3 << 29)] == ["–", "190M", "1.5G"]


def test_control_characters_are_replaced() -> None:
    line: Spans = [("a\x1b[31mb\x07", BOLD), ("\tc\r\n\x9b\ud800d", PLAIN)]
    assert printable_line(line) == [("a?[31mb?", BOLD), (" c? ??d", PLAIN)]
    assert plain([line]) == "a?[31mb? c? ??d"
    assert plain([[("grün × 日本", PLAIN)]]) == "grün × 日本"


def test_ascii_has_a_character_for_every_cell() -> None:
    text = "collectors ×2 ██▌▏ ══▶ ▁▅█ │┤─ ⣿⠁⠀ ü …"
    made = ascii_of(text)
    assert made.isascii()
    assert len(made) == len(text)
    assert made == "collectors x2 ###  ==> _-# ||- #.  ? ~"
    assert plain([[("█", PLAIN)]], ascii_only=True) == "#"
