"""Arrays in messages: how a message declares them, how they are checked, and their form on the wire.

    class Sample(hive.Message):
        observations: Annotated[NDArray[np.float32], hive.Shape("T", "B", 4)]
        rewards: Annotated[NDArray[np.float32], hive.Shape("T", "B")]
        seed: int

The annotation gives the dtype. A size is a number or a name. Within one message a name stands for one size, which may
differ in the next message: `rewards` above has as many rows as `observations`. Both ends check this, the writer with a
TypeError that names the field, the reader with a `WireError`. No array is converted.

`Layout.of(Sample, T=32, B=16)` turns such a message into the layout of a slot (hive.runtime.memory.segments). A plain
`np.ndarray` may have any dtype and shape; a message with such a field has no layout and can only be sent as a message.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_args, get_origin, get_type_hints

from hive.errors import WireError

if TYPE_CHECKING:  # imported late at runtime: a command that only inspects a run must start without NumPy
    import numpy as np

DTYPES = frozenset(
    {"float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64", "bool"}
)
MAX_FRAMES = 256  # maximum arrays per message or batch
MAX_ARRAY_BYTES = 1 << 30  # maximum bytes per array; larger arrays belong in shared memory
MAX_DIMENSIONS = 16  # maximum dimensions per array

Frame: TypeAlias = bytes | bytearray | memoryview
Frames: TypeAlias = Sequence[Frame]
FieldWriter: TypeAlias = Callable[[Any, list[Any]], Any]
FieldPath: TypeAlias = tuple[Any, str | int]  # a position in a message: (parent path or None, field, key or index)
FieldReader: TypeAlias = Callable[[Any, Frames, FieldPath], Any]


class Shape:
    """The sizes of an array's dimensions: integers, or names that stand for one size throughout a message.

    Raises TypeError for a size that is neither an integer >= 0 nor an identifier.
    """

    __slots__ = ("sizes",)

    def __init__(self, *sizes: int | str) -> None:
        for size in sizes:
            if not (isinstance(size, str) and size.isidentifier()) and not (type(size) is int and size >= 0):
                raise TypeError(f'invalid size {size!r}: expected an integer >= 0 or a name such as "T"')
        self.sizes = sizes

    def __repr__(self) -> str:
        return f"[{', '.join(map(str, self.sizes))}]"

    def with_sizes(self, known: Mapping[str, int]) -> tuple[int, ...]:
        """Replace each name by its size in `known`. Raises KeyError for a name that `known` lacks."""
        return tuple(known[size] if isinstance(size, str) else size for size in self.sizes)


class ArrayKind:
    """The declared dtype and shape of one array field; None allows any."""

    __slots__ = ("dtype", "shape")

    def __init__(self, dtype: np.dtype[Any] | None, shape: Shape | None) -> None:
        self.dtype = dtype
        self.shape = shape

    def __str__(self) -> str:
        return f"{self.dtype or 'any dtype '}{self.shape or ''}"

    def fault(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> str:
        """Describe how this dtype and shape differ from the declared ones; "" if they fit. Names fit any size."""
        declared = self.shape.sizes if self.shape is not None else shape
        fits = len(declared) == len(shape) and all(
            isinstance(size, str) or size == there for size, there in zip(declared, shape, strict=True)
        )
        if fits and (self.dtype is None or dtype == self.dtype):
            return ""
        return f"declared {self}, got {dtype}{list(shape)}"


@functools.cache
def _dtypes() -> dict[type, np.dtype[Any]]:
    import numpy as np

    return {np.dtype(name).type: np.dtype(name) for name in DTYPES}


def declared_fields(message: type) -> dict[str, Any]:
    """Return the annotations of a message type's fields by name."""
    hints = get_type_hints(message, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(message)}


def without_aliases(hint: Any) -> Any:
    """Return what an alias of a `type` statement stands for, with its arguments; any other annotation as it is.

    From NumPy 2.5 on, NDArray is such an alias.
    """
    while hasattr(alias := get_origin(hint) or hint, "__value__"):
        arguments = get_args(hint)
        hint = alias.__value__[arguments] if arguments else alias.__value__
    return hint


def array_kind(hint: Any) -> ArrayKind | None:
    """Read an array declaration from a field's annotation; None if the field is not an array.

    Raises TypeError for a dtype that messages do not support, and for a Shape on a field that is not an array.
    """
    shape = None
    hint = without_aliases(hint)
    if get_origin(hint) is Annotated:
        hint, *extras = get_args(hint)
        hint = without_aliases(hint)
        shape = next((extra for extra in extras if isinstance(extra, Shape)), None)
    numpy = sys.modules.get("numpy")  # a module that declares a NumPy field has imported NumPy
    if numpy is not None and hint is numpy.ndarray:
        return ArrayKind(None, shape)
    if numpy is None or get_origin(hint) is not numpy.ndarray:
        if shape is not None:
            raise TypeError(f"a Shape can only annotate an array, not {hint!r}")
        return None
    dtypes = get_args(get_args(hint)[1])  # NDArray[np.float32] is ndarray[Any, dtype[float32]]
    if not dtypes or not isinstance(dtypes[0], type):
        return ArrayKind(None, shape)
    if (dtype := _dtypes().get(dtypes[0])) is None:
        raise TypeError(f"arrays of {dtypes[0].__name__} cannot be sent; use one of {', '.join(sorted(DTYPES))}")
    return ArrayKind(dtype, shape)


def disagreement(shapes: Mapping[str, Shape], message: Any) -> str:
    """Describe two arrays that give one name two sizes; "" if there are none.

    Expects that each array already fits its own declaration.
    """
    import numpy as np

    sizes: dict[str, tuple[int, str]] = {}
    for field, shape in shapes.items():
        array = getattr(message, field)
        for name, size in zip(shape.sizes, np.shape(array), strict=True) if array is not None else ():
            if not isinstance(name, str):
                continue
            known, where = sizes.setdefault(name, (size, field))
            if known != size:
                return f"`{field}` has {name} = {size}, `{where}` has {name} = {known}"
    return ""


def shown(path: FieldPath) -> str:
    """Format a path, for example as `Plan.actors[3].name`."""
    inside, part = path
    if inside is None:
        return str(part)
    return f"{shown(inside)}[{part}]" if isinstance(part, int) else f"{shown(inside)}.{part}"


def compile_array(kind: ArrayKind) -> tuple[FieldWriter, FieldReader]:
    if kind.dtype is None and kind.shape is None:
        return write_array, read_array

    def write(value: Any, frames: list[Any]) -> Any:
        import numpy as np

        array = np.asarray(value)
        if fault := kind.fault(array.dtype, array.shape):
            raise TypeError(fault)
        return write_array(array, frames)

    def read(item: Any, frames: Frames, path: FieldPath) -> Any:
        array = read_array(item, frames, path)
        if fault := kind.fault(array.dtype, array.shape):
            raise WireError(f"{shown(path)}: {fault}")
        return array

    return write, read


def write_array(value: Any, frames: list[Any]) -> Any:
    import numpy as np

    array = np.ascontiguousarray(value)
    if array.dtype.name not in DTYPES or not array.dtype.isnative:
        raise TypeError(f"arrays of dtype {array.dtype} cannot be sent; use one of {', '.join(sorted(DTYPES))}")
    if array.nbytes > MAX_ARRAY_BYTES or len(frames) == MAX_FRAMES:
        raise TypeError(
            f"a message holds at most {MAX_FRAMES} arrays of at most {MAX_ARRAY_BYTES} bytes; "
            "larger data belongs in shared memory"
        )
    frames.append(array.reshape(-1).view(np.uint8).data)
    return [len(frames), array.dtype.name, list(np.shape(value))]


def read_array(item: Any, frames: Frames, path: FieldPath) -> Any:
    import numpy as np

    if type(item) is not list or len(item) != 3:
        raise WireError(f"{shown(path)}: expected an array")
    index, dtype, shape = item
    if type(index) is not int or not 0 < index < len(frames) or dtype not in DTYPES:
        raise WireError(f"{shown(path)}: an array with an invalid frame number or dtype")
    if (
        type(shape) is not list
        or len(shape) > MAX_DIMENSIONS
        or not all(type(n) is int and 0 <= n <= MAX_ARRAY_BYTES for n in shape)
    ):
        raise WireError(f"{shown(path)}: an array with an invalid shape")
    frame = frames[index]
    if prod(shape) * np.dtype(dtype).itemsize != len(frame):
        raise WireError(
            f"{shown(path)}: an array of shape {shape} and dtype {dtype} does not fill a frame of {len(frame)} bytes"
        )
    return np.frombuffer(frame, dtype).reshape(shape)
