"""Declares one key of the config in one line: type, default, description and limits.

    envs: int = key(16, "number of environments per collector", minimum=1)

The declaration provides the check (`Key.fault`), the text of an error (`Key.expected`) and the comments in the output
of `hive config` and `hive init`. Types are str, int, float, bool, a tuple of one of these or of Any (free values) and
Mapping (a free table).
A type has `| None` only if the default is None, which TOML cannot express, and `| Points` if `points` allows these.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hive.config.points import EXAMPLE, SCHEDULES, points_fault, points_message
from hive.config.values import free_fault, is_integer, is_number, shown, toml_text

REQUIRED: Any = dataclasses.MISSING
"""Marks a key without a default."""

AUTO = "auto"
"""The value of a key with `measured` that leaves its choice to the tuner (hive.tuning)."""

NOUNS = {str: "a string", int: "an integer", float: "a number", bool: "true or false"}
PLURALS = {str: "strings", int: "integers", float: "numbers", bool: "booleans"}
FITS: dict[Any, Callable[[object], bool]] = {
    str: lambda value: isinstance(value, str),
    int: is_integer,
    float: is_number,
    bool: lambda value: isinstance(value, bool),
    Any: lambda value: free_fault(value) is None,
}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The description of a key, and limits of its values beyond their type.

    doc: description with the unit, as shown by `hive config`.
    minimum, above, below, maximum: bounds of the number, or of each in an array; `above` and `below` are exclusive.
    choices: the allowed strings.
    accepts: returns whether a value of the right type is allowed; with `choices`, applies to all other values.
    expected: text for allowed values in an error, where the other limits do not provide it.
    numbers: whether a number may be given in place of the string that shows it.
    words: strings that stand for a number -> the function that computes the number.
    measured: whether "auto" may be given: its number is measured when a run starts, and is the default until then.
    resolve: computes the default from the keys before it in the table and from the tables before it, by their names;
        the declared default, if there is one, is what it computes from the defaults of those.
    points: limits of the values of points, for a schedule that may be given by them; None: not allowed.
    fixed: the reason why the key cannot change during a run; empty if it can.
    """

    doc: str
    minimum: float | None = None
    above: float | None = None
    below: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    accepts: Callable[[Any], bool] | None = None
    expected: str = ""
    numbers: bool = False
    words: Mapping[str, Callable[[], int | None]] = dataclasses.field(default_factory=dict)
    measured: bool = False
    resolve: Callable[[Mapping[str, Any]], Any] | None = None
    points: Limits | None = None
    fixed: str = ""


def key(default: Any, doc: str, *, hash: bool | None = None, **limits: Any) -> Any:
    """Return a dataclass field that declares a key of the config; `limits` are the fields of `Limits`.

    hash: False for arrays that may contain tables, which have no hash.
    """
    metadata = {"limits": Limits(doc=doc, **limits)}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), hash=False, metadata=metadata)
    return dataclasses.field(default=default, hash=hash, metadata=metadata)


@dataclass(frozen=True)
class Key:
    """A declared key. `kind` is the type of the value, or of the items if `is_array`."""

    name: str
    kind: type
    is_array: bool
    default: Any
    limits: Limits

    def fault(self, value: object) -> tuple[str | int, ...] | None:
        """Return the path inside `value` to the first wrong part, () for `value` as a whole, None if all is right."""
        if isinstance(value, list | tuple) and (values := self._values_of(value)) is not None:
            return points_fault(value, values._fits)
        if self.limits.numbers and is_number(value):
            value = str(value)
        words = self.limits.words if self.kind is not Mapping else ()
        if isinstance(value, str) and (value in words or self.is_automatic(value)):
            return None
        fault = self._type_fault(value)
        return fault if fault is not None or self._allowed(value) else ()

    def message(self, value: Any, fault: tuple[str | int, ...]) -> str:
        """Return the text of an error: what is expected, and the part of `value` that `fault` leads to."""
        if (values := self._values_of(value)) is not None:
            return points_message(value, fault, values.expected())
        for step in fault:
            value = value[step]
        return f"expected {self.expected()}, got {shown(value)}"

    def _values_of(self, value: object) -> Key | None:
        """Return the key that the values of points are checked by; None if `value` is not given by points."""
        limits = self.limits.points
        if limits is None or not isinstance(value, list | tuple):
            return None
        return Key(self.name, float, False, None, limits)

    def _type_fault(self, value: Any) -> tuple[str | int, ...] | None:
        """Return the path to the first part of another type or beyond the bounds; as `fault`."""
        if self.kind is Mapping:
            return free_fault(value) if isinstance(value, dict) else ()
        if not self.is_array:
            return None if self._fits(value) else ()
        if not isinstance(value, list):
            return ()
        return next(((index,) for index, item in enumerate(value) if not self._fits(item)), None)

    def is_automatic(self, value: object) -> bool:
        """Whether `value` leaves the choice to the tuner."""
        return self.limits.measured and value == AUTO

    def convert(self, value: Any) -> Any:
        """Convert a TOML value without a fault to the key's type."""
        if isinstance(value, str) and value in self.limits.words:
            return self.limits.words[value]()
        if self.kind is Mapping:
            return value
        if self._values_of(value) is not None:
            return tuple((int(step), float(number)) for step, number in value)
        if self.kind is Any:
            return tuple(value)
        return tuple(map(self.kind, value)) if self.is_array else self.kind(value)

    def expected(self) -> str:
        """Return the text for allowed values in an error: `an integer >= 1 or "auto"`."""
        limits = self.limits
        if limits.expected:
            return limits.expected
        if self.kind is Mapping:
            return "a table of strings, finite numbers, booleans, arrays and tables"
        words = [toml_text(word) for word in (*limits.choices, *limits.words, *[AUTO] * limits.measured)]
        words += [f"points such as {EXAMPLE}"] * (limits.points is not None)
        if limits.choices:
            return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))
        bounds = ((">=", limits.minimum), (">", limits.above), ("<=", limits.maximum), ("<", limits.below))
        ranges = " and ".join(f"{sign} {bound}" for sign, bound in bounds if bound is not None)
        noun = f"an array of {PLURALS[self.kind]}" if self.is_array else NOUNS[self.kind]
        return " or ".join(filter(None, (f"{noun} {ranges}".rstrip(), *words)))

    def _fits(self, value: Any) -> bool:
        limits = self.limits
        return (
            FITS[self.kind](value)
            and (limits.minimum is None or value >= limits.minimum)
            and (limits.above is None or value > limits.above)
            and (limits.below is None or value < limits.below)
            and (limits.maximum is None or value <= limits.maximum)
        )

    def _allowed(self, value: Any) -> bool:
        limits = self.limits
        if value in limits.choices:
            return True
        return limits.accepts(value) if limits.accepts is not None else not limits.choices


@functools.cache
def keys_of(section: type) -> Mapping[str, Key]:
    """Return the keys of a table, by name, in the order of their declaration."""
    hints = typing.get_type_hints(section)
    keys = {}
    for field in dataclasses.fields(section):
        hint = hints[field.name]
        if isinstance(hint, types.UnionType):
            hint = next(kind for kind in typing.get_args(hint) if kind is not types.NoneType)  # before points
        is_array = typing.get_origin(hint) is tuple
        kind = typing.get_args(hint)[0] if is_array else typing.get_origin(hint) or hint
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        keys[field.name] = Key(field.name, kind, is_array, default, field.metadata["limits"])
    return types.MappingProxyType(keys)


def with_default(
    default: Any, section: type, name: str, *, resolve: Callable[[Mapping[str, Any]], Any] | None = None
) -> Any:
    """Return a dataclass field that declares the key `name` of the table `section` with another default.

    resolve: as in Limits, for this table.
    """
    limits = keys_of(section)[name].limits
    if limits.resolve is not resolve:
        limits = dataclasses.replace(limits, resolve=resolve)
    return dataclasses.field(default=default, metadata={"limits": limits})


def schedule_of(base: Any, doc: str) -> Any:
    """Return a dataclass field that declares the schedule of a key; `base` is the field of that key.

    Values of points have the limits of the key, and may be 0 where other schedules end at 0.
    """
    limits: Limits = base.metadata["limits"]
    if limits.above is not None:
        limits = dataclasses.replace(limits, minimum=limits.above, above=None)
    return key("constant", doc, choices=SCHEDULES, points=limits)


def is_reference(text: str) -> bool:
    """Whether `text` is `package.module:name` or `path/file.py:name`, which refers to a custom class or function."""
    place, _, name = text.rpartition(":")
    return is_topology_reference(place) and ":" not in place and name.isidentifier()


def is_topology_reference(text: str) -> bool:
    """Whether `text` is `package.module` or `path/file.py`, optionally followed by `:name` for a function in it."""
    place, colon, name = text.rpartition(":") if ":" in text else (text, "", "")
    module = all(part.isidentifier() for part in place.split("."))
    return (module or (place.endswith(".py") and place.isprintable())) and (not colon or name.isidentifier())
