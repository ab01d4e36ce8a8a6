"""What `hive ls` and `hive ps` show of a run: what it trains, and its status."""

from __future__ import annotations

import tomllib
from typing import Any

from hive.errors import HiveError
from hive.records import (
    RunDirectory,
)
from hive.runtime.run.control import open_run

# Key of a row of `ls` -> table and key of the config.
TRAINED = {
    "env": ("env", "id"),
    "algorithm": ("algorithm", "name"),
    "scheme": ("run", "scheme"),
    "topology": ("run", "topology"),
    "device": ("gradients", "device"),
}


def trained(run: RunDirectory) -> dict[str, str | None]:
    """Return what a run trains, from its resolved config; None for what is not set or cannot be read.

    Only TOML is parsed: loading a config takes ten times as long, and an old one may have keys that no longer exist.
    """
    from hive.config import syntax

    try:
        tables = tomllib.loads(syntax.read(run.resolved_file, run.resolved_file.name).decode())
    except (HiveError, ValueError, RecursionError):
        tables = {}
    found: dict[str, str | None] = {}
    for name, (table, key) in TRAINED.items():
        values = tables.get(table)
        value = values.get(key) if isinstance(values, dict) else None
        found[name] = value if isinstance(value, str) and value else None
    return found


def status_of(run: RunDirectory) -> dict[str, Any]:
    client = open_run(run)
    try:
        return client.status()
    finally:
        client.close()


def in_seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} s"
