"""`bench channel`: the rates of a channel and of a call between two processes, compared with bare transports and Ray.

Every way is a separate program (channel_ways.py, peers/ray_actors.py), run once in each repetition, one after another,
so that a machine that is slow for a minute slows neighbouring ways alike.
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

Results = Mapping[str, Sequence[Mapping[str, float]]]  # way -> the figures that it printed, one for each repetition


def ways(ray: bool) -> list[str]:
    """Return the names of all ways, ordered by kind."""
    return sorted(
        [*WAYS, *(RAY if ray else ())], key=lambda name: ("arrays", "rollouts", "small", "call").index(_kind(name))
    )


def _kind(name: str) -> str:
    return name.partition("/")[0]


def measure_channels(
    names: Sequence[str], repetitions: int, seconds: float, cache: Path, say: Callable[[str], None]
) -> dict[str, list[dict[str, float]]]:
    """Measure every way `repetitions` times for `seconds`. Raises BenchError where one cannot be measured."""
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
