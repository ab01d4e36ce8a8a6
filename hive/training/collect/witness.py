"""Compares the rounds that a resumed run makes again with what they were before.

    rounds/collector-0      uint32 [rounds]: the checksum of each rollout of a collector; 0: none

A scheduled checkpoint promises that the run goes on from there bit for bit. What can break the promise is seen by its
effect: an environment that keeps something over a reset, other code, another machine. So each rollout leaves a checksum
in the run's directory, as long as the run is what an undisturbed one would be. A resumed run compares those that it
finds with what it makes of the same numbers.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.config import Config
from hive.errors import RecordError
from hive.records import RunDirectory, read_resume_point
from hive.records.run_warnings import FACT, NOT_REPEATED, WARNING
from hive.runtime import Actor
from hive.training.blueprint import Blueprint

WORD = np.dtype("<u4")
ALWAYS = "actions", "rewards", "terminated", "truncated", "valid"
"""Arrays of a rollout that its checksum covers, beside its first observations."""


def witness_folder(config: Config, directory: Path) -> Path | None:
    """Return where a run keeps the checksums of its rollouts; None for one that is not exact, or has no directory."""
    if not (config.exact and (directory / "log").is_dir()):  # else it is no run's
        return None
    try:
        point = read_resume_point(RunDirectory(directory))
    except RecordError:
        return None
    return RunDirectory(directory).rounds if point is None or point.exact else None


class Witness:
    """Keeps and compares the checksums of the rollouts of one collector, for the policy of `blueprint`.

    An actor that was restarted, and a disk that takes no file, leave no checksums: `is_on` is False then.
    """

    def __init__(self, actor: Actor, blueprint: Blueprint, number: int) -> None:
        """number: of the collector in the run."""
        self._actor = actor
        self._log_probs = blueprint.behaviour_log_probs
        self._rebuilds = blueprint.config.env.rebuild
        self._name = f"collector-{number}"
        self._same = range(0)  # rounds that were made again and are the same
        self._known = 0  # rounds whose checksums were found
        self._file = -1
        folder = blueprint.witness
        if folder is None or actor.incarnation:
            return
        try:
            folder.mkdir(exist_ok=True)
            self._file = os.open(folder / self._name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            if blueprint.resume is not None or (folder.parent / "resume.json").exists():
                self._known = os.fstat(self._file).st_size // WORD.itemsize
        except OSError:
            self.close()

    @property
    def is_on(self) -> bool:
        """Whether rollouts leave checksums."""
        return self._file >= 0

    def see(self, sequence: int, rollout: Mapping[str, NDArray[Any]]) -> None:
        """Compare rollout `sequence` with the one of the same number, or keep its checksum."""
        if self._file < 0:
            return
        word, at = self._checksum(rollout), sequence * WORD.itemsize
        try:
            before = os.pread(self._file, WORD.itemsize, at) if sequence < self._known else b""
            if before.strip(b"\0") and before != word:
                self._differs(sequence)
                return
            os.pwrite(self._file, word, at)
        except OSError:
            self.close()
            return
        if before.strip(b"\0"):
            self._same = range(self._same.start if self._same else sequence, sequence + 1)
        if sequence >= self._known - 1:
            self._report()

    def _report(self) -> None:
        """Log which rounds were made again, once."""
        same, self._same, self._known = self._same, range(0), 0
        if same:
            what = f"rounds {same.start:,} to {same.stop - 1:,} of {self._name} were made again, and are the same"
            self._actor.note(FACT, f"{what} as before", fact=f"repeated by {self._name}")

    def close(self) -> None:
        """Close the file, if it is open."""
        if self._file >= 0:
            self._report()
            os.close(self._file)
            self._file = -1

    def _checksum(self, rollout: Mapping[str, NDArray[Any]]) -> bytes:
        word = zlib.crc32(np.ascontiguousarray(rollout["observations"][0]).data)
        for name in (*ALWAYS, *(["log_probs"] if self._log_probs else [])):
            word = zlib.crc32(np.ascontiguousarray(rollout[name]).data, word)
        return np.array(word or 1, WORD).tobytes()  # 0 is none

    def _differs(self, sequence: int) -> None:
        cause = (
            f"round {sequence:,} of {self._name} was made again after the resume, and is not the same: an environment "
            "keeps something over its reset, or its code, the libraries or the machine are others"
        )
        advice = "env.rebuild = true constructs the environments again at each checkpoint, so that resumes are exact"
        if self._rebuilds:
            advice = "compare `hive doctor` on both machines, and the versions of the environment"
        self._actor.note(
            WARNING, f"{NOT_REPEATED}: {cause}; {advice}", warning=NOT_REPEATED, cause=cause, advice=advice, steps=0
        )
        self.close()
