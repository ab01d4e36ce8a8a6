"""Build the topology of a run from built-in or user-defined schemes and networks, and report which line failed.

    mine.py:7 raised KeyError: 'x'      the innermost line of the traceback that belongs to the user's code
    `mine:Layers` raised TypeError ...  no such line: the call does not fit, or the object has only library parts

Two kinds of error pass unchanged: errors of hive, whose messages already explain the mistake, and bugs in hive, for
which the traceback is the best report.
"""

from __future__ import annotations

import contextlib
import importlib
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType

from hive.config import Config, load_config
from hive.errors import HiveError, NetworkError, TopologyError
from hive.records import RunDirectory, write_crash
from hive.runtime.actor.error_location import HIVE, describe, is_interrupt, place_of
from hive.runtime.topology.topology import Topology

__all__ = ["build", "check_memory", "load"]

# Functions of hive that call the objects named by `run.scheme`, `run.topology`, `network.module` and the heads' keys.
SCHEME_CALLERS = ("hive.schemes.build",)
TOPOLOGY_CALLERS = ("hive.schemes._call", "hive.config.references._file", "hive.config.references._module")
MODULE_CALLERS = tuple(f"hive.networks.network.{name}" for name in ("_built", "from_module", "_probed"))
EXTRACTOR_CALLERS = "hive.networks.extractors."  # its functions add what they called with as notes
HEAD_CALLER = "hive.networks.head_kinds._own_head"
MODULE_IMPORTER = "hive.networks.configured.load_module"


def load(directory: str, function: Callable[..., Topology] | None = None, *, allocated: bool = False) -> Topology:
    """Build the topology of a run directory, with `function` if given, else with what the config names.

    allocated: the run has its memory already, and is not compared with what is free.

    Raises HiveError. An exception raised outside of hive also writes a crash report into the directory.
    """
    try:
        topology: Topology = _schemes().load(directory, function, allocated=allocated)
        return topology
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        if is_interrupt(error):
            raise
        folder = RunDirectory.open(Path(directory))
        located = _located(error, load_config(folder.resolved_file))
        if located is None:
            raise
        with contextlib.suppress(HiveError):  # a full disk must not hide the original error
            report = write_crash(folder, "topology", error=str(located), traceback=describe(error)[2])
            located.hint = f"the traceback is in {report}"
        raise located from error


def build(config: Config, directory: Path, given: Path | None = None) -> Topology:
    """Build the topology of a run that is only checked, not started. Raises HiveError.

    `directory` is where the run would keep its files; `given` is the config file that relative names refer to.
    """
    try:
        topology: Topology = _schemes().assemble(config, directory, given)
        return topology
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        if is_interrupt(error):
            raise
        located = _located(error, config)
        if located is None:
            raise
        located.hint = "`hive up` keeps the traceback"
        raise located from error


def check_memory(config: Config, directory: Path) -> None:
    """Raise MemoryShort if a run of this config needs more memory than is free here; what `build` raises, too."""
    _schemes().check_memory(build(config, directory), config, directory)


def _located(error: BaseException, config: Config) -> HiveError | None:
    """Turn an exception of user or library code into a HiveError that names its line; None for errors of hive."""
    raised: BaseException = error
    if isinstance(error, HiveError):
        hidden = None if error.__cause__ else error.__context__
        if not isinstance(hidden, ImportError | AttributeError):
            return None
        raised = hidden  # hive's error gives the reason why the import failed, the hidden one has the line
    frames = list(traceback.walk_tb(raised.__traceback__))
    ours = [_name(frame) for frame, _ in frames if frame.f_code.co_filename.startswith(HIVE)]
    where = place_of(raised)
    if not where and raised is error and ours:
        where = _reference(ours[-1], config)
    if not where:
        return None
    network = MODULE_IMPORTER in ours or any(name.startswith("hive.networks.") for name in ours)
    kind, text, _ = describe(raised)
    if isinstance(raised, SyntaxError):
        text = raised.msg  # str(raised) would repeat the file name
    what, cls = ("network", NetworkError) if network else ("topology", TopologyError)
    if any(name.startswith(EXTRACTOR_CALLERS) for name in ours) and config.network.extractor:
        what = f"extractor `{config.network.extractor}`"
    raises = f"{where} raised {kind}" + (f": {text}" if text != kind else "")
    return cls("; ".join([f"the {what} cannot be built: {raises}", *getattr(raised, "__notes__", ())]))


def _reference(caller: str, config: Config) -> str:
    """Return the object that `caller` calls, as the config names it; "" if the config names none."""
    if caller in SCHEME_CALLERS and ":" in config.run.scheme:
        return f"`{config.run.scheme}`"
    if caller in TOPOLOGY_CALLERS and config.run.topology:
        return f"`{config.run.topology}`"
    if caller == HEAD_CALLER:
        heads = [head for head in (config.network.policy_head, config.network.value_head) if head]
        return " or ".join(f"`{head}`" for head in heads)
    return f"`{config.network.module}`" if caller in MODULE_CALLERS and config.network.module else ""


def _name(frame: FrameType) -> str:
    return f"{frame.f_globals.get('__name__')}.{frame.f_code.co_name}"


def _schemes() -> ModuleType:
    return importlib.import_module("hive.schemes")  # by name: it is a higher layer than this one, and imports torch
