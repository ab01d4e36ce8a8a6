"""`bench throughput`: environment steps per second trained, hive beside its peers, in one run.

The settings are those of `benchmarks.settings`, the programs those of `benchmarks.contender`. Every program counts its
steps between two looks at its own counters, after a warm-up, and both looks are at the end of a round.

One setting is measured after the other. Repetitions go through its contenders in alternating directions (A B B A). The
k-th values of two contenders so belong together, and a machine that becomes slower favours neither.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence

from benchmarks.contender import Contender, Measurement, Pythons, contenders_of
from benchmarks.machine import CpuMeter
from benchmarks.programs import BenchError
from benchmarks.settings import SETTINGS

__all__ = ["chosen", "contenders", "matches", "measure"]


def contenders(peers: Sequence[str], pythons: Pythons) -> list[Contender]:
    """Return hive's contenders of all settings and those of these peers, in the order of measurement."""
    found = [contender for setting in SETTINGS.values() for contender in contenders_of(setting, pythons)]
    return [contender for contender in found if contender.peer is None or contender.peer in peers]


def chosen(all_of_them: Sequence[Contender], patterns: Sequence[str]) -> list[Contender]:
    """Return the contenders whose name or setting matches one of the shell patterns; all if there is no pattern."""
    return [c for c in all_of_them if matches(c.name, patterns) or matches(c.setting.name, patterns)]


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Return whether the name matches one of the shell patterns, or there is no pattern."""
    return not patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def measure(
    selected: Sequence[Contender], repeats: int, seconds: float, say: Callable[[str], None]
) -> tuple[dict[str, list[Measurement]], dict[str, str]]:
    """Return the measurements of each contender by name, one for each repetition, and the errors of those that failed.

    A contender that fails once is not measured again, and has no measurements.
    `others_cores` of a measurement is how many cores other programs used meanwhile, start and end included.
    """
    found: dict[str, list[Measurement]] = {contender.name: [] for contender in selected}
    failed: dict[str, str] = {}
    for repetition in range(repeats):
        for contender in reversed(selected) if repetition % 2 else selected:
            if contender.name in failed:
                continue
            meter = CpuMeter()
            try:
                measurement = contender.measure(seconds)
            except BenchError as error:
                failed[contender.name] = str(error)
                say(f"{repetition + 1}/{repeats}  {contender.name:<36} failed: {error}")
                continue
            others = meter.others_cores()
            rate = f"{measurement['steps_per_s']:>11,.0f} steps/s"
            say(f"{repetition + 1}/{repeats}  {contender.name:<36} {rate}  (others used {others:.2f} cores)")
            found[contender.name].append({**measurement, "others_cores": others})
    return {name: measurements for name, measurements in found.items() if name not in failed}, failed
