from __future__ import annotations

import datetime
import math
import tomllib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive.config.values import (
    VALUE_DEPTH,
    free_fault,
    is_integer,
    is_number,
    shown,
    toml_key,
    toml_setting,
    toml_text,
)
from hive.errors import ConfigError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = TEXT | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_toml_text_reads_back(value: Any) -> None:
    line = toml_text(value)
    assert "\n" not in line
    assert tomllib.loads(f"value = {line}") == {"value": value}


@given(TEXT)
def test_toml_key_reads_back(key: str) -> None:
    assert tomllib.loads(f"{toml_key(key)} = 1") == {key: 1}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (500_000, "500_000"),
        (-1, "-1"),
        (1e-05, "1e-05"),
        (True, "true"),
        ((64, 64), "[64, 64]"),
        ({"a b": [1, "x"], "c": {}}, '{"a b" = [1, "x"], c = {}}'),
        ('say "hi"\n\x7f\\', '"say \\"hi\\"\\u000a\\u007f\\\\"'),
    ],
)
def test_toml_text(value: Any, text: str) -> None:
    assert toml_text(value) == text


def test_there_is_no_toml_for_none() -> None:
    with pytest.raises(TypeError, match="no TOML for NoneType"):
        toml_text(None)


@pytest.mark.parametrize(
    ("value", "integer", "number"),
    [
        (0, True, True),
        (2**63 - 1, True, True),
        (2**63, False, False),
        (True, False, False),
        (1.0, False, True),
        (math.nan, False, False),
        (-math.inf, False, False),
        ("1", False, False),
    ],
)
def test_what_a_number_is(value: object, integer: bool, number: bool) -> None:
    assert is_integer(value) is integer
    assert is_number(value) is number


def test_free_fault_leads_to_the_first_fault() -> None:
    assert free_fault({"a": [1, {"b": "x", "c": False}], "d": 0.5}) is None
    assert free_fault({"a": [1, {"b": math.nan}]}) == ("a", 1, "b")
    assert free_fault({"a": 2**70}) == ("a",)
    assert free_fault([datetime.date(2026, 1, 1)]) == (0,)


def test_free_values_may_be_nested_so_deep_only() -> None:
    value: Any = 1
    for _ in range(VALUE_DEPTH):
        value = [value]
    assert free_fault(value) is None
    assert free_fault([value]) == (0,) * VALUE_DEPTH


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x", '"x"'),
        (0, "0"),
        (True, "true"),
        (1.5, "1.5"),
        (math.inf, "inf (not finite)"),
        ([1], "an array"),
        ({"a": 1}, "a table"),
        (2**63, "an integer of more than 64 bits"),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        ("y" * 100, '"' + "y" * 56 + "..."),
    ],
)
def test_shown(value: object, text: str) -> None:
    assert shown(value) == text


def test_a_number_of_thousands_of_digits_can_be_shown() -> None:
    assert shown(16**5000) == "an integer of more than 64 bits"


@pytest.mark.parametrize(
    ("value", "text", "hint"),
    [
        ({"rows": np.zeros(3)}, "env.options.rows: a value of type ndarray cannot be written", "value.tolist()"),
        ({"rows": None}, "env.options.rows: None cannot be written into a config", "leave the key out"),
        ({"deep": {"odd key": [1, {"a": {2}}]}}, 'env.options.deep."odd key"[1].a: a value of type set', "build it"),
        ({"kind": dict}, "env.options.kind: the class dict cannot be written", '"package.module:Class"'),
        ({"kind": np.float32(1)}, "env.options.kind: a value of type float32", "value.tolist()"),
        ({"a": {1: 2}}, "env.options.a, its key 1: a value of type int", "string keys"),
    ],
)
def test_what_toml_cannot_hold_is_named(value: Any, text: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        toml_setting("env.options", value)
    assert str(caught.value).startswith(text)
    assert hint in caught.value.hint


def test_a_float_of_numpy_is_written_as_a_number() -> None:
    assert toml_setting("x", np.float64(0.5)) == "0.5"
