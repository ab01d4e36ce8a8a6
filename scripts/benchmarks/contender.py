"""Settings and contenders of `bench throughput`, and Stable-Baselines3 as one of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peer_environments import peer_python
from benchmarks.programs import here, importing, run_program

__all__ = ["ENDLESS_STEPS", "Contender", "Measurement", "Setting", "sb3"]

ENDLESS_STEPS = 10**12  # the bench ends a run, not its budget

Measurement = dict[str, Any]  # steps_per_s, and further figures of the contender


@dataclass(frozen=True)
class Setting:
    """What all contenders of one table train. `name` begins those of the contenders; `title` is for people."""

    name: str
    title: str


@dataclass(frozen=True)
class Contender:
    """One program to measure. `shape`: bare, single, 1-collector, 2-collectors, sketch-fused, ..., sb3, sb3-1-thread.

    measure: a function of the seconds to measure for. Raises BenchError.
    """

    setting: Setting
    shape: str
    title: str
    measure: Callable[[float], Measurement]

    @property
    def name(self) -> str:
        return f"{self.setting.name}/{self.shape}"

    def needs(self, peer: str) -> bool:
        """Return whether the environment of this peer must be installed."""
        return self.shape == peer or self.shape.startswith(f"{peer}-")


def sb3(settings: Mapping[str, Any], threads: int, cache: Path) -> Callable[[float], Measurement]:
    """Return a function that measures Stable-Baselines3. `settings`: as in peers/sb3_rates.py; threads 0: torch's."""

    def measure(seconds: float) -> Measurement:
        program = [peer_python("sb3", cache), "-P", here("peers", "sb3_rates.py")]
        return run_program([*program, seconds, threads, json.dumps(settings)], seconds, importing())

    return measure
