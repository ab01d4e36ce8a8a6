"""Status pages show an actor's current phase, its beginning, and the time spent in each phase.

Each actor owns one 4096-byte page in a segment of the supervisor (native/include/hive/status.hpp documents its layout).
Only the actor writes it. Any process can read it at any time, at no cost to the run, also when the actor hangs or has
exited.

`Status` is the actor's side: it enters a phase whenever its activity changes, and counts its work. A phase is of one of
four kinds: busy (the actor's work), wait_in (no input), wait_out (no room for its output), runtime (hive itself).
`ActorStatus` is a reader's copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from hive import _native

BUSY, WAIT_IN, WAIT_OUT, RUNTIME = range(4)
"""Kinds of phases: work, waiting for input, waiting for room at a consumer, and the runtime's own work.

A wait never counts as stuck, and the views show it apart from work.
"""

PAGE_BYTES = 4096
PROGRESS_STEPS, PROGRESS_SCORE = "progress_steps", "progress_score"  # counters that `Actor.progress` sets
START = "start"  # phase in which environments are constructed and reset for the first time: it has a limit of its own
# Counters of an actor that collects: its rollout, the phase changes of its page before, and its incarnation. Like the
# counters of channels they contain a colon, so views leave them out.
ROLLOUT, ROLLOUT_BEGAN, ROLLOUT_INCARNATION = "rollout:number", "rollout:began", "rollout:incarnation"


class Status:
    """Writes an actor's status page.

        with self.status("curiosity"):  # the actor's own work, as `hive ps` and the monitor show it
            ...

    `enter` and `add` are the native methods themselves, because they are called for every step of an environment.
    """

    def __init__(self, page: _native.StatusPage, name: str, pid: int, incarnation: int) -> None:
        self.page = page
        self.incarnation = incarnation
        page.open(name, pid, incarnation)
        self.enter = page.enter
        self.add = page.add
        self.add_both = page.add_both
        self.set = page.set
        self.get = page.get
        self.counter = page.counter
        self.runtime = page.phase("runtime", RUNTIME)
        self._within: list[int] = [self.runtime]  # phases of the `with` blocks that have begun, and the one around them
        page.enter(self.runtime)

    @contextmanager
    def __call__(self, name: str, kind: int = BUSY) -> Iterator[None]:
        """Show the phase `name` while a `with` block runs, and after it the phase of the block around it, or "runtime".

        A wait for a port inside the block shows itself, and ends the phase. Raises ValueError as `phase` does.
        """
        phase = self.phase(name, kind)
        self._within.append(phase)
        self.enter(phase)
        try:
            yield
        finally:
            self._within.pop()
            self.enter(self._within[-1])

    def phase(self, name: str, kind: int = BUSY) -> int:
        """Return the index of the phase `name`, added at first use. Raises ValueError above 23 bytes or 32 phases."""
        return self.page.phase(name, kind)

    def count(self, name: str, delta: float = 1.0) -> None:
        """Add `delta` to the counter `name`. For rare events; hot paths keep the index and call `add`."""
        self.add(self.counter(name), delta)

    def begin_rollout(self, number: int) -> None:
        """Record that the steps of rollout `number` begin, each of which enters two phases (`ActorStatus.position`)."""
        # The number last: a kill in between leaves the previous rollout, at its beginning.
        self.set(self.counter(ROLLOUT_BEGAN), self.page.progress)
        self.set(self.counter(ROLLOUT_INCARNATION), self.incarnation)
        self.set(self.counter(ROLLOUT), number)

    def show_version(self, version: int, lag: int) -> None:
        """Show the version of the weights in use, and how many versions they lag behind."""
        self.page.version = version
        self.page.lag = lag


@dataclass(frozen=True)
class ActorStatus:
    """A copy of one page at `now_ns`. Times are ns of the monotonic clock; `spent_ns` maps a phase to (kind, ns)."""

    name: str
    pid: int
    incarnation: int
    phase: str
    since_ns: int
    pulse_ns: int
    now_ns: int
    progress: int
    version: int
    lag: int
    spent_ns: Mapping[str, tuple[int, int]]
    counters: Mapping[str, float]

    def share(self, kind: int) -> float:
        """Return the fraction (0 to 1) of the actor's time spent in phases of `kind`; 0 before it has spent any."""
        total = sum(ns for _, ns in self.spent_ns.values())
        return sum(ns for k, ns in self.spent_ns.values() if k == kind) / total if total else 0.0

    @property
    def position(self) -> tuple[int, int] | None:
        """(rollout, phase changes in it) of an actor that collects; None before its incarnation has begun one."""
        counters = self.counters
        if counters.get(ROLLOUT_INCARNATION) != self.incarnation or ROLLOUT not in counters:
            return None
        return int(counters[ROLLOUT]), self.progress - int(counters[ROLLOUT_BEGAN])

    @property
    def kind(self) -> int:
        """The kind of the current phase."""
        return self.spent_ns.get(self.phase, (RUNTIME, 0))[0]

    @property
    def doing_s(self) -> float:
        """Seconds since the actor entered its current phase."""
        return max(self.now_ns - self.since_ns, 0) / 1e9 if self.since_ns else 0.0

    @property
    def still_s(self) -> float:
        """Seconds since the actor entered its current phase or its event loop last ran, whichever is less."""
        return min(self.doing_s, max(self.now_ns - self.pulse_ns, 0) / 1e9)


def read_status(pages: _native.Status, index: int) -> ActorStatus:
    """Return a copy of page `index`."""
    page = pages.snapshot(index)
    return ActorStatus(
        name=page["name"],
        pid=page["pid"],
        incarnation=page["incarnation"],
        phase=page["phase"],
        since_ns=page["since_ns"],
        pulse_ns=page["pulse_ns"],
        now_ns=page["now_ns"],
        progress=page["progress"],
        version=page["version"],
        lag=page["lag"],
        spent_ns=page["phases"],
        counters=page["counters"],
    )
