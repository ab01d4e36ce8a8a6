"""Formats and parses JSON.

Writing: NaN and infinities, which JSON does not have, become null, so that browsers and `jq` can read every file.
Reading: no content is trusted. `misfit` compares data with annotations. `read_document` converts a file to a dataclass;
any mismatch raises a RecordError that names the file and the cause. Unknown keys are ignored, because a newer version
of hive may have written them.

This module does not write files: hive.records.atomic and hive.records.jsonl do.
"""

from __future__ import annotations

import dataclasses
import errno
import functools
import json
import math
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

from hive.errors import RecordError
from hive.records.regular import read_regular

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"

Document = TypeVar("Document")
DOCUMENT_BYTES = 1 << 26  # of a document that is read; a state.json with the bounds of a million pixels has 40 MB
MISSING = object()  # the value of a required key that data lacks


def failure(action: str, path: Path, error: OSError) -> RecordError:
    """Convert an OSError to a RecordError: "cannot write `a/b`: no space left on device"."""
    hint = "free space on its disk" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    return RecordError(f"cannot {action} `{path}`: {(error.strerror or str(error)).lower()}", hint=hint)


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Return JSON of plain values and NumPy scalars. NaN and infinities become null."""
    try:
        return json.dumps(value, indent=indent, allow_nan=False)
    except (TypeError, ValueError):  # as most values are plain, looking at each first would take several times as long
        return json.dumps(_plain(value), indent=indent, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    # NumPy's scalars are recognized by `item`, because importing NumPy would take `hive ls` a tenth of a second.
    return _plain(value.item()) if hasattr(value, "item") else value


def parse_object(data: bytes) -> dict[str, Any] | None:
    """Parse a JSON object. Returns None if `data` is not one.

    Lone surrogates, which cannot be encoded, become `?`.
    """
    try:
        value = json.loads(data)
        if b"\\ud" in data.lower():
            value = json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
    except (ValueError, RecursionError, MemoryError):
        return None
    return value if isinstance(value, dict) else None


def is_json_number(value: object) -> bool:
    """Whether a value is a finite number of at most 64 bits, as hive writes them; True and False are not."""
    if isinstance(value, int):
        return not isinstance(value, bool) and -(2**63) <= value < 2**64
    return isinstance(value, float) and math.isfinite(value)


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file. Raises RecordError if the file cannot be read or is not a JSON object."""
    try:
        value = parse_object(read_regular(path, DOCUMENT_BYTES))
    except OSError as error:
        raise failure("read", path, error) from error
    if value is None:
        raise RecordError(f"`{path}` is not a JSON object")
    return value


def read_document(path: Path, kind: type[Document]) -> Document:
    """Read a file as an instance of the dataclass `kind`. Raises RecordError for a missing or mistyped field."""
    value, hints = read_object(path), typing.get_type_hints(kind)
    if wrong := misfit(value, kind):
        raise RecordError(f"`{path}`: {wrong}")
    return kind(**{name: value[name] for name in hints if name in value})


def misfit(value: object, hint: Any, name: str = "") -> str:
    """Return how data differs from an annotation: "`actors.0.pid` is missing"; "" if it fits.

    hint: a plain type; `X | None`, `list[X]` or `dict[str, X]`; a dataclass or TypedDict, for a map with these keys and
    any others; Annotated[X, range(a, b)] for a number from a on and below b; Annotated[float, math.nan] for a float
    that may also be NaN or infinite. All other numbers are finite and have at most 64 bits. `name`: that of the value.
    """
    if value is MISSING:
        return f"`{name}` is missing"
    if (parts := _parts(value, hint)) is None:
        return "" if _is_of(value, hint) else f"`{name}` is not {_described(hint)}"
    below = f"{name}." if name else ""
    return next(filter(None, (misfit(item, kind, f"{below}{key}") for key, item, kind in parts)), "")


def _parts(value: object, hint: Any) -> Iterable[tuple[Any, Any, Any]] | None:
    """Return key, value and annotation of each part of a list or map; None for any other value or annotation."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is list and isinstance(value, list):
        return ((number, item, arguments[0]) for number, item in enumerate(value))
    if origin is dict and isinstance(value, dict):
        return ((key, item, arguments[1]) for key, item in value.items())
    if _has_fields(hint) and isinstance(value, dict):
        fields = _fields(hint).items()
        return ((k, value.get(k, MISSING), kind) for k, (kind, required) in fields if required or k in value)
    return None


def _is_of(value: object, hint: Any) -> bool:
    """Whether a value has the annotated type, if that is not one of lists, maps or fields."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin in (types.UnionType, typing.Union):
        return any(not misfit(value, argument) for argument in arguments)
    if origin is Annotated:
        kind, limit = arguments
        if isinstance(limit, range):
            return not misfit(value, kind) and limit.start <= value < limit.stop  # type: ignore[operator]
        return isinstance(value, float) or is_json_number(value)
    if isinstance(value, bool):
        return hint is bool
    if hint in (int, float):
        return is_json_number(value) and (hint is float or isinstance(value, int))
    return isinstance(hint, type) and not _has_fields(hint) and isinstance(value, hint)


def _described(hint: Any) -> str:
    if _has_fields(hint):
        return "a map"
    return f"of type {hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else hint}"


def _has_fields(hint: Any) -> bool:
    return isinstance(hint, type) and (dataclasses.is_dataclass(hint) or typing.is_typeddict(hint))


@functools.cache
def _fields(kind: Any) -> Mapping[str, tuple[Any, bool]]:
    """Return field -> (annotation, whether it is required) of a dataclass or a TypedDict."""
    hints = typing.get_type_hints(kind, include_extras=True)
    if not dataclasses.is_dataclass(kind):
        optional = {name: typing.get_args(hint)[0] for name, hint in hints.items() if _may_lack(hint)}
        return {name: (optional.get(name, hint), name not in optional) for name, hint in hints.items()}
    unset = dataclasses.MISSING
    return {f.name: (hints[f.name], f.default is unset is f.default_factory) for f in dataclasses.fields(kind)}


def _may_lack(hint: Any) -> bool:
    return typing.get_origin(hint) is typing.NotRequired
