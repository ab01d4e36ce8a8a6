"""The figures of a soak: whether memory or the number of descriptors grows. Pure functions of samples over time.

Memory is anonymous and shared memory of /proc/PID/smaps_rollup: Pss_Anon + Pss_Shmem. A page that several processes
share counts proportionally in each, so the sum is the memory of the run. Pages of files (libraries) are reported but
not checked: other programs share them too, and change the proportions when they start or exit. Only the second half of
the time is checked, because memory that is allocated, loaded or touched for the first time belongs to the first half.

    memory        a straight line through the sums, by least squares, rises by less than 1 MB a minute
    descriptors   each process has the same minimum in the third and in the last quarter: a file that is open only while
                  a sample is taken does not change the minimum, one that is never closed does
    processes     are the same from the first sample to the last: a restart would hide leaked memory
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.harness import aligned

MOST_MB_PER_MINUTE = 1.0
LEAST_SAMPLES = 4  # minimum samples in the second half: two in each quarter
TOTAL = "all"


@dataclass(frozen=True)
class Measured:
    """A process at one moment: its memory and its share of mapped files in MB (10^6 bytes), and its descriptors."""

    pid: int
    mb: float
    descriptors: int
    files_mb: float = 0.0


@dataclass(frozen=True)
class Sample:
    """All processes of a run, by name, `at` seconds after the first sample."""

    at: float
    processes: Mapping[str, Measured]

    @property
    def mb(self) -> float:
        return sum(one.mb for one in self.processes.values())


@dataclass(frozen=True)
class Growth:
    """Memory of one process, or of all: at the first sample, at the last, and its slope over the second half.

    files_mb: mapped files at the last sample. descriptors: all distinct numbers of open descriptors, ascending.
    """

    name: str
    start_mb: float
    end_mb: float
    mb_per_minute: float
    files_mb: float
    descriptors: tuple[int, ...]


def kilobytes(smaps: str, field: str) -> int:
    """Return a field of the text of /proc/PID/smaps_rollup. Raises KeyError."""
    for line in smaps.splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0])
    raise KeyError(field)


def slope(times: Sequence[float], values: Sequence[float]) -> float:
    """Return the slope of the straight line that fits best, by least squares. Raises ValueError below two times."""
    if len(set(times)) < 2:
        raise ValueError("a slope needs at least two distinct times")
    mean_time, mean_value = sum(times) / len(times), sum(values) / len(values)
    covariance = sum((t - mean_time) * (v - mean_value) for t, v in zip(times, values, strict=True))
    return covariance / sum((t - mean_time) ** 2 for t in times)


def second_half(samples: Sequence[Sample]) -> list[Sample]:
    """Return the samples of the second half. Raises ValueError if there are fewer than `LEAST_SAMPLES`."""
    found = list(samples[len(samples) // 2 :])
    if len(found) < LEAST_SAMPLES:
        raise ValueError(f"{len(found)} samples in the second half; {LEAST_SAMPLES} are needed")
    return found


def growth_of(samples: Sequence[Sample]) -> list[Growth]:
    """Return the growth of each process that is in all samples, and last that of all together."""
    late = second_half(samples)
    minutes = [sample.at / 60 for sample in late]
    names = [name for name in samples[0].processes if all(name in sample.processes for sample in samples)]
    found = []
    for name in names:
        mine = [sample.processes[name] for sample in samples]
        memory = [sample.processes[name].mb for sample in late]
        counts = sorted({one.descriptors for one in mine})
        found.append(Growth(name, mine[0].mb, mine[-1].mb, slope(minutes, memory), mine[-1].files_mb, tuple(counts)))
    total, files = slope(minutes, [sample.mb for sample in late]), sum(growth.files_mb for growth in found)
    return [*found, Growth(TOTAL, samples[0].mb, samples[-1].mb, total, files, ())]


def failures_of(samples: Sequence[Sample]) -> list[str]:
    """Return a sentence for each check that fails."""
    found = []
    pids = [{name: one.pid for name, one in sample.processes.items()} for sample in samples]
    if any(one != pids[0] for one in pids):
        changed = sorted({name for one in pids for name in one.keys() | pids[0] if one.get(name) != pids[0].get(name)})
        return [f"processes started or exited: {', '.join(changed)}"]
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
    """Return all figures and samples as one JSON document with stable keys."""
    return {
        "soak": config,
        "machine": dict(machine),
        "minutes": minutes,
        "growth": [dataclasses.asdict(growth) for growth in growth_of(samples)],
        "failures": failures_of(samples),
        "samples": [dataclasses.asdict(sample) for sample in samples],
    }


def text_of(samples: Sequence[Sample]) -> str:
    """Return the table and the verdict as text."""
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
            f"{len(samples)} samples in {took:.1f} minutes. MB/min: in the second half. MB of files: not checked.",
            *aligned(("process", "MB at first", "MB at last", "MB/min", "MB of files", "descriptors"), rows),
            *(f"FAIL: {failure}" for failure in failures),
            *([] if failures else ["pass: memory is flat, descriptors are constant"]),
        ]
    )
