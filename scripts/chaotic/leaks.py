"""What a run holds while it runs: descriptors of the supervisor, memory and processes; and whether they grow.

    descriptors   entries in the supervisor's /proc/<pid>/fd
    rss           resident memory, summed over all processes of the run, shared pages counted for each
    pss           the same with pages that n of them share counted 1 / n for each: what the run takes of the machine
    strangers     children of the supervisor or the fork server that nobody knows: alive, and in no list of the run

Growth of memory is judged by RSS. PSS says more of a moment and less of a leak: an actor shares torch's pages with the
fork server that forked it, so after each death of a fork server one more copy of them is there until the last actor of
the old one is gone. With eight processes the sum swings between one and some five copies, 150 MiB each.

A sample is *calm* if everybody was there when it was taken: whoever is dead at the moment holds nothing. Growth is
judged by the medians of the calm samples of the second and the last quarter of the run; the first one fills caches.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Growth", "Sample", "growth_of", "sample"]

LEAST_SAMPLES = 3  # calm ones in a quarter: a median of fewer says little


@dataclass(frozen=True)
class Sample:
    """One look. `strangers` maps a pid to its name."""

    at_s: float
    calm: bool
    descriptors: int
    pss_bytes: int
    rss_bytes: int
    processes: int
    strangers: dict[int, str]


@dataclass(frozen=True)
class Growth:
    """Medians of the second and the last quarter; None where there were too few calm samples."""

    second: float
    last: float

    @property
    def share(self) -> float:
        """0.05 for 5 % more."""
        return self.last / self.second - 1.0


def sample(supervisor: int, known: Iterable[int], at_s: float, calm: bool) -> Sample:
    """Looks at a supervisor and all its descendants. Raises OSError when it is gone."""
    descriptors = sum(1 for _ in Path(f"/proc/{supervisor}/fd").iterdir())
    family = descendants(supervisor)
    friends = {supervisor, *known}
    strangers = {pid: name for pid in family if pid not in friends and (name := name_of(pid))}
    pss, rss = map(sum, zip(*(memory_of(pid) for pid in (supervisor, *family)), strict=True))
    return Sample(at_s, calm, descriptors, pss, rss, 1 + len(family), strangers)


def descendants(pid: int) -> list[int]:
    """All processes below this one."""
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *descendants(int(child))]
    except OSError:
        pass  # gone meanwhile
    return found


def name_of(pid: int) -> str:
    """The name of a living process; "" of one that is gone or a zombie."""
    try:
        head, _, tail = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
        return "" if tail.split()[0] in "ZX" else head.partition("(")[2]
    except OSError:
        return ""


def memory_of(pid: int) -> tuple[int, int]:
    """PSS and RSS in bytes; 0 of a process that is gone."""
    try:
        return memory_in(Path(f"/proc/{pid}/smaps_rollup").read_text())
    except OSError:
        return 0, 0


def memory_in(rollup: str) -> tuple[int, int]:
    """`Pss:     1234 kB` and `Rss:` of /proc/<pid>/smaps_rollup, in bytes."""
    found = {
        name: int(rest.split()[0]) * 1024
        for name, _, rest in (line.partition(":") for line in rollup.splitlines())
        if name in ("Pss", "Rss")
    }
    return found.get("Pss", 0), found.get("Rss", 0)


def growth_of(samples: Sequence[Sample], what: str) -> Growth | None:
    """Of a field of the samples, over the time from the first to the last sample."""
    if not samples:
        return None
    begun, span = samples[0].at_s, samples[-1].at_s - samples[0].at_s
    quarters: dict[int, list[float]] = {1: [], 3: []}
    for one in samples:
        quarter = min(int(4 * (one.at_s - begun) / span), 3) if span > 0 else 0
        if one.calm and quarter in quarters:
            quarters[quarter].append(float(getattr(one, what)))
    if min(map(len, quarters.values())) < LEAST_SAMPLES:
        return None
    return Growth(statistics.median(quarters[1]), statistics.median(quarters[3]))
