"""Compute shares of the last seconds, and rates over ten seconds, a minute and five minutes, from totals.

A status document of the supervisor holds totals: seconds that an actor has spent in each phase, messages that a channel
has carried. `History.add` takes each document with the time at which it was received, in seconds since 1970; shares and
rates are differences of two totals. A total that has decreased discards the past: a new incarnation has a new status
page, and a resumed run starts from an earlier number. `History.add_metrics_line` takes lines of metrics.jsonl, so that
a view that was just opened has the rates of the last minutes.

Memory is bounded: documents are kept for `SHARES_S` seconds, totals for `WINDOWS[-1]` seconds, at most four a second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

WINDOWS = (
    10,
    60,
    300,
)  # windows of rates in seconds: the first is short enough to show a change, the last shows the past
SHARES_S = 5.0  # window of shares in seconds ("the last seconds"): holds some updates of a slow run
APART_S = 0.25  # least seconds between two totals that are kept: 1200 in five minutes
TOTALS = ("env_steps", "updates", "episodes")  # counters of a run that have rates

PhaseSeconds = Mapping[str, float]  # phase -> seconds


class Rates:
    """Totals over time, and their rates over windows. `t` may be read from any clock that counts seconds."""

    def __init__(self) -> None:
        self.samples: deque[tuple[float, Mapping[str, float]]] = deque()

    def add(self, t: float, totals: Mapping[str, float]) -> None:
        """Add the totals at `t`, in the order of time; they replace the previous ones if those are too close."""
        if self.samples:
            last_t, last = self.samples[-1]
            if t < last_t or any(totals.get(name, 0.0) < value for name, value in last.items()):
                self.samples.clear()  # the run was resumed from an earlier state
            elif len(self.samples) > 1 and t - self.samples[-2][0] < APART_S:
                self.samples.pop()
        self.samples.append((t, dict(totals)))
        while len(self.samples) > 2 and self.samples[1][0] <= t - WINDOWS[-1]:
            self.samples.popleft()

    def forget_after(self, t: float) -> None:
        """Remove the totals added at `t` or later."""
        while self.samples and self.samples[-1][0] >= t:
            self.samples.pop()

    def rate(self, name: str, window: int = WINDOWS[0]) -> float | None:
        """Return the rate per second over the last `window` seconds; None where the next shorter window is not full."""
        if not self.samples:
            return None
        end, last = self.samples[-1]
        shorter = max((w for w in WINDOWS if w < window), default=0)
        if end - self.samples[0][0] <= shorter:
            return None
        within = (sample for sample in reversed(self.samples) if sample[0] <= end - window)
        start, first = next(within, self.samples[0])
        return (last.get(name, 0.0) - first.get(name, 0.0)) / (end - start)


@dataclass(frozen=True)
class _Document:
    t: float
    actors: Mapping[str, Mapping[str, Any]]
    carried: Mapping[str, float]  # channel -> produced, board -> versions


class History:
    """The latest status documents of one run."""

    def __init__(self) -> None:
        self.totals = Rates()
        self.documents: deque[_Document] = deque()

    def add_metrics_line(self, line: Mapping[str, Any]) -> None:
        """Add the totals of a line of metrics.jsonl that was written before the first document."""
        names = {"env_steps": "steps", "updates": "updates", "episodes": "episodes"}
        values = [line.get(key) for key in ("t", *names.values())]
        if all(type(value) in (int, float) for value in values):  # the line of an evaluation lacks some of them
            self.totals.add(values[0], dict(zip(names, values[1:], strict=True)))  # type: ignore[arg-type]

    def add(self, status: Mapping[str, Any], t: float) -> None:
        """Add the supervisor's document of time `t` (seconds since 1970)."""
        actors = {actor["name"]: actor for actor in status["actors"]}
        results = status.get("results", {})
        if results:
            if not self.documents:
                self.totals.forget_after(t)  # lines written while this document was in transit
            self.totals.add(t, {name: results.get(name, 0.0) for name in TOTALS})
        carried = {name: account["produced"] for name, account in status["channels"].items()}
        carried |= {name: e["version"] for name, e in status.get("edges", {}).items() if e["carrier"] == "board"}
        if self.documents and (self.documents[-1].actors.keys() != actors.keys() or t < self.documents[-1].t):
            self.documents.clear()  # the run was scaled: a new stage has other actors; or the clock was set back
        self.documents.append(_Document(t, actors, carried))
        while len(self.documents) > 2 and self.documents[1].t <= t - SHARES_S:
            self.documents.popleft()

    @property
    def window_s(self) -> float:
        """The seconds between the oldest and the newest document: what shares are measured over."""
        return self.documents[-1].t - self.documents[0].t if self.documents else 0.0

    def spent(self, actor: str) -> PhaseSeconds | None:
        """Return the seconds that the actor has spent in each phase since the oldest document of this incarnation.

        None if there is only one such document.
        """
        documents = [d.actors[actor] for d in self.documents if actor in d.actors]
        if not documents:
            return None
        newest = documents[-1]
        same = [d for d in documents if _same_incarnation(d, newest)]
        if len(same) < 2:
            return None
        before, after = spent_of(same[0]), spent_of(newest)
        return {name: max(s - before.get(name, 0.0), 0.0) for name, s in after.items()}

    def rate(self, name: str, window: int = WINDOWS[0]) -> float | None:
        """Return the rate of a total of the run (one of `TOTALS`), per second; see `Rates.rate`."""
        return self.totals.rate(name, window)

    def rates(self) -> dict[str, dict[int, float | None]]:
        """Return the rate per second of every total over every window."""
        return {name: {window: self.rate(name, window) for window in WINDOWS} for name in TOTALS}

    def channel_rate(self, name: str) -> float | None:
        """Return the messages of a channel, or the versions of a board, per second over the last seconds."""
        return self._difference(document.carried.get(name) for document in self.documents)

    def actor_rate(self, actor: str, counted: str) -> float | None:
        """Return the rate per second of an actor's counter, or of the channel that it sends into."""
        documents = [d.actors.get(actor, {}) for d in self.documents]
        return self._difference((d.get("counters", {}) | d.get("sent", {})).get(counted) for d in documents)

    def _difference(self, values: Iterator[float | None]) -> float | None:
        known = [(d.t, value) for d, value in zip(self.documents, values, strict=True) if value is not None]
        if len(known) < 2 or known[-1][0] <= known[0][0] or known[-1][1] < known[0][1]:
            return None
        return (known[-1][1] - known[0][1]) / (known[-1][0] - known[0][0])


def _same_incarnation(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether two documents describe the same incarnation of an actor."""
    return bool(before.get("incarnation") == after.get("incarnation") and before["pid"] == after["pid"])


def spent_of(actor: Mapping[str, Any]) -> PhaseSeconds:
    """Return the seconds that the actor's incarnation has spent in each phase since it started."""
    phases: Mapping[str, float] = actor.get("phases", {})
    return phases
