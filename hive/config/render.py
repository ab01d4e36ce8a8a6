"""Configs as TOML text: the whole one with origins, and a short one to begin with.

`render` writes every key; loading it gives an equal config. `hive config` prints it and a run keeps it as
`resolved.toml`. `template` is what `hive init` writes: the keys that people change, with their defaults.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hive.config.keys import keys_of
from hive.config.schema import SECTIONS, Config
from hive.config.values import toml_key, toml_text

__all__ = ["render", "template"]

COMMENT_COLUMN = 36  # where comments begin: behind the longest key with a usual value

TEMPLATE_KEYS = (
    "run.scheme",
    "run.seed",
    "run.steps",
    "env.id",
    "collection.workers",
    "collection.envs",
    "collection.rollout",
    "algorithm.learning_rate",
    "algorithm.entropy_weight",
    "network.middleware",
)


def render(config: Config) -> str:
    """Every key with its value, origin and meaning."""
    entries = list(config.entries())
    width = max(len(entry.origin) for entry in entries)
    return _lines((entry.name, entry.value, f"{entry.origin:<{width}}  {entry.doc}") for entry in entries)


def template(env_id: str) -> str:
    """A short config that works for this environment."""
    rows = []
    for full in TEMPLATE_KEYS:
        section, name = full.split(".")
        key = keys_of(SECTIONS[section])[name]
        rows.append((full, env_id if full == "env.id" else key.default, key.limits.doc))
    opening = "# Start it with `hive up FILE`; `hive config FILE` shows the keys that are not in it.\n"
    return opening + "\n" + _lines(rows)


def _lines(rows: Iterable[tuple[str, Any, str]]) -> str:
    """A line for each (key, value, comment), and a header before each table."""
    lines: list[str] = []
    open_section = ""
    for full, value, comment in rows:
        section, name = full.split(".")
        if section != open_section:
            lines += [""] * bool(lines) + [f"[{section}]"]
            open_section = section
        setting = f"# {name} is not set" if value is None else f"{toml_key(name)} = {toml_text(value)}"
        lines.append(f"{setting:<{COMMENT_COLUMN - 1}} # {comment}")
    return "\n".join(lines) + "\n"
