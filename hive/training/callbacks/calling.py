"""Calls one callback, user-defined or a rule of a config, with an event, and returns the actions that it requested."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hive.config import Config, with_parameter
from hive.errors import UsageError
from hive.plain_data import is_plain, pack, unpack
from hive.training.callbacks.events import KEY, Actions, CallbackEvent, EpisodeEvent, RoundEvent, event_of
from hive.training.callbacks.messages import STATE_BYTES


class ForwardingCallback(ABC):
    """A callback that another process has. shown: what errors call it."""

    shown = ""

    @abstractmethod
    def forward(self, kind: str, data: Mapping[str, Any], names: Sequence[str]) -> Actions:
        """Return what the callback asks for after an event."""

    @abstractmethod
    def close(self) -> None:
        """Leave the other process."""


COUNTS = ("env_steps", "updates", "seconds", "mean_return_100", "number_of_episodes")  # of all events


@dataclass
class Answer:
    """What a callback does after one event. state: what it keeps, or why it is not called again; b"" as before."""

    stop: str | None = None
    log: dict[str, float] = field(default_factory=dict)
    changes: list[list[Any]] = field(default_factory=list)
    state: bytes = b""

    def packed(self) -> bytes:
        """Return the answer as bytes."""
        return pack(vars(self))

    @classmethod
    def of(cls, data: bytes) -> Answer:
        """Return the answer that was packed. Raises ValueError for other bytes, also those of another process."""
        found = unpack(data)
        if not isinstance(found, dict):
            raise ValueError("it is no dictionary")
        return cls(**{name: found[name] for name in vars(cls()) if name in found})


def episodes_of(
    data: Mapping[str, Any], counts: Mapping[str, Any], names: list[str], actions: Actions
) -> list[EpisodeEvent]:
    """Return the episodes of a round. data: their columns, arrays of one length. names: of env.info."""
    columns = data.get("episodes")
    if not columns:
        return []
    returns, lengths = columns["returns"].tolist(), columns["lengths"].tolist()
    environments, infos = columns["columns"].tolist(), columns["infos"].tolist()
    return [
        EpisodeEvent(
            **counts,
            episode_return=returns[n],
            length=lengths[n],
            environment=environments[n],
            info={name: value for name, value in zip(names, infos[n], strict=True) if not math.isnan(value)}
            if names
            else {},
            _actions=actions,
        )
        for n in range(len(returns))
    ]


def call(callback: Any, handlers: tuple[str, ...], kind: str, data: Mapping[str, Any], names: list[str]) -> Actions:
    """Call the methods of a callback that an event has; return what it asks for. Raises what it raises."""
    if isinstance(callback, ForwardingCallback):
        return callback.forward(kind, data, names)
    actions = Actions()
    event = event_of(kind, data, actions)
    if kind == "round":
        counts = {name: data[name] for name in COUNTS}
        episodes = episodes_of(data, counts, names, actions)
        if "on_episode" in handlers:
            for episode in episodes:
                _follow(callback, "on_episode", episode)
        assert isinstance(event, RoundEvent)
        event.episodes.extend(episodes)
    if f"on_{kind}" in handlers:
        _follow(callback, f"on_{kind}", event)
    return actions


def _follow(callback: Any, name: str, event: CallbackEvent) -> None:
    """Call a method with an event. Raises UsageError if it returns False, which ends a run of other trainers."""
    result = getattr(callback, name)(event)
    if result is False or result is np.False_:
        raise UsageError(f'`{name}` returned False, which ends no run: event.stop("reason") does')


def checked(actions: Actions, config: Config, *, may_change: bool = True) -> list[list[Any]]:
    """Return the changes that were asked for, keys without their table. may_change: False: several policies.

    Raises ConfigError for a key of [algorithm] that cannot be changed so, and UsageError for environments elsewhere or
    of several policies.
    """
    algorithm = config.algorithm
    for kind, name, value in actions.changes:
        if not may_change:
            raise UsageError(
                f"`{name}` cannot be changed by a callback where several policies, scripted ones, or agents that act "
                "in turn share the environments",
                hint="let the environment count its own episodes; a callback may stop the run and add metrics",
            )
        if kind == KEY:
            algorithm = with_parameter(algorithm, name, _number(value))
        elif config.collection.hosts:
            raise UsageError(f"`{name}` of environments on other hosts cannot be changed (collection.hosts)")
    return [
        [kind, name.removeprefix("algorithm."), _number(value)] if kind == KEY else [kind, name, value]
        for kind, name, value in actions.changes
    ]


def state_of(callback: Any, arguments: Mapping[str, Any] | None = None) -> tuple[bytes, list[str]]:
    """Return the attributes of a callback that are plain data, packed, and the names of the others.

    arguments: of its constructor, which a resumed run may change. A rule of hive's names what it keeps in `kept`.
    Raises UsageError if they need more than STATE_BYTES.
    """
    if isinstance(callback, ForwardingCallback):  # the other process keeps it
        return b"", []
    attributes = getattr(callback, "__dict__", {})
    names = getattr(callback, "kept", attributes)
    kept = {name: value for name, value in attributes.items() if name in names and is_plain(value)}
    packed = pack({"attributes": kept, "arguments": dict(arguments or {})})
    if len(packed) > STATE_BYTES:
        raise UsageError(
            f"its attributes need {len(packed) >> 10} KiB in each checkpoint, more than {STATE_BYTES >> 10}",
            hint="keep large data in a file, or in an object that is no plain data",
        )
    return packed, [name for name in names if name not in kept]


def restore(callback: Any, state: bytes, arguments: Mapping[str, Any] | None = None) -> None:
    """Give a callback the attributes of `state`, but those of the name of an argument that has another value now."""
    found = unpack(state)
    before, now = found["arguments"], dict(arguments or {})
    changed = {name for name in {*before, *now} if pack(before.get(name)) != pack(now.get(name))}
    for name, value in found["attributes"].items():
        if name not in changed:
            setattr(callback, name, value)


def _number(value: Any) -> Any:
    """Return Python's own number for NumPy's."""
    return value.item() if isinstance(value, np.generic) else value
