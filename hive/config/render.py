"""Writes configs as TOML text: a complete one with origins, and a short one to start with.

`render` writes every key; loading its text gives an equal config. `hive config` prints this text, and a run keeps it as
`resolved.toml`. `hive init` writes the text of `template`: the keys that users change most, with their defaults.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hive.config.load import load_config
from hive.config.schema import Config
from hive.config.values import toml_key, toml_text

__all__ = ["render", "template"]

COMMENT_COLUMN = 36  # column of comments: right of the longest key with a typical value

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
# Keys whose defaults depend on the scheme. The template has them as comments, so that they do not fix the values of
# this scheme when a user changes `run.scheme`.
SCHEME_PREFIX = "algorithm."


def render(config: Config) -> str:
    """Return the config as TOML: every key with its value, and its origin and description as a comment."""
    # env.id is empty in runs with a custom topology, and loading would refuse an empty one.
    entries = [entry for entry in config.entries() if entry.name != "env.id" or entry.value]
    width = max(len(entry.origin) for entry in entries)
    return _lines((entry.name, entry.value, f"{entry.origin:<{width}}  {entry.doc}") for entry in entries)


def template(env_id: str, scheme: str = "a2c") -> str:
    """Return a short, working config for an environment and a scheme. Raises ConfigError if one of them is invalid."""
    given = f"run.scheme = {toml_text(scheme)}\nenv.id = {toml_text(env_id)}\n"
    entries = load_config("template", text=given).entries()
    rows = [(entry.name, entry.value, entry.doc) for entry in entries if entry.name in TEMPLATE_KEYS]
    opening = "# Start it with `hive up FILE`; `hive config FILE` shows the keys that are not in it.\n"
    return opening + "\n" + _lines(rows, commented=SCHEME_PREFIX)


def _lines(rows: Iterable[tuple[str, Any, str]], commented: str = "\n") -> str:
    """Return a line for each (key, value, comment), and a header before each table.

    Settings of keys that begin with `commented` are commented out. The default is a prefix that no key has.
    """
    lines: list[str] = []
    open_section = ""
    for full, value, comment in rows:
        section, _, name = full.rpartition(".")
        if section != open_section:
            lines += [""] * bool(lines) + [f"[{section}]"]
            open_section = section
        setting = f"# {name} is not set" if value is None else f"{toml_key(name)} = {toml_text(value)}"
        setting = f"# {setting}" if full.startswith(commented) and value is not None else setting
        lines.append(f"{setting:<{COMMENT_COLUMN - 1}} # {comment}")
    return "\n".join(lines) + "\n"
