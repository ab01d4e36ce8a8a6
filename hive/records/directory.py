"""The run directory: where everything a run leaves lies.

    home/                    $HIVE_HOME, ./runs by default
      latest -> cartpole-2   the newest, a symbolic link
      cartpole-2/            name and number
        config.toml          the config as given, byte for byte       resolved.toml    every key
        run.json             facts of the running processes           summary.json     how it ended
        metrics.jsonl        the truth about learning                 events.jsonl     its diary
        evaluations.jsonl    one line for each
        log/<actor>.log      crash/<actor>-<n>.txt                    checkpoints/<update>/
        videos/                                                       not-finite/<name>/
        .reserve               room on the disk for the last words of a run whose disk is full

This module knows names and places only. What the files hold is told by the modules that write them.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from hive.errors import RecordError, UsageError
from hive.records.documents import failure

__all__ = ["LATEST", "STATE_FILE", "WEIGHTS_FILE", "RunDirectory", "home_folder"]

LATEST = "latest"

# In the folder of a checkpoint.
WEIGHTS_FILE = "weights.safetensors"
STATE_FILE = "state.json"

RESERVE_FILE = ".reserve"
RESERVE_BYTES = 256 * 1024  # a summary of a thousand actors

# What a shell, a URL and a metric can hold without quotes. Not hidden, not an option.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


def home_folder() -> Path:
    """Where runs lie: $HIVE_HOME, or ./runs."""
    return Path(os.environ.get("HIVE_HOME") or "runs")


@dataclass(frozen=True)
class RunDirectory:
    """A run on disk. Make one with `create` or `open`; `path` is absolute."""

    path: Path

    @classmethod
    def create(cls, home: Path, name: str) -> RunDirectory:
        """Makes home/<name>-<n> with the smallest free n >= 1, safe beside others who do the same.

        Raises UsageError for a name that cannot be one, RecordError when it cannot be made.
        """
        if not NAME.fullmatch(name):
            raise UsageError(f"`{name}` cannot name a run", hint="use letters, digits, `_`, `-` and `.`")
        try:
            home.mkdir(parents=True, exist_ok=True)
            directory = cls(_first_free(home.resolve(), name))
            for folder in (directory.logs, directory.crashes, directory.checkpoints):
                folder.mkdir()
        except OSError as error:
            raise failure("make a run directory in", home, error) from error
        directory.point_latest()
        return directory

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """An existing one; links are followed. Raises RecordError when it is none."""
        try:
            directory = cls(path.resolve())
            if directory.logs.is_dir() and directory.checkpoints.is_dir():
                return directory
        except (OSError, RuntimeError, ValueError):
            pass  # not allowed to look, links in a circle, a name that no file can have
        raise RecordError(f"`{path}` is not a run directory")

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def config_file(self) -> Path:
        """The config as given, byte for byte."""
        return self.path / "config.toml"

    @property
    def resolved_file(self) -> Path:
        return self.path / "resolved.toml"

    @property
    def run_file(self) -> Path:
        return self.path / "run.json"

    @property
    def resume_file(self) -> Path:
        """Which checkpoint this run goes on from: {"update", "scheduled"}; written by whoever resumes it."""
        return self.path / "resume.json"

    @property
    def failure_file(self) -> Path:
        """Why the last start failed; not there when it did not."""
        return self.path / "failure.json"

    @property
    def summary_file(self) -> Path:
        return self.path / "summary.json"

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.jsonl"

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
    def nan_dumps(self) -> Path:
        """Made by who writes into it."""
        return self.path / "not-finite"

    @property
    def videos(self) -> Path:
        """Made by who writes into it."""
        return self.path / "videos"

    def log_file(self, actor: str) -> Path:
        return self.logs / f"{actor}.log"

    def crash_file(self, actor: str, n: int) -> Path:
        return self.crashes / f"{actor}-{n}.txt"

    def reserve(self) -> None:
        """Takes the room on the disk that a summary needs, so that a run can still say how it ended on a full one."""
        with contextlib.suppress(OSError):  # it is full already
            (self.path / RESERVE_FILE).write_bytes(bytes(RESERVE_BYTES))

    def release(self) -> None:
        """Gives that room back, right before it is needed."""
        with contextlib.suppress(OSError):
            (self.path / RESERVE_FILE).unlink(missing_ok=True)

    def point_latest(self) -> None:
        """Makes `latest` in the same home point here, in one step."""
        link = self.path.with_name(f".{LATEST}.{self.name}")
        try:
            link.unlink(missing_ok=True)
            link.symlink_to(self.name)
            link.replace(self.path.with_name(LATEST))
        except OSError:
            pass  # a convenience for people: hive itself finds the newest run without it


def _first_free(home: Path, name: str) -> Path:
    """Makes the folder: that it was not there is known only by having made it."""
    n = 1
    while True:
        path = home / f"{name}-{n}"
        try:
            path.mkdir()
            return path
        except FileExistsError:
            n += 1
