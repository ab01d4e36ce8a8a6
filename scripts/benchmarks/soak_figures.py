"""The figures of a soak: whether memory or the number of descriptors grows, from samples over time. Pure.

Memory is that of /proc/PID/smaps_rollup, anonymous and shared memory: Pss_Anon + Pss_Shmem. A page that several
processes share counts in each by its part, so that the sum is what the run takes. Pages of files (libraries) are told
beside it and not judged: other programs share them too, and whoever of these comes or goes changes the parts. The
second half of the time is judged: what is made, loaded or touched for the first time comes before.

    memory        a straight line through the sums, by least squares, rises by less than 1 MB a minute
    descriptors   of each process the fewest in the third quarter are as many as the fewest in the last: a file that is
                  open while a sample is taken does not count, one that is never closed does
    processes     are the same from the first sample to the last: one that came back has hidden what it had lost
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.table import aligned

__all__ = [
    "MOST_MB_PER_MINUTE",
    "Growth",
    "Measured",
    "Sample",
    "document_of",
    "failures_of",
    "growth_of",
    "kilobytes",
    "slope",
    "text_of",
]

MOST_MB_PER_MINUTE = 1.0
LEAST_SAMPLES = 4  # of the second half: two in each quarter
TOTAL = "all"


@dataclass(frozen=True)
class Measured:
    """A process at one moment: its memory and its part of files in MB (10^6 bytes), and its open descriptors."""

    pid: int
    mb: float
    descriptors: int
    files_mb: float = 0.0


@dataclass(frozen=True)
class Sample:
    """All processes of a run at one moment, seconds after the first sample. Name -> measured."""

    at: float
    processes: Mapping[str, Measured]

    @property
    def mb(self) -> float:
        return sum(one.mb for one in self.processes.values())


@dataclass(frozen=True)
class Growth:
    """Memory of a process, or of all: at the first sample, at the last, and its slope over the second half.

    files_mb: mapped files at the last sample. descriptors: all numbers that were seen.
    """

    name: str
    start_mb: float
    end_mb: float
    mb_per_minute: float
    files_mb: float
    descriptors: tuple[int, ...]


def kilobytes(smaps: str, field: str) -> int:
    """A field of /proc/PID/smaps_rollup. Raises KeyError."""
    for line in smaps.splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0])
    raise KeyError(field)


def slope(times: Sequence[float], values: Sequence[float]) -> float:
    """Of the straight line that fits best, by least squares, per unit of time. Raises ValueError below two times."""
    if len(set(times)) < 2:
        raise ValueError("a line needs two times")
    mean_time, mean_value = sum(times) / len(times), sum(values) / len(values)
    covariance = sum((t - mean_time) * (v - mean_value) for t, v in zip(times, values, strict=True))
    return covariance / sum((t - mean_time) ** 2 for t in times)


def second_half(samples: Sequence[Sample]) -> list[Sample]:
    """Raises ValueError where it has too few."""
    found = list(samples[len(samples) // 2 :])
    if len(found) < LEAST_SAMPLES:
        raise ValueError(f"{len(found)} samples in the second half; {LEAST_SAMPLES} are needed")
    return found


def growth_of(samples: Sequence[Sample]) -> list[Growth]:
    """One line for each process that is there from the first sample to the last, then that of all."""
    late = second_half(samples)
    minutes = [sample.at / 60 for sample in late]
    names = [name for name in samples[0].processes if all(name in sample.processes for sample in samples)]
    found = []
    for name in names:
        mine = [sample.processes[name] for sample in samples]
        memory = [sample.processes[name].mb for sample in late]
        seen = sorted({one.descriptors for one in mine})
        found.append(Growth(name, mine[0].mb, mine[-1].mb, slope(minutes, memory), mine[-1].files_mb, tuple(seen)))
    total, files = slope(minutes, [sample.mb for sample in late]), sum(growth.files_mb for growth in found)
    return [*found, Growth(TOTAL, samples[0].mb, samples[-1].mb, total, files, ())]


def failures_of(samples: Sequence[Sample]) -> list[str]:
    """What is not as it should be, in words."""
    found = []
    pids = [{name: one.pid for name, one in sample.processes.items()} for sample in samples]
    if any(one != pids[0] for one in pids):
        changed = sorted({name for one in pids for name in one.keys() | pids[0] if one.get(name) != pids[0].get(name)})
        return [f"not the same processes all the time: {', '.join(changed)}"]
    growth = growth_of(samples)[-1]
    if growth.mb_per_minute >= MOST_MB_PER_MINUTE:
        found.append(f"memory grows by {growth.mb_per_minute:.2f} MB a minute")
    late = second_half(samples)
    quarter = len(late) // 2
    for name in samples[0].processes:
        counts = [sample.processes[name].descriptors for sample in late]
        before, after = min(counts[:quarter]), min(counts[quarter:])
        if before != after:
            found.append(f"{name} had {before} descriptors in the third quarter and {after} in the last")
    return found


def document_of(
    samples: Sequence[Sample], config: str, minutes: float, machine: Mapping[str, object]
) -> dict[str, Any]:
    """Everything as one JSON document with stable keys."""
    return {
        "soak": config,
        "machine": dict(machine),
        "minutes": minutes,
        "growth": [dataclasses.asdict(growth) for growth in growth_of(samples)],
        "failures": failures_of(samples),
        "samples": [dataclasses.asdict(sample) for sample in samples],
    }


def text_of(samples: Sequence[Sample]) -> str:
    """The table, and what is wrong, for people."""
    rows = [
        (
            growth.name,
            f"{growth.start_mb:.1f}",
            f"{growth.end_mb:.1f}",
            f"{growth.mb_per_minute:+.3f}",
            f"{growth.files_mb:.1f}",
            "..".join(map(str, sorted({*growth.descriptors[:1], *growth.descriptors[-1:]}))),
        )
        for growth in growth_of(samples)
    ]
    took = (samples[-1].at - samples[0].at) / 60
    failures = failures_of(samples)
    return "\n".join(
        [
            f"{len(samples)} samples in {took:.1f} minutes. MB/min: of the second half. Files: mapped, not judged.",
            *aligned(("process", "MB at first", "MB at last", "MB/min", "MB of files", "descriptors"), rows),
            *(f"FAIL: {failure}" for failure in failures),
            *([] if failures else ["pass: memory is flat, descriptors are constant"]),
        ]
    )
