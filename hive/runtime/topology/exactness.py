"""Finds what makes the weights of a run depend on time: messages and calls of user-defined actors to its training.

The learner's weights follow from the actors upstream of them: collectors, gradient workers, and what users insert
between. Between hive's own ports every message has a number, so no arrival decides anything. Slots of users have
numbers too. Other messages of users, versions that they publish, and calls of endpoints take effect when they arrive.

An actor that is only downstream, such as a recorder or a reader of evaluations, changes no weights.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from hive.runtime.actor.actor import Handle, endpoints_of, target_of
from hive.runtime.carriers.slots import Slots
from hive.runtime.topology.groups import Channel, Group, PortRef

PACKAGE = "hive."
NO_LEARNER = "its topology has no learner of hive"


def why_inexact(groups: Mapping[str, Group], channels: Mapping[str, Channel], digest: str) -> tuple[str, ...]:
    """Return why two runs of a topology with the same seed may differ, one text for each cause.

    digest: "group.port" of the weights; "" in a topology whose actors are all user-defined.
    """
    if not digest:
        return (NO_LEARNER,)
    upstream = _upstream(channels, channels[digest].source.group)
    timed = [
        (channel.source, target)
        for channel in channels.values()
        if not isinstance(channel.carrier, Slots)
        for target in channel.targets
        if target.group.key in upstream and (_of_user(channel.source) or _of_user(target))
    ]
    named = {source.group.key for source, _ in timed}  # what these read at a time is no cause of its own
    sent = [
        f"`{source}` reaches `{target.group.key}` at a time, not at an update"
        for source, target in timed
        if target.group.key not in named
    ]
    return tuple(dict.fromkeys([*sent, *_timed_calls(groups, upstream)]))


def _timed_calls(groups: Mapping[str, Group], upstream: Collection[str]) -> Iterator[str]:
    """Yield the calls that user-defined actors can make of endpoints upstream of the learner."""
    for group in groups.values():
        for cls, parameters in [(group.cls, group.parameters), *group.substitutes.values()]:
            if cls.__module__.startswith(PACKAGE):
                continue
            for name, called in map(target_of, _handles(parameters.values())):
                if endpoints_of(called) and (target := _group_of(groups, name)) in upstream:
                    yield f"`{group.key}` can call `{target}` at any time"


def _upstream(channels: Mapping[str, Channel], learner: Group) -> set[str]:
    """Return the keys of the groups whose messages may reach the learner, with its own.

    A group that drains last, such as the recorder, writes down what has been computed: training follows from no more
    of it than the space that it has left.
    """
    upstream, queue = {learner.key}, [learner]
    while queue:
        group = queue.pop()
        for channel in channels.values():
            source = channel.source.group
            if source.key not in upstream and not source.last and any(t.group is group for t in channel.targets):
                upstream.add(source.key)
                queue.append(source)
    return upstream


def _of_user(ref: PortRef[Any]) -> bool:
    return not ref.port.module.startswith(PACKAGE)


def _handles(values: Any) -> Iterator[Handle]:
    for value in values:
        if isinstance(value, Handle):
            yield value
        elif isinstance(value, list | tuple):  # as deep as `Node` binds them
            yield from (item for item in value if isinstance(item, Handle))


def _group_of(groups: Mapping[str, Group], actor: str) -> str:
    return next((group.key for group in groups.values() if actor in group.names), "")
