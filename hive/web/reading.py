"""Reads parts of a run on request: config, differences of two configs, logs, evaluations with videos, actors."""

from __future__ import annotations

import re
import stat
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from hive.config import Config, ConfigEntry, load_config, syntax
from hive.config.values import toml_text
from hive.errors import UsageError
from hive.monitor.log_view import LEVELS, MergedLog
from hive.records import RunDirectory, run_state
from hive.records.jsonl import by_steps, tail_jsonl
from hive.runtime.run.control import open_run
from hive.web.positions import flat

MOST_LINES = 1000  # lines of the log that one reply has: more than anyone reads in a page
MOST_EVALUATIONS = 1000  # newest evaluations that one reply has
VIDEO_TYPES = {".mp4": "video/mp4", ".webm": "video/webm", ".gif": "image/gif"}
COMMENT = re.compile(r"# (\S+(?: \S+)*?) {2,}")  # the origin, in the comment of a line of resolved.toml


def config(directory: RunDirectory) -> list[dict[str, str]]:
    """Return every key of the run's config with value, origin and description. Raises ConfigError."""
    known = load_config(directory.resolved_file)
    lines = syntax.read(directory.resolved_file, directory.resolved_file.name).decode(errors="replace").splitlines()
    return [
        {"key": entry.name, "value": _value(entry.value), "origin": _origin(entry, lines), "doc": entry.doc}
        for entry in known.entries()
    ]


def _value(value: Any) -> str:
    return "not set" if value is None else toml_text(value)


def _origin(entry: ConfigEntry, lines: Sequence[str]) -> str:
    """Return where the value came from, as `hive config` wrote it into the line that the entry was loaded from."""
    number = entry.origin.rpartition(":")[2]
    if not number.isdecimal() or not 0 < int(number) <= len(lines):
        return entry.origin
    found = COMMENT.findall(lines[int(number) - 1].removesuffix(entry.doc))
    return found[-1] if found else ""


def difference(first: RunDirectory, second: RunDirectory) -> list[dict[str, str]]:
    """Return the keys in which two configs differ, with both values; "–" where one has no such key."""
    one, two = load_config(first.resolved_file), load_config(second.resolved_file)
    return [{"key": key, "first": _at(one, key), "second": _at(two, key)} for key in one.differences(two)]


def _at(known: Config, key: str) -> str:
    values = {entry.name: entry.value for entry in known.entries()}
    return _value(values[key]) if key in values else "–"


def log(known: MergedLog, lock: threading.Lock, *, level: str, actor: str, search: str) -> dict[str, Any]:
    """Return the newest lines of the logs with at least this level, of one actor ("": all), that contain a text.

    A folder of logs that is a link counts as empty: it may lead to logs of other programs.
    """
    with lock:
        if not known.folder.is_symlink():
            known.read()
        entries = known.chosen(level=LEVELS.index(level) if level in LEVELS else 0, actor=actor, search=search)
        actors = known.actors
    rows = [[entry.time, entry.actor, entry.rank, entry.text] for entry in entries[-MOST_LINES:]]
    return {"levels": LEVELS, "actors": actors, "lines": rows}


def evaluations(directory: RunDirectory) -> dict[str, Any]:
    """Return the run's evaluations, newest last, and its videos."""
    return {
        "evaluations": [
            flat(line) for line in sorted(tail_jsonl(directory.evaluations_file, MOST_EVALUATIONS), key=by_steps)
        ],
        "videos": [{"file": path.name, "kind": VIDEO_TYPES[path.suffix]} for path in _videos(directory)],
    }


def _videos(directory: RunDirectory) -> list[Path]:
    """Return the files of the folder of videos, oldest first; links and other kinds of files do not count.

    Nor does a folder that is a link: the page would show files of other folders.
    """
    found = []
    with suppress(OSError):
        for path in () if directory.videos.is_symlink() else directory.videos.iterdir():
            with suppress(FileNotFoundError):  # a run removes its oldest videos
                facts = path.lstat()
                if path.suffix in VIDEO_TYPES and stat.S_ISREG(facts.st_mode):
                    found.append((facts.st_mtime_ns, path.name, path))
    return [path for _, _, path in sorted(found)]


def video(directory: RunDirectory, name: str) -> tuple[Path, str]:
    """Return path and type of the video with this name. Raises UsageError if the run's folder has none."""
    for path in _videos(directory):
        if path.name == name:
            return path, VIDEO_TYPES[path.suffix]
    raise UsageError(f"{directory.name} has no such video")


def actor(directory: RunDirectory, name: str, *, stack: bool) -> dict[str, Any]:
    """Return stack (if requested) and transition history of an actor. Raises UsageError.

    A stack costs the actor's process a signal. An ended run has neither.
    """
    if run_state(directory) != "running":
        raise UsageError(f"{directory.name} is not running: only a live run has stacks and transitions")
    with closing(open_run(directory)) as client:
        text, transitions = client.inspect(name, stack=stack)
    return {"stack": text, "transitions": list(transitions)}
