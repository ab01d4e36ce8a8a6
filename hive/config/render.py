"""Configs as TOML text: the whole one with origins, and a short one to begin with.

`render` writes every key; loading it gives an equal config. `hive config` prints it and a run keeps it as
`resolved.toml`. `template` is what `hive init` writes: the keys that people change, with their defaults.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hive.config.load import load_config
from hive.config.schema import Config
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
    "network.normalize_observations",
    "network.normalize_rewards",
)
OF_THE_SCHEME = "algorithm."  # their defaults are another scheme's no more: they are shown, for whoever wants others


def render(config: Config) -> str:
    """Every key with its value, origin and meaning."""
    # An environment that is not there cannot be read back: a run without one has a topology of its own.
    entries = [entry for entry in config.entries() if entry.name != "env.id" or entry.value]
    width = max(len(entry.origin) for entry in entries)
    return _lines((entry.name, entry.value, f"{entry.origin:<{width}}  {entry.doc}") for entry in entries)


def template(env_id: str, scheme: str = "a2c") -> str:
    """A short config that works for this environment; ConfigError where these cannot be values of a config."""
    given = f"run.scheme = {toml_text(scheme)}\nenv.id = {toml_text(env_id)}\n"
    entries = load_config("template", text=given).entries()
    rows = [(entry.name, entry.value, entry.doc) for entry in entries if entry.name in TEMPLATE_KEYS]
    opening = "# Start it with `hive up FILE`; `hive config FILE` shows the keys that are not in it.\n"
    return opening + "\n" + _lines(rows, shown_only=OF_THE_SCHEME)


def _lines(rows: Iterable[tuple[str, Any, str]], shown_only: str = "\n") -> str:
    """A line for each (key, value, comment), and a header before each table.

    Keys that begin with `shown_only` are comments themselves, for somebody to take the # away.
    """
    lines: list[str] = []
    open_section = ""
    for full, value, comment in rows:
        section, _, name = full.rpartition(".")
        if section != open_section:
            lines += [""] * bool(lines) + [f"[{section}]"]
            open_section = section
        setting = f"# {name} is not set" if value is None else f"{toml_key(name)} = {toml_text(value)}"
        setting = f"# {setting}" if full.startswith(shown_only) and value is not None else setting
        lines.append(f"{setting:<{COMMENT_COLUMN - 1}} # {comment}")
    return "\n".join(lines) + "\n"
