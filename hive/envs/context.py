"""Who an environment is: its number in the run, its seed, and how often it was restarted.

    context = EnvContext(index=3, seed=17, run="cars-ppo-1")
    filled({"port": "{index + 47000}"}, context)     {"port": 47003}
    with context.announced(): ...                    HIVE_ENV_INDEX is "3" in os.environ

A constructor that has a parameter named `env_context` gets the context itself (hive.envs.make).
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hive.config.each import PLACEHOLDER

PARAMETER = "env_context"
"""The parameter of a constructor that gets the context."""

PREFIX = "HIVE_ENV_"


@dataclass(frozen=True)
class EnvContext:
    """What tells an environment from the others of its run, for ports, folders, maps and seeds of its own.

    index: its number over all collectors, which restarts do not change; those of evaluators follow. seed: that of its
    first reset. incarnation: how often it has been restarted. run: the name of the run, "" outside of one.
    """

    index: int
    seed: int = 0
    incarnation: int = 0
    run: str = ""

    def variables(self) -> dict[str, str]:
        """Return the environment variables that say the same: HIVE_ENV_INDEX, _SEED, _INCARNATION and _RUN."""
        values = {"INDEX": self.index, "SEED": self.seed, "INCARNATION": self.incarnation, "RUN": self.run}
        return {PREFIX + name: str(value) for name, value in values.items()}

    @contextlib.contextmanager
    def announced(self) -> Iterator[None]:
        """Set the variables in `os.environ`, for the time of a constructor and for the processes that it starts."""
        variables = self.variables()
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def filled(value: Any, context: EnvContext) -> Any:
    """Return `value` with the placeholders in its texts filled, at any depth of tables and arrays.

    A text that is one placeholder becomes an integer, with {run} a text. Nothing is evaluated, and the names of a table
    stay as they are.
    """
    match value:
        case str():
            whole = PLACEHOLDER.fullmatch(value)
            return _value(whole, context) if whole else PLACEHOLDER.sub(lambda one: str(_value(one, context)), value)
        case Mapping():
            return {name: filled(one, context) for name, one in value.items()}
        case list() | tuple():
            return [filled(one, context) for one in value]
    return value


def _value(found: re.Match[str], context: EnvContext) -> int | str:
    name, sign, number = found.groups()
    if name is not None:
        value: int | str = getattr(context, name)
        return value
    return context.index + int(number) * (1 if sign == "+" else -1)
