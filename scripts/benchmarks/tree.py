"""`bench tree`: priorities of a replay memory of a million rows, in batches of 512, on one core.

Every way is a separate program (tree_ways.py, peers/torchrl_tree.py), run once in each repetition, one after another.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.peer_environments import peer_python
from benchmarks.programs import here, importing, run_program

__all__ = ["WAYS", "Results", "measure_trees", "ways"]

WAYS = ("whole/hive", "whole/TorchRL", "whole/NumPy", "tree/hive", "tree/TorchRL", "tree/NumPy")

Results = Mapping[str, Sequence[Mapping[str, float]]]  # way -> the rates that it printed, one for each repetition


def ways(peers: bool) -> list[str]:
    """Return the names of all ways, ordered by kind."""
    return [name for name in WAYS if peers or not name.endswith("/TorchRL")]


def measure_trees(
    names: Sequence[str], repetitions: int, seconds: float, cache: Path, say: Callable[[str], None]
) -> dict[str, list[dict[str, float]]]:
    """Measure every way `repetitions` times for `seconds`. Raises BenchError where one cannot be measured."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for repetition in range(repetitions):
        for name in names:
            say(f"{repetition + 1}/{repetitions} {name}")
            command = _command(name, seconds, cache)
            found[name].append(run_program(command, seconds, importing(), rate="samples_per_s"))
    return found


def _command(name: str, seconds: float, cache: Path) -> list[object]:
    kind, _, who = name.partition("/")
    if who == "TorchRL":
        return [peer_python("torchrl", cache), "-P", here("peers", "torchrl_tree.py"), kind, seconds]
    return [sys.executable, "-P", here("tree_ways.py"), name, seconds]
