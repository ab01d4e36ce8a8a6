"""Observe and strike one run under chaos in one loop, until the run has ended or hangs.

    every observation    which victims have recovered; whether versions or counters decreased; whether accounts balance
    every pause          a strike, while the chaos lasts and the run is running
    every sample         descriptors, memory, processes

The chaos ends after its seconds, or its number of strikes, and the run ends at its step target. A run without a step
for `HANG_S` is ended, after its state is recorded.

The time to recover lasts from the signal until the supervisor reports the next incarnation as `running`; its status is
requested every few ms while a process recovers. For the fork server it lasts until the event that it can fork again. A
stopped process must first be detected by the supervisor, which checks every 0.25 s.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaotic.leaks import Sample, sample
from chaotic.strikes import Rhythm, Strike, Victim, victims_of
from chaotic.watched import Watched, results_of
from hive.errors import UsageError
from hive.records import RunDirectory, is_alive
from hive.runtime.process.stacks import read_stacks

LOOK_S = 0.02  # seconds between observations while every process is running
LOOK_AWAITING_S = 0.002  # seconds between observations while a process recovers: the resolution of times to recover
SPIN_S = 0.0002  # seconds between readings of a killed learner's page: shorter than any update
SPIN_LIMIT_S = 0.5  # time limit for a successor: it takes some 50 ms, unless the fork server is recovering too
HANG_S = 45.0  # seconds without a step: ten times what the recovery of a fork server and all that need it takes
RECENT = 64  # latest strikes whose recovery is still expected: about a minute of them
LAST_EVENTS = 40  # events that are recorded of a run that hangs


@dataclass(frozen=True)
class Limits:
    """The chaos ends after `seconds` or `strikes` (0: no limit). `sample_s`: seconds between two samples."""

    seconds: float
    strikes: int
    sample_s: float


@dataclass
class Observation:
    """All observations of one run."""

    strikes: list[Strike] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    back: list[str] = field(default_factory=list)  # versions and counters that decreased
    accounts: list[str] = field(default_factory=list)  # accounts that did not balance during the run
    lost_updates: list[int] = field(default_factory=list)  # updates lost by each followed kill of the learner
    updates_before: list[int] = field(default_factory=list)  # updates of the learner before each such kill
    deaths: list[dict[str, Any]] = field(default_factory=list)  # events of kind "died"
    kinds: dict[str, int] = field(default_factory=dict)  # number of events of each kind
    silent: list[str] = field(default_factory=list)  # times at which the supervisor did not answer
    chaos_s: float = 0.0
    missed: int = 0  # strikes whose victim had already exited
    hung: str = ""  # why the run counts as hung
    scene: dict[str, Any] = field(default_factory=dict)  # state of a run that hung


class Trial:
    """One run under chaos; see the module. `run` does everything and returns the observations."""

    def __init__(self, directory: RunDirectory, rhythm: Rhythm, limits: Limits) -> None:
        self.watched = Watched(directory)
        self.supervisor = self.watched.facts.pid
        self.rhythm = rhythm
        self.limits = limits
        self.seen = Observation()
        self.begun = time.monotonic()
        self.next_strike = self.begun + rhythm.pause()
        self.next_sample = self.begun
        self.highest: dict[str, tuple[float, float]] = {}  # actor -> (version, updates)
        self.progress = (self.begun, -1.0)  # time of the last step, and the number of steps then

    def run(self) -> Observation:
        with closing(self.watched):
            while (status := self._status()) is not None:
                now = time.monotonic()
                self._observe(status, now)
                if self._chaos(now) and now >= self.next_strike and status["state"] == "running":
                    self._strike(status, now)
                if now >= self.next_sample and status["state"] == "running":
                    self.next_sample = now + self.limits.sample_s
                    self._sample(status, now)
                if now - self.progress[0] > HANG_S:
                    self._give_up(status, now)
                    break
                time.sleep(LOOK_AWAITING_S if self._awaited() else LOOK_S)
            self._take_events()
        for strike in self.seen.strikes:
            strike.over = strike.back_ms is None and not self.seen.hung
        return self.seen

    def _status(self) -> dict[str, Any] | None:
        """Return the supervisor's status; None once it has exited. A missing answer is noted and requested again."""
        limit = time.monotonic() + HANG_S
        while True:
            try:
                return self.watched.status()
            except UsageError as error:
                now = time.monotonic()
                self.seen.silent.append(f"at {now - self.begun:.1f} s: {error}")
                if now > limit or not is_alive(self.watched.facts):
                    self.seen.hung = str(error) if now > limit else ""
                    return None
                self.watched.reconnect()

    def _chaos(self, now: float) -> bool:
        limits, seen = self.limits, self.seen
        over = now - self.begun > limits.seconds or 0 < limits.strikes <= len(seen.strikes) or bool(seen.hung)
        seen.chaos_s = seen.chaos_s if over else now - self.begun
        return not over

    def _awaited(self) -> list[Strike]:
        return [strike for strike in self.seen.strikes[-RECENT:] if strike.pending]

    # --- strikes

    def _strike(self, status: Mapping[str, Any], now: float) -> None:
        self.next_strike = now + self.rhythm.pause()
        chosen = self.rhythm.choose(victims_of(status))
        if chosen is None:
            return
        victim, number = chosen
        before = self._page_updates() if victim.role == "learner" else 0
        line = pidfd_of(victim, self.supervisor)
        if line is None:
            self.seen.missed += 1
            return
        try:
            strike = Strike(victim, number.name, time.monotonic() - self.begun, time.time(), not self._awaited())
            signal.pidfd_send_signal(line, number)
            self.seen.strikes.append(strike)
            for other in self._awaited():
                other.alone = other.alone and other is strike
            if victim.role == "learner" and number is signal.SIGKILL:
                self._follow_learner(line, victim.name, before)
        except ProcessLookupError:
            self.seen.missed += 1
        finally:
            os.close(line)

    def _page_updates(self) -> int:
        return int(self._learner().counters.get("updates", 0))

    def _learner(self) -> Any:
        return self.watched.pages.read(self.watched.number("learner-0"))

    def _follow_learner(self, line: int, name: str, before: int) -> None:
        """Compare the updates of the killed learner with the least that its successor reports."""
        if not select.select([line], [], [], SPIN_LIMIT_S)[0]:
            return
        page = self._learner()
        dead, before = page.incarnation, max(int(page.counters.get("updates", 0)), before)
        limit, least, turns = time.monotonic() + SPIN_LIMIT_S, None, 0
        while time.monotonic() < limit and turns < 2:
            page = self._learner()
            if page.incarnation != dead:
                updates = int(page.counters["updates"])
                least = updates if least is None else min(least, updates)
                turns = updates - before  # 2: it works again, beyond the update that was in progress
            time.sleep(SPIN_S)
        if least is not None and turns >= 1:
            self.seen.updates_before.append(before)
            self.seen.lost_updates.append(max(before - least, 0))

    # --- looks

    def _observe(self, status: Mapping[str, Any], now: float) -> None:
        self._take_events()
        actors = {actor["name"]: actor for actor in status["actors"]}
        for strike in self._awaited():
            actor = actors.get(strike.victim.name)
            if actor is not None and actor["incarnation"] > strike.victim.incarnation and actor["state"] == "running":
                strike.back_ms = (now - self.begun - strike.at_s) * 1e3
        steps = results_of(status).get("env_steps", 0.0)
        if steps > self.progress[1]:
            self.progress = now, steps
        for number, name in enumerate(self.watched.names):
            self._compare(name, number, now)
        for channel, account in status["channels"].items():
            if account["produced"] < account["consumed"] + sum(account["dropped"].values()):
                self.seen.accounts.append(f"at {now - self.begun:.1f} s: {channel} {account}")

    def _compare(self, name: str, number: int, now: float) -> None:
        """Record a version or number of updates that is less than in an earlier observation of the same actor."""
        page = self.watched.pages.read(number)
        is_now = float(page.version), float(page.counters.get("updates", 0.0))
        before = self.highest.get(name, is_now)
        for what, old, new in zip(("version", "updates"), before, is_now, strict=True):
            if new < old:
                self.seen.back.append(f"at {now - self.begun:.1f} s: {what} of {name} went from {old:g} to {new:g}")
        self.highest[name] = is_now

    def _take_events(self) -> None:
        for event in self.watched.events.fresh():
            kind = str(event["kind"])
            self.seen.kinds[kind] = self.seen.kinds.get(kind, 0) + 1
            if kind == "died":
                self.seen.deaths.append(event)
            if kind == "restarted" and event["text"].startswith("fork-server"):
                for strike in self._awaited():
                    if strike.victim.role == "fork-server" and event["t"] > strike.wall:
                        strike.back_ms = (event["t"] - strike.wall) * 1e3

    def _sample(self, status: Mapping[str, Any], now: float) -> None:
        calm = not self._awaited() and all(actor["state"] == "running" for actor in status["actors"])
        known = [victim.pid for victim in victims_of(status)]
        try:
            self.seen.samples.append(sample(self.supervisor, known, now - self.begun, calm))
        except OSError:
            pass  # the run has just ended

    def _give_up(self, status: Mapping[str, Any], now: float) -> None:
        self.seen.hung = f"no step for {now - self.progress[0]:.0f} s, since {self.progress[0] - self.begun:.1f} s"
        self.seen.scene = {
            "status": {key: value for key, value in status.items() if key != "actors"},
            "actors": [{k: v for k, v in actor.items() if k != "phases"} for actor in status["actors"]],
            "events": self.watched.events.all[-LAST_EVENTS:],
            "stacks": self._stacks(status),
        }

    def _stacks(self, status: Mapping[str, Any]) -> dict[str, str]:
        """Return the stack of every running actor, written by its own process; "" if it does not respond."""
        pids = {actor["name"]: actor["pid"] for actor in status["actors"] if actor["state"] == "running"}
        return asyncio.run(read_stacks(self.watched.directory.logs, pids))


def pidfd_of(victim: Victim, supervisor: int) -> int | None:
    """Open a descriptor of the victim's process; None if it has exited, or if its pid was reused."""
    try:
        line = os.pidfd_open(victim.pid)
    except OSError:
        return None
    try:
        fields = Path(f"/proc/{victim.pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        fields = ["X", "0"]
    if fields[0] not in "ZX" and int(fields[1]) == supervisor:
        return line
    os.close(line)
    return None
