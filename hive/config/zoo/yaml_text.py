"""Reads YAML of strangers as plain values: numbers, texts, arrays and tables. Nothing in it is executed.

The safe loader of PyYAML makes no objects of classes. What it does not limit is limited here: the size of a file, and
what aliases (`*name`) and merges (`<<: *name`) make of it, which grows exponentially where they are nested.

PyYAML is not installed with hive: `pip install 'hive-trainer[zoo]'`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hive.config.syntax import CONFIG_BYTES
from hive.distribution import pip_install
from hive.errors import ConfigError, UsageError
from hive.printable import printable
from hive.versions import check_versions

MOST_ALIASES = 200  # of a file; those of rl-baselines3-zoo have 15
MOST_MERGED = 2_000  # entries that all merges of a file copy; with the aliases a limit of memory, 3 MiB
MOST_VALUES = 20_000  # of a file, counted again at each alias: what shows or copies values meets them again
MERGE = "tag:yaml.org,2002:merge"  # the tag of the key `<<`
CAUSE_LENGTH = 200  # maximum characters of PyYAML's message, which repeats keys of any length


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the table that a YAML file is.

    Raises UsageError without PyYAML, and ConfigError for a file that cannot be read, is larger than CONFIG_BYTES,
    exceeds another limit of this module, is not YAML or is no table, or has a key twice in a table.
    """
    try:
        with path.open("rb") as file:
            content = file.read(CONFIG_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise ConfigError(f"cannot read `{path}`: {reason}") from None
    if len(content) > CONFIG_BYTES:
        raise ConfigError(f"`{path}` is larger than {CONFIG_BYTES >> 10} KiB, so it has no hyper-parameters")
    document = _parsed(content, str(path))
    if not isinstance(document, dict) or not all(isinstance(name, str) for name in document):
        raise ConfigError(f"`{path}` is not a table of environments in YAML")
    return document


def _parsed(content: bytes, name: str) -> Any:
    check_versions(["pyyaml"])
    try:
        import yaml
    except ImportError:
        raise UsageError(f"`{name}` is YAML, which needs the package pyyaml", hint=pip_install("zoo")) from None
    try:
        document = yaml.load(content.decode(), _loader(yaml))
        if _count(document, {}) > MOST_VALUES:
            raise ValueError(f"its aliases make more than {MOST_VALUES:,} values of it")
        return document
    except UnicodeDecodeError:
        cause = "it is not UTF-8"
    except RecursionError:
        cause = "nested too deeply"
    except (yaml.YAMLError, ValueError, TypeError) as error:
        cause = printable(" ".join(str(error).split()), CAUSE_LENGTH)
    raise ConfigError(f"`{name}` is not valid YAML: {cause}")


def _loader(yaml: Any) -> Any:
    """Return the class of PyYAML's safe loader with limits. Its methods have the names that PyYAML gives them."""

    class LimitedLoader(yaml.SafeLoader):  # type: ignore[misc]
        """yaml.SafeLoader with limits on aliases and merges, that refuses a key that stands twice in a table."""

        aliases = merged = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            """Count aliases."""
            if self.check_event(yaml.AliasEvent):
                self.aliases += 1
                if self.aliases > MOST_ALIASES:
                    raise ValueError(f"more than {MOST_ALIASES:,} aliases")
            return super().compose_node(parent, index)

        def flatten_mapping(self, node: Any) -> None:
            """Count the entries that a merge adds, after a look for keys that stand twice."""
            own = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.tag != MERGE]
            if not getattr(node, "is_flat", False) and (twice := {key for key in own if own.count(key) > 1}):
                raise ValueError(f"`{min(twice)}` stands twice in the table of line {node.start_mark.line + 1}")
            super().flatten_mapping(node)
            node.is_flat = True
            self.merged += len(node.value) - len(own)
            if self.merged > MOST_MERGED:
                raise ValueError(f"merges copy more than {MOST_MERGED:,} entries")

    return LimitedLoader


def _count(value: Any, known: dict[int, int]) -> int:
    """Return the number of values in a document, those of an alias again at each. Raises ValueError for a circle."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        known[id(value)] = -1
        parts = [*value, *value.values()] if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_count(part, known) for part in parts)
    if known[id(value)] < 0:
        raise ValueError("a value contains itself")
    return known[id(value)]
