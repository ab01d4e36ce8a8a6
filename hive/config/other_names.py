"""Hints for names that other trainers use: for keys and tables of the config, and in Python.

`other_names.toml` has the names. Nothing of it is an alias: each name is refused, with hive's way.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hive.config.algorithms import ALGORITHMS
from hive.config.keys import keys_of
from hive.config.schema import SECTIONS
from hive.config.schemes import SCHEMES

KEYS_NAMED = 4  # maximum keys of a foreign table whose names are translated: more do not fit beside its mark


def other_names(table: str) -> Mapping[str, str]:
    """Return a table of `other_names.toml`."""
    return _document()[table]


@functools.cache
def _document() -> Mapping[str, Mapping[str, str]]:
    document = tomllib.loads(Path(__file__).with_name("other_names.toml").read_text())
    return {**document, "tables": document["tables"] | dict.fromkeys([*ALGORITHMS, *SCHEMES], "algorithm")}


def note_on_table(name: str, table: Mapping[str, Any]) -> str:
    """Return a note for a table that hive does not have: hive's table, and hive's names for its keys."""
    names, tables = other_names("keys"), other_names("tables")
    keys = {key: [names[key]] if key in names else homes_of(key) for key in table if key not in other_names("notes")}
    known = [f"`{key}` is `{homes[0]}`" for key, homes in keys.items() if len(homes) == 1][:KEYS_NAMED]
    meant = tables.get(name.lower().replace("-", "_"), tables.get(name.lower()))
    return "; ".join([*([f"hive calls it [{meant}]"] if meant else []), *known]) or note_on(name)


def way_of(table: str, name: str) -> str:
    """Return hive's way for a name of Python in another trainer; "" for other names.

    table: where the name is looked for: "hive", "policy", "result", ..., or "method" of callbacks.
    """
    if table == "hive" and (scheme := name.lower().removesuffix("config")) in SCHEMES and not name.islower():
        return f'hive.train("{scheme}", env="CartPole-v1", steps=100_000) trains; hive.load(RUN) loads a policy'
    return _document().get(table, {}).get(name, "")


def is_key(full: str) -> bool:
    """Whether `full` (`table.key`) is a key of the config, for any algorithm."""
    return full in homes_of(full.rpartition(".")[2])


def note_on(name: str) -> str:
    """Return a note for a name that is no key where it stands: hive's name for it, or the tables that have it."""
    if key := other_names("keys").get(name):
        return f"hive calls it `{key}`{other_names('beside').get(name, '')}"
    if note := other_names("notes").get(name):
        return note
    homes = [f"`{home}`" for home in homes_of(name)]
    return f"did you mean {' or '.join(homes)}?" if homes else ""


def homes_of(name: str) -> list[str]:
    """Return the full names of all keys `name`."""
    tables = [*SECTIONS.items(), *(("algorithm", table) for table in ALGORITHMS.values())]
    return list(dict.fromkeys(f"{section}.{name}" for section, table in tables if name in keys_of(table)))
