"""Schemes: named topologies. A scheme is a function from a config to a topology, built with the public API only.

    topology = hive.schemes.build(config, directory)

`run.scheme` names one of the files here, or a function of your own as "package.module:function".
"""

from __future__ import annotations

import importlib
from pathlib import Path

from hive.config import Config, load_config
from hive.errors import TopologyError
from hive.runtime import Topology

__all__ = ["build", "load"]


def build(config: Config, directory: Path) -> Topology:
    """The topology that `run.scheme` names. `directory` is where the run keeps its files."""
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


def load(directory: str) -> Topology:
    """The topology of a run directory, from its resolved config. What the fork server is told to call."""
    from hive.records import RunDirectory

    folder = RunDirectory.open(Path(directory))
    return build(load_config(folder.resolved_file), folder.path)
