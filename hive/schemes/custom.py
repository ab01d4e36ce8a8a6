"""[custom.<group>] in a config sets parameters of a group's actors, checked against the types of their constructor.

class Curriculum(hive.Actor):
    def __init__(self, level: int = 3, names: list[str] | None = None) -> None: ...

[custom.curriculum]          the group's key, or the role of its actors where they are one group
level = 5                    all problems are reported at once, each with its line and "did you mean"
"""

from __future__ import annotations

import difflib
import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any

from hive.config import CUSTOM, Config, ConfigProblems, shown
from hive.runtime import Topology

NOUNS = {bool: "true or false", int: "an integer", float: "a number", str: "a string"}


def apply_custom(topology: Topology, config: Config, given: Path | None = None) -> None:
    """Set the parameters of [custom] in the groups of `topology`.

    given: the file that errors point to. Raises ConfigError for unknown groups and parameters and for wrong types.
    """
    problems = ConfigProblems(given)
    tables: dict[str, str] = {}  # key of a group -> the table that is its
    for table_name, table in config.custom.items():
        path: tuple[str, ...] = (CUSTOM, table_name)
        key = _group_key(topology, table_name)
        if key is None:
            problems.add(path, f"no group `{table_name}` in this topology", _meant(table_name, topology.groups))
            continue
        if key in tables:
            problems.add(path, f"the group `{key}` already has the table [{CUSTOM}.{tables[key]}]", "leave one out")
            continue
        tables[key], group = table_name, topology[key]
        known = _parameters(group.cls)
        for name, value in table.items():
            path = (CUSTOM, table_name, name)
            if name not in known:
                problems.add(path, f"`{group.cls.__name__}` takes no `{name}`", _meant(name, known))
            elif not _fits(known[name], value):
                problems.add(path, f"expected {_expected(known[name])}, got {shown(value)}")
            else:
                group.parameters[name] = _converted(known[name], value)
    problems.raise_all()


def _group_key(topology: Topology, name: str) -> str | None:
    """Return the key of the group that a table of [custom] names: by its key, or by the role of its actors.

    `t.add(Curiosity, count=2)` makes the group `curiositys`, whose actors are `curiosity-0` and `curiosity-1`: a config
    may name it as its actors are called. A role of several groups names none of them.
    """
    if name in topology:
        return name
    keys = [key for key, group in topology.groups.items() if group.cls.role_name() == name]
    return keys[0] if len(keys) == 1 else None


def _parameters(cls: type) -> Mapping[str, Any]:
    """Return the constructor's named parameters and their annotations, Any where there is none."""
    init = cls.__init__  # type: ignore[misc]
    hints = typing.get_type_hints(init)
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    named = [p.name for p in inspect.signature(init).parameters.values() if p.kind in kinds and p.name != "self"]
    return {name: hints.get(name, Any) for name in named}


def _options(kind: Any) -> Iterator[Any]:
    if typing.get_origin(kind) in (typing.Union, UnionType):
        for option in typing.get_args(kind):
            yield from _options(option)
    else:
        yield kind


def _fits(kind: Any, value: Any) -> bool:
    return any(_fits_one(option, value) for option in _options(kind) if option is not NoneType)


# Type -> whether a TOML value (bool, int, float, str, list or table) is valid for it.
FITS: Mapping[Any, Callable[[Any], bool]] = {
    Any: lambda value: True,
    bool: lambda value: type(value) is bool,
    int: lambda value: type(value) is int,
    float: lambda value: type(value) in (int, float),
    str: lambda value: type(value) is str,
    Path: lambda value: type(value) is str,
}


def _fits_one(kind: Any, value: Any) -> bool:
    """Return whether a TOML value is valid for one type."""
    origin, inner = typing.get_origin(kind) or kind, typing.get_args(kind)
    if origin in FITS:
        return FITS[origin](value)
    if origin is typing.Literal:
        return value in inner
    if not isinstance(origin, type):
        return False
    if issubclass(origin, Mapping):
        return isinstance(value, dict) and (len(inner) < 2 or all(_fits(inner[1], item) for item in value.values()))
    if issubclass(list, origin) or origin is tuple:
        return isinstance(value, list) and (not inner or all(_fits(inner[0], item) for item in value))
    return False


def _converted(kind: Any, value: Any) -> Any:
    for option in _options(kind):
        if option is not NoneType and _fits_one(option, value):
            origin = typing.get_origin(option) or option
            return origin(value) if origin in (float, Path, tuple) else value
    return value


def _expected(kind: Any) -> str:
    words = []
    for option in _options(kind):
        origin, inner = typing.get_origin(option) or option, typing.get_args(option)
        if origin is typing.Literal:
            words += [shown(choice) for choice in inner]
        elif option is not NoneType:
            words.append(NOUNS.get(origin, option.__name__ if option is origin else str(option).replace("typing.", "")))
    return " or ".join(words)


def _meant(word: str, known: Any) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean `{close[0]}`?" if close else f"there are: {', '.join(known) or 'none'}"
