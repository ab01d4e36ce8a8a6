from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hive.errors import RecordError
from hive.records.documents import failure, is_json_number, json_text, parse_object, read_document, read_object


@dataclass(frozen=True)
class Example:
    name: str
    count: int
    share: float
    done: bool
    best: float | None
    names: list[str]
    tally: dict[str, int]
    anything: Any = None
    later: dict[str, dict[str, Any]] = field(default_factory=dict)


GOOD: dict[str, Any] = {
    "name": "a",
    "count": 3,
    "share": 1,
    "done": True,
    "best": None,
    "names": ["x"],
    "tally": {"y": 2},
}


def read(tmp_path: Path, value: object) -> Example:
    (tmp_path / "example.json").write_text(json.dumps(value))
    return read_document(tmp_path / "example.json", Example)


def test_a_document_is_read_with_defaults_and_without_unknown_keys(tmp_path: Path) -> None:
    assert read(tmp_path, GOOD | {"of_tomorrow": 1}) == Example(**GOOD)
    assert read(tmp_path, GOOD | {"best": 2.5, "anything": [1], "later": {"a": {"b": None}}}).later == {
        "a": {"b": None}
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", 3),
        ("name", None),
        ("count", 3.5),
        ("count", True),
        ("share", "1"),
        ("share", False),
        ("done", 1),
        ("best", "x"),
        ("names", "x"),
        ("names", [1]),
        ("tally", [2]),
        ("tally", {"y": None}),
        ("later", {"a": 1}),
    ],
)
def test_a_field_of_another_type_is_named(tmp_path: Path, key: str, value: object) -> None:
    with pytest.raises(RecordError, match=rf"example\.json`: `{key}(\.\w+)?` is not of type"):
        read(tmp_path, GOOD | {key: value})


@pytest.mark.parametrize("key", sorted(GOOD))
def test_a_missing_field_is_named(tmp_path: Path, key: str) -> None:
    with pytest.raises(RecordError, match=f"`{key}` is missing"):
        read(tmp_path, {k: v for k, v in GOOD.items() if k != key})


@pytest.mark.parametrize("text", [b"", b"[]", b"1", b"{", b"\xff", b'{"a":' * 100_000, b'{"a": ' + b"9" * 5000 + b"}"])
def test_garbage_is_refused_with_its_file(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "garbage.json").write_bytes(text)
    with pytest.raises(RecordError, match=r"garbage\.json` is not a JSON object"):
        read_object(tmp_path / "garbage.json")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"cannot read `.*none\.json`: no such file or directory"):
        read_object(tmp_path / "none.json")


def test_failure_of_an_error_without_words() -> None:
    assert str(failure("read", Path("a"), OSError("Broken"))) == "cannot read `a`: broken"


@given(st.binary(max_size=200))
@settings(max_examples=100, derandomize=True)
def test_any_bytes_are_an_object_or_none(data: bytes) -> None:
    value = parse_object(data)
    assert value is None or isinstance(value, dict)


def test_numpy_scalars_are_numbers() -> None:
    value = {
        "a": np.float32(0.5),
        "b": np.int64(3),
        "c": (np.float64("nan"), np.bool_(True)),
        4: float("inf"),
    }
    assert json_text(value) == '{"a": 0.5, "b": 3, "c": [null, true], "4": null}'


def test_what_is_no_json_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(TypeError):
        json_text({"a": {1, 2}})


def test_lone_surrogates_become_question_marks() -> None:
    assert parse_object(b'{"d": "\\ud800\\n\\ud83d\\ude00"}') == {"d": "?\n\U0001f600"}


def test_numbers_are_finite_and_have_64_bits() -> None:
    assert all(map(is_json_number, (0, -5, 2**64 - 1, 1.5)))
    assert not any(map(is_json_number, (True, 2**64, float("nan"), float("inf"), "1", None)))
