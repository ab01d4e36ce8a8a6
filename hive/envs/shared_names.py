"""Names what environments of a class share within a process: attributes of its classes, and globals of its modules.

Only values that change while one environment is played are worth naming: those are state.
"""

from __future__ import annotations

import random
import reprlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any

import numpy as np

OTHERS = {"abc", "builtins", "gymnasium", "hive", "pettingzoo", "typing"}  # packages whose classes have no such state
LONGEST = 2000  # characters of a value that are compared, and parts of one that are read, also of parts
MOST_BYTES = 1_000_000  # of the arrays of a value that are compared


def shared_values(environment: Any) -> dict[str, str]:
    """Return a digest of every value that the classes and modules of an environment hold, by its name."""
    found: dict[str, str] = {}
    for owner in type(environment).__mro__:
        if owner.__module__.partition(".")[0] in OTHERS:
            continue
        found |= {f"{owner.__name__}.{name}": digest for name, digest in _digests(vars(owner))}
        if (module := sys.modules.get(owner.__module__)) is not None:
            found |= dict(_digests(vars(module)))
    return found


def _digests(names: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in [*names.items()]:
        is_code = callable(value) or isinstance(value, ModuleType) or hasattr(type(value), "__get__")
        if not (name.startswith("__") or is_code):
            with suppress(Exception):  # the `__repr__` of any class
                yield name, _Digest().repr(value)[:LONGEST]


class _Digest(reprlib.Repr):
    """Writes what `repr` does, but reads LONGEST parts of a value, hashes arrays and generators, and opens objects."""

    def __init__(self) -> None:
        super().__init__()
        self.left = LONGEST
        self.maxdict = self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = self.maxdeque = LONGEST
        self.maxstring = self.maxlong = self.maxother = LONGEST

    def repr1(self, x: Any, level: int) -> str:
        """Return the text of a value, or of a part of one."""
        self.left -= 1
        if self.left < 0:
            return "..."
        if isinstance(x, np.ndarray):
            self.left -= x.nbytes * LONGEST // MOST_BYTES
            return str(hash(x.tobytes()) if self.left >= 0 else x.shape)
        if isinstance(x, list | tuple | dict | set) and len(x) > LONGEST:
            return str(len(x))
        if isinstance(x, np.random.Generator):
            return repr(x.bit_generator.state)
        if isinstance(x, random.Random):
            return str(hash(x.getstate()))
        opened = x if isinstance(x, dict) else {} if callable(x) else getattr(x, "__dict__", {})
        return self.repr_dict(opened, level) if opened else super().repr1(x, level)
