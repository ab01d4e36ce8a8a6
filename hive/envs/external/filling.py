"""Stand-in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hive.envs.context import EnvContext

PLACE = re.compile(r"\{(index|seed|incarnation|run)(?: ([+-]) (\d+))?\}")


def filled(value: Any, context: EnvContext) -> Any:
    if isinstance(value, Mapping):
        return {key: filled(one, context) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [filled(one, context) for one in value]
    if not isinstance(value, str):
        return value

    def of(match: re.Match[str]) -> str:
        found = getattr(context, match[1])
        return str(found + int(f"{match[2]}{match[3]}") if match[2] else found)

    if (match := PLACE.fullmatch(value)) and match[1] != "run":
        return int(of(match))
    return PLACE.sub(of, value)


def variables(context: EnvContext) -> dict[str, str]:
    names = ("index", "seed", "incarnation", "run")
    return {f"HIVE_ENV_{name.upper()}": str(getattr(context, name)) for name in names}
