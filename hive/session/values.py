"""Writes values as Python expressions: numbers, text, containers, arrays, tables of pandas, spaces, paths, enums.

    written([1.5, numpy.zeros(2)], names)  ->  "[1.5, _numpy.array([0.0, 0.0], dtype='float64')]"

An expression is a copy of the value at this moment. What has no such expression (open files, models, generators) is
refused, never guessed.
"""

from __future__ import annotations

import ast
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import logging
import math
import pathlib
import re
import sys
import types
import typing
import zoneinfo
from collections.abc import Callable
from typing import Any

VALUE_CHARACTERS = 4_000_000  # most characters of a value: a session's module is source that each process compiles
SHORT_ARRAY = 100  # most elements of an array that are written as numbers, which one can read
DEPTH = 50  # most containers inside each other: a list that holds itself has no end
PLAIN = (bool, int, str, bytes, type(None), type(...), range)
BY_REPR = (decimal.Decimal, fractions.Fraction)
OF_TIME = {
    datetime.date: ("year", "month", "day"),
    datetime.time: ("hour", "minute", "second", "microsecond", "tzinfo"),
    datetime.datetime: ("year", "month", "day", "hour", "minute", "second", "microsecond", "tzinfo"),
    datetime.timedelta: ("days", "seconds", "microseconds"),
}
"""The attributes that are the arguments of these types, in order."""
NUMBER_BYTES = 8  # most bytes of a number that Python's own numbers hold: longdouble has more
BITS = {1: "uint8", 2: "int16", 4: "int32"}  # bytes of an element of a tensor -> a dtype that NumPy knows, too

FIXED: tuple[Any, ...] = (
    *PLAIN,
    float,
    complex,
    tuple,
    frozenset,
    enum.Enum,
    pathlib.PurePath,
    re.Pattern,
    *BY_REPR,
    *OF_TIME,
)
"""Objects of these types do not change, so a copy is as good."""

Import = Callable[[str], str]
Define = Callable[[Any], str]
Share = Callable[[Any], str]


class NotWritten(Exception):
    """A value, or a part of it (the argument), has no expression."""


def written(value: Any, imported: Import, defined: Define, shared: Share = lambda _: "") -> str:
    """Return an expression with the value `value`. Raises NotWritten.

    imported: called with the name of a module; returns the name under which the expression finds it.
    defined: called with a class or function; returns its name. shared: called with an object inside of the value that
    may change; returns its name if it is in other values, too, else "".
    """
    text = _Writer(imported, defined, shared).text(value, DEPTH)
    if len(text) > VALUE_CHARACTERS:
        raise NotWritten(f"a value of {len(text):,} characters (at most {VALUE_CHARACTERS:,} are sent)")
    return text


@dataclasses.dataclass(frozen=True)
class _Writer:
    imported: Import
    defined: Define
    shared: Share

    def text(self, value: Any, depth: int) -> str:
        if depth == 0:
            raise NotWritten("a container that holds itself")
        if depth < DEPTH and not isinstance(value, (*FIXED, type, types.FunctionType)) and (name := self.shared(value)):
            return name
        inner = functools.partial(self.text, depth=depth - 1)
        kind = type(value)
        if kind in PLAIN:
            return repr(value)
        if kind is float:
            return repr(value) if math.isfinite(value) else f'float("{value}")'
        if kind is complex:  # the sum that its text is loses signs of zeros
            return f"complex({inner(value.real)}, {inner(value.imag)})"
        if kind in (list, tuple, set, frozenset, dict):
            return self._container(value, inner)
        if text := self._standard(value, inner) or self._typing(value, inner):
            return text
        if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
            return self.defined(value)
        return self._of_library(value, inner) or self._fields(value, inner)

    def _standard(self, value: Any, inner: Callable[[Any], str]) -> str:
        """Return the expression of a value of Python's standard library; "" for others."""
        kind = type(value)
        if isinstance(value, enum.Enum):
            return f"{self.defined(kind)}[{value.name!r}]" if value.name in kind.__members__ else _refuse(value)
        if isinstance(value, functools.partial):
            named = (f"{name}={inner(argument)}" for name, argument in value.keywords.items())
            parts = [inner(value.func), *map(inner, value.args), *named]
            return f"{self.imported('functools')}.partial({', '.join(parts)})"
        if kind in BY_REPR:
            return f"{self.imported(kind.__module__)}.{value!r}"
        if kind in OF_TIME or kind in (datetime.timezone, zoneinfo.ZoneInfo):
            return self._time(value, inner)
        if isinstance(value, pathlib.PurePath):
            return f"{self.imported('pathlib')}.{kind.__name__}({str(value)!r})"
        if isinstance(value, logging.Logger):
            return f"{self.imported('logging')}.getLogger({value.name!r})"
        if kind in (collections.OrderedDict, collections.Counter, collections.deque):
            more = f", maxlen={value.maxlen}" if isinstance(value, collections.deque) else ""
            plain = dict(value) if isinstance(value, dict) else list(value)
            return f"{self.imported('collections')}.{kind.__name__}({inner(plain)}{more})"
        if kind is collections.defaultdict:
            return f"{self.imported('collections')}.defaultdict({inner(value.default_factory)}, {inner(dict(value))})"
        if kind is re.Pattern:
            return f"{self.imported('re')}.compile({value.pattern!r}, {value.flags})"
        return ""

    def _time(self, value: Any, inner: Callable[[Any], str]) -> str:
        """Return the expression of a date, a time or a time zone."""
        if isinstance(value, zoneinfo.ZoneInfo):
            return f"{self.imported('zoneinfo')}.ZoneInfo({value.key!r})" if value.key else _refuse(value)
        if isinstance(value, datetime.timezone):
            arguments = value.__getinitargs__()  # type: ignore[attr-defined]
        else:
            arguments = [getattr(value, name) for name in OF_TIME[type(value)]]
        fold = ", fold=1" if getattr(value, "fold", 0) else ""
        return f"{self.imported('datetime')}.{type(value).__name__}({', '.join(map(inner, arguments))}{fold})"

    def _typing(self, value: Any, inner: Callable[[Any], str]) -> str:
        """Return the expression of a type as annotations have it; "" for other values."""
        if value is type(None):
            return "type(None)"
        if isinstance(value, types.UnionType):
            return " | ".join(map(inner, value.__args__))
        if type(value) is typing.TypeVar and value.__bound__ is None and not value.__constraints__:
            return f"{self.imported('typing')}.TypeVar({value.__name__!r})"
        if value is typing.Any:
            return f"{self.imported('typing')}.Any"
        origin = typing.get_origin(value)
        if origin is None or typing.get_args(value) == ():
            return ""
        home = f"{self.imported('typing')}.Union" if origin is typing.Union else self.defined(origin)
        if isinstance(origin, type) and origin.__module__ == "collections.abc":
            home = f"{self.imported('collections.abc')}.{origin.__name__}"
        parts = [f"[{', '.join(map(inner, one))}]" if isinstance(one, list) else inner(one) for one in value.__args__]
        if home.endswith(".Callable"):
            parts = [f"[{', '.join(parts[:-1])}]", parts[-1]]
        return f"{home}[{', '.join(parts)}]"

    def _container(self, value: Any, inner: Callable[[Any], str]) -> str:
        match value:
            case dict():
                return f"{{{', '.join(f'{inner(key)}: {inner(item)}' for key, item in value.items())}}}"
            case list():
                return f"[{', '.join(map(inner, value))}]"
            case tuple():
                return f"({', '.join(map(inner, value))}{',' * (len(value) == 1)})"
        items = ", ".join(sorted(map(inner, value)))  # sorted: the order of a set of strings differs in each process
        return f"{type(value).__name__}([{items}])"

    def _of_library(self, value: Any, inner: Callable[[Any], str]) -> str:
        """Return the expression of a value of NumPy, pandas, torch or Gymnasium; "" for others."""
        ways = {"numpy": self._numpy, "torch": self._torch, "pandas": self._pandas, "gymnasium.spaces": self._space}
        for name, way in ways.items():
            library = sys.modules.get(name)  # the value is of none that the program has not imported
            if library is not None and (text := way(value, inner, library)):
                return text
        return ""

    def _torch(self, value: Any, inner: Callable[[Any], str], torch: Any) -> str:
        if type(value) is torch.Tensor and not value.requires_grad and value.device.type == "cpu":
            if value.layout is not torch.strided or value.is_quantized:
                return _refuse(value)
            plain, place = value.resolve_conj().resolve_neg(), self.imported("torch")
            try:
                return f"{place}.from_numpy({inner(plain.numpy())})"
            except TypeError:  # a dtype that NumPy does not have, such as bfloat16: its bits
                if plain.element_size() not in BITS:
                    return _refuse(value)
                bits = plain.view(getattr(torch, BITS[plain.element_size()]))
                return f"{place}.from_numpy({inner(bits.numpy())}).view({inner(value.dtype)})"
        if isinstance(value, torch.dtype | torch.device):
            text = str(value) if isinstance(value, torch.dtype) else f"torch.{value!r}"
            return f"{self.imported('torch')}.{text.removeprefix('torch.')}"
        return ""

    def _pandas(self, value: Any, inner: Callable[[Any], str], pandas: Any) -> str:
        if value is pandas.NA or value is pandas.NaT:
            return f"{self.imported('pandas')}.{'NA' if value is pandas.NA else 'NaT'}"
        if isinstance(value, pandas.Timestamp | pandas.Timedelta):
            return f"{self.imported('pandas')}.{value!r}"
        return (
            self._table(value, inner, pandas)
            if isinstance(value, pandas.DataFrame | pandas.Series | pandas.Index)
            else ""
        )

    def _space(self, value: Any, inner: Callable[[Any], str], spaces: Any) -> str:
        if not isinstance(value, spaces.Space) or not type(value).__module__.startswith("gymnasium."):
            return ""
        place, arguments = self.imported("gymnasium.spaces"), _arguments(value, spaces)
        if arguments is None:
            return ""
        call = ", ".join(f"{name}={inner(argument)}" for name, argument in arguments.items())
        return f"{place}.{type(value).__name__}({call})"

    def _numpy(self, value: Any, inner: Callable[[Any], str], numpy: Any) -> str:
        return self._array(value, numpy) if isinstance(value, numpy.ndarray | numpy.generic | numpy.dtype) else ""

    def _array(self, value: Any, numpy: Any) -> str:
        place = self.imported("numpy")
        if isinstance(value, numpy.dtype):
            return f"{place}.dtype({_described(value)!r})"
        if type(value) is not numpy.ndarray and not isinstance(value, numpy.generic):
            return _refuse(value)  # masked arrays, records, memory maps
        if value.dtype.hasobject:
            return _refuse(value)
        kind, base = _described(value.dtype), value.base
        while isinstance(base, numpy.ndarray) and isinstance(base.base, numpy.ndarray):
            base = base.base
        if type(base) is numpy.ndarray and base.flags.c_contiguous and (name := self.shared(base)):
            offset = value.__array_interface__["data"][0] - base.__array_interface__["data"][0]
            return f"{place}.ndarray({value.shape}, {kind!r}, {name}, {offset}, {value.strides})"
        plain = value.dtype.kind in "bif" and value.dtype.itemsize <= NUMBER_BYTES
        if value.size <= SHORT_ARRAY and plain and numpy.isfinite(value).all():
            text = f"{place}.array({ast.unparse(ast.parse(repr(value.tolist())))}, dtype={kind!r})"
        else:
            text = f"{place}.frombuffer({value.tobytes()!r}, dtype={kind!r}).reshape({value.shape!r}).copy()"
        if not value.nbytes:  # no elements, or texts without characters
            text = f"{place}.empty({value.shape!r}, dtype={kind!r})"
        return f"{text}[()]" if isinstance(value, numpy.generic) else text

    def _table(self, value: Any, inner: Callable[[Any], str], pandas: Any) -> str:
        place = self.imported("pandas")
        if isinstance(value, pandas.DataFrame):
            columns = [value.iloc[:, number] for number in range(value.shape[1])]
            series = ", ".join(self._column(column, inner) for column in columns)
            names = self._index(value.columns, inner, place, pandas)
            rows = self._index(value.index, inner, place, pandas)
            return f"{place}.DataFrame(dict(enumerate([{series}])), index={rows}).set_axis({names}, axis=1)"
        if isinstance(value, pandas.Series):
            rows = self._index(value.index, inner, place, pandas)
            return f"{place}.Series({self._column(value, inner)}, index={rows}, name={inner(value.name)})"
        return self._index(value, inner, place, pandas)

    def _column(self, column: Any, inner: Callable[[Any], str]) -> str:
        if getattr(column.dtype, "tz", None) is not None:
            plain = inner(column.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy())
            zone = f'.tz_localize("UTC").tz_convert({str(column.dtype.tz)!r})'
            return f"{self.imported('pandas')}.DatetimeIndex({plain}){zone}"
        if column.dtype.kind in "biufmMc" and type(column.dtype).__module__.startswith("numpy"):
            return inner(column.to_numpy())
        return f"{self.imported('pandas')}.array({inner(list(column))}, dtype={str(column.dtype)!r})"

    def _index(self, index: Any, inner: Callable[[Any], str], place: str, pandas: Any) -> str:
        if isinstance(index, pandas.MultiIndex):
            levels = [self._index(index.get_level_values(n), inner, place, pandas) for n in range(index.nlevels)]
            return f"{place}.MultiIndex.from_arrays([{', '.join(levels)}], names={inner(list(index.names))})"
        if isinstance(index, pandas.DatetimeIndex):
            zone = "" if index.tz is None else f'.tz_localize("UTC").tz_convert({str(index.tz)!r})'
            plain = index if index.tz is None else index.tz_convert("UTC").tz_localize(None)
            text = f"{place}.DatetimeIndex({inner(plain.to_numpy())}, name={inner(index.name)}){zone}"
            return text if index.freq is None else f"{place}.DatetimeIndex({text}, freq={index.freqstr!r})"
        if isinstance(index, pandas.RangeIndex):
            return f"{place}.RangeIndex({index.start}, {index.stop}, {index.step}, name={inner(index.name)})"
        return f"{place}.Index({self._column(index, inner)}, dtype={str(index.dtype)!r}, name={inner(index.name)})"

    def _fields(self, value: Any, inner: Callable[[Any], str]) -> str:
        """Return the call that makes an instance of a dataclass or a named tuple."""
        kind = type(value)
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            return f"{self.defined(kind)}({', '.join(map(inner, value))})"
        if dataclasses.is_dataclass(value):
            fields = dataclasses.fields(value)
            names = [field.name for field in fields]
            state = getattr(value, "__dict__", None)
            plain = all(field.init for field in fields) and "__post_init__" not in dir(kind)
            if plain and (state is None or [*state] == names):
                return f"{self.defined(kind)}({', '.join(f'{name}={inner(getattr(value, name))}' for name in names)})"
        if kind is types.SimpleNamespace:
            parts = ", ".join(f"{name}={inner(item)}" for name, item in vars(value).items())
            return f"{self.imported('types')}.SimpleNamespace({parts})"
        if _is_plain(kind):
            return f"{self.imported('hive.session.objects')}.restored({self.defined(kind)}, {inner(vars(value))})"
        return _refuse(value)


def _arguments(space: Any, spaces: Any) -> dict[str, Any] | None:
    """Return the arguments that make a space; None for spaces beyond the usual ones."""
    match type(space):
        case spaces.Box:
            return {"low": space.low, "high": space.high, "dtype": space.dtype}
        case spaces.Discrete:
            return {"n": int(space.n), "start": int(space.start)}
        case spaces.MultiDiscrete:
            return {"nvec": space.nvec, "dtype": space.dtype, "start": space.start}
        case spaces.MultiBinary:
            return {"n": space.n}
        case spaces.Dict:
            return {"spaces": dict(space.spaces)}
        case spaces.Tuple:
            return {"spaces": tuple(space.spaces)}
    return None


def _described(dtype: Any) -> Any:
    return dtype.str if dtype.names is None else dtype.descr


def _is_plain(kind: type) -> bool:
    """Whether the attributes of an instance are all that it is: no slots, no memory of C code, no ways of its own."""
    own = ("__getstate__", "__reduce__", "__reduce_ex__", "__setstate__", "__new__")
    plain = all(getattr(kind, name, None) is getattr(object, name, None) for name in own)
    return plain and kind.__basicsize__ <= _Plain.__basicsize__ and not getattr(kind, "__slots__", ())


class _Plain:
    """Has a dictionary of attributes and nothing else."""


def _refuse(value: Any) -> str:
    raise NotWritten(f"a value of type `{type(value).__name__}`")
