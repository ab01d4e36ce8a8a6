"""The page on config keys, made from the declarations in hive/config."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping

from documentation.commands import escaped
from hive.config import AlgorithmConfig, Config
from hive.config.algorithms import ALGORITHMS
from hive.config.keys import REQUIRED, Key, keys_of
from hive.config.schemes import ALGORITHM_DEFAULTS, SCHEMES
from hive.config.values import toml_text

HEAD = "| key | default | meaning | values |\n|---|---|---|---|"


def value_text(value: object) -> str:
    if value is REQUIRED:
        return "required"
    return "none" if value is None else f"`{toml_text(value)}`"


def row(table: str, key: Key, defaults: str = "") -> str:
    """Return the row of one key; a mark shows keys that `hive set` can change."""
    default = defaults or value_text(key.default)
    if key.limits.resolve is not None:
        default += ", computed"
    values = "`true`, `false`" if key.kind is bool and not key.is_array else escaped(key.expected())
    return f"| `{table}.{key.name}` | {escaped(default)} | {escaped(key.limits.doc)} | {values} |"


def table_of(table: str, section: type) -> str:
    return "\n".join([HEAD, *(row(table, key) for key in keys_of(section).values())])


def algorithm_tables() -> str:
    """Return the keys of [algorithm]: those of all algorithms, then those that some have, with their defaults."""
    shared = keys_of(AlgorithmConfig)
    tables: Mapping[str, Mapping[str, Key]] = {name: keys_of(config) for name, config in ALGORITHMS.items()}
    parts = ["Keys of every algorithm:", "\n".join([HEAD, *(row("algorithm", key) for key in shared.values())])]
    further: dict[str, list[str]] = {}
    for name, keys in tables.items():
        for key in keys:
            if key not in shared:
                further.setdefault(key, []).append(name)
    rows = []
    for key, names in further.items():
        rows.append(row("algorithm", tables[names[0]][key], of_each(key, names, tables)))
    parts += ["Keys of some:", "\n".join([HEAD, *rows])]
    rows = [
        f"| `algorithm.{key}` | {escaped(of_each(key, [*tables], tables))} |"
        for key in shared
        if len({toml_text(keys[key].default) for keys in tables.values() if keys[key].default is not REQUIRED}) > 1
        and key != "name"
    ]
    parts += ["Keys of every algorithm whose defaults differ:", "\n".join(["| key | defaults |", "|---|---|", *rows])]
    return "\n\n".join(parts)


def of_each(key: str, names: list[str], tables: Mapping[str, Mapping[str, Key]]) -> str:
    """Return the defaults of a key, each with the algorithms that have it."""
    by_value: dict[str, list[str]] = {}
    for name in names:
        by_value.setdefault(value_text(tables[name][key].default), []).append(name)
    return "; ".join(f"{value} ({', '.join(names)})" for value, names in by_value.items())


def scheme_rows() -> str:
    """Return the defaults that schemes and algorithms set in other tables."""

    def text(values: Mapping[str, object]) -> str:
        return ", ".join(f"`{key} = {toml_text(value)}`" for key, value in values.items()) or "none"

    rows = [
        f"| `{name}` | {escaped(scheme.text)} | {escaped(text(scheme.defaults))} |" for name, scheme in SCHEMES.items()
    ]
    more = [f"| {name} | {escaped(text(values))} |" for name, values in ALGORITHM_DEFAULTS.items()]
    return (
        "\n".join(["| scheme | what it is | sets |", "|---|---|---|", *rows])
        + "\n\n"
        + "\n".join(["| algorithm | sets |", "|---|---|", *more])
    )


def keys_page() -> str:
    """Return the page: every table and key of the config, with default, values and meaning."""
    hints = typing.get_type_hints(Config)
    parts = [
        "# Config keys",
        "<!-- Made by `scripts/docs --write` from hive/config. -->",
        "Every key with its default, the values that it takes and its meaning. *Computed* defaults follow from other "
        "keys; `hive config FILE` shows their numbers, and where each value comes from. [Configs](configs.md) shows "
        "how to write a file.",
    ]
    for item in dataclasses.fields(Config):
        section = hints[item.name]
        if item.name == "algorithm":
            parts += ["## [algorithm]", algorithm_tables()]
        elif isinstance(section, type) and dataclasses.is_dataclass(section):
            parts += [f"## [{item.name}]", table_of(item.name, section)]
    parts += ["## [policies.NAME]", "[Several agents](agents.md#policies) has its keys."]
    parts += [
        "## [custom.GROUP]",
        "Parameters of your own actors, with the names and types of their constructors: [topologies](topologies.md).",
        "## Defaults of schemes",
        "A scheme and its algorithm set these values in place of the defaults above.",
        scheme_rows(),
    ]
    return "\n\n".join(parts) + "\n"
