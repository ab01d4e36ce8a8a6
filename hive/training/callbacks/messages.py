"""What the learner and callbacks send each other, as numbered versions and slots: no message can be lost.

    learner ══ events (board, version n = event n) ══> callbacks        every callback gets every event
    learner <══ answers (slots, sequence n) ══════════ callbacks        the learner waits for all of them
    learner ══ state (board, version n after event n) ══> recorder      what a checkpoint has
    learner ══ changes (board) ══> collectors, gradient workers

An event has the states of all callbacks before it, so a callback that is restarted continues from there, and repeats
the event that its predecessor has not answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hive.config import Config, load_reference
from hive.plain_data import LENGTH_BYTES, pack, unpack
from hive.records import Checkpoint
from hive.runtime import Layout, Message
from hive.training.callbacks.changes import CHANGES_BYTES
from hive.training.callbacks.events import check_methods, handlers_of
from hive.training.callbacks.rules import rules_of

STATE_BYTES = 1 << 18  # of the state of one callback: counters and thresholds are small, data belongs in files
EVENT_BYTES = 1 << 16  # of the numbers of an event, without episodes
EPISODE_BYTES = 32  # of an episode in an event, without values of env.info
ANSWER_BYTES = STATE_BYTES + CHANGES_BYTES + (1 << 16)  # the last: metrics, the reason of a stop, an error
PART = "callbacks"  # of a checkpoint


class CallbackEvents(Message):
    """learner -> callbacks. One event, packed; the version is its number."""


class CallbackAnswer(Message):
    """callback -> learner. The answer to one event, packed; the slot's sequence is the event's number."""


class CallbackState(Message):
    """learner -> recorder. The state after all events so far, packed; the version counts events."""


class RunChanges(Message):
    """learner -> collectors and gradient workers. All changes by callbacks that still matter, packed."""


@dataclass
class CallbacksState:
    """The state of callbacks after all events so far.

    number: of the next event. turn, evaluated: the last turns after which a round and an evaluation were handled. best:
    the highest value of an evaluation. chooses: whether values have differed. balanced: whether one was of sums that
    never differ (`chooses_none`). states: the packed state of each callback, by its name. stop: why the run ends.
    configured: digests of the values of the config that the rest depends on (hive.training.callbacks.start).
    """

    number: int = 0
    turn: int = -1
    evaluated: int = -1
    best: float | None = None
    chooses: bool = False
    balanced: bool = False
    states: dict[str, bytes] = field(default_factory=dict)
    changes: list[list[Any]] = field(default_factory=list)
    stop: str | None = None
    configured: dict[str, Any] = field(default_factory=dict)

    def packed(self) -> bytes:
        """Return the state as bytes."""
        return pack(vars(self))

    @classmethod
    def of(cls, data: bytes) -> CallbacksState:
        """Return the state that was packed. Raises ValueError for other bytes."""
        found = unpack(data)
        return cls(**{name: found[name] for name in vars(cls()) if name in found})

    @classmethod
    def resumed(cls, checkpoint: Checkpoint | None) -> CallbacksState:
        """Return the state in a checkpoint, or the first one. What has ended the run, and what failed, is left out."""
        if checkpoint is None or not checkpoint.state.get(PART):
            return cls()
        state = cls.of(checkpoint.part(PART))
        state.stop = None
        state.states = {name: kept for name, kept in state.states.items() if "failed" not in unpack(kept)}
        return state


@dataclass(frozen=True)
class Entry:
    """A callback of `run.callbacks`. arguments: of its constructor. handlers: the methods of Callback that it has."""

    name: str
    arguments: Mapping[str, Any]
    handlers: tuple[str, ...]

    @property
    def handles_rounds(self) -> bool:
        """Whether it gets events of rounds."""
        return "on_round" in self.handlers or "on_episode" in self.handlers


def entries_of(config: Config) -> list[Entry]:
    """Return the callbacks of a config. Imports their modules; raises TopologyError."""
    found = []
    for one in config.run.callbacks:
        name = one if isinstance(one, str) else str(one["name"])
        arguments = {} if isinstance(one, str) else {key: value for key, value in one.items() if key != "name"}
        given = arguments.get("handlers")
        target = load_reference(name)
        if given is None:
            check_methods(target, name, arguments)
        handlers = handlers_of(target, arguments) if given is None else tuple(given)
        found.append(Entry(name, arguments, handlers))
    return found


def state_key(index: int, entry: Entry) -> str:
    """Return the name under which the state of callback number `index` is kept."""
    return f"{index} {entry.name}"


@dataclass(frozen=True)
class Wanted:
    """The events that the callbacks and rules of a run handle, and whether they may change it."""

    entries: tuple[Entry, ...]
    rules: tuple[str, ...]
    rounds: bool
    episodes: bool
    evaluations: bool

    @classmethod
    def of(cls, config: Config) -> Wanted:
        """Return what the callbacks of a config want."""
        entries, rules = entries_of(config), rules_of(config)
        handlers = {name for entry in entries for name in entry.handlers}
        handlers |= {name for rule in rules.values() for name in handlers_of(rule)}
        return cls(
            tuple(entries),
            tuple(rules),
            bool(handlers & {"on_round", "on_episode"}),
            "on_episode" in handlers,
            "on_evaluation" in handlers,
        )

    @property
    def any(self) -> bool:
        """Whether there are callbacks or rules."""
        return bool(self.entries or self.rules)

    @property
    def may_change(self) -> bool:
        """Whether they may change environments or keys."""
        return bool(self.entries) or "env.curriculum" in self.rules

    def event_bytes(self, round_steps: int, infos: int) -> int:
        """Return the bytes of a block for an event. round_steps: the most episodes that can end in a round."""
        episodes = round_steps * (EPISODE_BYTES + 4 * infos) if self.episodes else 0
        return LENGTH_BYTES + EVENT_BYTES + episodes + len(self.entries) * (STATE_BYTES + 256)

    @property
    def state_bytes(self) -> int:
        """The bytes of a block for the state of all."""
        return LENGTH_BYTES + EVENT_BYTES + CHANGES_BYTES + (len(self.entries) + len(self.rules)) * (STATE_BYTES + 256)


def answer_layout() -> Layout:
    """Return the layout of an answer: its bytes, with their number before them."""
    return Layout({"content": ("uint8", (LENGTH_BYTES + ANSWER_BYTES,))})
