"""Returns keep the digits that they need."""

from __future__ import annotations

import math

import pytest

from hive.records.return_text import return_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "inf"),
        (0.0, "0.0"),
        (0.01, "0.01"),
        (-0.00123456, "-0.00123"),
        (1.0, "1.0"),
        (0.5, "0.5"),
        (9.96, "9.96"),
        (195.04, "195.0"),
        (-12345.678, "-12,345.7"),
    ],
)
def test_digits(value: float | None, text: str) -> None:
    assert return_text(value) == text
