"""The summary of a run: how it ended and what it did, written once, last.

`summary.json` is there if and only if the run ended in order; its keys are the fields below and
`steps_per_s`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hive.records.atomic import write_json
from hive.records.documents import read_document

__all__ = ["Summary"]


@dataclass(frozen=True)
class Summary:
    """What a run did. Times are seconds; `started` counts them from 1970."""

    name: str
    scheme: str
    state: str  # of the run: finished, stopped, failed
    stop_reason: str
    seed: int
    exact: bool  # whether the same seed gives the same bytes
    env_steps: int  # valid steps that updates applied
    updates: int
    episodes: int
    mean_return_100: float | None  # of the last 100 training episodes; None before the first
    started: float
    wall_s: float
    train_s: float  # from the first to the last update
    weights_sha256: str
    channels: dict[str, dict[str, Any]]  # name -> {produced, consumed, dropped: {reason: n}, in_flight}
    restarts: dict[str, int]  # actor -> n
    error: str | None = None

    @property
    def steps_per_s(self) -> float | None:
        """None where nothing was trained."""
        return self.env_steps / self.train_s if self.train_s > 0 else None

    def write(self, path: Path) -> None:
        """Raises RecordError."""
        write_json(path, dataclasses.asdict(self) | {"steps_per_s": self.steps_per_s})

    @classmethod
    def read(cls, path: Path) -> Summary:
        """Raises RecordError."""
        return read_document(path, cls)
