"""Finds the entry of an environment in a file of rl-baselines3-zoo, as the Zoo does, and the scheme of the file.

The Zoo takes the entry of the environment's id, then `atari` for games of ALE, then `default`. Here another version of
the same environment comes before the last two: the files name LunarLander-v2 where Gymnasium has LunarLander-v3.
"""

from __future__ import annotations

import difflib
import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hive.config.known_tasks import VERSION
from hive.config.zoo.yaml_text import read_yaml
from hive.errors import ConfigError, UsageError
from hive.printable import printable

ATARI, DEFAULT = "atari", "default"
NEAR = 4  # entries that an error names
RECURRENT = "ppo_lstm"
NAME_LENGTH = 60  # maximum characters of a file's name or an entry's in a message


@functools.cache
def names() -> Mapping[str, Any]:
    """Return the tables of `names.toml`."""
    return tomllib.loads(Path(__file__).with_name("names.toml").read_text())


@dataclass(frozen=True)
class ZooEntry:
    """The entry of an environment: key -> value. kind: "ppo_lstm", otherwise the scheme."""

    file: str
    name: str
    env_id: str
    scheme: str
    kind: str
    values: Mapping[str, Any]
    near: tuple[str, ...] = ()

    @property
    def origin(self) -> str:
        """A sentence about where the settings come from."""
        other = f", which has no entry `{self.env_id}`" if self.name != self.env_id else ""
        return printable(f"Settings of rl-baselines3-zoo: the entry `{self.name}` of {self.file}{other}.")


def read_entry(path: Path, env_id: str, scheme: str | None, *, atari: bool) -> ZooEntry:
    """Return the entry for an environment. scheme: as given; None: by the file's name. atari: whether it is a game.

    Raises UsageError if the algorithm is unknown or none of hive's, and ConfigError for an invalid file and one that
    has no entry for this environment.
    """
    document = read_yaml(path)
    scheme = _scheme(path, scheme)
    name, near = _name(document, env_id.rpartition(":")[2] if "-v" in env_id else env_id, str(path), atari=atari)
    values = document[name]
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise ConfigError(f"the entry `{printable(name, NAME_LENGTH)}` of `{path}` is no table of hyper-parameters")
    kind = RECURRENT if scheme == "ppo" and _is_recurrent(path, values) else scheme
    return ZooEntry(path.name, printable(name, NAME_LENGTH), env_id, scheme, kind, values, near)


def _scheme(path: Path, given: str | None) -> str:
    files: Mapping[str, str] = names()["files"]
    schemes = ", ".join(dict.fromkeys(files.values()))
    found = files.get(path.stem)
    if given is None:
        if found is None:
            raise UsageError(
                f"no scheme of hive is called `{printable(path.stem, NAME_LENGTH)}`, as `{path}` is",
                hint=f"say with --scheme what the file has settings of: {schemes}",
            )
        return found
    if given not in files.values():
        raise UsageError(f"settings of the Zoo cannot be those of the scheme `{given}`", hint=f"it has {schemes}")
    if found not in (None, given):
        raise UsageError(f"`{path}` has settings of {found}, not of {given}", hint="leave out --scheme")
    return given


def _is_recurrent(path: Path, values: Mapping[str, Any]) -> bool:
    return path.stem == RECURRENT or "Lstm" in str(values.get("policy", ""))


def _name(document: Mapping[str, Any], env_id: str, file: str, *, atari: bool) -> tuple[str, tuple[str, ...]]:
    """Return the name of the entry for an environment, and near ones if it is the default of the file."""
    if env_id in document:
        return env_id, ()
    bare = VERSION.sub("", env_id)
    if versions := [name for name in document if VERSION.sub("", name) == bare and VERSION.search(name)]:
        return max(versions, key=lambda name: int(name.rpartition("-v")[2][:9])), ()
    if atari and ATARI in document:
        return ATARI, ()
    near = [printable(name, NAME_LENGTH) for name in difflib.get_close_matches(env_id[:NAME_LENGTH], document, n=NEAR)]
    if DEFAULT in document:
        return DEFAULT, tuple(near)
    every = [printable(name, NAME_LENGTH) for name in [*document][:NEAR]]
    hint = f"near ones: {', '.join(near)}" if near else f"it has {', '.join(every)} and others"
    raise ConfigError(f"`{file}` has no entry for `{env_id}`", hint=hint)
