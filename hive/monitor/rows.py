"""The rows of a snapshot: an actor, a channel, a board, and the operating system's facts about a process.

Shares are between 0 and 1, of the time that a history covers or else of the time since the actor's incarnation started;
an actor's `phases` sum up to 1. Times are in seconds and sizes in bytes; `cpu` is in cores (1.0: one core fully used).
Values that were not measured are None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hive.monitor.history import History, PhaseSeconds, spent_of
from hive.records.environments import EnvironmentRow, without_processes
from hive.runtime.run.hosts_status import HOST
from hive.runtime.run.process_facts import ProcessFacts

STOPPED = "T"  # the state of a process that SIGSTOP has stopped, in /proc
PHASES = 3  # phases that are named
LEAST = 0.005  # smallest share of a phase that is named: it would round to 0 %
PRESENT = ("running", "draining", "finished", "paused")  # states of an actor without a fault


@dataclass(frozen=True)
class ActorRow:
    """One actor.

    state: as the supervisor has it, or "stopped" while SIGSTOP holds its process. activity: its phase, entered
    `since_s` ago. kinds: for each phase "busy", "runtime", "wait_in" or "wait_out". rate: `rate_of` per second.
    last_words: exit report of its previous incarnation, "" if there is none. environments: those that processes
    step for it on this machine.
    """

    name: str
    pid: int
    state: str
    restarts: int
    activity: str
    since_s: float
    busy: float | None
    wait_in: float | None
    wait_out: float | None
    version: int | None
    lag: int | None
    group: str = ""
    process: str = ""
    incarnation: int = 0
    restartable: bool = True
    runtime: float | None = None
    phases: Mapping[str, float] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)
    cpu: float | None = None
    memory_bytes: int | None = None
    rate: float | None = None
    rate_of: str = ""
    counters: Mapping[str, float] = field(default_factory=dict)
    last_words: str = ""
    host: str = ""  # the host that it runs on; "": the head
    environments: tuple[EnvironmentRow, ...] = ()

    @property
    def role(self) -> str:
        """The name without its number: `collector` for `collector-3`."""
        role, _, number = self.name.rpartition("-")
        return role if role and number.isdecimal() else self.name

    @property
    def own(self) -> float:
        """The share of its time in which it did not wait for another actor.

        1.0 while it does not run: others wait for its restart, so it must rank as the bottleneck.
        """
        if self.state not in ("running", "draining"):
            return 1.0
        return max(0.0, 1.0 - (self.wait_in or 0.0) - (self.wait_out or 0.0))


@dataclass(frozen=True)
class ChannelRow:
    """One channel and its account. `capacity` is how many messages all producers' slots hold; 0 if it is unknown."""

    produced: int
    consumed: int
    dropped: Mapping[str, int]
    in_flight: int
    carrier: str = ""
    source: str = ""
    targets: tuple[str, ...] = ()
    capacity: int = 0
    rate: float | None = None  # messages per second

    @property
    def occupancy(self) -> float | None:
        return min(self.in_flight / self.capacity, 1.0) if self.capacity else None


@dataclass(frozen=True)
class BoardRow:
    """One board: its latest version (-1: none yet) and `rate` in versions per second."""

    source: str
    targets: tuple[str, ...]
    version: int
    rate: float | None = None


@dataclass(frozen=True)
class HostRow:
    """The link to another host. Rates are in bytes per second. backlog: rollouts that wait there for the head."""

    name: str
    joined: bool
    round_trip_ms: float
    received: float | None
    sent: float | None
    backlog: int
    refused: int  # connections of strangers
    late: int  # messages of an earlier incarnation

    @property
    def line(self) -> str:
        """The row as one line of text."""
        if not self.joined:
            return f"host {self.name}: has not joined"
        rates = [
            f"{what} {rate / 1e6:.2f} MB/s"
            for what, rate in (("in", self.received), ("out", self.sent))
            if rate is not None
        ]
        odd = [f"{count} {what}" for what, count in (("refused", self.refused), ("late", self.late)) if count]
        parts = [f"round trip {self.round_trip_ms:.1f} ms", *rates, f"backlog {self.backlog}", *odd]
        return f"host {self.name}: {', '.join(parts)}"


def host_row(actor: Mapping[str, Any], history: History) -> HostRow:
    """Make the row of a link from the entry of the actor on the head that talks to the host."""
    counters, name = actor["counters"], actor["name"]
    return HostRow(
        name=name.removeprefix(HOST),
        joined=bool(counters.get("joined")) and actor["state"] == "running",
        round_trip_ms=counters.get("round_trip_ms", 0.0),
        received=history.actor_rate(name, "received_bytes"),
        sent=history.actor_rate(name, "sent_bytes"),
        backlog=int(counters.get("backlog", 0)),
        refused=int(counters.get("refused", 0)),
        late=int(counters.get("late", 0)),
    )


def actor_row(
    actor: Mapping[str, Any],
    history: History,
    process: ProcessFacts | None,
    last_words: str,
    environments: tuple[EnvironmentRow, ...] = (),
) -> ActorRow:
    """Make the row of one actor from its entry in the supervisor's document.

    history: gives shares of the last seconds and the rate; if empty: shares since the incarnation started, no rate.
    """
    spent = history.spent(actor["name"])
    counted, rate = _rate(actor, history)
    state = actor["state"]
    if actor.get("host"):  # its pid is that of a process on another machine
        process = ProcessFacts("", actor.get("cpu"), actor.get("memory_bytes", 0))
    if process is not None and process.state == STOPPED and state == "running":
        state = "stopped"
    return ActorRow(
        name=actor["name"],
        pid=actor["pid"],
        state=state,
        restarts=actor["restarts"],
        activity=actor["activity"],
        since_s=actor["since_s"],
        **_shares(actor, spent),
        version=actor["version"],
        lag=actor["lag"],
        group=actor.get("group", actor["name"]),
        process=actor.get("process", ""),
        incarnation=actor.get("incarnation", 0),
        restartable=actor.get("restart", True),
        kinds=actor.get("kinds", {}),
        cpu=process.cpu if process else None,
        memory_bytes=process.memory_bytes if process else None,
        rate=rate,
        rate_of=counted,
        counters=actor["counters"],
        last_words=last_words,
        host=actor.get("host", ""),
        environments=environments if actor["pid"] else without_processes(environments, state),
    )


def _shares(actor: Mapping[str, Any], spent: PhaseSeconds | None) -> dict[str, Any]:
    """Return shares of the last seconds if the history has them, else of the time since the incarnation started."""
    kinds: Mapping[str, str] = actor.get("kinds", {})
    if spent is None or not (total := sum(spent.values())):
        whole = spent_of(actor)
        total = sum(whole.values())
        phases = {name: s / total for name, s in whole.items()} if total else {}
        shares = {kind: actor[kind] for kind in ("busy", "wait_in", "wait_out")}
        return shares | {"runtime": actor.get("runtime"), "phases": phases}
    shares = {
        kind: sum(s for name, s in spent.items() if kinds.get(name) == kind) / total
        for kind in ("busy", "wait_in", "wait_out", "runtime")
    }
    return shares | {"phases": {name: s / total for name, s in spent.items()}}


def _rate(actor: Mapping[str, Any], history: History) -> tuple[str, float | None]:
    """Return (name, rate per second) of the actor's first counter of its own, else of its first channel's messages."""
    own = [name for name in actor["counters"] if ":" not in name]
    sent = list(actor.get("sent", {}))
    counted = next(iter([*own, *sent]), "")
    return counted, history.actor_rate(actor["name"], counted) if counted else None


def helper_row(name: str, pid: int, state: str, process: ProcessFacts | None, host: str = "") -> ActorRow:
    """Make the row of a process that is not an actor: the supervisor or a fork server, here or on another host."""
    return ActorRow(
        name=name,
        pid=pid,
        state="stopped" if process is not None and process.state == STOPPED else state,
        restarts=0,
        activity="",
        since_s=0.0,
        busy=None,
        wait_in=None,
        wait_out=None,
        version=None,
        lag=None,
        cpu=process.cpu if process else None,
        memory_bytes=process.memory_bytes if process else None,
        host=host,
    )


def mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of the known values; None if there are none."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def main_phases(rows: Sequence[ActorRow]) -> list[tuple[str, float]]:
    """Return (phase, share) of the phases that take most of the group's work."""
    shares: dict[str, float] = {}
    for row in rows:
        for phase, part in row.phases.items():
            if row.kinds.get(phase) in ("busy", "runtime"):
                shares[phase] = shares.get(phase, 0.0) + part / len(rows)
    return sorted((item for item in shares.items() if item[1] >= LEAST), key=lambda item: -item[1])[:PHASES]


def missing(rows: Sequence[ActorRow]) -> list[ActorRow]:
    """Return the actors that should run and do not."""
    return [row for row in rows if row.state not in PRESENT]
