"""The reader's side of turns that the learner pins for it: the recorder and the evaluator.

    learner                                        reader
    hold(turn)       pins its blocks
    send(due)        ───────────────────────────>  next_due() -> held_block() -> reads -> unpin

The learner pins, because only it can do so before the turn is overwritten. The pin also marks the reader as busy: the
learner holds no other turn for it until it unpins. If either process is killed between the two steps, the pin or the
message can be lost. A pin without a message would keep the reader busy forever, so the reader unpins it after a
timeout. A message without a pin is served if the blocks are still there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from hive.errors import VersionGone
from hive.runtime import Inlet, Message, Subscription
from hive.runtime.memory.segments import Bytes

LOST_AFTER_S = 1.0  # timeout for the message of a pin, which normally follows within a millisecond

M = TypeVar("M", bound=Message)


async def next_due(due: Inlet[M], *held: Subscription[Any], mine: Callable[[M], bool] = lambda message: True) -> M:
    """Wait for the next message of `due` for which `mine` holds. Meanwhile unpin blocks whose message was lost."""
    suspected = False  # pinned at the last timeout; unpinned at the next one, as the message may just be on its way
    while True:
        try:
            async with asyncio.timeout(LOST_AFTER_S):
                while not mine(message := await due.receive()):
                    pass  # of another reader
                return message
        except TimeoutError:
            pinned = any(port.board.view.words.pinned(port.board.reader) for port in held)
            if pinned and suspected:
                for port in held:
                    port.unpin()
            suspected = pinned and not suspected


def held_block(port: Subscription[Any], turn: int) -> Bytes:
    """Return the block of a turn that is held for this reader; it stays pinned. Raises VersionGone if it is gone."""
    board = port.board
    block = board.view.pin(board.reader, turn)
    if block is None:
        raise VersionGone(f"version {turn} does not exist yet; the latest is {board.latest}")
    return board.view.blocks[block]
