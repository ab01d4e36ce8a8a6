"""Runs from a script or a notebook: the same runs as `hive up` starts, with a summary for an answer.

    summary = hive.train("cartpole.toml", sets=["run.seed=2"])
    summary = hive.run(topology, {"custom": {"curriculum": {"level": 3}}})

`topology` is a function of the config, defined in a file: the fork server imports that file under its own name, so the
rest of a script belongs under `if __name__ == "__main__":`. What has no file (a notebook's cell, a lambda) runs with
`inline=True`, everything in this process, where breakpoints work too.
"""

from __future__ import annotations

import argparse
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hive.cli.starting import new_run, run_quietly
from hive.cli.up import launch
from hive.config import Config, render
from hive.config.values import toml_key, toml_text
from hive.errors import ActorFailed, TopologyError
from hive.records import RunDirectory, Summary

if TYPE_CHECKING:
    from hive.runtime import Topology

__all__ = ["run", "train"]

Given = str | Path | Config | Mapping[str, Any] | None


def train(
    config: Given, *, sets: Sequence[str] = (), name: str | None = None, inline: bool = False, quiet: bool = False
) -> Summary:
    """Trains as the config says and returns how it went. `sets`: `key=value` as for `--set`.

    config: a TOML file, a `hive.Config`, or a mapping of tables. `quiet` shows nothing. Raises what is wrong with the
    config, and ActorFailed when the run fails.
    """
    return _finish(_prepared(config, [*sets, *_named(name)]), inline, quiet)


def run(
    topology: Callable[..., Topology],
    config: Given = None,
    *,
    sets: Sequence[str] = (),
    name: str | None = None,
    inline: bool = False,
    quiet: bool = False,
) -> Summary:
    """Runs the topology that the function makes of the config; see `train` for the rest.

    Raises TopologyError for a function that no other process could import, unless `inline`.
    """
    reference = _reference(topology, inline)
    directory = _prepared(config, [f"run.topology={json.dumps(reference)}", *sets, *_named(name)])
    return _finish(directory, inline, quiet, topology)


def _named(name: str | None) -> list[str]:
    return [] if name is None else [f"run.name={json.dumps(name)}"]


def _prepared(config: Given, overrides: list[str]) -> RunDirectory:
    if isinstance(config, (str, Path)):
        return new_run(Path(config), overrides)
    if isinstance(config, Config):
        return new_run(None, overrides, render(config))
    return new_run(None, overrides, "" if config is None else _toml(config))


def _toml(tables: Mapping[str, Any], above: str = "") -> str:
    """A mapping of tables as TOML; ConfigError comes from reading it."""
    lines: list[str] = []
    for key, value in tables.items():
        name = f"{above}{toml_key(key)}"
        if isinstance(value, Mapping) and (not above or any(isinstance(item, Mapping) for item in value.values())):
            plain = {k: v for k, v in value.items() if not isinstance(v, Mapping)}
            lines += [f"[{name}]", *(f"{toml_key(k)} = {toml_text(v)}" for k, v in plain.items())]
            inner = {k: v for k, v in value.items() if isinstance(v, Mapping)}
            for k, v in inner.items():
                lines += [f"[{name}.{toml_key(k)}]", *(f"{toml_key(a)} = {toml_text(b)}" for a, b in v.items())]
        else:
            lines.append(f"{name} = {toml_text(value)}")
    return "\n".join(lines)


def _reference(function: Callable[..., Any], inline: bool) -> str:
    """How another process finds the function."""
    name = getattr(function, "__qualname__", "")
    try:
        file = inspect.getsourcefile(function)
    except TypeError:
        file = None
    if file and Path(file).is_file() and name.isidentifier():
        return f"{Path(file).resolve()}:{name}"
    if inline:
        return "inline.py:topology"  # never loaded: the function itself is called
    raise TopologyError(
        f"`{name or function!r}` cannot be imported by the processes of a run: it is no function of a module or file",
        hint="define it with `def` at the top of a file, or pass inline=True",
    )


def _finish(
    directory: RunDirectory, inline: bool, quiet: bool, topology: Callable[..., Topology] | None = None
) -> Summary:
    if inline:
        from hive.runtime.run import run_inline

        run_inline(directory, topology)
    elif quiet:
        run_quietly(directory)
    else:
        launch(directory, argparse.Namespace(inline=False, detach=False, told=False))
    summary = Summary.read(directory.summary_file)
    if summary.error:
        text, _, hint = summary.error.partition("\n\nhint: ")
        raise ActorFailed(text, hint=hint)
    return summary
