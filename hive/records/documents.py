"""Formats and parses JSON.

Writing: NaN and infinities, which JSON does not have, become null, so that browsers and `jq` can read every file.
Reading: no content is trusted. `read_document` converts a file to a dataclass and compares every field with its
annotation; any mismatch raises a RecordError that names the file and the cause. Unknown keys are ignored, because a
newer version of hive may have written them.

This module does not write files: hive.records.atomic and hive.records.jsonl do.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import math
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from hive.errors import RecordError
from hive.records.regular import read_regular

__all__ = ["JSON", "failure", "is_number", "json_text", "parse_object", "read_document", "read_object"]

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"

Document = TypeVar("Document")


def failure(action: str, path: Path, error: OSError) -> RecordError:
    """Convert an OSError to a RecordError: "cannot write `a/b`: no space left on device"."""
    hint = "free space on its disk" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    return RecordError(f"cannot {action} `{path}`: {(error.strerror or str(error)).lower()}", hint=hint)


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Return JSON of plain values and NumPy scalars. NaN and infinities become null."""
    return json.dumps(_plain(value), indent=indent, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    # NumPy's scalars are recognised by `item`, because importing NumPy would take `hive ls` a tenth of a second.
    return _plain(value.item()) if hasattr(value, "item") else value


def parse_object(data: bytes) -> dict[str, Any] | None:
    """Parse a JSON object. Returns None if `data` is not one.

    Lone surrogates, which cannot be encoded, become `?`.
    """
    try:
        value = json.loads(data)
        if b"\\ud" in data.lower():
            value = json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def is_number(value: object) -> bool:
    """Whether a value is a finite number of at most 64 bits, as hive writes them; True and False are not."""
    if isinstance(value, int):
        return not isinstance(value, bool) and -(2**63) <= value < 2**64
    return isinstance(value, float) and math.isfinite(value)


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file. Raises RecordError if the file cannot be read or is not a JSON object."""
    try:
        value = parse_object(read_regular(path))
    except OSError as error:
        raise failure("read", path, error) from error
    if value is None:
        raise RecordError(f"`{path}` is not a JSON object")
    return value


def read_document(path: Path, kind: type[Document]) -> Document:
    """Read a file as an instance of the dataclass `kind`. Raises RecordError for a missing or mistyped field."""
    value, hints, arguments = read_object(path), typing.get_type_hints(kind), {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if field.name in value:
            if not _fits(value[field.name], hints[field.name]):
                raise RecordError(f"`{path}`: `{field.name}` is not of type {field.type}")
            arguments[field.name] = value[field.name]
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise RecordError(f"`{path}`: `{field.name}` is missing")
    return kind(**arguments)


def _fits(value: object, hint: Any) -> bool:
    """Whether a JSON value has the annotated type: plain types, `X | None`, `list[X]` or `dict[str, X]`."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin is types.UnionType:
        return any(_fits(value, argument) for argument in arguments)
    if origin is list:
        return isinstance(value, list) and all(_fits(item, arguments[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(item, arguments[1]) for item in value.values())
    if isinstance(value, bool):
        return hint is bool
    if hint in (int, float):
        return is_number(value) and (hint is float or isinstance(value, int))
    return isinstance(value, hint)
