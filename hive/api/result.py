"""The result of a run in a Python program: its summary, curves, evaluations, policy and continuation."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hive.api.calls import by_name
from hive.api.ending import ending_as_asked, raise_for
from hive.api.own_callbacks import OwnCallbacks
from hive.config import load_config
from hive.config.answers import answers
from hive.errors import ActorFailed, HiveError, RecordError, UsageError, brief
from hive.launch.control import print_to_stderr
from hive.launch.foreground import launch
from hive.launch.resuming import prepare
from hive.launch.select_run import named_run
from hive.launch.starting import began, failed_start, raise_failure, run_quietly
from hive.monitor.series import RETURN
from hive.records import RunDirectory, Summary, policy_directory, read_jsonl
from hive.records.jsonl import by_steps
from hive.records.owner import descriptor_of, give_up
from hive.session.given import GivenConfig

if TYPE_CHECKING:
    from hive.policy.loaded import Policy
    from hive.runtime import Topology

IMPORTERS = (
    ("hive.envs.loading", "import_module"),
    ("hive.config.references", "_module"),
    ("hive.config.references", "_file"),
    ("hive.networks.build.configured", "load_module"),
    ("hive.schemes", "build"),
)
"""Functions of hive that import modules of users for a run."""


class EpisodeCount(int):
    """How many training episodes a run has counted; called, it returns the table of them."""

    directory: Path
    run: str

    @brief
    def __call__(self, policy: str | None = None) -> dict[str, NDArray[Any]]:
        """Return the training episodes, a row for each, in the form of `Result.metrics`. policy: as there.

        The columns: `episode`, its number in the run's count; `steps`, `updates` and `seconds` of the run when it was
        counted; `environment`; `agent`, of several; `return`; `length`; and `info/...`, the values of env.info.

        Raises RecordError if the run did not list them.
        """
        run = RunDirectory.open(self.directory)
        file = (run if policy is None else policy_directory(run, policy)).episodes_file
        if not file.exists():
            raise RecordError(
                f"{self.run} did not list its episodes", hint='set record.sinks = ["jsonl", "episodes"] before the run'
            )
        return _columns(read_jsonl(file))


@answers("result")
@dataclass(frozen=True, repr=False)
class Result(Summary):
    """The summary of a run that has ended, with its curves and its policy. `hive.train` and `hive.run` return it.

    exact: whether another run of this config and seed gives the same weights, bit for bit. `inexact` has the reasons
    why not: for example actors that were restarted, or collectors that do not wait. episodes: how many were counted;
    `result.episodes()` returns the table of them, if record.sinks has "episodes".
    """

    episodes: EpisodeCount
    directory: Path = dataclasses.field(kw_only=True)  # of the run, absolute

    @classmethod
    @brief
    def open(cls, run: str | Path) -> Result:
        """Return the result of a run that has ended: by its name or a prefix in $HIVE_HOME, its path, or "latest".

        Raises UsageError if there is no such run, and RecordError if it has not ended.
        """
        return cls.of(named_run(str(run)))

    @classmethod
    def of(cls, directory: RunDirectory) -> Result:
        """Return the result of a run's directory. Raises RecordError if the run has not ended."""
        summary = Summary.read(directory.summary_file)
        fields = {field.name: getattr(summary, field.name) for field in dataclasses.fields(summary)}
        count = EpisodeCount(summary.episodes)
        count.directory, count.run = directory.path.absolute(), summary.name
        return cls(**{**fields, "episodes": count}, directory=count.directory)

    def __fspath__(self) -> str:
        return str(self.directory)  # so that hive.load takes a result

    def __repr__(self) -> str:
        mean = self.return_text
        return (
            f"<hive.Result {self.name}, {self.ending}: {self.env_steps:,} steps, return {mean}, {self.wall_s:.1f} s, "
            f"in {self.directory}>"
        )

    @brief
    def metrics(self, policy: str | None = None) -> dict[str, NDArray[Any]]:
        """Return the metrics over time: an array of each, with a value for each record; NaN where it lacks one.

        policy: the name of one of several policies; None: the first.

        `pandas.DataFrame(result.metrics())` makes a table of it.
        """
        run = RunDirectory.open(self.directory)
        return _columns(read_jsonl((run if policy is None else policy_directory(run, policy)).metrics_file))

    @brief
    def evaluations(self) -> dict[str, NDArray[Any]]:
        """Return the evaluations, a row for each, in the form of `metrics`. Without [evaluation] there are none."""
        file = RunDirectory.open(self.directory).evaluations_file
        return _columns(read_jsonl(file) if file.exists() else ())

    @brief
    def plot(self, metric: str = RETURN, *, path: str | Path | None = None) -> Any:
        """Draw a metric over environment steps; notebooks show the figure. Returns a matplotlib Figure.

        path: also write it there, as .png or .svg.

        Raises UsageError without matplotlib, and for a metric that the run does not have.
        """
        from hive.launch.comparing import draw_run

        return draw_run(RunDirectory.open(self.directory), metric, None if path is None else Path(path))

    @brief
    def policy(self, which: str = "latest", name: str | None = None) -> Policy:
        """Load the policy of the run, as `hive.load` does. `which`: "latest" or "best". name: of one of several.

        Raises RecordError if the run saved no such policy.
        """
        from hive.policy.loaded import load

        return load(str(self.directory), which, own_code=True, policy=name)  # the run imported that code already

    def environment(self, render_mode: str | None = None) -> Any:
        """Return a new environment as the run has it in evaluations: with its options and its wrappers.

        It is a gymnasium.Env, or one of several agents in the form of PettingZoo. render_mode: as in gymnasium.make.
        Raises EnvironmentMissing or EnvironmentFailed if it cannot be made.
        """
        from hive.policy.origin import environment_of

        return environment_of(load_config(RunDirectory(self.directory).resolved_file), render_mode)

    @by_name(1, lambda given: f"result.resume(steps={given[1]})")
    def resume(self, *, exact: bool = False, quiet: bool = False, **keys: Any) -> Result:
        """Continue the run, with other values of keys, and return its new result: `result.resume(steps=200_000)`.

        exact: go back to the last scheduled checkpoint, so that the result is that of a run that never stopped.
        keys: as in `hive.train`. Raises UsageError if the run reached its goal or has no checkpoint, ConfigError for
        invalid keys, and ActorFailed if the run fails.
        """
        refuse_while_imported()
        with ending_as_asked():
            if objects := [name for name, value in keys.items() if callable(value)]:
                what = f"`{objects[0]}` is a class or function; a resumed run keeps its own"
                raise UsageError(what, hint="start a new run")
            report = no_report if quiet else print_to_stderr
            own = OwnCallbacks(keys)
            with own.serving() as keys:
                given = GivenConfig.of(self.directory, keys, inline=False)
                directory = prepare(str(self.directory), exact=exact, sets=given.overrides, report=report)
                result = finish(directory, False, quiet)
            return own.returned(result)


def no_report(text: str) -> None:
    """Print nothing."""


def refuse_while_imported() -> None:
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


def finish(
    directory: RunDirectory, inline: bool, quiet: bool, topology: Callable[..., Topology] | None = None
) -> Result:
    """Execute a run that this process owns, and return its result.

    Raises ActorFailed if the run fails, and KeyboardInterrupt if a signal has ended it, or the user has left it.
    """
    if descriptor_of(directory) is None:
        return Result.of(directory)  # it has finished before
    signals = Counter[int]()  # that asked the run to end
    try:
        _execute(directory, inline, quiet, topology, signals)
    except HiveError:
        raise_for(signals)
        raise
    finally:
        give_up(directory)  # of a run that was not started
    summary = Summary.read(directory.summary_file) if directory.summary_file.exists() else None
    if quiet and summary is not None and summary.state == "stopped":
        print_to_stderr(f"{directory.name}: {summary.ending} at {summary.env_steps:,} steps")
    raise_for(signals)
    if summary is None:  # it was ended before it began, or continues without this program
        raise KeyboardInterrupt
    if summary.error:
        text, _, hint = summary.error.partition("\n\nhint: ")
        raise ActorFailed(text, hint=hint)
    return Result.of(directory)


def _execute(
    directory: RunDirectory,
    inline: bool,
    quiet: bool,
    topology: Callable[..., Topology] | None,
    signals: Counter[int],
) -> None:
    """Execute a run to its end, and count the signals that ask it to end. Raises the error of a failed start."""
    if inline:
        from hive.runtime.run.execute import run_inline

        try:
            run_inline(directory, topology, lambda number: signals.update([number]))
        except HiveError as error:
            failed_start(directory, error)
            raise
        if not began(directory):
            raise_failure(directory, ActorFailed.exit_code, os.getpid())
    elif quiet:
        run_quietly(directory, signals)
    else:
        launch(directory, signals=signals)


def _columns(lines: Iterable[Mapping[str, Any]]) -> dict[str, NDArray[Any]]:
    """Return an array of each value of the lines by steps; where it is missing, it is NaN, or "" among texts."""
    rows = [dict(_flat(line)) for line in sorted(lines, key=by_steps)]
    names = dict.fromkeys(name for row in rows for name in row)
    texts = {name for row in rows for name, value in row.items() if isinstance(value, str)}
    return {name: np.array([row.get(name, "" if name in texts else np.nan) for row in rows]) for name in names}


def _flat(line: Mapping[str, Any], above: str = "") -> Iterable[tuple[str, Any]]:
    """Yield the names and values of a line; those of inner tables as `table/name`, arrays as they are not at all."""
    for name, value in line.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}/")
        elif isinstance(value, str | int | float | bool) or value is None:
            yield f"{above}{name}", np.nan if value is None else value
