"""The status document of a run: what its supervisor sends to views, with the type of every value that they read.

Views receive it from a socket, so it is checked like a file: another program may listen there. Keys that are not
declared here are passed on unchecked, and no view reads them. A document of a run that is starting lacks some keys.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, NotRequired, TypedDict

from hive.records.documents import misfit
from hive.records.run_warnings import RunWarning
from hive.records.standings import PolicyStanding
from hive.records.summary import ChannelAccount

Pid = Annotated[int, range(1 << 31)]
Time = Annotated[float, range(100_000_000_000)]  # seconds since 1970
Share = float | None
Measured = Annotated[float, math.nan]  # a mean without values is NaN


class HelperDocument(TypedDict):
    """A process that is not an actor."""

    name: str
    pid: Pid
    state: str
    host: NotRequired[str]
    cpu: NotRequired[float | None]
    memory_bytes: NotRequired[int]


class ActorDocument(TypedDict):
    """An actor; see `hive.monitor.rows.ActorRow`. Times are in seconds."""

    name: str
    pid: Pid
    state: str
    restarts: int
    activity: str
    since_s: float
    busy: Share
    wait_in: Share
    wait_out: Share
    version: int | None
    lag: int | None
    counters: dict[str, Measured]
    group: NotRequired[str]
    process: NotRequired[str]
    restart: NotRequired[bool]
    incarnation: NotRequired[int]
    runtime: NotRequired[Share]
    phases: NotRequired[dict[str, float]]
    kinds: NotRequired[dict[str, str]]
    sent: NotRequired[dict[str, int]]
    host: NotRequired[str]  # the host that it runs on, if that is not the head
    cpu: NotRequired[float | None]  # of its process there, in cores
    memory_bytes: NotRequired[int]


class ResultsDocument(TypedDict):
    """The counters of the actor whose results are the run's."""

    env_steps: NotRequired[float]
    updates: NotRequired[float]
    episodes: NotRequired[float]
    first_steps: NotRequired[float]
    train_s: NotRequired[float]
    mean_return_100: NotRequired[Measured]


class EdgeDocument(TypedDict):
    """A channel between groups; `capacity` in messages, `version` that of a board."""

    carrier: str
    source: str
    targets: list[str]
    capacity: NotRequired[int]
    version: NotRequired[int | None]


class StatusDocument(TypedDict):
    """Everything that a view shows."""

    run: str
    pid: Pid
    started: Time
    steps: int
    state: str
    actors: list[ActorDocument]
    helpers: list[HelperDocument]
    channels: dict[str, ChannelAccount]
    stage: NotRequired[int]
    refused: NotRequired[str]
    pausing: NotRequired[list[str] | None]
    warnings: NotRequired[list[RunWarning]]
    code: NotRequired[dict[str, str]]  # what collectors have imported: for the head of a run on several hosts
    reason: NotRequired[str]
    results_actor: NotRequired[str]
    results: NotRequired[ResultsDocument]
    policies: NotRequired[list[PolicyStanding]]
    edges: NotRequired[dict[str, EdgeDocument]]


def misfit_of(document: Any) -> str:
    """Return what is wrong with a document: "`status.actors.0.pid` is missing"; "" if it is valid."""
    return misfit(document, StatusDocument, "status")
