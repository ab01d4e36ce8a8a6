"""The expression of a value has that value in another process, or the value is refused."""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import importlib
import re
import zoneinfo
from typing import Any

import numpy as np
import pytest
import torch

from hive.session.values import NotWritten, written

HOUR = datetime.timedelta(hours=1)
VALUES: list[Any] = [
    *(datetime.UTC, datetime.timezone(HOUR), datetime.timezone(-HOUR, "X"), zoneinfo.ZoneInfo("UTC")),
    *(datetime.date(2020, 1, 2), HOUR, datetime.time(1, 2, tzinfo=datetime.UTC, fold=1)),
    datetime.datetime(2020, 1, 2, 3, 4, 5, 6, tzinfo=datetime.timezone(HOUR)),
    *(decimal.Decimal("1.10"), fractions.Fraction(1, 3), re.compile("a", re.IGNORECASE)),
    collections.deque([datetime.time(1)], 3),
    *(complex(0, -0.0), complex("nan+infj"), float("-inf"), -0.0),
    *(np.longdouble("1.1"), np.ones(2, np.longdouble), np.clongdouble(1), np.float16(2), np.float64("nan")),
    *(np.str_(""), np.array(["", "ab"]), np.bytes_(b""), np.datetime64("2020-01-01"), np.zeros((2, 0))),
    np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
    *(torch.tensor(1.5, dtype=torch.bfloat16), torch.ones(3, 2, dtype=torch.float8_e5m2).T, torch.zeros(0)),
    *(torch.tensor([1 + 2j]).conj(), torch.tensor([1 + 2j]).conj().imag, torch.tensor([True])),
]
REFUSED: list[Any] = [
    *(torch.zeros(2).to_sparse(), torch.zeros(2, requires_grad=True), torch.zeros(2, device="meta")),
    *(np.random.default_rng(1), np.ma.array([1]), np.array([{}])),
]


def expression(value: Any, names: dict[str, Any]) -> str:
    """The expression of a value; `names` gets what it finds."""

    def imported(module: str) -> str:
        name = f"_{module.replace('.', '_')}"
        names[name] = importlib.import_module(module)
        return name

    return written(value, imported, lambda one: one.__name__)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_an_expression_has_the_value(value: Any) -> None:
    names: dict[str, Any] = {}
    found = eval(expression(value, names), names)
    assert type(found) is type(value)
    assert repr(found) == repr(value)
    assert getattr(found, "dtype", None) == getattr(value, "dtype", None)


@pytest.mark.parametrize("value", REFUSED, ids=lambda value: type(value).__name__)
def test_what_has_no_expression_is_refused(value: Any) -> None:
    with pytest.raises(NotWritten):
        expression(value, {})
