"""Schemes are named topologies: functions of a config that build a topology with the public API only.

    topology = hive.schemes.build(config)
    blueprint = hive.schemes.blueprint_of(topology)

`run.scheme` names a built-in scheme (hive/config/schemes.py), or a user-defined function as "package.module:function".
`run.topology` names a user-defined function that takes the config and returns a topology, either the scheme's with
changes or a new one.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from hive.config import SCHEMES, Config, calls_user_code, load_reference, module_of, why_not_found
from hive.errors import MemoryShort, TopologyError
from hive.hosts import host_facts
from hive.records import RunDirectory
from hive.runtime import Topology
from hive.runtime import check_memory as check_plan
from hive.schemes.custom import apply_custom

if TYPE_CHECKING:
    from hive.training import Blueprint

__all__ = ["blueprint_of", "build"]

FUNCTION = "topology"  # name of the function if `run.topology` names only a module or file

_DIRECTORY: contextvars.ContextVar[Path] = contextvars.ContextVar("directory", default=Path("runs") / "unnamed")


@calls_user_code("run.scheme")
def build(config: Config, directory: Path | None = None) -> Topology:
    """Build the topology that `run.scheme` names.

    directory: that of the run; default: the directory of the run being assembled. Raises TopologyError if the scheme
    cannot be loaded or does not return a topology.
    """
    directory = directory or _DIRECTORY.get()
    name = config.run.scheme
    module, _, function = (SCHEMES[name].topology if name in SCHEMES else name).rpartition(":")
    try:
        place = module_of(module) if module.endswith(".py") else importlib.import_module(module)
        scheme = getattr(place, function)
    except (ImportError, AttributeError, TopologyError) as error:
        clause, hint = why_not_found(name)
        raise TopologyError(
            f"the scheme `{name}` cannot be loaded: {clause or error}",
            hint=hint or "expected the name of a scheme, or package.module:function on the Python path",
        ) from None
    try:
        topology = scheme(config, directory) if callable(scheme) else None
    except MemoryShort as error:
        from hive.schemes.sizes import explained  # here, because it imports torch
        from hive.training import environment_of

        raise explained(error, config, environment_of(config)) from None
    if not isinstance(topology, Topology):
        raise TopologyError(
            f"the scheme `{name}` did not return a hive.Topology",
            hint="a scheme is a function of (config, directory) that returns one",
        )
    return topology


def blueprint_of(topology: Topology) -> Blueprint:
    """Return the blueprint of a topology that `build` made: its layouts and factories, for more actors of the run.

    Raises TopologyError for a topology without the actors of the built-in trainer.
    """
    from hive.training import Blueprint  # here, because it imports torch, which a custom scheme may not need

    made = (group.parameters.get("blueprint") for group in topology.groups.values())
    if found := next((blueprint for blueprint in made if isinstance(blueprint, Blueprint)), None):
        return found
    raise TopologyError(
        "this topology has no blueprint: none of its groups belongs to the built-in trainer",
        hint="`hive.schemes.build(config)` makes one; a custom scheme can make `hive.Blueprint(config)`",
    )


def assemble(
    config: Config, directory: Path, given: Path | None = None, function: Callable[..., Topology] | None = None
) -> Topology:
    """Build the complete topology of a run: of its scheme or its own function, with the parameters of [custom].

    given: the config's file, for error messages. function: makes the topology instead of the function that the config
    names. Raises TopologyError, ConfigError, and what a user-defined function raises.
    """
    token = _DIRECTORY.set(directory)
    try:
        custom = function is not None or config.run.topology is not None
        topology = _call(config, directory, function) if custom else build(config, directory)
        apply_custom(topology, config, given)
        return topology
    finally:
        _DIRECTORY.reset(token)


@calls_user_code("run.topology")
def _call(config: Config, directory: Path, function: Callable[..., Topology] | None) -> Topology:
    """Call `function`, or the function that `run.topology` names, and check that it returns a topology."""
    name = str(config.run.topology)
    function = function or load_reference(name, FUNCTION)
    takes = len(inspect.signature(function).parameters) if callable(function) else 0
    if takes not in (1, 2):
        raise TopologyError(
            f"`{name}` is not a function of the config", hint="def topology(config: hive.Config) -> hive.Topology"
        )
    topology = function(config) if takes == 1 else function(config, directory)
    if not isinstance(topology, Topology):
        raise TopologyError(f"`{name}` returned {type(topology).__name__}", hint="return a hive.Topology")
    return topology


def load(
    folder: RunDirectory, config: Config, function: Callable[..., Topology] | None = None, *, allocated: bool = False
) -> Topology:
    """Build the topology of a run directory with this config: see `hive.runtime.topology.building.load`."""
    facts = host_facts(folder.path)
    topology = assemble(config, folder.path, folder.config_file, None if facts else function)
    if facts is not None:
        from hive.hosts import part_of  # here, because it imports torch

        topology = part_of(topology, blueprint_of(topology), facts)
    if not allocated:
        check_memory(topology, config)
    _make_weights(topology)
    return topology


def _make_weights(topology: Topology) -> None:
    """Make the initial weights, once: processes are forked from this one and share them."""
    if topology.groups and "hive.training" in sys.modules:
        with contextlib.suppress(TopologyError):  # a topology without the trainer
            blueprint_of(topology).flat.made  # noqa: B018


def check_memory(topology: Topology, config: Config) -> None:
    """Raise MemoryShort if the run needs more memory than is free here, with the cause and ways out."""
    if not topology.groups:
        return  # its plan cannot be made, which is another error
    try:
        check_plan(topology.plan())
    except MemoryShort as error:
        with contextlib.suppress(TopologyError):  # a topology without the trainer
            blueprint = blueprint_of(topology)
            from hive.schemes.sizes import explained  # here, because it imports torch

            error = explained(error, config, blueprint.environment)
        raise error from None
