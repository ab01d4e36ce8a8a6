"""What /proc says: of processes their state, cores used since the last look, resident memory; how many cores are busy.

One small file a process, read by the view and not by the run: `psutil` would read five. A process that is gone has no
facts. Pids come again: one that has another start time is another process, and its use of cores begins anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from hive.monitor.rows import ProcessFacts

__all__ = ["ProcessLook"]

TICKS = os.sysconf("SC_CLK_TCK")  # a second, of times in /proc
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ProcessLook:
    """Successive looks at the processes of a run."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self.proc = proc
        self.before: dict[int, tuple[float, int, int]] = {}  # pid -> (t, start time, ticks used)
        self.cores = os.sched_getaffinity(0)
        self.idle: tuple[int, int] | None = None  # ticks of these cores: idle, in all

    def cores_busy(self) -> float | None:
        """How many of the cores that this process may use were busy since the last look; None at the first."""
        try:
            lines = (self.proc / "stat").read_text().splitlines()
        except OSError:
            return None
        ours = {f"cpu{core}" for core in self.cores}
        times = [[int(n) for n in words[1:9]] for words in map(str.split, lines) if words and words[0] in ours]
        idle, total = sum(ticks[3] + ticks[4] for ticks in times), sum(map(sum, times))
        before, self.idle = self.idle, (idle, total)
        if before is None or total <= before[1]:
            return None
        return len(self.cores) * (1 - (idle - before[0]) / (total - before[1]))

    def facts(self, pids: Iterable[int], t: float) -> dict[int, ProcessFacts]:
        """pid -> facts at `t` (seconds, of any clock), of those that are there."""
        found: dict[int, ProcessFacts] = {}
        now: dict[int, tuple[float, int, int]] = {}
        for pid in {*pids} - {0}:
            try:
                text = (self.proc / str(pid) / "stat").read_text(errors="replace")
            except OSError:
                continue
            fields = text.rpartition(")")[2].split()  # from field 3 on; field 2 may hold blanks and brackets
            used, start, pages = int(fields[11]) + int(fields[12]), int(fields[19]), int(fields[21])
            then, began, before = self.before.get(pid, (t, start, used))
            cpu = (used - before) / TICKS / (t - then) if t > then and began == start else None
            found[pid] = ProcessFacts(fields[0], cpu, pages * PAGE_BYTES)
            now[pid] = (t, start, used)
        self.before = now
        return found
