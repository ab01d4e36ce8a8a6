"""Schemes: named topologies. A scheme is a function from a config to a topology, built with the public API only.

    topology = hive.schemes.build(config)

`run.scheme` names one of the files here, or a function of your own as "package.module:function". `run.topology` names a
function of your own that is given the config and returns a topology: that of the scheme, changed, or one of its own.
"""

from __future__ import annotations

import contextvars
import importlib
import inspect
from collections.abc import Callable
from pathlib import Path

from hive.config import Config, load_config, load_reference
from hive.errors import TopologyError
from hive.records import RunDirectory
from hive.runtime import Topology
from hive.schemes.custom import apply_custom

__all__ = ["assemble", "build", "load"]

FUNCTION = "topology"  # in a module or file that `run.topology` names without one

_DIRECTORY: contextvars.ContextVar[Path] = contextvars.ContextVar("directory", default=Path("runs") / "unnamed")


def build(config: Config, directory: Path | None = None) -> Topology:
    """The topology that `run.scheme` names. `directory`: where the run keeps its files; default: those of this run."""
    directory = directory or _DIRECTORY.get()
    module, _, function = config.run.scheme.partition(":")
    if not function:
        module, function = f"hive.schemes.{module.replace('-', '_')}", "topology"
    try:
        scheme = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise TopologyError(
            f"the scheme `{config.run.scheme}` cannot be loaded: {error}",
            hint="it is a name, or package.module:function on the Python path",
        ) from None
    topology = scheme(config, directory) if callable(scheme) else None
    if not isinstance(topology, Topology):
        raise TopologyError(
            f"the scheme `{config.run.scheme}` gives no hive.Topology",
            hint="it is a function of (config, directory) that returns one",
        )
    return topology


def assemble(
    config: Config, directory: Path, given: Path | None = None, function: Callable[..., Topology] | None = None
) -> Topology:
    """The whole topology of a run: its scheme's or its own, with what [custom] says.

    `given`: the config as a file. `function` makes the topology, in the place of what the config names.

    Raises TopologyError, ConfigError, and what a function of the user's own raises.
    """
    token = _DIRECTORY.set(directory)
    try:
        own = function is not None or config.run.topology is not None
        topology = _own(config, directory, function) if own else build(config, directory)
        apply_custom(topology, config, given)
        return topology
    finally:
        _DIRECTORY.reset(token)


def _own(config: Config, directory: Path, function: Callable[..., Topology] | None) -> Topology:
    """What the function behind `run.topology`, or the one given, makes of the config."""
    name = str(config.run.topology)
    function = function or load_reference(name, FUNCTION)
    takes = len(inspect.signature(function).parameters) if callable(function) else 0
    if takes not in (1, 2):
        raise TopologyError(
            f"`{name}` is no function of the config", hint="def topology(config: hive.Config) -> hive.Topology"
        )
    topology = function(config) if takes == 1 else function(config, directory)
    if not isinstance(topology, Topology):
        raise TopologyError(f"`{name}` returned {type(topology).__name__}", hint="it is to return a hive.Topology")
    return topology


def load(directory: str, function: Callable[..., Topology] | None = None) -> Topology:
    """The topology of a run directory, from its resolved config. What the fork server is told to call."""
    folder = RunDirectory.open(Path(directory))
    return assemble(load_config(folder.resolved_file), folder.path, folder.config_file, function)
