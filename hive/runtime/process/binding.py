"""Binding: sets a new actor's ports, each with the sender or receiver of its channel."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hive.runtime.actor.actor import Actor
from hive.runtime.actor.ports import ports_of
from hive.runtime.carriers.boards import BoardReader, BoardWriter
from hive.runtime.carriers.messages import MessageReceiver, MessageSender
from hive.runtime.carriers.slots import SlabReceiver, SlabSender
from hive.runtime.carriers.waiting import WakeRequest
from hive.runtime.topology.plan import PlanChannel
from hive.runtime.wire.messages import Message
from hive.runtime.wire.protocol import Ack

if TYPE_CHECKING:
    from hive.runtime.process.node import Node

__all__ = ["bind_ports"]


def bind_ports(node: Node, actor: Actor, number: int) -> None:
    """Set `actor.<port>` to a bound port for every channel that names this actor."""
    group = node.plan.actors[number].group
    ports = ports_of(type(actor))
    for channel, planned in enumerate(node.plan.channels):
        if number in planned.producers:
            name = planned.source.partition(".")[2]
            setattr(actor, name, ports[name].bind(_source_line(node, channel, planned, number)))
        for target in planned.targets:
            key, _, name = target.partition(".")
            if key == group and number in planned.consumers:
                setattr(actor, name, ports[name].bind(_target_line(node, channel, planned, number)))


def _source_line(node: Node, channel: int, planned: PlanChannel, number: int) -> object:
    waiter, views = node.waiters[number], node.context.views
    if planned.carrier == "board":
        return BoardWriter(views.board(planned.segments[0]), _notifier(node, planned.consumers))
    position = planned.producers.index(number)
    if planned.carrier == "slab":
        return SlabSender(
            planned.name,
            views.slab(planned.segments[position]),
            (number, node.context.incarnation),
            waiter,
            _commit_notifier(node, channel, planned, position),
            lambda: [views.slab(segment) for segment in planned.segments],
            planned.shared,
            planned.in_step,
        )

    def deliver(consumer: tuple[int, int], sequence: int, messages: Sequence[Message]) -> None:
        node.deliver(channel, number, consumer, sequence, messages)

    sender = MessageSender(planned.name, planned.pattern, planned.when_full, waiter, deliver)  # type: ignore[arg-type]
    node.senders[channel, number] = sender
    return sender


def _target_line(node: Node, channel: int, planned: PlanChannel, number: int) -> object:
    waiter, views = node.waiters[number], node.context.views
    position = planned.consumers.index(number)
    if planned.carrier == "board":
        return BoardReader(planned.name, views.board(planned.segments[0]), position, waiter)
    if planned.carrier == "slab":
        mine = [p for p in range(len(planned.producers)) if position in _share(planned, p)]
        slabs = {p: views.slab(planned.segments[p]) for p in mine}

        def notify(producer: int) -> None:
            node.notify((planned.producers[producer],))

        request = WakeRequest(channel, functools.partial(node.notify_one, planned.consumers, channel, position + 1))
        return SlabReceiver(
            planned.name,
            node.message_types[channel],
            slabs,
            (number, node.context.incarnation),
            waiter,
            notify,
            request if _pooled(planned) else None,
        )

    def acknowledge(producer: tuple[int, int], consumed: int, dropped: int, window: int) -> Ack:
        return node.acknowledge(channel, number, producer, consumed, dropped, window)

    receiver = MessageReceiver(planned.name, planned.window, planned.when_full, waiter, acknowledge)  # type: ignore[arg-type]
    node.receivers[channel, number] = receiver
    return receiver


def _share(planned: PlanChannel, producer: int) -> Sequence[int]:
    """Return the positions of the consumers that may claim from the producer at this position."""
    everyone = range(len(planned.consumers))
    return [producer % len(everyone)] if planned.by_share else everyone


def _consumers_of(planned: PlanChannel, producer: int) -> list[int]:
    return [planned.consumers[position] for position in _share(planned, producer)]


def _pooled(planned: PlanChannel) -> bool:
    """Whether several consumers compete for each message."""
    return len(planned.consumers) > 1 and not planned.by_share


def _commit_notifier(node: Node, channel: int, planned: PlanChannel, position: int) -> Callable[[], None]:
    """Return a function that notifies one of several competing consumers, or else all, and peers that read slots."""
    peers = [peer for peer in planned.producers if planned.shared and peer != planned.producers[position]]
    consumers = _consumers_of(planned, position)
    if not _pooled(planned):
        return _notifier(node, [*consumers, *peers])
    first = itertools.count(position)  # the consumer to consider first; it rotates, so that all get messages

    def notify() -> None:
        node.notify_one(consumers, channel, next(first))
        if peers:
            node.notify(peers)

    return notify


def _notifier(node: Node, actors: Sequence[int]) -> Callable[[], None]:
    return functools.partial(node.notify, actors)
