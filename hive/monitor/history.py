"""What a view remembers of a run: shares of the last seconds, and rates over ten seconds, a minute, five minutes.

A document of the supervisor holds totals: seconds that an actor has spent in each phase, messages that a channel has
carried. `History.see` is told each document with the time of the look, in seconds since 1970; everything else is a
difference of two totals. Where a total has gone back (a new incarnation has a new page, a resumed run an earlier
number) the past is forgotten. Lines of metrics.jsonl can be told too (`recall`), so that a view that has just come
knows the rates of the last minutes.

It is bounded: documents of `SHARES_S`, totals of `WINDOWS[-1]` seconds, thinned to four a second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["TOTALS", "WINDOWS", "History", "Rates", "Spent", "spent_of"]

WINDOWS = (10, 60, 300)  # seconds: steady enough to read, a change is seen, and what it was before
SHARES_S = 5.0  # of shares: "the last seconds", long enough to hold some updates of a slow run
APART_S = 0.25  # between two totals that are kept: twelve hundred in five minutes
TOTALS = ("env_steps", "updates", "episodes")  # of a run

Spent = Mapping[str, float]  # phase -> seconds


class Rates:
    """Totals and when they were seen; rates over windows of seconds of whatever clock `t` is read from."""

    def __init__(self) -> None:
        self.seen: deque[tuple[float, Mapping[str, float]]] = deque()

    def see(self, t: float, totals: Mapping[str, float]) -> None:
        """Told in the order of time. The newest replaces the one before where they are close together."""
        if self.seen:
            last_t, last = self.seen[-1]
            if t < last_t or any(totals.get(name, 0.0) < value for name, value in last.items()):
                self.seen.clear()  # a run that went back
            elif len(self.seen) > 1 and t - self.seen[-2][0] < APART_S:
                self.seen.pop()
        self.seen.append((t, dict(totals)))
        while len(self.seen) > 2 and self.seen[1][0] <= t - WINDOWS[-1]:
            self.seen.popleft()

    def forget_after(self, t: float) -> None:
        """What was seen at `t` and later."""
        while self.seen and self.seen[-1][0] >= t:
            self.seen.pop()

    def rate(self, name: str, window: int = WINDOWS[0]) -> float | None:
        """Per second over the last `window` seconds; None where not even the next shorter window is full."""
        if not self.seen:
            return None
        end, last = self.seen[-1]
        shorter = max((w for w in WINDOWS if w < window), default=0)
        if end - self.seen[0][0] <= shorter:
            return None
        within = (seen for seen in reversed(self.seen) if seen[0] <= end - window)
        start, first = next(within, self.seen[0])
        return (last.get(name, 0.0) - first.get(name, 0.0)) / (end - start)


@dataclass(frozen=True)
class _Document:
    t: float
    actors: Mapping[str, Mapping[str, Any]]
    carried: Mapping[str, float]  # channel -> produced, board -> versions


class History:
    """The last documents of a run."""

    def __init__(self) -> None:
        self.totals = Rates()
        self.documents: deque[_Document] = deque()

    def recall(self, line: Mapping[str, Any]) -> None:
        """A line of metrics.jsonl from before the first document."""
        names = {"env_steps": "steps", "updates": "updates", "episodes": "episodes"}
        values = [line.get(key) for key in ("t", *names.values())]
        if all(type(value) in (int, float) for value in values):  # the line of an evaluation has not all of them
            self.totals.see(values[0], dict(zip(names, values[1:], strict=True)))  # type: ignore[arg-type]

    def see(self, status: Mapping[str, Any], t: float) -> None:
        """The supervisor's document as it was at `t`."""
        actors = {actor["name"]: actor for actor in status["actors"]}
        results = actors.get(status.get("results_actor", ""), {}).get("counters", {})
        if results:
            if not self.documents:
                self.totals.forget_after(t)  # lines that were written while this document was on its way
            self.totals.see(t, {name: results.get(name, 0.0) for name in TOTALS})
        carried = {name: account["produced"] for name, account in status["channels"].items()}
        carried |= {name: e["version"] for name, e in status.get("edges", {}).items() if e["carrier"] == "board"}
        if self.documents and self.documents[-1].actors.keys() != actors.keys():
            self.documents.clear()  # another stage of the run
        self.documents.append(_Document(t, actors, carried))
        while len(self.documents) > 2 and self.documents[1].t <= t - SHARES_S:
            self.documents.popleft()

    @property
    def window_s(self) -> float:
        """The seconds that shares are of."""
        return self.documents[-1].t - self.documents[0].t if self.documents else 0.0

    def spent(self, actor: str) -> Spent | None:
        """Phase -> seconds of the last seconds; None where there is nothing to compare with."""
        documents = [d.actors[actor] for d in self.documents if actor in d.actors]
        if not documents:
            return None
        newest = documents[-1]
        same = [d for d in documents if _same(d, newest)]
        if len(same) < 2:
            return None
        before, after = spent_of(same[0]), spent_of(newest)
        return {name: max(s - before.get(name, 0.0), 0.0) for name, s in after.items()}

    def rate(self, name: str, window: int = WINDOWS[0]) -> float | None:
        """Of a total of the run, per second."""
        return self.totals.rate(name, window)

    def rates(self) -> dict[str, dict[int, float | None]]:
        """Every total over every window."""
        return {name: {window: self.rate(name, window) for window in WINDOWS} for name in TOTALS}

    def channel_rate(self, name: str) -> float | None:
        """Messages, or versions of a board, per second of the last seconds."""
        return self._difference(document.carried.get(name) for document in self.documents)

    def actor_rate(self, actor: str, counted: str) -> float | None:
        """What an actor counts, or sends into a channel, per second of the last seconds."""
        documents = [d.actors.get(actor, {}) for d in self.documents]
        return self._difference((d.get("counters", {}) | d.get("sent", {})).get(counted) for d in documents)

    def _difference(self, values: Iterator[float | None]) -> float | None:
        known = [(d.t, value) for d, value in zip(self.documents, values, strict=True) if value is not None]
        if len(known) < 2 or known[-1][0] <= known[0][0] or known[-1][1] < known[0][1]:
            return None
        return (known[-1][1] - known[0][1]) / (known[-1][0] - known[0][0])


def _same(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether two documents tell of the same incarnation."""
    return bool(before.get("incarnation") == after.get("incarnation") and before["pid"] == after["pid"])


def spent_of(actor: Mapping[str, Any]) -> Spent:
    """Phase -> seconds, of the actor's whole life."""
    phases: Mapping[str, float] = actor.get("phases", {})
    return phases
