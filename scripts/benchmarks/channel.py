"""`bench channel`: what a user's channel and call carry between two processes, beside what lies underneath, and Ray.

Every way is a program of its own (channel_ways.py, peers/ray_actors.py), run once in each repetition, one after the
other, so that a machine that is slow for a minute slows neighbours alike.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.channel_ways import WAYS
from benchmarks.peer_environments import peer_python
from benchmarks.programs import here, run_program

__all__ = ["RAY", "Results", "measure_channels", "ways"]

RAY = ("arrays/Ray", "small/Ray", "call/Ray")

Results = Mapping[str, Sequence[Mapping[str, float]]]  # what each way printed, by repetition


def ways(ray: bool) -> list[str]:
    """The names, those of one kind beside each other."""
    return sorted([*WAYS, *(RAY if ray else ())], key=lambda name: ("arrays", "small", "call").index(_kind(name)))


def _kind(name: str) -> str:
    return name.partition("/")[0]


def measure_channels(
    names: Sequence[str], repetitions: int, seconds: float, cache: Path, say: Callable[[str], None]
) -> dict[str, list[dict[str, float]]]:
    """Raises BenchError where one cannot be measured."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for repetition in range(repetitions):
        for name in names:
            say(f"{repetition + 1}/{repetitions} {name}")
            found[name].append(run_program(_command(name, seconds, cache), seconds, rate="rate"))
    return found


def _command(name: str, seconds: float, cache: Path) -> list[object]:
    if name in RAY:
        return [peer_python("ray", cache), here("peers", "ray_actors.py"), _kind(name), seconds]
    return [sys.executable, here("channel_ways.py"), name, seconds]
