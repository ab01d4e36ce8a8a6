"""TOML values: checks which ones a config may hold, writes them, and formats them for errors.

A config may hold strings, booleans, 64-bit integers, finite floats, arrays and tables. Dates are refused because no
key takes one. NaN and infinities are refused because they are mistakes in any number, and because a config with a NaN
would not equal itself.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import re
from collections.abc import Iterable
from typing import Any

from hive.errors import ConfigError
from hive.printable import printable

INTEGER_BITS = 64  # size of integers that every TOML parser supports; Python's accepts any number of digits
VALUE_DEPTH = 8  # maximum nesting in a free table: deeper nesting is a mistake, and recursion needs a limit
SHOWN_LENGTH = 60  # maximum characters of a value or a key in an error

BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def is_integer(value: object) -> bool:
    """Whether `value` is a 64-bit integer. A bool is not, although bool is a subclass of int in Python."""
    return type(value) is int and value.bit_length() < INTEGER_BITS


def is_number(value: object) -> bool:
    """Whether `value` is a finite float or a 64-bit integer."""
    return is_integer(value) or (isinstance(value, float) and math.isfinite(value))


def free_fault(value: object, depth: int = VALUE_DEPTH) -> tuple[str | int, ...] | None:
    """Return the path to the first part of `value` that a config may not hold; None if all parts are allowed."""
    if isinstance(value, dict | list):
        if depth == 0:
            return ()
        for step, item in value.items() if isinstance(value, dict) else enumerate(value):
            fault = free_fault(item, depth - 1)
            if fault is not None:
                return (step, *fault)
        return None
    return None if isinstance(value, bool | str) or is_number(value) else ()


def digest_of(value: Any) -> str:
    """Return a short digest of a value of a config; the order of the keys of a table does not matter."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


def toml_text(value: Any) -> str:
    """Return `value` as one line of TOML. Raises TypeError for a type that TOML does not have."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _quoted(value)
        case int():
            return f"{value:_}"
        case float():
            return repr(float(value))  # of NumPy's subclass too
        case list() | tuple():
            return f"[{', '.join(map(toml_text, value))}]"
        case dict():
            if all(isinstance(key, str) for key in value):
                return f"{{{', '.join(f'{toml_key(key)} = {toml_text(item)}' for key, item in value.items())}}}"
    raise TypeError(f"no TOML for {type(value).__name__}")


def toml_setting(name: str, value: Any) -> str:
    """Return the value of the key `name` as TOML. Raises ConfigError, which names the part that TOML cannot hold."""
    try:
        return toml_text(value)
    except TypeError:
        place, part = _unwritable(name, value)
    kind = part.__name__ if isinstance(part, type) else type(part).__name__
    what = "None" if part is None else f"the class {kind}" if isinstance(part, type) else f"a value of type {kind}"
    raise ConfigError(
        f"{printable(place)}: {what} cannot be written into a config, which every run keeps",
        hint=_instead(part)
        + ("; or, from Python, give env=lambda: Env(...)" if place.startswith("env.options") else ""),
    )


def _unwritable(name: str, value: Any) -> tuple[str, Any]:
    """Return the first part of `value` that TOML cannot hold, and its name below `name`."""
    parts: Iterable[tuple[str, Any]] = ()
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                return f"{name}, its key {key!r}", key
        parts = ((f"{name}.{toml_key(key)}", item) for key, item in value.items())
    elif isinstance(value, list | tuple):
        parts = ((f"{name}[{number}]", item) for number, item in enumerate(value))
    for place, item in parts:
        try:
            toml_text(item)
        except TypeError:
            return _unwritable(place, item)
    return name, value


def _instead(part: Any) -> str:
    """Return what to give instead of a value that TOML cannot hold."""
    if part is None:
        return "leave the key out, so that it has its default"
    if callable(part):
        return 'give its name, such as "package.module:Class", and import it where it is used'
    if hasattr(part, "tolist"):  # arrays and numbers of NumPy and torch
        return "give value.tolist(), and convert it where it is used"
    return (
        "give strings, finite numbers, booleans, lists and dictionaries with string keys, and build it where it is used"
    )


def toml_key(key: str) -> str:
    """Return a key as TOML, with quotes only if it needs them."""
    return key if BARE_KEY.fullmatch(key) else _quoted(key)


def shown(value: object) -> str:
    """Return `value` as an error shows it after "got"."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list | tuple):
        return "an array"
    if isinstance(value, int) and not is_integer(value) and not isinstance(value, bool):
        return f"an integer of more than {INTEGER_BITS} bits"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} (not finite)"
    return printable(toml_text(value) if isinstance(value, str | int | float) else str(value), SHOWN_LENGTH)


def closest(word: str, known: Iterable[str]) -> str:
    """Return the word in `known` that is closest to the misspelled `word`, or "" if none is close.

    Capitals do not count: `PPO` is `ppo`.
    """
    lower = {one.lower(): one for one in known}
    near = difflib.get_close_matches(word[:SHOWN_LENGTH].lower(), lower, n=1)
    return lower[near[0]] if near else ""


def _quoted(text: str) -> str:
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    return f"\\U{ord(character):08x}" if ord(character) > 0xFFFF else f"\\u{ord(character):04x}"
