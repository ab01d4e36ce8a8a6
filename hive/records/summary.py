"""The summary of a run: its result, written once, as the last file.

`summary.json` exists if and only if the supervisor ended the run itself and was not killed. Its keys are the fields
below and `steps_per_s`. `best` names the best policy:

    checkpoint      its folder, relative to that of the run: "best/001563"
    mean_return     the mean return that it was chosen by
    by              "evaluation": of the episodes of an evaluation; "training": of the last 100 training episodes
    steps           environment steps of the run until then
    updates         updates of the run until then
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hive.errors import RecordError
from hive.records.atomic import write_json
from hive.records.documents import is_number, read_document

__all__ = ["NOT_STARTED", "Summary"]

NOT_STARTED = "it could not start"  # `stop_reason` of a run that failed before its first stage


@dataclass(frozen=True)
class Summary:
    """The result of a run. Durations are in seconds; `started` is in seconds since 1970."""

    name: str
    scheme: str
    state: str  # final state of the run: finished, stopped or failed
    stop_reason: str  # the goal that a finished run reached, what failed, or what stopped the run: "Ctrl-C"
    seed: int
    exact: bool  # whether a run with the same seed is bit-identical
    env_steps: int  # valid environment steps in the updates
    updates: int
    episodes: int
    mean_return_100: float | None  # mean return of the last 100 training episodes; None before the first
    started: float
    wall_s: float
    train_s: float  # time from the first to the last update
    weights_sha256: str
    channels: dict[str, dict[str, Any]]  # name -> {produced, consumed, dropped: {reason: n}, in_flight}
    restarts: dict[str, int]  # actor -> number of restarts
    error: str | None = None
    best: dict[str, Any] | None = None  # None if there is no best policy
    # {kind, text, advice, first_steps, last_steps} of each warning; last_steps is None if it held at the end
    warnings: list[dict[str, Any]] = field(default_factory=list)

    @property
    def steps_per_s(self) -> float | None:
        """Environment steps per second of training; None if nothing was trained."""
        return self.env_steps / self.train_s if self.train_s > 0 else None

    @property
    def ending(self) -> str:
        """How the run ended, for people: "finished: 500,000 steps", "stopped by Ctrl-C"."""
        return f"{self.state}{' by ' if self.state == 'stopped' else ': '}{self.stop_reason}"

    def write(self, path: Path) -> None:
        """Write the summary atomically. Raises RecordError."""
        write_json(path, dataclasses.asdict(self) | {"steps_per_s": self.steps_per_s})

    @classmethod
    def read(cls, path: Path) -> Summary:
        """Read a summary. Raises RecordError if the file does not exist or is damaged."""
        summary = read_document(path, cls)
        for name, account in summary.channels.items():
            if not _is_account(account):
                raise RecordError(f"`{path}`: `channels.{name}` is not an account of a channel")
        if not all(map(_is_warning, summary.warnings)):
            raise RecordError(f"`{path}`: `warnings` has an entry that is not a warning")
        return summary


def _is_account(account: dict[str, Any]) -> bool:
    dropped = account.get("dropped")
    counts = [account.get(key) for key in ("produced", "consumed", "in_flight")]
    return isinstance(dropped, dict) and all(map(is_number, [*counts, *dropped.values()]))


def _is_warning(data: dict[str, Any]) -> bool:
    texts = all(isinstance(data.get(key), str) for key in ("kind", "text", "advice"))
    last = data.get("last_steps")
    return texts and is_number(data.get("first_steps")) and (last is None or is_number(last))
