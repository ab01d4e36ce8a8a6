"""Makes the directory of a new run: its config as given, and as resolved.

Keys that are "auto" are measured first (hive.launch.tune), so `resolved.toml` has their numbers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hive.config import (
    AUTO,
    Config,
    EpsilonGreedyConfig,
    ReplayConfig,
    absolute,
    load_config,
    resolved,
)
from hive.config.load import ConfigText
from hive.config.run_names import trained_name
from hive.config.values import toml_text
from hive.errors import HiveError, RecordError, UsageError
from hive.launch.control import print_to_stderr
from hive.launch.interrupts import deferred_interrupts
from hive.launch.references import keep_references, path_of, references
from hive.launch.starting import discard
from hive.launch.tune import decide, write_choice
from hive.native import check_native
from hive.paths import SESSION_FILE, user_path
from hive.records import JsonlWriter, RunDirectory, home_folder, write_bytes
from hive.records.owner import give_up, own
from hive.records.program import COMMAND, write_program
from hive.records.run_warnings import RANDOM_BEGINNING, RunWarning
from hive.runtime.run.folders import check_socket_paths


def beginning_warnings(config: Config) -> list[RunWarning]:
    """Return the warnings that follow from a config alone, without those that it accepts."""
    cause, advice = random_beginning(config)
    found = [RunWarning(RANDOM_BEGINNING, cause, advice, 0)] if cause else []
    return [warning for warning in found if warning.kind not in config.run.accept]


def random_beginning(config: Config) -> tuple[str, str]:
    """Return why the run begins with random actions, if no key says so, and what leaves them out; "" otherwise.

    The policy of run.init_from does not act in these steps, and no update uses the transitions of
    algorithm.replay_from.
    """
    given = isinstance(config.algorithm, ReplayConfig) and bool(config.algorithm.replay_from)
    if config.run.init_from is None:
        return _late_transitions(config) if given else ("", "")
    instead: dict[str, float] = {}  # key -> the value that leaves random actions out
    if isinstance(config.algorithm, ReplayConfig):
        instead["algorithm.learning_starts"] = 0
    if isinstance(config.algorithm, EpsilonGreedyConfig):
        instead["algorithm.exploration_start"] = config.algorithm.exploration_end
    defaults = ("default", f"scheme {config.run.scheme}")
    random = [key for key, value in instead.items() if config.value(key) > value and config.origin(key) in defaults]
    if not random:
        return "", ""
    what = " and ".join(f"{key} = {config.value(key):,}" for key in random)
    ways = " ".join(f"-s {key}={instead[key]}" for key in random)
    return f"the run begins with random actions, not with those of run.init_from: {what}", f"{ways} leaves them out"


def _late_transitions(config: Config) -> tuple[str, str]:
    key = "algorithm.learning_starts"
    starts, defaults = config.value(key), ("default", f"scheme {config.run.scheme}")
    if not starts or config.origin(key) not in defaults:
        return "", ""
    cause = f"the first {starts:,} steps are random actions without updates, though transitions are given"
    return f"{cause}: {key} = {starts:,}", f"-s {key}=0 learns from algorithm.replay_from at once"


REFERENCE_KEYS = (
    *("run.topology", "run.scheme", "run.update_hook", "run.setup", "env.id", "evaluation.env.id"),
    *("network.module", "network.extractor", "network.policy_head", "network.value_head", "algorithm.name"),
)
LIST_KEYS = ("env.wrappers", "evaluation.env.wrappers", "record.sinks")


def _absolute_references(config: Config) -> list[str]:
    """Return overrides by which references to files do not depend on the current folder; `session.py` is the run's."""
    sets = []
    for name in (*REFERENCE_KEYS, *LIST_KEYS):
        value = config.value(name) if not name.startswith("evaluation.env") else _inner(config, name)
        now = [*value] if isinstance(value, tuple) else value
        changed = [_absolute(one) for one in now] if isinstance(now, list) else _absolute(now)
        if changed != now:
            sets.append(f"{name}={toml_text(changed)}")
    return sets


def _inner(config: Config, name: str) -> Any:
    return config.evaluation.env.get(name.removeprefix("evaluation.env."))


def _absolute(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {**value, "name": _absolute(value.get("name"))}
    place = value.rpartition(":")[0] or value if isinstance(value, str) else ""
    return absolute(value) if place.endswith(".py") and place != SESSION_FILE else value


def _absolute_files(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Return network.weights with absolute paths of the files."""

    def found(file: str) -> str:
        return str(user_path(file).resolve())

    return {
        module: {**one, "file": found(one["file"])} if isinstance(one, Mapping) else found(one)
        for module, one in weights.items()
    }


def new_run(
    given: Path | None,
    overrides: list[str],
    content: str = "",
    source: str | None = None,
    report: Callable[[str], object] = print_to_stderr,
    argv: Sequence[str] = COMMAND,
) -> RunDirectory:
    """Create the directory of a new run, which this process then owns, with its config as given and as resolved.

    given: the config file; None to load `content` instead.
    overrides: `KEY=VALUE`, as for `--set`.
    argv: the arguments that users' code sees.

    Raises ConfigError for an invalid config, UsageError if no run matches run.init_from, RecordError if the directory
    cannot be written, and PlatformError if processes cannot run on this machine.
    """
    text, config, more = given_config(given, overrides, content)
    check_native()
    check_socket_paths()
    choice = decide(config, report) if config.automatic else None
    if choice is not None:
        report(choice.reasons)
        more += choice.sets
        config = text.config([*overrides, *more])
    directory: RunDirectory | None = None
    try:
        with deferred_interrupts():  # a directory that is half made could not be found and discarded
            directory = RunDirectory.create(home_folder(), config.run.name)
            own(directory)
        config = keep_references(directory, config)
        write_program(directory, argv)
        write_bytes(directory.config_file, text.content)
        if source is not None:
            write_bytes(directory.session_file, source.encode())
            write_bytes(directory.resolved_file, resolved(config))
            config = dataclasses.replace(load_config(directory.resolved_file), origins=config.origins)
        if choice is not None:
            config = dataclasses.replace(config, origins={**config.origins, **dict.fromkeys(choice.values, AUTO)})
            write_choice(directory, choice)
        write_bytes(directory.resolved_file, resolved(config))
        _log_warnings(directory, beginning_warnings(config))
    except (HiveError, KeyboardInterrupt) as error:
        if directory is None:
            raise  # there is nothing of it
        give_up(directory)
        discard(directory)
        if isinstance(error, RecordError):
            error.hint = "free space there, or set HIVE_HOME to a folder on another disk"
        raise
    return directory


def given_config(
    given: Path | None, overrides: list[str], content: str = "", *, continues: bool = False
) -> tuple[ConfigText, Config, list[str]]:
    """Return a config as text and as read, and the overrides more with which it does not depend on the current folder.

    The parameters, and what is raised, are those of `new_run`. continues: whether it may refer to runs that are gone.
    """
    text = ConfigText(given or "run.toml", None if given is not None else content)
    config = text.config(overrides)
    more = _independent_of_folder(config, continues)
    return text, text.config([*overrides, *more]) if more else config, more


def _log_warnings(directory: RunDirectory, warnings: Iterable[RunWarning]) -> None:
    """Begin the event log of a run with these warnings, from which every view takes them."""
    events = JsonlWriter(directory.events_file)
    for warning in warnings:
        events.write({"t": round(time.time(), 3), **warning.event})
    events.close()


def _independent_of_folder(config: Config, continues: bool) -> list[str]:
    """Return the overrides with which a config does not depend on the current folder."""
    more = _absolute_references(config)
    if str(config.run.topology).startswith(SESSION_FILE) and config.origin("run.name") == "default":
        program = getattr(sys.modules["__main__"], "__file__", None) or SESSION_FILE
        more.append(f"run.name={json.dumps(trained_name(config.env.id, '', program))}")
    for key, place in references(config).items():  # looked up while the new run does not exist, which is no answer
        with contextlib.suppress(*[UsageError] * continues):
            more.append(f"{key}={json.dumps(str(path_of(place)))}")
    if config.network.weights:
        more.append(f"network.weights={toml_text(_absolute_files(config.network.weights))}")
    if config.run.replay_folder is not None:
        more.append(f"run.replay_folder={json.dumps(str(user_path(config.run.replay_folder).resolve()))}")
    return more
