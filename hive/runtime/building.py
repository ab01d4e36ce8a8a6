"""Building the topology of a run, from schemes and networks that may be a user's own, and saying which line failed.

    mine.py:7 raised KeyError: 'x'      the last line on the way to the error that is of no library
    `mine:Layers` raised TypeError ...  where there is none: it cannot be called so, or is all made of a library's parts

Two kinds of error are left as they are: those of hive, which say themselves what is wrong; and faults of hive, of which
nobody else is to blame and a traceback tells most.
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
from hive.runtime.calls import describe
from hive.runtime.error_location import HIVE, place_of
from hive.runtime.topology import Topology

__all__ = ["build", "load"]

# The functions of hive that call what `run.scheme` and `network.module` name.
SCHEME_CALLERS = ("hive.schemes.build",)
TOPOLOGY_CALLERS = ("hive.schemes._own", "hive.config.references._file", "hive.config.references._module")
MODULE_CALLERS = tuple(f"hive.networks.network.{name}" for name in ("_built", "from_module", "_probed"))
HEAD_CALLER = "hive.networks.head_kinds._own_head"
MODULE_IMPORTER = "hive.networks.configured.load_module"


def load(directory: str, function: Callable[..., Topology] | None = None) -> Topology:
    """The topology of a run directory. Raises HiveError; what raised outside of hive leaves a crash report there.

    `function` makes it, in the place of what the config names.
    """
    try:
        topology: Topology = _schemes().load(directory, function)
        return topology
    except Exception as error:
        folder = RunDirectory.open(Path(directory))
        told = _as_told(error, load_config(folder.resolved_file))
        if told is None:
            raise
        with contextlib.suppress(HiveError):  # a full disk must not hide what went wrong
            report = write_crash(folder, "topology", error=str(told), traceback=describe(error)[2])
            told.hint = f"the traceback is in {report}"
        raise told from error


def build(config: Config, directory: Path, given: Path | None = None) -> Topology:
    """The topology of a run that only might be. `directory` is where it would keep its files. Raises HiveError."""
    try:
        topology: Topology = _schemes().assemble(config, directory, given)
        return topology
    except Exception as error:
        told = _as_told(error, config)
        if told is None:
            raise
        told.hint = "`hive up` keeps the traceback"
        raise told from error


def _as_told(error: Exception, config: Config) -> HiveError | None:
    """What code outside of hive raised, as an error that says where; None for an error or a fault of hive itself."""
    raised = error
    if isinstance(error, HiveError):
        hidden = None if error.__cause__ else error.__context__
        if not isinstance(hidden, ImportError | AttributeError):
            return None
        raised = hidden  # a module could not be imported: why is in hive's words, but not in which line
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
        text = raised.msg  # its words name the file again
    what, cls = ("network", NetworkError) if network else ("topology", TopologyError)
    return cls(f"the {what} cannot be built: {where} raised {kind}" + (f": {text}" if text != kind else ""))


def _reference(caller: str, config: Config) -> str:
    """What the config names, when `caller` is what calls it; or nothing."""
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
    return importlib.import_module("hive.schemes")  # named: it lies above, and needs torch
