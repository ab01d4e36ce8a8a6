"""Writes metrics, the config and videos for Weights & Biases, offline unless $WANDB_MODE or an agent says otherwise.

    <run>/wandb/hive.json                 the id of the run at Weights & Biases, and the next free step
    <run>/wandb/offline-run-<time>-<id>/  written by wandb, one per start; `wandb sync` uploads it later

A resumed or restarted run has the same id and continues its steps. wandb requires steps that only increase, so a step
is the number of the record, and environment steps are the x-axis of every chart. Numbers are reserved in blocks: a
killed process leaves a gap, but no step is used twice.

wandb is imported when the sink is made, in the recorder's process only. Except online, its reports of its own errors
are switched off, so nothing contacts a network. $WANDB_PROJECT, $WANDB_NAME, $WANDB_RUN_ID and so on have their usual
meaning. `wandb agent`, which sets $WANDB_SWEEP_ID, waits for the run of that id, online; a run's further policies have
ids of their own.
"""

from __future__ import annotations

import math
import os
import re
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from hive.distribution import pip_install
from hive.errors import RecordError, UsageError
from hive.records.atomic import write_json
from hive.records.directory import POLICIES
from hive.records.documents import failure, read_document
from hive.records.sinks.sinks import ConfigTables, MetricsRecord, Video
from hive.versions import check_versions

FACTS_FILE = "hive.json"
RESERVED_STEPS = 1000  # steps between two writes of hive.json
VIDEO_FORMATS = (".gif", ".mp4", ".webm", ".ogg")  # those of wandb.Video
STEPS = "env_steps"
RUN_ID, SWEEP = "WANDB_RUN_ID", "WANDB_SWEEP_ID"
ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}")


@dataclass(frozen=True)
class WandbFacts:
    """The content of hive.json: the id of the run, and a step that is greater than all used ones."""

    id: str
    next_step: Annotated[int, range(2**62)]


class WandbSink:
    """Writes to a run of wandb. `directory` is the run directory; its name is that of the run there."""

    def __init__(self, directory: Path) -> None:
        """Start or continue the run. Raises UsageError if wandb is not installed, RecordError, and wandb's errors."""
        in_sweep = bool(os.environ.get(SWEEP))  # its project, name and mode are the agent's, as long as none is given
        mode: Any = os.environ.get("WANDB_MODE") or ("online" if in_sweep else "offline")  # wandb checks the word
        if mode != "online":
            os.environ["WANDB_ERROR_REPORTING"] = "false"  # read when wandb is imported
        check_versions(["wandb"])
        try:
            import wandb
        except ImportError as error:
            raise UsageError("the Weights & Biases sink needs wandb", hint=pip_install("wandb")) from error
        self._wandb, folder = wandb, directory / "wandb"
        try:
            folder.mkdir(exist_ok=True)  # wandb writes into the system's temporary folder without it
        except OSError as error:
            raise failure("write", folder, error) from error
        self._file = folder / FACTS_FILE
        facts = _facts_of(directory, self._file)
        self._id, self._step, self._reserved = facts.id, facts.next_step, facts.next_step
        self._reserve()
        settings: dict[str, Any] = {
            "console": "off",  # hive has logs of its own, and wandb would replace the process's output
            "silent": True,
            "x_disable_stats": True,  # hive's metrics have the use of the machine
            "disable_git": True,
            "disable_code": True,
        }
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or (None if in_sweep else "hive"),
            name=(not _is_further(directory) and os.environ.get("WANDB_NAME")) or directory.name,
            id=self._id,
            resume="allow",
            mode=mode,
            dir=str(directory),
            settings=wandb.Settings(**settings),
        )
        self._run.define_metric(STEPS, hidden=True)
        self._run.define_metric("*", step_metric=STEPS)

    def write(self, record: MetricsRecord) -> None:
        axes = {STEPS: record.env_steps, "updates": record.updates, "seconds": round(record.seconds, 3)}
        self._log({**axes, **{name: value for name, value in record.values.items() if math.isfinite(value)}})

    def write_config(self, config: ConfigTables) -> None:
        # A resumed run may have other values.
        self._run.config.update({table: dict(keys) for table, keys in config.items()}, allow_val_change=True)

    def write_video(self, video: Video) -> None:
        """Copy a video into the run of wandb. Formats that wandb does not have are left out."""
        if video.path.suffix.lower() in VIDEO_FORMATS:
            axes = {STEPS: video.env_steps, "updates": video.updates}
            self._log({**axes, f"videos/{video.path.stem}": self._wandb.Video(str(video.path))})

    def close(self) -> None:
        self._run.finish()
        self._write_facts(self._step)

    def _log(self, values: dict[str, Any]) -> None:
        if self._step >= self._reserved:
            self._reserve()
        self._run.log(values, step=self._step)
        self._step += 1

    def _reserve(self) -> None:
        self._reserved = self._step + RESERVED_STEPS
        self._write_facts(self._reserved)

    def _write_facts(self, next_step: int) -> None:
        write_json(self._file, asdict(WandbFacts(self._id, next_step)))


def _is_further(directory: Path) -> bool:
    """Whether a folder is that of a policy of a run which trains several, except for the first."""
    return directory.parent.name == POLICIES


def _facts_of(directory: Path, file: Path) -> WandbFacts:
    """Return the facts of a run, or those of a new one. Raises RecordError if the file is damaged, and UsageError."""
    given = os.environ.get(RUN_ID, "")
    if given and not ID.fullmatch(given):  # it becomes part of a path
        raise UsageError(f"{RUN_ID}: invalid id {given!r}", hint=f"an id of W&B matches {ID.pattern}")
    if given and _is_further(directory):
        given = f"{given}-{directory.name}"
    if not file.exists():
        return WandbFacts(given or secrets.token_hex(4), 0)
    facts = read_document(file, WandbFacts)
    if not ID.fullmatch(facts.id):
        raise RecordError(f"`{file}`: invalid id {facts.id!r}")
    return facts if given in ("", facts.id) else WandbFacts(given, 0)
