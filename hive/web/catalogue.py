"""The runs that the page offers. A request names a run by its key here and never by a path, so it cannot name a file.

The key of a run is its name; a further run with the same name, in another folder, has `~2` after it. A run keeps its
key as long as it is listed, although a resumed run becomes the newest. Runs whose configs differ only in name and seed
are of one group: the page draws their median.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from hive.config import Config, load_config
from hive.errors import HiveError, RecordError, UsageError
from hive.records import RunDirectory, Summary, last_training_line, read_run_facts, run_state

LISTED_S = 1.0  # seconds for which a list of runs is used again, so that many pages cost as much as one
MOST_LISTED = 500  # newest runs that are offered: reading the summaries of more takes more than a second
APART = ("run.name", "run.seed")  # keys in which the runs of a group may differ


class Catalogue:
    """Finds runs by key, and lists them with their results."""

    def __init__(self, find: Callable[[], Sequence[RunDirectory]], clock: Callable[[], float] = time.monotonic) -> None:
        """find: returns the runs, newest last."""
        self.find = find
        self.clock = clock
        self.lock = threading.Lock()
        self.found: dict[str, RunDirectory] = {}
        self.rows: list[dict[str, Any]] = []
        self.listed_t = -LISTED_S
        self.configs: dict[str, tuple[int, dict[str, Any]]] = {}  # path -> (time of its change, facts of the config)

    def run(self, key: str) -> RunDirectory:
        """Return the run with this key. Raises UsageError if there is none."""
        with self.lock:
            if key not in self.found:
                self._find()
            if key not in self.found:
                raise UsageError(f"no run `{key[:80]}`", hint="it may have been removed: reload the page")
            return self.found[key]

    def list(self) -> Sequence[Mapping[str, Any]]:
        """Return a row for each run, newest first."""
        with self.lock:
            if self.clock() - self.listed_t >= LISTED_S:
                self._find()
                self.rows = [self._row(key, directory) for key, directory in reversed(self.found.items())]
                self.listed_t = self.clock()
            return self.rows

    def _find(self) -> None:
        runs = list(self.find())[-MOST_LISTED:]
        keys = {directory.path: key for key, directory in self.found.items()}
        used = {keys[directory.path] for directory in runs if directory.path in keys}
        self.found = {}
        for directory in runs:
            key = keys.get(directory.path) or next(key for key in _keys(directory.name) if key not in used)
            used.add(key)
            self.found[key] = directory

    def _row(self, key: str, directory: RunDirectory) -> dict[str, Any]:
        row: dict[str, Any] = {"run": key, "state": run_state(directory), "started": None, "steps": 0, "return": None}
        try:
            row["started"] = read_run_facts(directory).started
        except RecordError:
            pass  # a run that never started
        try:
            if row["state"] in ("running", "lost"):
                line = last_training_line(directory)
                row |= {"steps": line.get("steps", 0), "return": line.get("return/mean_100")}
            else:
                summary = Summary.read(directory.summary_file)
                row |= {"steps": summary.env_steps, "return": summary.mean_return_100}
        except RecordError:
            pass  # no summary, or a damaged one: the row stays without results
        return row | self._facts(directory)

    def _facts(self, directory: RunDirectory) -> dict[str, Any]:
        """Return environment, algorithm, seed and group of a run; its config is read again only after a change."""
        path = directory.resolved_file
        try:
            changed = path.stat().st_mtime_ns
        except OSError:
            return {"env": "", "algorithm": "", "seed": None, "group": directory.name}
        known = self.configs.get(str(path))
        if known is None or known[0] != changed:
            known = self.configs[str(path)] = changed, _facts_of(directory)
        return known[1]


def _keys(name: str) -> Iterator[str]:
    """Yield the keys that runs with this name may have: `NAME`, `NAME~2`, `NAME~3` ..."""
    yield name
    yield from (f"{name}~{number}" for number in itertools.count(2))


def _facts_of(directory: RunDirectory) -> dict[str, Any]:
    try:
        config = load_config(directory.resolved_file)
    except HiveError:
        return {"env": "", "algorithm": "", "seed": None, "group": directory.name}
    return {
        "env": config.env.id,
        "algorithm": config.algorithm.name,
        "seed": config.run.seed,
        "group": _group(config),
    }


def _group(config: Config) -> str:
    """Return a text that is equal for runs that differ only in the keys `APART`."""
    values = repr([(entry.name, entry.value) for entry in config.entries() if entry.name not in APART])
    return hashlib.sha256(values.encode()).hexdigest()[:16]
