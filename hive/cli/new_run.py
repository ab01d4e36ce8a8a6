"""Makes the directory of a new run: its config as given, and as resolved.

Keys that are "auto" are measured first (hive.cli.tune), so `resolved.toml` has their numbers.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

from hive.cli.control import print_to_stderr
from hive.cli.interrupts import deferred_interrupts
from hive.cli.starting import discard
from hive.cli.tune import decide, write_choice
from hive.config import AUTO, Config, EpsilonGreedyConfig, ReplayConfig, absolute, load_config, resolved, syntax
from hive.errors import HiveError, RecordError
from hive.native import check_native
from hive.paths import user_path
from hive.records import RunDirectory, home_folder, write_bytes
from hive.runtime.run.folders import check_socket_paths

__all__ = ["new_run", "random_beginning"]


def random_beginning(config: Config) -> str:
    """Return a warning if the policy of run.init_from does not act at first, and no key says so; "" otherwise."""
    if config.run.init_from is None:
        return ""
    instead: dict[str, float] = {}  # key -> the value that leaves random actions out
    if isinstance(config.algorithm, ReplayConfig):
        instead["algorithm.learning_starts"] = 0
    if isinstance(config.algorithm, EpsilonGreedyConfig):
        instead["algorithm.exploration_start"] = config.algorithm.exploration_end
    defaults = ("default", f"scheme {config.run.scheme}")
    random = [key for key, value in instead.items() if config.value(key) > value and config.origin(key) in defaults]
    if not random:
        return ""
    what = " and ".join(f"{key} = {config.value(key):,}" for key in random)
    ways = " ".join(f"-s {key}={instead[key]}" for key in random)
    return f"the run begins with random actions, not with those of run.init_from: {what}; {ways} leaves them out"


def new_run(
    given: Path | None,
    overrides: list[str],
    content: str = "",
    source: str | None = None,
    report: Callable[[str], object] = print_to_stderr,
) -> RunDirectory:
    """Create the directory of a new run, with its config as given and as resolved.

    given: the config file; None to load `content` instead. Then the default name of the run is that of its topology's
        file.
    overrides: `KEY=VALUE`, as for `--set`.

    Raises ConfigError for an invalid config, RecordError if the directory cannot be written, and PlatformError if
    processes cannot run on this machine.
    """
    text = None if given is not None else content

    def load(more: list[str]) -> Config:
        return load_config(given or "run.toml", [*overrides, *more], text=text)

    config = load([])
    more = _independent_of_folder(config, given)
    config = load(more) if more else config
    if warning := random_beginning(config):
        report(f"warning: {warning}")
    check_native()
    check_socket_paths()
    choice = decide(config, report) if config.automatic else None
    if choice is not None:
        report(choice.reasons)
        more += choice.sets
        config = load(more)
    directory: RunDirectory | None = None
    try:
        with deferred_interrupts():  # a directory that is half made could not be found and discarded
            directory = RunDirectory.create(home_folder(), config.run.name)
        write_bytes(directory.config_file, syntax.read(given, str(given)) if given is not None else content.encode())
        if source is not None:
            write_bytes(directory.session_file, source.encode())
            place = f"{directory.session_file.resolve()}:{str(config.run.topology).partition(':')[2]}"
            config = load([*more, f"run.topology={json.dumps(place)}"])
        if choice is not None:
            config = dataclasses.replace(config, origins={**config.origins, **dict.fromkeys(choice.values, AUTO)})
            write_choice(directory, choice)
        write_bytes(directory.resolved_file, resolved(config))
    except (HiveError, KeyboardInterrupt) as error:
        if directory is None:
            raise  # there is nothing of it
        discard(directory)
        if isinstance(error, RecordError):
            error.hint = "free space there, or set HIVE_HOME to a folder on another disk"
        raise
    return directory


def _independent_of_folder(config: Config, given: Path | None) -> list[str]:
    """Return the overrides that make paths in a config independent of the current folder."""
    more: list[str] = []
    if config.run.topology is not None:
        more.append(f"run.topology={json.dumps(absolute(config.run.topology))}")
        if given is None and config.origin("run.name") == "default":
            more.append(f"run.name={json.dumps(Path(config.run.topology.partition(':')[0]).stem)}")
    if config.run.init_from is not None and user_path(config.run.init_from).exists():
        more.append(f"run.init_from={json.dumps(str(user_path(config.run.init_from).resolve()))}")
    if config.run.replay_folder is not None:
        more.append(f"run.replay_folder={json.dumps(str(user_path(config.run.replay_folder).resolve()))}")
    return more
