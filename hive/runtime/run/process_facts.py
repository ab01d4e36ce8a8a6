"""Read from /proc the state, CPU use and resident memory of processes, and how many cores are busy.

The view reads one small file for each process, not the run; `psutil` would read five. A process that has exited has no
facts. The kernel reuses pids, so a pid with another start time is another process, whose CPU use is measured afresh.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hive.cores import cores

TICKS = os.sysconf("SC_CLK_TCK")  # clock ticks per second, the unit of times in /proc
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class ProcessFacts:
    """The state, CPU use and memory of one process, as /proc has them. `cpu` is None at the first reading."""

    state: str
    cpu: float | None
    memory_bytes: int


class ProcessPoller:
    """Reads the processes of a run again and again; CPU use is measured from one reading to the next."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self.proc = proc
        self.before: dict[int, tuple[float, int, int]] = {}  # pid -> (t, start time, ticks used)
        self.affinity = os.sched_getaffinity(0)
        self.cores = cores()
        self.idle: tuple[int, int] | None = None  # ticks of these cores: (idle, total)

    def cores_busy(self) -> float | None:
        """Return how many of the cores available to this process were busy since the last call; None at the first.

        Also None under a CPU quota, which is used up by the programs in the same control group alone.
        """
        if self.cores < len(self.affinity):
            return None
        try:
            lines = (self.proc / "stat").read_text().splitlines()
        except OSError:
            return None
        ours = {f"cpu{core}" for core in self.affinity}
        times = [[int(n) for n in words[1:9]] for words in map(str.split, lines) if words and words[0] in ours]
        idle, total = sum(ticks[3] + ticks[4] for ticks in times), sum(map(sum, times))
        before, self.idle = self.idle, (idle, total)
        if before is None or total <= before[1]:
            return None
        return self.cores * (1 - (idle - before[0]) / (total - before[1]))

    def facts(self, pids: Iterable[int], t: float) -> dict[int, ProcessFacts]:
        """Return the facts of those processes that exist, by pid. `t` is the time now, in seconds of any clock."""
        facts_by_pid: dict[int, ProcessFacts] = {}
        now: dict[int, tuple[float, int, int]] = {}
        for pid in {*pids} - {0}:
            try:
                text = (self.proc / str(pid) / "stat").read_text(errors="replace")
            except OSError:
                continue
            # Fields from the third on: the second, the name, may hold blanks and brackets.
            fields = text.rpartition(")")[2].split()
            used, start, pages = int(fields[11]) + int(fields[12]), int(fields[19]), int(fields[21])
            then, began, before = self.before.get(pid, (t, start, used))
            cpu = (used - before) / TICKS / (t - then) if t > then and began == start else None
            facts_by_pid[pid] = ProcessFacts(fields[0], cpu, pages * PAGE_BYTES)
            now[pid] = (t, start, used)
        self.before = now
        return facts_by_pid
