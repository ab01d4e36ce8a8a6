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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, ModuleType

from hive.config import SCHEMES, Config, load_config
from hive.config.references import give_setup, user_code_keys
from hive.errors import HiveError, NetworkError, TopologyError
from hive.records import RunDirectory, write_crash
from hive.records.program import enter
from hive.runtime.actor.error_location import HIVE, describe, is_interrupt, place_of
from hive.runtime.topology.topology import Topology


def load(
    directory: str,
    function: Callable[..., Topology] | None = None,
    *,
    config: Config | None = None,
    allocated: bool = False,
) -> Topology:
    """Build the topology of a run directory, with `function` if given, else with what the config names.

    The fork server calls it by its name. config: the resolved config, if the caller has parsed it already.
    allocated: the run has its memory already, and is not compared with what is free.

    Raises HiveError. An exception raised outside of hive also writes a crash report into the directory.
    """
    folder = RunDirectory.open(Path(directory))
    enter(folder)
    config = config or load_config(folder.resolved_file)
    give_setup(config.run.setup)

    def report_in(located: HiveError, error: BaseException) -> str:
        report = write_crash(folder, "topology", error=str(located), traceback=describe(error)[2])
        return f"the traceback is in {report}"

    with _locating(config, report_in):
        topology: Topology = _schemes().load(folder, config, function, allocated=allocated)
    return topology


def build(config: Config, directory: Path, given: Path | None = None) -> Topology:
    """Build the topology of a run that is only checked, not started. Raises HiveError.

    `directory` is where the run would keep its files; `given` is the config file that relative names refer to.
    """
    give_setup(config.run.setup)
    with _locating(config, lambda located, error: "`hive up` keeps the traceback"):
        topology: Topology = _schemes().assemble(config, directory, given)
    return topology


@contextlib.contextmanager
def _locating(config: Config, hint: Callable[[HiveError, BaseException], str]) -> Iterator[None]:
    """Raise an exception of user or library code as a HiveError that names its line, with a hint of the caller's."""
    try:
        yield
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        if is_interrupt(error) or (located := _located(error, config)) is None:
            raise
        with contextlib.suppress(HiveError):  # a full disk must not hide the original error
            located.hint = hint(located, error)
        raise located from error


def _located(error: BaseException, config: Config) -> HiveError | None:
    """Turn an exception of user or library code into a HiveError that names its line; None for errors of hive."""
    raised = _cause(error)
    if raised is None:
        return None
    ours = [
        frame.f_code
        for frame, _ in traceback.walk_tb(raised.__traceback__)
        if frame.f_code.co_filename.startswith(HIVE)
    ]
    where = place_of(raised)
    if not where and raised is error and ours and user_code_keys(ours[-1]) is not None:
        where = _reference(ours, config)
    if not where:
        return None
    what, cls = _failed_part(ours, config)
    kind, text, _ = describe(raised)
    if isinstance(raised, SyntaxError):
        text = raised.msg  # str(raised) would repeat the file name
    raises = f"{where} raised {kind}" + (f": {text}" if text != kind else "")
    return cls("; ".join([f"the {what} cannot be built: {raises}", *getattr(raised, "__notes__", ())]))


def _cause(error: BaseException) -> BaseException | None:
    """Return the exception of user code: `error`, or the hidden one of a failed import; None for errors of hive."""
    if not isinstance(error, HiveError):
        return error
    # hive's error gives the reason why the import failed, the hidden one has the line
    hidden = None if error.__cause__ else error.__context__
    return hidden if isinstance(hidden, ImportError | AttributeError) else None


def _failed_part(ours: Sequence[CodeType], config: Config) -> tuple[str, type[HiveError]]:
    """Return which part of the run the marked functions of hive were building, and the class of its errors."""
    called = {key for code in ours for key in user_code_keys(code) or ()}
    network = any(key.startswith("network.") for key in called)
    what, cls = ("network", NetworkError) if network else ("topology", TopologyError)
    if "network.extractor" in called and config.network.extractor:
        what = f"extractor `{config.network.extractor}`"
    return what, cls


def _reference(ours: Sequence[CodeType], config: Config) -> str:
    """Return the object that the innermost marked function calls, as the config names it; "" if it names none."""
    keys = next(filter(None, map(user_code_keys, reversed(ours))), ())
    named = [str(config.value(key)) for key in keys if config.value(key) not in (None, *SCHEMES)]
    return " or ".join(f"`{name}`" for name in named)


def _schemes() -> ModuleType:
    return importlib.import_module("hive.schemes")  # by name: it is a higher layer than this one, and imports torch
