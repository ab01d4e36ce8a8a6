"""Warnings that a run does not learn as it should, as the event log holds them.

    {"kind": "warning", "warning": "entropy gone", "cause": ..., "advice": ..., "steps": 120000}    it began to hold
    {"kind": "recovered", "warning": "entropy gone", "steps": 180000}                               it holds no longer

hive.training.record.health decides when each is logged; any actor may log its own with `Actor.note`. Views and the
summary fold these entries into one RunWarning for each name, so they all show the same: those that hold, without those
that another one explains, the worst first (hive.warning_names). What `run.accept` names is logged as "accepted",
which views do not show, and what is only worth knowing as "fact"; `hive doctor RUN` lists both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hive.records.directory import RunDirectory
from hive.records.jsonl import read_jsonl
from hive.warning_names import WARNINGS

WARNING = "warning"  # kind of the event with which a warning begins
SOCKETS_REMOVED = "socket folder removed"  # it ends at the supervisor's next look
OUTPUT_DROPPED = "output dropped"  # it does not end
OF_SUPERVISOR = (SOCKETS_REMOVED, OUTPUT_DROPPED)  # warnings of the supervisor
RUNNING_STATISTICS = "statistics in environments"  # a warning of a collector; it does not end
OTHER_SCALE = "statistics of another scale"  # a warning of a collector; it does not end
MASK_NOT_USED = "mask not used"  # a warning of a collector; it does not end
LATE_REWARDS = "rewards after the end"  # warnings of a collector of several agents; they do not end
REWARDS_AGAIN = "rewards counted again"
OLD_OBSERVATIONS = "no last observations"
AGENTS_ALIKE = "agents see the same"
GLOBAL_DRAWS = "global random numbers"  # a fact of a collector with helpers
NOT_REPEATED = "resume not exact"  # a warning of a collector; it does not end
RESET_REFUSED = "reset refused"  # a fact of a collector
METHOD_AGAIN = "method called again"  # a fact of a collector
ENVIRONMENT_FAILED = "environment failed"  # a warning of a collector whose environments have processes; it does not end
NOT_SAVED = "checkpoints not written"  # a warning of the recorder; it ends with the next checkpoint
LINES_LOST = "lines lost"  # a warning of the recorder; it does not end
SINK_FAILED = "sink failed"  # a warning of the recorder; it ends when a new recorder makes the sinks again
CALLBACK_FAILED = "callback failed"  # a warning of a callback's actor; it does not end
OUTSIDE = "observations outside"  # warnings of `hive check`, of what an environment did
NO_EPISODE = "no episode ended"  # also of a run
EPISODES_CUT = "episodes cut"
FAILURES_TRUNCATED = "failures truncated"  # also of a run
LIMIT_TERMINATED = "limit terminated"
DISTURBED = "environments disturb each other"  # warnings of a look at two environments, which the first collector logs
STARTS_REPEAT = "starts repeat"
SPACES_CHANGE = "spaces change"
OF_LOOK = (DISTURBED, STARTS_REPEAT, SPACES_CHANGE)
GIVEN_DATA = "given data"  # a warning of the first collector and of the learner; it does not end
GOAL_NOT_JUDGED = "goal not judged"  # a warning of the recorder at the end of a run
UNFINISHED = "unfinished"  # kind of the event of evaluations that had not ended when the run did
OTHER_CODE = "other code"  # a warning of the supervisor
VIDEOS_OFF = "videos off"
RANDOM_BEGINNING = "random beginning"  # a warning of a new run's config
RECOVERED = "recovered"  # kind of the event with which it ends
ACCEPTED = "accepted"  # kind of the event of a warning that run.accept names
FACT = "fact"  # kind of an event with a name and a text that is only worth knowing


@dataclass(frozen=True)
class RunWarning:
    """One kind of warning of a run, with the text of its latest beginning."""

    kind: str
    text: str
    advice: str  # the keys of the config that usually help
    first_steps: int  # environment steps at which it began first
    last_steps: int | None = None  # environment steps at which it ended last; None while it holds

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> RunWarning:
        """Return the warning in `data`; keys that another version of hive has written are ignored."""
        names = (field.name for field in dataclasses.fields(cls))
        return cls(**{name: data[name] for name in names if name in data})

    @property
    def line(self) -> str:
        """The warning as one line."""
        return f"{self.kind}: {self.text}" + (f"; {self.advice}" if self.advice else "")

    @property
    def event(self) -> dict[str, Any]:
        """The entry of the event log with which it begins."""
        named = {"warning": self.kind, "cause": self.text, "advice": self.advice, "steps": self.first_steps}
        return {"kind": WARNING, "text": self.line, **named}

    @property
    def data(self) -> dict[str, Any]:
        """The warning as data for JSON."""
        return dataclasses.asdict(self)


def apply_event(warnings: dict[str, RunWarning], event: Mapping[str, Any]) -> None:
    """Update the warnings of a run, by name, with an entry of its event log. Other kinds of entries change nothing."""
    name, steps = event.get("warning"), event.get("steps")
    if event.get("kind") not in (WARNING, RECOVERED) or type(name) is not str or type(steps) is not int:
        return
    known = warnings.get(name)
    if event["kind"] == RECOVERED:
        if known is not None:
            warnings[name] = dataclasses.replace(known, last_steps=steps)
        return
    text, advice = str(event.get("cause", "")), str(event.get("advice", ""))
    warnings[name] = RunWarning(name, text, advice, known.first_steps if known else steps)


def warnings_of(events: Iterable[Mapping[str, Any]]) -> dict[str, RunWarning]:
    """Return the warnings in an event log, by name, in the order in which they began first."""
    warnings: dict[str, RunWarning] = {}
    for event in events:
        apply_event(warnings, event)
    return warnings


def logged_warnings(directory: RunDirectory) -> list[RunWarning]:
    """Return the warnings in the event log of a run, in the order in which they began first."""
    return [*warnings_of(read_jsonl(directory.events_file)).values()]


def active(warnings: Iterable[RunWarning]) -> list[RunWarning]:
    """Return the warnings that hold now, or held at the end of the run."""
    return [warning for warning in warnings if warning.last_steps is None]


def shown(warnings: Iterable[RunWarning]) -> list[RunWarning]:
    """Return the warnings that hold, without those that another one explains, the worst first."""
    held = active(warnings)
    explained = {name for one in held if one.kind in WARNINGS for name in WARNINGS[one.kind].explains}
    order = {name: index for index, name in enumerate(WARNINGS)}
    left = [one for one in held if one.kind not in explained]
    return sorted(left, key=lambda one: order.get(one.kind, len(order)))


def facts_of(events: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the facts and accepted warnings in an event log: name -> text of the last one."""
    entries = [event for event in events if event.get("kind") in (FACT, ACCEPTED)]
    return {str(event.get("fact") or event.get("warning")): str(event.get("text", "")) for event in entries}
