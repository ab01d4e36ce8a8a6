"""Defines the run directory: the paths of all files of a run.

    home/                    $HIVE_HOME, ./runs by default
      latest -> cartpole-ppo-2   the newest, a symbolic link
      cartpole-ppo-2/        name and number
        config.toml          the config as given, byte for byte       resolved.toml    every key
        session.py           classes and functions of the program that started it
        tuning.json          the choice for keys that were "auto"
        run.json             facts of the running processes           summary.json     the result
        run.lock             who may write in it (hive.records.owner)
        replaced/            the config before a resume, until its first update (hive.records.replaced)
        program.json         arguments and folder of the program that started it (hive.records.program)
        metrics.jsonl        metrics over time                        events.jsonl     the event log
        metrics.csv          the same as a table, with the sink "csv"
        evaluations.jsonl    one line per evaluation
        episodes.jsonl       one line per training episode, with the sink "episodes"
        log/<actor>.log      crash/<actor>-<n>.txt                    checkpoints/<update>/
        best/<update>/         the best policy
        given/                 checkpoints of other runs that it needs (hive.records.checkpoints.given)
        videos/                                                       not-finite/<name>/
        environments/<actor>.json                                     environment processes (hive.records.environments)
        rounds/<collector>   checksums of rollouts (hive.training.collect.witness)
        policies.json          which policies it trains, if its environment has several agents
        policies/<policy>/     metrics, checkpoints, best policy of each but the first, whose files are the run's
        .reserve               disk space for the summary of a run whose disk is full
      .failed/cartpole-ppo-3/  the last failed start of that name (hive.records.failed_starts)

This module only defines names and paths. The modules that write the files document their content.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from hive.errors import RecordError, UsageError
from hive.hash_seed import PROGRAM_FILE
from hive.paths import GIVEN, SESSION_FILE, user_path
from hive.records.documents import failure
from hive.records.regular import KINDS, write_new

LATEST = "latest"
POLICIES = "policies"  # the folders of the policies after the first
FOLDERS = (
    "log",
    "crash",
    "checkpoints",
    "best",
    "not-finite",
    "videos",
    "environments",
    "replaced",
    "rounds",
    GIVEN,
    POLICIES,
)
"""The folders of a run directory. A link in the place of one would lead writers and `hive prune` out of the run."""

# Files in the folder of a checkpoint.
WEIGHTS_FILE = "weights.safetensors"
STATE_FILE = "state.json"
REPLAY_FOLDER = "replay"
ROWS_SUFFIX = ".rows"
TRANSITIONS_SUFFIX = ".npz"

RESERVE_FILE = ".reserve"
RESERVE_BYTES = 256 * 1024  # size of the summary of a run with a thousand actors

# Names that need no quotes in shells, URLs and metrics. The first character excludes hidden files and options.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


def home_folder() -> Path:
    """Return the folder of all runs: $HIVE_HOME, or ./runs. Raises UsageError for a `~` that has no folder."""
    return user_path(os.environ.get("HIVE_HOME") or "runs")


class NoRunError(RecordError):
    """A path is not a run directory."""


class _Below:
    """The path of a file or folder of a run directory."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, run: RunDirectory, kind: type) -> Path:
        return run.path / self.name


@dataclass(frozen=True)
class RunDirectory:
    """A run on disk. Make one with `create` or `open`; `path` is absolute."""

    path: Path
    session_file = _Below(SESSION_FILE)  # the topology of a run that was started in a notebook; others have none
    config_file = _Below("config.toml")  # the config as given, byte for byte
    resolved_file = _Below("resolved.toml")
    tuning_file = _Below("tuning.json")  # the choice for the keys that were "auto"; exists with such keys only
    run_file = _Below("run.json")
    lock_file = _Below("run.lock")
    program_file = _Below(PROGRAM_FILE)
    resume_file = _Below("resume.json")  # the checkpoint that it is resumed from (checkpoints.resume_point)
    replaced = _Below("replaced")  # what a resume has changed, until its first update (hive.records.replaced)
    failure_file = _Below("failure.json")  # the error of the last start; does not exist if the start succeeded
    summary_file = _Below("summary.json")
    metrics_file = _Below("metrics.jsonl")
    csv_file = _Below("metrics.csv")  # metrics as a table, with the sink "csv" only
    events_file = _Below("events.jsonl")
    evaluations_file = _Below("evaluations.jsonl")
    episodes_file = _Below("episodes.jsonl")  # with the sink "episodes" only
    logs = _Below("log")
    crashes = _Below("crash")
    checkpoints = _Below("checkpoints")
    best = _Below("best")  # the folder of the best policy; like the next two, created by its first writer
    nan_dumps = _Below("not-finite")
    given = _Below(GIVEN)
    videos = _Below("videos")
    spaces_file = _Below("spaces.json")  # what environments in processes of their own have told of their spaces
    environments = _Below("environments")  # exists only where processes step environments
    rounds = _Below("rounds")  # checksums of rollouts, to compare those that a resume makes again
    policies_file = _Below("policies.json")
    policies = _Below(POLICIES)

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
        """Open an existing run directory; links to it are followed.

        Raises NoRunError if `path` is not one, and RecordError for one with a link in the place of a folder.
        """
        try:
            directory = cls(path.resolve())
            resolved = directory.resolved_file  # read as a config, which may be a pipe if a user gives it
            # One of the three may be missing: users delete checkpoints and logs to free space, and a start can fail.
            if directory.logs.is_dir() + directory.checkpoints.is_dir() + os.path.lexists(resolved) > 1:
                if resolved.is_symlink() or (resolved.exists() and not resolved.is_file()):
                    raise RecordError(f"`{resolved}` is not a file of hive", hint="remove what lies in its place")
                directory.refuse_links()
                return directory
        except (OSError, RuntimeError, ValueError):
            pass  # no permission, circular links, or an invalid file name
        raise NoRunError(f"`{path}` is not a run directory")

    @classmethod
    def of_policy(cls, path: Path) -> RunDirectory:
        """Open the folder of one policy of a run, whose files have the names of a run's; make it if it is missing.

        Raises RecordError.
        """
        try:
            for folder in (cls(path).logs, cls(path).checkpoints):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise failure("make the folder of a policy in", path, error) from error
        return cls.open(path)

    @property
    def name(self) -> str:
        return self.path.name

    def refuse_links(self, *more: Path) -> None:
        """Raise RecordError if a folder of the run is a link, or one of `more`."""
        folders = (*more, *(self.path / name for name in FOLDERS))
        if linked := next((folder for folder in folders if folder.is_symlink()), None):
            raise RecordError(
                f"`{linked}` is a link, not a folder of hive", hint="move the whole run directory, and link that"
            )

    def refuse_others(self) -> None:
        """Raise RecordError if anything but a file or folder of hive lies where a run that continues will write."""
        self.refuse_links()
        files = [self.path / below.name for below in vars(RunDirectory).values() if isinstance(below, _Below)]
        try:
            for path in (*files, *self.logs.iterdir(), *self.environments.glob("*")):
                expected = stat.S_IFDIR if path.name in FOLDERS and path.parent == self.path else stat.S_IFREG
                if os.path.lexists(path) and (kind := stat.S_IFMT(path.lstat().st_mode)) != expected:
                    what = KINDS.get(kind, "something else")
                    raise RecordError(f"`{path}` is {what}, not {KINDS[expected]} of hive", hint="remove it")
        except OSError as error:
            raise failure("read", self.path, error) from error

    def log_file(self, actor: str) -> Path:
        return self.logs / f"{actor}.log"

    def crash_file(self, actor: str, n: int) -> Path:
        return self.crashes / f"{actor}-{n}.txt"

    def reserve(self) -> None:
        """Reserve the disk space of a summary, so that it can be written even if the disk is full by then."""
        self.release()
        with contextlib.suppress(OSError):  # the disk is already full
            write_new(self.path / RESERVE_FILE, bytes(RESERVE_BYTES))

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


def is_transitions_file(place: str) -> bool:
    """Whether the name of a run, a folder or a file is that of a file of transitions (hive.records.transitions)."""
    return place.endswith(TRANSITIONS_SUFFIX)
