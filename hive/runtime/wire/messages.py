"""Messages: frozen dataclasses that actors send each other, and their form on the wire.

    class SetDifficulty(hive.Message):
        level: float

The writer and the reader of a class are compiled once, at first use. Fields are `int float bool str bytes`, arrays
(any, or with a dtype and a shape: hive.runtime.wire.arrays), other messages, `X | None`, `tuple[X, ...]`, `dict[str,
X]`, and `Tree` (scalars, lists and maps nested as msgpack allows). On the wire a message is

    frame 0      msgpack [type name, field, field, ...]; an array is [frame number, dtype, shape]
    frame 1...   the unchanged bytes of the arrays

so large arrays are never copied into the msgpack part. A reader gives `decode` the closed set of types that its socket
may carry. Everything is checked before it is used: types, lengths, array shape x itemsize against the frame, dtype
against a list. Invalid frames raise `WireError`; no code is executed and nothing is unpickled. A writer refuses
whatever a reader would refuse, with a TypeError that names the field, so that no message disappears silently on the
way.

This module does not import NumPy, so that a command that only inspects a run starts without it.
"""

from __future__ import annotations

import dataclasses
import operator
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar, Union, get_args, get_origin

import msgpack

from hive.errors import WireError
from hive.runtime.wire.arrays import (
    MAX_ARRAY_BYTES,
    MAX_FRAMES,
    FieldPath,
    FieldReader,
    FieldWriter,
    Frame,
    Frames,
    Shape,
    array_kind,
    compile_array,
    disagreement,
    shown,
    without_aliases,
)

MAX_TEXT_BYTES = 1 << 20  # maximum bytes of a text: a traceback or a config fits, a runaway string does not
MAX_CHARACTER_BYTES = 10  # maximum bytes per character: an unencodable one is written as `\\U0001f600`
MAX_ITEMS = 1 << 16  # maximum items of a list or map: far above hive's messages, far below exhausting memory
UNICODE_ERRORS = "backslashreplace"  # a report about a file name that is not valid Unicode must still be sent

SCALARS = (int, float, bool, str, bytes)
NUMBERS = (int, float, bool)

Tree: TypeAlias = Any  # None, bool, int, float, str, bytes, and lists and string-keyed maps of these
M = TypeVar("M", bound="Message")


@typing.dataclass_transform(frozen_default=True, kw_only_default=False)
class Message:
    """Base of every message. Every subclass becomes a frozen dataclass."""

    __hive_name__: ClassVar[str]
    __hive_fields__: ClassVar[list[tuple[str, FieldWriter, FieldReader]] | None]
    __hive_kinds__: ClassVar[dict[str, type] | None]  # types by field if all are scalars: checked in one comparison
    __hive_shapes__: ClassVar[dict[str, Shape]]  # shapes by field, if two of them share a named size
    __hive_numbers__: ClassVar[Callable[[Any], Any] | None]  # getter of all fields if all are numbers: written at once

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(frozen=True, eq=False)(cls)
        cls.__hive_name__ = cls.__qualname__
        cls.__hive_fields__ = None

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(_equal(getattr(self, f.name), getattr(other, f.name)) for f in dataclasses.fields(self))  # type: ignore[arg-type]

    __hash__ = None  # type: ignore[assignment]  # arrays have no hash


def _equal(a: Any, b: Any) -> bool:
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(a, numpy.ndarray):
        return isinstance(b, numpy.ndarray) and a.dtype == b.dtype and bool(numpy.array_equal(a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    if isinstance(a, (tuple, list)) and type(a) is type(b):
        return len(a) == len(b) and all(map(_equal, a, b))
    return bool(a == b)


def compiled(cls: type[Message]) -> list[tuple[str, FieldWriter, FieldReader]]:
    """Return (name, writer, reader) per field. Compiled at first use, when all names in annotations are defined."""
    fields = cls.__hive_fields__  # never a base class's: `__init_subclass__` sets it for every class
    if fields is None:
        hints = typing.get_type_hints(cls, include_extras=True)
        names = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
        fields = [(name, *_compile(hints[name], f"{cls.__hive_name__}.{name}")) for name in names]
        scalars = all(hints[name] in SCALARS for name in names) and not hasattr(cls, "__post_init__")
        cls.__hive_kinds__ = {name: hints[name] for name in names} if scalars else None
        numbers = scalars and len(names) > 1 and all(hints[name] in NUMBERS for name in names)
        cls.__hive_numbers__ = operator.attrgetter(*names) if numbers else None
        cls.__hive_shapes__ = _shapes(hints, names)
        cls.__hive_fields__ = fields
    return fields


def _shapes(hints: Mapping[str, Any], names: Sequence[str]) -> dict[str, Shape]:
    """Return the shapes of the arrays if two of them share a named size, and could thus disagree; else nothing."""
    shapes = {name: kind.shape for name in names if (kind := array_kind(_certain(hints[name]))) and kind.shape}
    named = [size for shape in shapes.values() for size in shape.sizes if isinstance(size, str)]
    return shapes if len(set(named)) < len(named) else {}


def _certain(hint: Any) -> Any:
    """Return `X` for `X | None`."""
    hint = without_aliases(hint)
    certain = [a for a in get_args(hint) if a is not type(None)]
    return certain[0] if get_origin(hint) in (Union, types.UnionType) and len(certain) == 1 else hint


def _compile(kind: Any, where: str) -> tuple[FieldWriter, FieldReader]:
    kind = without_aliases(kind)
    if kind is Any:
        return _write_tree, _read_tree
    if kind in SCALARS:
        return _compile_scalar(kind)
    try:
        array = array_kind(kind)
    except TypeError as error:
        raise TypeError(f"{where}: {error}") from None
    if array is not None:
        return compile_array(array)
    if isinstance(kind, type) and issubclass(kind, Message):
        return (lambda value, frames: write_fields(value, frames, kind)), (
            lambda item, frames, path: _read_fields(item, frames, kind, path)
        )
    return _compile_generic(kind, where)


def _compile_generic(kind: Any, where: str) -> tuple[FieldWriter, FieldReader]:
    """Compile a kind with parameters: `Annotated[X, ...]`, `X | None`, `tuple[X, ...]`, `dict[str, X]`."""
    match get_origin(kind), get_args(kind):
        case origin, (annotated, *_) if origin is Annotated:
            return _compile(annotated, where)
        case origin, (first, second) if origin in (Union, types.UnionType) and type(None) in (first, second):
            return _compile_optional(*_compile(second if first is type(None) else first, where))
        case origin, (item, last) if origin is tuple and last is Ellipsis:
            return _compile_tuple(item, where)
        case origin, (key, value) if origin is dict and key is str:
            return _compile_dict(*_compile(value, where))
    raise TypeError(
        f"{where}: a message cannot carry {kind!r}; use int, float, bool, str, bytes, numpy arrays, messages, "
        "X | None, tuple[X, ...], dict[str, X] or Tree"
    )


def _compile_optional(write: FieldWriter, read: FieldReader) -> tuple[FieldWriter, FieldReader]:
    return (lambda value, frames: None if value is None else write(value, frames)), (
        lambda item, frames, path: None if item is None else read(item, frames, path)
    )


def _compile_scalar(kind: type) -> tuple[FieldWriter, FieldReader]:
    accepted = (int, float) if kind is float else (kind,)

    def write(value: Any, frames: list[Any]) -> Any:
        if type(value) not in accepted:
            value = _plain(value)
        if type(value) not in accepted:
            raise TypeError(f"expected {kind.__name__}, got {type(value).__name__}")
        return _within_limits(value)

    def read(item: Any, frames: Frames, path: FieldPath) -> Any:
        if type(item) not in accepted:
            raise WireError(f"{shown(path)}: expected {kind.__name__}, got {type(item).__name__}")
        return float(item) if kind is float else item

    return write, read


def _compile_tuple(kind: Any, where: str) -> tuple[FieldWriter, FieldReader]:
    write, read = _compile(kind, where)
    scalar = kind if kind in SCALARS else None

    def read_tuple(item: Any, frames: Frames, path: FieldPath) -> Any:
        if type(item) is not list:
            raise WireError(f"{shown(path)}: expected a list, got {type(item).__name__}")
        if scalar is not None and not {*map(type, item)} - {scalar}:  # fast path for long columns of scalars
            return tuple(item)
        return tuple(read(x, frames, (path, i)) for i, x in enumerate(item))

    def write_tuple(value: Any, frames: list[Any]) -> Any:
        if not isinstance(value, (tuple, list)):
            raise TypeError(f"expected a tuple, got {type(value).__name__}")
        return [write(x, frames) for x in _within_limits(value)]

    return write_tuple, read_tuple


def _compile_dict(write: FieldWriter, read: FieldReader) -> tuple[FieldWriter, FieldReader]:
    def read_dict(item: Any, frames: Frames, path: FieldPath) -> Any:
        if type(item) is not dict:
            raise WireError(f"{shown(path)}: expected a map, got {type(item).__name__}")
        return {key: read(x, frames, (path, key)) for key, x in item.items()}

    def write_dict(value: Any, frames: list[Any]) -> Any:
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise TypeError(f"expected a map with text keys, got {type(value).__name__}")
        return {_within_limits(key): write(x, frames) for key, x in _within_limits(value).items()}

    return write_dict, read_dict


def _within_limits(value: Any) -> Any:
    """Return `value`. Raises TypeError for a size that a reader would refuse."""
    if isinstance(value, str) and len(value) <= MAX_TEXT_BYTES // MAX_CHARACTER_BYTES:
        return value
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        raise TypeError("an integer of more than 64 bits")
    if isinstance(value, (str, bytes)):
        size = len(value.encode(errors=UNICODE_ERRORS) if isinstance(value, str) else value)
        if size > MAX_TEXT_BYTES:
            raise TypeError(f"{size} bytes of text; at most {MAX_TEXT_BYTES} are allowed")
    elif isinstance(value, (tuple, list, dict)) and len(value) > MAX_ITEMS:
        raise TypeError(f"{len(value)} items; at most {MAX_ITEMS} are allowed")
    return value


def _plain(value: Any) -> Any:
    """Convert a NumPy scalar to a Python one; return anything else unchanged."""
    numpy = sys.modules.get("numpy")
    return value.item() if numpy is not None and isinstance(value, numpy.generic) else value


def _write_tree(value: Any, frames: list[Any]) -> Any:
    if type(value) not in SCALARS:
        value = _plain(value)
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {_within_limits(key): _write_tree(x, frames) for key, x in _within_limits(value).items()}
    if isinstance(value, (list, tuple)):
        return [_write_tree(x, frames) for x in _within_limits(value)]
    if value is not None and not isinstance(value, (bool, int, float, str, bytes)):
        raise TypeError(f"a tree holds scalars, lists and maps with text keys, not {type(value).__name__}")
    return _within_limits(value)


def _read_tree(item: Any, frames: Frames, path: FieldPath) -> Any:
    return item  # msgpack only produces scalars, lists and maps, within the limits that `unpack` sets


def write_fields(message: Message, frames: list[Any], cls: type[Message]) -> list[Any]:
    """Return the packed fields of a message and append its arrays to `frames`. Raises TypeError."""
    if type(message) is not cls:
        raise TypeError(f"expected {cls.__hive_name__}, got {type(message).__name__}")
    packed: list[Any] = []
    fields = compiled(cls)
    if cls.__hive_numbers__ is not None and cls.__hive_kinds__ is not None:
        values = cls.__hive_numbers__(message)
        as_declared = [*map(type, values)] == [*cls.__hive_kinds__.values()]
        if as_declared and max(values) < 1 << 64 and min(values) >= -(1 << 63):  # inf and NaN take the slow path, too
            return [*values]
    for name, write, _ in fields:
        try:
            packed.append(write(getattr(message, name), frames))
        except (TypeError, RecursionError) as error:
            raise TypeError(f"{cls.__hive_name__}.{name}: {error}") from None
    if cls.__hive_shapes__ and (fault := disagreement(cls.__hive_shapes__, message)):
        raise TypeError(f"{cls.__hive_name__}: {fault}")
    return packed


def _read_fields(item: Any, frames: Frames, cls: type[M], path: FieldPath) -> M:
    fields = compiled(cls)
    if type(item) is not list or len(item) != len(fields):
        raise WireError(f"{shown(path)}: expected the {len(fields)} fields of {cls.__hive_name__}")
    kinds = cls.__hive_kinds__
    if kinds is not None and [*map(type, item)] == [*kinds.values()]:
        message = object.__new__(cls)
        message.__dict__.update(zip(kinds, item, strict=True))
        return message
    values = {name: read(x, frames, (path, name)) for (name, _, read), x in zip(fields, item, strict=True)}
    if hasattr(cls, "__post_init__"):
        message = cls(**values)
    else:
        # The constructor of a frozen dataclass sets each field through object.__setattr__, which takes twice as long.
        message = object.__new__(cls)
        message.__dict__.update(values)
    if cls.__hive_shapes__ and (fault := disagreement(cls.__hive_shapes__, message)):
        raise WireError(f"{shown(path)}: {fault}")
    return message


def encode(message: Message) -> list[Frame]:
    """Encode a message as frames. Raises TypeError when a value does not fit the declaration of its field."""
    frames: list[Any] = []
    name, body = type(message).__hive_name__, write_fields(message, frames, type(message))
    return [pack(name, body), *frames]


def pack(name: str, body: list[Any]) -> bytes:
    """Return the first frame of a message. Raises TypeError when `body` is nested too deeply."""
    try:
        packed: bytes = msgpack.packb([name, *body], unicode_errors=UNICODE_ERRORS)
    except ValueError as error:  # nested too deeply
        raise TypeError(f"{name}: {error}") from None
    return packed


def decode(frames: Frames, allowed: Mapping[str, type[Message]]) -> Message:
    """Decode the message in `frames`, of one of the `allowed` types (see `type_set`). Raises WireError otherwise."""
    cls, body = open_frames(frames, allowed)
    return read_body(body, frames, cls, (None, cls.__hive_name__))


def open_frames(frames: Frames, allowed: Mapping[str, type[Message]]) -> tuple[type[Message], list[Any]]:
    """Return the type that the first frame names, and the packed fields. Raises WireError."""
    if not 0 < len(frames) <= MAX_FRAMES + 1:
        raise WireError(f"a message of {len(frames)} frames")
    if max(map(len, frames)) > MAX_ARRAY_BYTES:
        raise WireError(f"a frame of more than {MAX_ARRAY_BYTES} bytes")
    body = unpack(frames[0])
    if type(body) is not list or not body or type(body[0]) is not str:
        raise WireError("not a message")
    cls = allowed.get(body[0])
    if cls is None:
        raise WireError(f"a message of type {body[0][:64]!r}, which this socket does not carry")
    return cls, body[1:]


def read_body(body: Any, frames: Frames, cls: type[Message], path: FieldPath) -> Message:
    """Build a message from its packed fields and its frames. Raises WireError."""
    try:
        return _read_fields(body, frames, cls, path)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise WireError(f"{cls.__hive_name__}: {error}") from None


def unpack(frame: Frame) -> Any:
    """Return the msgpack object of a frame. Raises WireError when it is invalid or exceeds a limit."""
    try:
        return msgpack.unpackb(
            frame,
            raw=False,
            strict_map_key=True,
            max_str_len=MAX_TEXT_BYTES,
            max_bin_len=MAX_TEXT_BYTES,
            max_array_len=MAX_ITEMS,
            max_map_len=MAX_ITEMS,
            max_ext_len=0,
            object_hook=_text_keys,
            ext_hook=_no_extension,
        )
    except (ValueError, TypeError, RecursionError, OverflowError, msgpack.UnpackException) as error:
        raise WireError(f"not msgpack, or beyond its limits: {error}") from None


def _text_keys(map_: dict[Any, Any]) -> dict[Any, Any]:
    if not all(type(key) is str for key in map_):
        raise ValueError("a map with keys that are not text")
    return map_


def _no_extension(code: int, data: bytes) -> Any:
    raise ValueError(f"extension type {code}")


def type_set(classes: Iterable[type[Message]]) -> dict[str, type[Message]]:
    """Return the closed set of message types of one socket by wire name. Raises TypeError when two share a name."""
    result: dict[str, type[Message]] = {}
    for cls in classes:
        compiled(cls)
        if result.setdefault(cls.__hive_name__, cls) is not cls:
            raise TypeError(f"two message types are called {cls.__hive_name__}; rename one of them")
    return result
