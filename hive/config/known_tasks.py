"""Reads the tuned settings of known tasks, `tuned.toml`, which says where they come from."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VERSION = re.compile(r"-v\d+$")  # the end of a Gymnasium id


@dataclass(frozen=True)
class Tuned:
    """Settings of one task and scheme: full name of a key -> its value, and the origin of the values in one line."""

    source: str
    keys: Mapping[str, Any]


@functools.cache
def _document() -> Mapping[str, Any]:
    return tomllib.loads(Path(__file__).with_name("tuned.toml").read_text())


@functools.cache
def tuned_tasks() -> Mapping[str, Mapping[str, Tuned]]:
    """Return newest id of an environment -> scheme -> its tuned settings; the games of ale_py are `ALE/...`."""
    return {
        env_id: {scheme: _settings(_document()["defaults"].get(scheme, {}), task) for scheme, task in schemes.items()}
        for env_id, schemes in _document().items()
        if env_id != "defaults"
    }


def usual_settings(scheme: str) -> Mapping[str, Any]:
    """Return full name of a key -> its value in [defaults.SCHEME], what most tasks of rl-baselines3-zoo have."""
    return _settings(_document()["defaults"][scheme], {"source": ""}).keys


def _settings(defaults: Mapping[str, Any], task: Mapping[str, Any]) -> Tuned:
    tables = [(section, table) for part in (defaults, task) for section, table in part.items() if section != "source"]
    keys = {f"{section}.{name}": value for section, table in tables for name, value in table.items()}
    return Tuned(task["source"], {name: tuple(v) if isinstance(v, list) else v for name, v in keys.items()})


def tuned(env_id: str) -> Mapping[str, Tuned]:
    """Return scheme -> tuned settings for an environment, the best scheme first; empty for an unknown environment.

    All versions of an environment (Hopper-v4, Hopper-v5) have the same settings.
    """
    if env_id.startswith("ALE/"):
        return tuned_tasks()["ALE/..."]
    name = VERSION.sub("", env_id)
    return next((schemes for task, schemes in tuned_tasks().items() if VERSION.sub("", task) == name), {})
