"""References of a config to runs: run.init_from, algorithm.replay_from, and weights in [policies].

They are resolved once, when a run begins, and what they name is kept in its directory (hive.records.checkpoints.given).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from hive.config import Config, load_config
from hive.errors import UsageError
from hive.launch.control import print_to_stderr
from hive.paths import user_path
from hive.records import RunDirectory, home_folder, resolve_run
from hive.records.atomic import DONE
from hive.records.checkpoints.given import keep_given, origin_of
from hive.records.directory import is_transitions_file
from hive.records.regular import read_regular
from hive.records.runs import folder_of_run

INIT, REPLAY = "run.init_from", "algorithm.replay_from"


def references(config: Config) -> dict[str, str]:
    """Return the keys of a config that name a run, checkpoint or file, with their values."""
    given = {INIT: config.run.init_from, REPLAY: getattr(config.algorithm, "replay_from", None)}
    given |= {_weights(name): row.weights for name, row in config.policies.items()}
    return {key: place for key, place in given.items() if place}


def path_of(place: str) -> Path:
    """Return the absolute path of what a reference names. Raises UsageError for an unknown run."""
    path = user_path(place)
    is_file = path.exists() or is_transitions_file(place)
    return (path if is_file else resolve_run(home_folder(), place).path).resolve()


def keep_references(directory: RunDirectory, config: Config, *, begins: bool = True) -> Config:
    """Keep what a config refers to in the directory of its run, and return the config that names it there.

    begins: whether the run needs what matters at its beginning only. Files of transitions stay where they are. Raises
    RecordError and UsageError.
    """
    places = {key: place for key, place in references(config).items() if not is_transitions_file(place)}
    needed = {key: place for key, place in places.items() if begins or key not in (INIT, REPLAY)}
    kept = {
        key: str(keep_given(directory, place, replay=key == REPLAY, warn=partial(_warn, key)))
        for key, place in needed.items()
    }
    return _with(config, kept)


def _warn(key: str, text: str) -> None:
    print_to_stderr(f"warning: {key}: {text}")


def kept_as_before(before: Config, after: Config) -> Config:
    """Return `after` with the references of `before`, where both name the same run, checkpoint or policy."""
    kept, named = references(before), references(after)
    both = [key for key in kept if key in named and named[key] != kept[key]]
    return _with(after, {key: kept[key] for key in both if _is_same(kept[key], named[key])})


def kept_sets(directory: RunDirectory) -> list[str]:
    """Return the overrides by which another run refers to what is kept in the directory of this one."""
    return [f"{key}={json.dumps(place)}" for key, place in references(load_config(directory.resolved_file)).items()]


def _with(config: Config, places: Mapping[str, str]) -> Config:
    run, algorithm = config.run, config.algorithm
    if INIT in places:
        run = dataclasses.replace(run, init_from=places[INIT])
    if REPLAY in places:
        algorithm = dataclasses.replace(algorithm, replay_from=places[REPLAY])  # type: ignore[call-arg]
    policies = {
        name: dataclasses.replace(row, weights=places.get(_weights(name), row.weights))
        for name, row in config.policies.items()
    }
    return dataclasses.replace(config, run=run, algorithm=algorithm, policies=policies)


def _weights(policy: str) -> str:
    return f"policies.{policy}.weights"


def _is_same(kept: str, named: str) -> bool:
    """Whether a reference names what is kept: the same checkpoint or file, or the run or policy that it was of."""
    places = {user_path(named).resolve(), (home_folder() / named).resolve()}  # a run may have been deleted
    with contextlib.suppress(UsageError):
        places = {path_of(named)}
    if Path(kept).is_file():
        return any(path.is_file() and read_regular(path) == read_regular(Path(kept)) for path in places)
    run, inside = _parts(Path(kept))
    return any((run, there) in map(_parts, places) for there in (inside, *inside.parents[1:2]))


def _parts(path: Path) -> tuple[Path, Path]:
    """Return the folder of the run that a path is in, and the path in it, "" for the run itself."""
    is_checkpoint = (path / DONE).exists()
    run = folder_of_run(path.parents[1] if is_checkpoint else path)
    return origin_of(run), path.relative_to(run)
