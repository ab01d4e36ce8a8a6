"""`hive up --continue` and `hive.train(resume=True)`: one command that begins a run, and continues it ever after.

A run is found by its name in the config and its seed, so each task of a job array has its own. The newest one continues
if it ended before its goal; one that has finished stays as it is, and one that is alive, or has another config, is an
error. Of several such commands in one moment one begins the run.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

from hive.config.load import ConfigText
from hive.errors import RecordError, UsageError
from hive.launch.control import print_to_stderr
from hive.launch.new_run import given_config, new_run
from hive.launch.resuming import change_texts, configs, prepare
from hive.records import RunDirectory, Summary, find_runs, home_folder, only_writer, run_state
from hive.records.documents import failure
from hive.records.owner import owner_of, refusal
from hive.records.program import COMMAND, write_program
from hive.records.regular import read_regular

RESOLVED = ("run.init_from", "algorithm.replay_from", "network.weights")
"""Keys that matter at the beginning only, and may name the newest of something, which is another one by now."""
CALLBACKS = "run.callbacks"  # those that the program has now are called


def begin_or_continue(
    given: Path | None,
    overrides: list[str],
    content: str = "",
    source: str | None = None,
    report: Callable[[str], object] = print_to_stderr,
    argv: Sequence[str] = COMMAND,
) -> RunDirectory:
    """Return the directory of the run that this config begins or continues; one that has finished is not owned.

    The parameters, and what is raised, are those of `new_run` and `prepare`. Raises UsageError if the run is alive or
    has another config.
    """
    text, config, more = given_config(given, overrides, content, continues=True)
    home = home_folder()
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise failure("make", home, error) from error
    with only_writer(home):  # until the run has a directory, which others then find
        run = _newest(home, config.run.name, config.run.seed)
        if run is None:
            return new_run(given, overrides, content, source, report, argv)
    if run_state(run) == "running":
        raise refusal(run, owner_of(run))
    sets = _same_config(run, text, [*overrides, *more])
    if run_state(run) == "finished":
        summary = Summary.read(run.summary_file)
        report(f"{run.name} has finished: {summary.stop_reason}, at {summary.env_steps:,} steps")
        return run
    prepared = prepare(str(run.path), exact=False, sets=sets, source=source, report=report)
    write_program(prepared, argv)
    return prepared


def _newest(home: Path, name: str, seed: int) -> RunDirectory | None:
    """Return the newest run of this name and seed; also one that is just being made."""
    for run in reversed(find_runs(home)):
        if re.fullmatch(rf"{re.escape(name)}-\d+", run.name) and _seed_of(run) in (seed, None):
            return run
    return None


def _seed_of(run: RunDirectory) -> int | None:
    """Return the seed of a run; None if its config is not written yet. Raises RecordError for a damaged one."""
    try:
        table = tomllib.loads(read_regular(run.resolved_file).decode())["run"]
        return int(table["seed"])
    except FileNotFoundError:
        return None if owner_of(run) is not None else -1
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise RecordError(f"`{run.resolved_file}` cannot be read: {error}") from error


def _same_config(run: RunDirectory, text: ConfigText, overrides: list[str]) -> list[str]:
    """Return the overrides with which the run continues. Raises UsageError if its config is another one."""
    before, after = configs(run, overrides, text)
    changes = {key: line for key, line in change_texts(before, after).items() if key not in (*RESOLVED, CALLBACKS)}
    if changes:
        new = " ".join(f"-s {line.partition(': ')[0]}={line.rpartition(' -> ')[2]}" for line in changes.values())
        raise UsageError(
            f"{run.name} has another config: {'; '.join(changes.values())}",
            hint=f"to continue it with the new values: hive resume {run.name} {new}; "
            "to begin a new run: another --name, or without --continue",
        )
    return [override for override in overrides if override.startswith(f"{CALLBACKS}=")]
