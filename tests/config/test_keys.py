from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from hive.config.keys import REQUIRED, Key, is_reference, key, keys_of, with_default


@dataclass(frozen=True, kw_only=True)
class Table:
    word: str = key("a", "a word", choices=("a", "b", "c"))
    open_word: str = key("a", "a word", choices=("a",), accepts=is_reference, expected="a or a reference")
    count: int = key(1, "how many", minimum=0, maximum=9, words={"auto": lambda: 7})
    rate: float = key(0.5, "per second", above=0, below=1)
    flag: bool = key(False, "or not")
    limit: float | None = key(None, "none by default")
    widths: tuple[int, ...] = key((64,), "of layers", minimum=1)
    options: Mapping[str, Any] = key({}, "free")
    needed: str = key(REQUIRED, "no default", accepts=lambda text: text != "", expected="some text")


KEYS = keys_of(Table)


def test_keys_follow_the_declaration() -> None:
    assert list(KEYS) == list(Table.__dataclass_fields__)
    assert KEYS["limit"] == Key("limit", float, False, None, KEYS["limit"].limits)
    assert (KEYS["widths"].kind, KEYS["widths"].is_array, KEYS["widths"].default) == (int, True, (64,))
    assert KEYS["options"].kind is Mapping
    assert KEYS["needed"].default is REQUIRED
    assert KEYS["rate"].limits.doc == "per second"


def test_a_table_may_have_a_default_of_its_own() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Other(Table):
        count: int = with_default(3, Table, "count")

    assert Other(needed="x").count == 3
    assert list(keys_of(Other)) == list(KEYS)
    assert (keys_of(Other)["count"].default, KEYS["count"].default) == (3, 1)
    assert keys_of(Other)["count"].limits is KEYS["count"].limits


def test_tables_stay_hashable() -> None:
    assert hash(Table(needed="x", options={"a": 1})) == hash(Table(needed="x"))
    assert Table(needed="x", options={"a": 1}) != Table(needed="x")


@pytest.mark.parametrize(
    ("name", "value", "converted"),
    [
        ("word", "b", "b"),
        ("open_word", "package:Class", "package:Class"),
        ("count", 0, 0),
        ("count", 9, 9),
        ("count", "auto", 7),
        ("rate", 0.25, 0.25),
        ("flag", True, True),
        ("limit", -3, -3.0),
        ("widths", [], ()),
        ("widths", [1, 2], (1, 2)),
        ("options", {"a": [1]}, {"a": [1]}),
        ("needed", "x", "x"),
    ],
)
def test_right_values(name: str, value: Any, converted: Any) -> None:
    assert KEYS[name].fault(value) is None
    result = KEYS[name].convert(value)
    assert (result, type(result)) == (converted, type(converted))


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("word", "d", ()),
        ("word", 1, ()),
        ("word", ["a"], ()),
        ("open_word", "b", ()),
        ("count", -1, ()),
        ("count", 10, ()),
        ("count", True, ()),
        ("count", 1.0, ()),
        ("count", "many", ()),
        ("count", ["auto"], ()),
        ("rate", 0, ()),
        ("rate", 1, ()),
        ("rate", False, ()),
        ("rate", 10**400, ()),
        ("rate", float("nan"), ()),
        ("flag", 1, ()),
        ("widths", 3, ()),
        ("widths", [3, 0], (1,)),
        ("widths", ["x", 0], (0,)),
        ("options", 3, ()),
        ("options", {"a": {"b": float("inf")}}, ("a", "b")),
        ("needed", "", ()),
    ],
)
def test_wrong_values(name: str, value: Any, fault: tuple[str | int, ...]) -> None:
    assert KEYS[name].fault(value) == fault


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("word", '"a", "b" or "c"'),
        ("open_word", "a or a reference"),
        ("count", 'an integer >= 0 and <= 9 or "auto"'),
        ("rate", "a number > 0 and < 1"),
        ("flag", "true or false"),
        ("limit", "a number"),
        ("widths", "an array of integers >= 1"),
        ("options", "a table of strings, finite numbers, booleans, arrays and tables"),
        ("needed", "some text"),
    ],
)
def test_expected(name: str, expected: str) -> None:
    assert KEYS[name].expected() == expected


@pytest.mark.parametrize("text", ["module:name", "package.module:Class", "a.b.c:f_1", "modül:Größe"])
def test_references(text: str) -> None:
    assert is_reference(text)


@pytest.mark.parametrize("text", ["", "name", "module:", ":name", "a..b:c", "a:b:c", "a:b.c", "a b:c", "1a:b", "a.:b"])
def test_other_text_is_no_reference(text: str) -> None:
    assert not is_reference(text)
