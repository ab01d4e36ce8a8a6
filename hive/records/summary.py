"""The summary of a run: its result, written once, as the last file.

`summary.json` exists if and only if the supervisor ended the run itself and was not killed. Its keys are the fields
below and `steps_per_s`, the rate during `train_s`; `wall_s` also counts start, first round and end. `best` names the
best policy:

    checkpoint      its folder, relative to that of the run: "best/001563"
    mean_return     the mean return that it was chosen by
    by              "evaluation": of the episodes of an evaluation; "training": of the last 100 training episodes
    steps           environment steps of the run until then
    updates         updates of the run until then

`update_counts` are the learner's counters UPDATE_COUNTS: how often each step of an update was made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from hive.errors import RecordError
from hive.records.atomic import write_json
from hive.records.documents import misfit, read_document
from hive.records.return_text import return_text
from hive.records.run_warnings import RunWarning


class ChannelAccount(TypedDict):
    """The account of a channel: produced = consumed + dropped (by reason) + in flight, in messages."""

    produced: int
    consumed: int
    dropped: dict[str, int]
    in_flight: int


class BestFacts(TypedDict):
    """The best policy of a run; see the module. None for what a custom topology does not count."""

    checkpoint: str
    mean_return: float
    by: str | None
    steps: int | None
    updates: int | None


class PolicyFacts(TypedDict):
    """The result of one of several policies; see Summary."""

    mean_return_100: float | None
    updates: int


UPDATE_COUNTS = ("adopted", "reduced", "applied", "target_updates")

NATIVE = "native"
NO_WORKER = "the topology: the learner has no gradient worker in its process"
OVERRIDDEN = "algorithm.name: it overrides "  # and a method of hive.algorithms.overrides
FEW_UPDATES = "a round has at most two updates, whose counts the worker writes"
ROUNDS = (
    NATIVE,
    "gradients.native_rounds = false",
    "gradients.workers: the gradient workers are other processes",
    "gradients.max_lag",
    "gradients.bootstrap_rounds",
    "gradients.compression",
    "gradients.decentralized",
    "gradients.device",
    "run.update_hook",
    "algorithm.name: it does not describe its gradients",
    FEW_UPDATES,
    "collection.max_lag: rollouts of older policies are corrected",
    "network: some of its layers or heads are computed by torch",
    "network.memory",
    NO_WORKER,
    *(OVERRIDDEN + method for method in ("added_loss", "added_actor_loss", "targets")),
)
"""How the updates of a round are made: in native calls, or one by one, and because of what.

A status page has the position in this list, so only append."""


AS_FAST = ("", NATIVE, FEW_UPDATES, "gradients.device")
"""The ways that are not slow: native calls would gain nothing."""


def rounds_text(obstacle: str, algorithm: str = "") -> str:
    """Return how the updates of a round are made as text. obstacle: one of ROUNDS.

    algorithm: `algorithm.name`, whose class is named.
    """
    if obstacle.startswith(OVERRIDDEN):
        method = obstacle.removeprefix(OVERRIDDEN)
        how = "one by one" if method == "targets" else "by torch"
        return f"updates {how}: {algorithm.rpartition(':')[2]}.{method}".replace(" .", " ")
    return "updates in native calls" if obstacle == NATIVE else f"updates one by one ({obstacle})"


def rounds_in(counters: Iterable[Mapping[str, float]]) -> str:
    """Return how the learner makes updates, one of ROUNDS; "" if none of the actors with these counters says it."""
    numbers = [int(values["rounds"]) for values in counters if "rounds" in values]
    return ROUNDS[numbers[0]] if numbers and 0 <= numbers[0] < len(ROUNDS) else ""


ENDINGS = ("finished", "stopped", "failed")
NOT_STARTED = "it could not start"  # `stop_reason` of a run that failed before its first stage


@dataclass(frozen=True)
class Summary:
    """The result of a run. Durations are in seconds; `started` is in seconds since 1970."""

    name: str
    scheme: str
    state: str  # final state of the run, one of ENDINGS
    stop_reason: str  # the goal that a finished run reached, what failed, or what stopped the run: "Ctrl-C"
    seed: int
    exact: bool  # whether a run with the same seed is bit-identical
    env_steps: int  # valid environment steps in the updates
    updates: int
    episodes: int
    mean_return_100: float | None  # mean return of the last 100 training episodes; None before the first
    started: float
    wall_s: float  # of all parts of the run, if it was resumed
    train_s: float  # time from the first to the last update
    weights_sha256: str
    channels: dict[str, dict[str, Any]]  # name -> {produced, consumed, dropped: {reason: n}, in_flight}
    restarts: dict[str, int]  # actor -> number of restarts
    first_steps: int = 0  # steps in the updates at the beginning of train_s; 0 if they were made in that time
    frames: int | None = None  # frames of the game; None for an environment that declares no frame skip
    error: str | None = None
    earlier_s: float = 0.0  # the part of wall_s before `started`, which is that of the last part
    inexact: list[str] = field(default_factory=list)  # why it is not exact; [] if it is
    best: dict[str, Any] | None = None  # None if there is no best policy
    # {kind, text, advice, first_steps, last_steps} of each warning; last_steps is None if it held at the end
    warnings: list[dict[str, Any]] = field(default_factory=list)
    rounds: str = ""  # one of ROUNDS; "" for a topology without the learner
    native_updates: int = 0  # updates that were made in native rounds, by the learner's last incarnation
    given_steps: int = 0  # steps in the replay memory at the start, of algorithm.replay_from; not among env_steps
    update_counts: dict[str, int] = field(default_factory=dict)  # {} for a topology whose learner does not count them
    # name -> {mean_return_100, updates} of each policy of a run that trains several; {} of any other
    policies: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def steps_per_s(self) -> float | None:
        """Environment steps per second of training; None if nothing was trained."""
        return (self.env_steps - self.first_steps) / self.train_s if self.train_s > 0 else None

    @property
    def return_text(self) -> str:
        """The mean return of the last 100 training episodes; of several policies, that of each."""
        if not self.policies:
            return return_text(self.mean_return_100)
        return ", ".join(f"{name} {return_text(of['mean_return_100'])}" for name, of in self.policies.items())

    @property
    def ended(self) -> float:
        """The time of its end, in seconds since 1970."""
        return self.started + self.wall_s - self.earlier_s

    @property
    def ending(self) -> str:
        """How the run ended, for people: "finished: 500,000 steps", "stopped by Ctrl-C"."""
        return f"{self.state}{' by ' if self.state == 'stopped' else ': '}{self.stop_reason}"

    def write(self, path: Path) -> None:
        """Write the summary atomically. Raises RecordError."""
        write_json(path, dataclasses.asdict(self) | {"steps_per_s": self.steps_per_s})

    @classmethod
    def read(cls, path: Path) -> Summary:
        """Read a summary. Raises RecordError if the file does not exist or is damaged."""
        summary = read_document(path, cls)
        wrong = misfit(summary.channels, dict[str, ChannelAccount], "channels")
        wrong = wrong or misfit(summary.warnings, list[RunWarning], "warnings")
        wrong = wrong or misfit(summary.best, BestFacts | None, "best")
        wrong = wrong or misfit(summary.policies, dict[str, PolicyFacts], "policies")
        if wrong or summary.state not in ENDINGS:
            raise RecordError(f"`{path}`: {wrong or '`state` is none of ' + ', '.join(ENDINGS)}")
        return summary
