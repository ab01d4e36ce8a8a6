"""The snapshot of a run: one typed document that every view draws.

    live.snapshot_of (the supervisor's status)     ──┐
    replay.snapshot_from_files (an ended run)      ──┴──> Snapshot ──> bound_by, line, screens, JSON

Values that were not measured are None. Snapshots are values: this module reads no file, sends no request and reads no
clock. (hive.monitor.poller does.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hive.gpus import Gpu
from hive.monitor.rows import ActorRow, BoardRow, ChannelRow, HostRow
from hive.records.environments import EnvironmentRow
from hive.records.run_warnings import RunWarning, shown
from hive.records.standings import PolicyStanding
from hive.runtime.run.process_facts import ProcessFacts


@dataclass(frozen=True)
class Extras:
    """Data that the supervisor's document lacks. `t` is the time of the snapshot, seconds since 1970."""

    t: float = 0.0
    processes: Mapping[int, ProcessFacts] = field(default_factory=dict)  # by pid
    returns: tuple[tuple[float, float], ...] = ()  # (environment steps, mean return of the last 100 episodes)
    events: tuple[Mapping[str, Any], ...] = ()  # last entries of the event log, oldest first
    cores: int = 0  # number of cores that the run may use; 0: unknown
    cores_busy: float | None = None  # how many of these cores are busy, with any program
    gpus: tuple[Gpu, ...] = ()  # of this machine, if the run computes gradients on one
    policy_returns: Mapping[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)  # of further policies
    environments: Mapping[str, tuple[EnvironmentRow, ...]] = field(default_factory=dict)  # by actor


@dataclass(frozen=True)
class Snapshot:
    """A run at one moment. `mean_return` is None before the first episode has ended.

    state: of the run; "lost" when its supervisor no longer exists. supervisor: empty while it answers, else why it does
    not and since when; the other fields are then the last known values. rates: per second of wall time, by total and by
    window in seconds; None for a window that is not full yet. window_s: the seconds over which shares and `bound_by`
    were measured, 0 for the time since each incarnation started.
    """

    run: str
    state: str
    reason: str
    env_steps: int
    goal_steps: int
    updates: int
    episodes: int
    mean_return: float | None
    restarts: int
    train_s: float
    actors: tuple[ActorRow, ...]
    channels: Mapping[str, ChannelRow]
    t: float = 0.0
    pid: int = 0
    started: float = 0.0
    steps_per_s: float | None = None
    rates: Mapping[str, Mapping[int, float | None]] = field(default_factory=dict)
    bound_by: str = ""
    window_s: float = 0.0
    cores: int = 0
    cores_busy: float | None = None
    results_actor: str = ""  # the actor whose counters are the run's totals
    helpers: tuple[ActorRow, ...] = ()
    hosts: tuple[HostRow, ...] = ()  # links to other hosts
    boards: Mapping[str, BoardRow] = field(default_factory=dict)
    returns: tuple[tuple[float, float], ...] = ()
    events: tuple[Mapping[str, Any], ...] = ()
    supervisor: str = ""
    warnings: tuple[RunWarning, ...] = ()
    info: Mapping[str, float] = field(default_factory=dict)  # means of env.info over the last 100 episodes, if known
    gpus: tuple[Gpu, ...] = ()  # of this machine, if the run computes gradients on one
    policies: tuple[PolicyStanding, ...] = ()  # of a run that trains several; `mean_return` is that of the first
    policy_returns: Mapping[str, tuple[tuple[float, float], ...]] = field(
        default_factory=dict
    )  # by name, of those after the first, whose returns are `returns`
    replay: Mapping[str, float] = field(
        default_factory=dict
    )  # hive.training.REPLAY_VALUES, of a run with such a memory

    @property
    def active_warnings(self) -> list[RunWarning]:
        """The warnings that hold now, or held at the end of the run, without those that another one explains."""
        return shown(self.warnings)

    @property
    def lag(self) -> int:
        """How many versions the collector with the oldest one is behind the latest."""
        return max((row.lag or 0 for row in self.actors if row.name.startswith("collector")), default=0)

    @property
    def dropped(self) -> int:
        return sum(sum(channel.dropped.values()) for channel in self.channels.values())

    @property
    def cores_used(self) -> float | None:
        """How many cores of this machine the run's processes keep busy; None before their CPU use was measured."""
        rows = (row for row in (*self.actors, *self.helpers) if not row.host)
        cpu = {row.pid: row.cpu for row in rows if row.cpu is not None}
        return sum(cpu.values()) if cpu else None

    @property
    def groups(self) -> dict[str, list[ActorRow]]:
        """The actors of each group, in the order of the topology."""
        groups: dict[str, list[ActorRow]] = {}
        for row in self.actors:
            groups.setdefault(row.group, []).append(row)
        return groups


def as_data(snapshot: Snapshot) -> dict[str, Any]:
    """Return the snapshot as data for JSON: every field under its name, and the properties `lag` and `dropped`."""
    return dataclasses.asdict(snapshot) | {"lag": snapshot.lag, "dropped": snapshot.dropped}
