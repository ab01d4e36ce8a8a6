"""Starts runs from a script or a notebook: the same runs as `hive up` starts. Returns their results.

    result = hive.train("cartpole.toml", sets=["run.seed=2"])
    policy = result.policy("best")
    result = hive.run(topology, {"custom": {"curriculum": {"level": 3}}})

Both work where an event loop runs, as in a notebook's cell, and block it. Their asynchronous forms do not:

    result = await hive.run_async(topology)

`topology` is a function of the config that is defined in a file or in a cell of a notebook. The fork server imports
that file under its own name, so the rest of a script belongs under `if __name__ == "__main__":`. What a notebook's
function refers to is written to `session.py` in the run's directory and imported from there. Functions without a source
(a lambda, or one of the plain Python prompt) need `inline=True`, which runs everything in this process, where
breakpoints work too.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hive.cli.control import print_to_stderr
from hive.cli.new_run import new_run
from hive.cli.session_source import source_of
from hive.cli.starting import RETRY_S, run_quietly
from hive.cli.up import launch
from hive.config import Config, render
from hive.config.values import toml_key, toml_setting
from hive.errors import ActorFailed, HiveError, TopologyError, UsageError
from hive.records import RunDirectory, Summary
from hive.runtime.run.control import open_run

if TYPE_CHECKING:
    from hive.algorithms.policy import Policy
    from hive.runtime import Topology

__all__ = ["Result", "run", "run_async", "train", "train_async"]

IMPORTERS = (
    ("hive.envs.loading", "import_module"),
    ("hive.config.references", "_module"),
    ("hive.config.references", "_file"),
    ("hive.networks.configured", "load_module"),
    ("hive.schemes", "build"),
)
"""Functions of hive that import modules of users for a run."""

Given = str | Path | Config | Mapping[str, Any] | None


@dataclass(frozen=True)
class Result(Summary):
    """The summary of a run that this process started, with the place of its files and its policy."""

    directory: Path = dataclasses.field(kw_only=True)  # of the run, absolute

    def policy(self, which: str = "latest") -> Policy:
        """Load the policy of the run, as `hive.load` does. `which`: "latest" or "best".

        Raises RecordError if the run saved no such policy.
        """
        from hive.algorithms.policy import load

        return load(str(self.directory), which, own_code=True)  # the run imported that code already


def train(
    config: Given, *, sets: Sequence[str] = (), name: str | None = None, inline: bool = False, quiet: bool = False
) -> Result:
    """Train with the scheme of a config, wait for the end of the run, and return its result.

    config: a TOML file, a `hive.Config`, or a mapping of tables.
    sets: overrides `KEY=VALUE`, as for `--set`.
    name: name of the run; a number is appended.
    inline: run everything in this process, for debugging.
    quiet: print nothing.

    Raises ConfigError for an invalid config, and ActorFailed if the run fails.
    """
    _refuse_while_imported()
    return _finish(_prepared(config, [*sets, *_named(name)], quiet=quiet), inline, quiet)


def run(
    topology: Callable[..., Topology],
    config: Given = None,
    *,
    sets: Sequence[str] = (),
    name: str | None = None,
    inline: bool = False,
    quiet: bool = False,
) -> Result:
    """Run the topology that the function `topology` returns for the config; the other parameters are as in `train`.

    Raises TopologyError if other processes cannot import the function, unless `inline`.
    """
    _refuse_while_imported()
    return _finish(_prepared_for(topology, config, [*sets, *_named(name)], inline, quiet), inline, quiet, topology)


async def train_async(
    config: Given, *, sets: Sequence[str] = (), name: str | None = None, inline: bool = False, quiet: bool = False
) -> Result:
    """Train as `train` does, while the event loop of the caller continues. Cancelling the call ends the run."""
    _refuse_while_imported()
    return await _in_thread(lambda: _prepared(config, [*sets, *_named(name)], quiet=quiet), inline, quiet)


async def run_async(
    topology: Callable[..., Topology],
    config: Given = None,
    *,
    sets: Sequence[str] = (),
    name: str | None = None,
    inline: bool = False,
    quiet: bool = False,
) -> Result:
    """Run a topology as `run` does, while the event loop of the caller continues. Cancelling the call ends the run."""
    _refuse_while_imported()
    overrides = [*sets, *_named(name)]
    return await _in_thread(lambda: _prepared_for(topology, config, overrides, inline, quiet), inline, quiet, topology)


def _refuse_while_imported() -> None:
    """Raise UsageError if hive is importing the module that starts a run: each run would import it and start another.

    Processes of a run import the module of its environment, network or topology.
    """
    frame = inspect.currentframe()
    module = ""
    while frame is not None:
        if frame.f_code.co_name == "<module>":
            module = str(frame.f_globals.get("__name__"))
        elif module and (frame.f_globals.get("__name__"), frame.f_code.co_name) in IMPORTERS:
            raise UsageError(
                f"`{module}` starts a run while a process of a run imports it for what the config names there",
                hint=f'in {module}.py, put the call that starts the run under `if __name__ == "__main__":`, or move '
                "what the config names to a file of its own",
            )
        frame = frame.f_back


async def _in_thread(
    prepare: Callable[[], RunDirectory], inline: bool, quiet: bool, topology: Callable[..., Topology] | None = None
) -> Result:
    made: list[RunDirectory] = []

    def call() -> Result:
        made.append(prepare())
        return _finish(made[0], inline, quiet, topology)

    pool = ThreadPoolExecutor(1, "hive-run")  # not the loop's own pool, whose few threads runs would occupy for hours
    work = pool.submit(call)
    pool.shutdown(wait=False)
    ended = asyncio.wrap_future(work)
    try:
        return await asyncio.shield(ended)
    except asyncio.CancelledError:
        await asyncio.to_thread(_stop, made, work)
        await asyncio.wait([ended])
        ended.exception()  # the run's error is in its summary
        raise


def _stop(made: Sequence[RunDirectory], work: Future[Result]) -> None:
    """Ask a run to drain, save and end, as `hive down` does, as soon as it listens. `work` waits for its end.

    made: the run's directory, as soon as it exists.
    """
    while not work.done():
        with contextlib.suppress(HiveError):  # it is starting or ending
            for directory in made:
                with closing(open_run(directory)) as client:
                    return client.down("cancellation")
        wait([work], RETRY_S)


def _named(name: str | None) -> list[str]:
    return [] if name is None else [f"run.name={json.dumps(name)}"]


def _prepared_for(
    topology: Callable[..., Topology], config: Given, overrides: list[str], inline: bool, quiet: bool = False
) -> RunDirectory:
    reference, source = _reference(topology, inline)
    overrides = [f"run.topology={json.dumps(reference)}", *overrides]
    return _prepared(config, overrides, source, quiet=quiet)


def _prepared(config: Given, overrides: list[str], source: str | None = None, *, quiet: bool = False) -> RunDirectory:
    report = _no_report if quiet else print_to_stderr
    if isinstance(config, (str, Path)):
        return new_run(Path(config), overrides, source=source, report=report)
    text = render(config) if isinstance(config, Config) else "" if config is None else _toml(config)
    return new_run(None, overrides, text, source, report)


def _no_report(text: str) -> None:
    """Print nothing."""


def _toml(tables: Mapping[str, Any], above: str = "") -> str:
    """Return a mapping of tables as TOML; the values are checked when the text is loaded.

    Raises ConfigError for values that TOML cannot hold.
    """
    lines: list[str] = []
    for key, value in tables.items():
        name = f"{above}{toml_key(key)}"
        if isinstance(value, Mapping) and (not above or any(isinstance(item, Mapping) for item in value.values())):
            plain = {k: v for k, v in value.items() if not isinstance(v, Mapping)}
            lines += [f"[{name}]", *(_line(name, k, v) for k, v in plain.items())]
            inner = {k: v for k, v in value.items() if isinstance(v, Mapping)}
            for k, v in inner.items():
                table = f"{name}.{toml_key(k)}"
                lines += [f"[{table}]", *(_line(table, a, b) for a, b in v.items())]
        else:
            lines.append(f"{name} = {toml_setting(name, value)}")
    return "\n".join(lines)


def _line(table: str, key: Any, value: Any) -> str:
    """Return one line of a table. Raises ConfigError for a key that is no string, and as `toml_setting`."""
    if not isinstance(key, str):
        toml_setting(table, {key: value})
    return f"{toml_key(key)} = {toml_setting(f'{table}.{toml_key(key)}', value)}"


def _reference(function: Callable[..., Any], inline: bool) -> tuple[str, str | None]:
    """Return the reference by which another process imports the function, and the source of a function without a file.

    Raises TopologyError if another process cannot import it.
    """
    name = getattr(function, "__qualname__", "")
    try:
        file = inspect.getsourcefile(function)
    except TypeError:
        file = None
    if file and Path(file).is_file() and name.isidentifier():
        return f"{Path(file).resolve()}:{name}", None
    if inline:
        return "inline.py:topology", None  # never loaded: the function itself is called
    if source := source_of(function):
        return f"session.py:{name}", source
    raise TopologyError(
        f"`{name or function!r}` cannot be imported by other processes: it is not a top-level function of a file or "
        "of a notebook",
        hint="define it with `def` at the top of a file or cell, or pass inline=True",
    )


def _finish(
    directory: RunDirectory, inline: bool, quiet: bool, topology: Callable[..., Topology] | None = None
) -> Result:
    if inline:
        from hive.runtime.run.execute import run_inline

        run_inline(directory, topology)
    elif quiet:
        run_quietly(directory)
    else:
        launch(directory, argparse.Namespace(inline=False, detach=False, json=False, owns_stdout=False))
    summary = Summary.read(directory.summary_file)
    if summary.error:
        text, _, hint = summary.error.partition("\n\nhint: ")
        raise ActorFailed(text, hint=hint)
    fields = {field.name: getattr(summary, field.name) for field in dataclasses.fields(summary)}
    return Result(**fields, directory=directory.path.absolute())
