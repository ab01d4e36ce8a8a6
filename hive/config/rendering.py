"""Writes a config as TOML text with the origin of every value.

`render` writes every key; loading its text gives an equal config. `hive config` prints this text, and a run keeps it as
`resolved.toml`. `hive.config.templates` writes the short config that `hive init` gives a user.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hive.config.keys import AUTO
from hive.config.schema import Config
from hive.config.syntax import CONFIG_BYTES
from hive.config.values import toml_key, toml_setting
from hive.errors import ConfigError

COMMENT_COLUMN = 36  # column of comments: right of the longest key with a typical value


def render(config: Config, *, changed: bool = False) -> str:
    """Return the config as TOML: every key with its value, and its origin and description as a comment.

    changed: only the keys whose values are not their defaults, those of the scheme included. Loading these gives an
    equal config too.
    """
    # env.id is empty in runs with a custom topology, and loading would refuse an empty one.
    entries = [entry for entry in config.entries() if entry.name != "env.id" or entry.value]
    entries = [entry for entry in entries if entry.changed or not changed]
    width = max((len(entry.origin) for entry in entries), default=0)
    values = {entry.name: AUTO if entry.name in config.automatic else entry.value for entry in entries}
    return sections((entry.name, values[entry.name], f"{entry.origin:<{width}}  {entry.doc}") for entry in entries)


def plain(config: Config) -> str:
    """Return the config as TOML without comments: every key that has a value. Loading this gives an equal config."""
    given = [entry for entry in config.entries() if entry.value is not None and (entry.name != "env.id" or entry.value)]
    return "".join(f"{entry.name} = {toml_setting(entry.name, entry.value)}\n" for entry in given)


def resolved(config: Config) -> bytes:
    """Return the content of a run's `resolved.toml`. Raises ConfigError if it would be too large to be loaded."""
    content = render(config).encode()
    if len(content) > CONFIG_BYTES:
        size, most = len(content) >> 10, CONFIG_BYTES >> 10
        raise ConfigError(
            f"the config with all its keys and comments has {size:,} KiB, more than the {most} KiB of a run's config",
            hint="put long values and lists into a file, and give its path as the value",
        )
    return content


def sections(rows: Iterable[tuple[str, Any, str]]) -> str:
    """Return a line for each (key, value, comment), and a header before each table."""
    lines: list[str] = []
    open_section = ""
    for full, value, comment in rows:
        section, _, name = full.rpartition(".")
        if section != open_section:
            lines += [""] * bool(lines) + [f"[{section}]"]
            open_section = section
        setting = f"# {name} is not set" if value is None else f"{toml_key(name)} = {toml_setting(name, value)}"
        lines.append(f"{setting:<{COMMENT_COLUMN - 1}} # {comment}")
    return "\n".join(lines) + "\n"
