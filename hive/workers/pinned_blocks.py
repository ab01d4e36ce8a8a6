"""Turns that the learner holds for somebody: a pin in the reader's name, and a message that says so.

    learner                                        reader
    hold(turn)       pins its blocks
    send(due)        ───────────────────────────>  next_due() -> held_block() -> reads -> unpin

Only the learner knows that a turn is wanted before it is overwritten, and the pin says that the reader is busy: until
it is let go nothing else is held for it. Either half can get lost in a death between the two. A pin without a message
(nobody was there to hear it) would keep the reader busy for ever, so it is let go after a while; a message without a
pin is answered if the blocks are still there.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from hive.errors import VersionGone
from hive.runtime import Inlet, Message, Subscription
from hive.runtime.memory import Bytes

__all__ = ["held_block", "next_due"]

UNHEARD_S = 1.0  # a message follows its pin within a millisecond: one that has not come by then will not come

M = TypeVar("M", bound=Message)


async def next_due(due: Inlet[M], *held: Subscription[Any]) -> M:
    """The next message of `due`. While none comes, pins on `held` that have lost theirs are let go."""
    suspected = False
    while True:
        try:
            async with asyncio.timeout(UNHEARD_S):
                return await due.receive()
        except TimeoutError:
            pinned = any(port.board.view.words.pinned(port.board.reader) for port in held)
            if pinned and suspected:
                for port in held:
                    port.unpin()
            suspected = pinned and not suspected


def held_block(port: Subscription[Any], turn: int) -> Bytes:
    """The block of a turn that is held for this reader, and stays pinned. Raises VersionGone where it is not there."""
    board = port.board
    block = board.view.pin(board.reader, turn)
    if block is None:
        raise VersionGone(f"version {turn} was never there; the latest is {board.latest}")
    return board.view.blocks[block]
