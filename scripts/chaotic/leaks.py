"""Sample the descriptors, memory and processes of a run, and judge whether they grow.

    descriptors   entries in the supervisor's /proc/<pid>/fd
    rss           resident memory, summed over all processes of the run; shared pages count fully in each
    pss           the same, but a page that n processes share counts 1 / n in each: the memory that the run uses
    strangers     live descendants of the supervisor that the run's status does not list

Growth of memory is judged by RSS, although PSS is the better measure of one moment. An actor shares torch's pages with
the fork server that forked it. After each kill of a fork server there is one more copy of these pages, until the last
actor of the old fork server has exited. With eight processes PSS varies between one and about five copies of 150 MiB.

A sample is *calm* if every process was running when it was taken, because a killed one uses no memory. Growth compares
the medians of the calm samples in the second and in the last quarter of the run. The first quarter fills caches.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

LEAST_SAMPLES = 3  # minimum calm samples in a quarter for a meaningful median


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
    """The medians of a quantity in the second and in the last quarter."""

    second: float
    last: float

    @property
    def share(self) -> float:
        """The relative growth: 0.05 for 5 % more."""
        return self.last / self.second - 1.0


def sample(supervisor: int, known: Iterable[int], at_s: float, calm: bool) -> Sample:
    """Sample a supervisor and all its descendants. Raises OSError when the supervisor has exited."""
    descriptors = sum(1 for _ in Path(f"/proc/{supervisor}/fd").iterdir())
    family = descendants(supervisor)
    friends = {supervisor, *known}
    strangers = {pid: name for pid in family if pid not in friends and (name := name_of(pid))}
    pss, rss = map(sum, zip(*(memory_of(pid) for pid in (supervisor, *family)), strict=True))
    return Sample(at_s, calm, descriptors, pss, rss, 1 + len(family), strangers)


def descendants(pid: int) -> list[int]:
    """Return the pids of all descendants of a process."""
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *descendants(int(child))]
    except OSError:
        pass  # the process has exited meanwhile
    return found


def name_of(pid: int) -> str:
    """Return the name of a live process; "" for one that has exited or is a zombie."""
    try:
        head, _, tail = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
        return "" if tail.split()[0] in "ZX" else head.partition("(")[2]
    except OSError:
        return ""


def memory_of(pid: int) -> list[int]:
    """Return [PSS, RSS] in bytes; zeros for a process that has exited."""
    try:
        return memory_in(Path(f"/proc/{pid}/smaps_rollup").read_text(), ("Pss", "Rss"))
    except OSError:
        return [0, 0]


def memory_in(rollup: str, fields: Sequence[str]) -> list[int]:
    """Return these fields in bytes from the text of /proc/<pid>/smaps_rollup (`Pss:     1234 kB`)."""
    values = {name: rest.split() for name, _, rest in (line.partition(":") for line in rollup.splitlines())}
    return [int(values.get(field, ["0"])[0]) * 1024 for field in fields]


def growth_of(samples: Sequence[Sample], what: str) -> Growth | None:
    """Return the growth of a field of the samples; None if a quarter has too few calm samples."""
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
