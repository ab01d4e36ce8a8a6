"""Defines the run directory: the paths of all files of a run.

    home/                    $HIVE_HOME, ./runs by default
      latest -> cartpole-ppo-2   the newest, a symbolic link
      cartpole-ppo-2/        name and number
        config.toml          the config as given, byte for byte       resolved.toml    every key
        session.py           classes and functions of the program that started it
        tuning.json          the choice for keys that were "auto"
        run.json             facts of the running processes           summary.json     the result
        metrics.jsonl        metrics over time                        events.jsonl     the event log
        metrics.csv          the same as a table, with the sink "csv"
        evaluations.jsonl    one line per evaluation
        log/<actor>.log      crash/<actor>-<n>.txt                    checkpoints/<update>/
        best/<update>/         the best policy
        videos/                                                       not-finite/<name>/
        .reserve               disk space for the summary of a run whose disk is full
      .failed/cartpole-ppo-3/  the last failed start of that name (hive.records.failed_starts)

This module only defines names and paths. The modules that write the files document their content.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from hive.errors import RecordError, UsageError
from hive.paths import SESSION_FILE, user_path
from hive.records.documents import failure

LATEST = "latest"

# Files in the folder of a checkpoint.
WEIGHTS_FILE = "weights.safetensors"
STATE_FILE = "state.json"
REPLAY_FOLDER = "replay"
ROWS_SUFFIX = ".rows"

RESERVE_FILE = ".reserve"
RESERVE_BYTES = 256 * 1024  # size of the summary of a run with a thousand actors

# Names that need no quotes in shells, URLs and metrics. The first character excludes hidden files and options.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


def home_folder() -> Path:
    """Return the folder of all runs: $HIVE_HOME, or ./runs. Raises UsageError for a `~` that has no folder."""
    return user_path(os.environ.get("HIVE_HOME") or "runs")


@dataclass(frozen=True)
class RunDirectory:
    """A run on disk. Make one with `create` or `open`; `path` is absolute."""

    path: Path

    @classmethod
    def create(cls, home: Path, name: str) -> RunDirectory:
        """Create home/<name>-<n> with the smallest free n >= 1. Several processes may do this at the same time.

        Raises UsageError for an invalid name, and RecordError if the directory cannot be created.
        """
        if not NAME.fullmatch(name):
            raise UsageError(f"`{name}` cannot name a run", hint="use letters, digits, `_`, `-` and `.`")
        directory = None
        try:
            home.mkdir(parents=True, exist_ok=True)
            directory = cls(_first_free(home.resolve(), name))
            for folder in (directory.logs, directory.crashes, directory.checkpoints):
                folder.mkdir()
        except OSError as error:
            if directory is not None:
                directory.remove()
            refused = failure("make a run directory in", home, error)
            refused.hint = "set HIVE_HOME to a folder that is writable and has room"
            raise refused from error
        directory.point_latest()
        return directory

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """Open an existing run directory; links are followed. Raises RecordError if `path` is not one."""
        try:
            directory = cls(path.resolve())
            if directory.logs.is_dir() and directory.checkpoints.is_dir():
                resolved = directory.resolved_file  # read as a config, which may be a pipe if a user gives it
                if resolved.is_symlink() or (resolved.exists() and not resolved.is_file()):
                    raise RecordError(f"`{resolved}` is not a file of hive", hint="remove what lies in its place")
                return directory
        except (OSError, RuntimeError, ValueError):
            pass  # no permission, circular links, or an invalid file name
        raise RecordError(f"`{path}` is not a run directory")

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def session_file(self) -> Path:
        """The topology of a run that was started in a notebook. Other runs have none."""
        return self.path / SESSION_FILE

    @property
    def config_file(self) -> Path:
        """The config as given, byte for byte."""
        return self.path / "config.toml"

    @property
    def resolved_file(self) -> Path:
        return self.path / "resolved.toml"

    @property
    def tuning_file(self) -> Path:
        """The choice for the keys that were "auto" (hive.cli.parts.tune); does not exist for a run without such
        keys.
        """
        return self.path / "tuning.json"

    @property
    def run_file(self) -> Path:
        return self.path / "run.json"

    @property
    def resume_file(self) -> Path:
        """The checkpoint that the run is resumed from (hive.records.checkpoints.resume_point)."""
        return self.path / "resume.json"

    @property
    def failure_file(self) -> Path:
        """The error of the last start; does not exist if the start succeeded."""
        return self.path / "failure.json"

    @property
    def summary_file(self) -> Path:
        return self.path / "summary.json"

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def csv_file(self) -> Path:
        """Metrics as a table (hive.records.sinks.csv_sink); exists with the sink "csv" only."""
        return self.path / "metrics.csv"

    @property
    def events_file(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def evaluations_file(self) -> Path:
        return self.path / "evaluations.jsonl"

    @property
    def logs(self) -> Path:
        return self.path / "log"

    @property
    def crashes(self) -> Path:
        return self.path / "crash"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def best(self) -> Path:
        """The folder of the best policy. Created by the first writer."""
        return self.path / "best"

    @property
    def nan_dumps(self) -> Path:
        """Created by the first writer."""
        return self.path / "not-finite"

    @property
    def videos(self) -> Path:
        """Created by the first writer."""
        return self.path / "videos"

    def log_file(self, actor: str) -> Path:
        return self.logs / f"{actor}.log"

    def crash_file(self, actor: str, n: int) -> Path:
        return self.crashes / f"{actor}-{n}.txt"

    def reserve(self) -> None:
        """Reserve the disk space of a summary, so that it can be written even if the disk is full by then."""
        with contextlib.suppress(OSError):  # the disk is already full
            (self.path / RESERVE_FILE).write_bytes(bytes(RESERVE_BYTES))

    def release(self) -> None:
        """Release the reserved disk space; called right before the summary is written."""
        with contextlib.suppress(OSError):
            (self.path / RESERVE_FILE).unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the directory, as far as possible, and the link `latest` if it points to it."""
        shutil.rmtree(self.path, ignore_errors=True)
        latest = self.path.with_name(LATEST)
        with contextlib.suppress(OSError):
            if latest.is_symlink() and latest.readlink() == Path(self.name):
                latest.unlink()

    def point_latest(self) -> None:
        """Point the link `latest` in the same home to this run, atomically."""
        link = self.path.with_name(f".{LATEST}.{self.name}")
        try:
            link.unlink(missing_ok=True)
            link.symlink_to(self.name)
            link.replace(self.path.with_name(LATEST))
        except OSError:
            pass  # the link is only a convenience for users: hive finds the newest run without it


def _first_free(home: Path, name: str) -> Path:
    """Create and return the first free folder. Only `mkdir` itself can tell reliably that a name was free."""
    n = 1
    while True:
        path = home / f"{name}-{n}"
        try:
            path.mkdir()
            return path
        except FileExistsError:
            n += 1
