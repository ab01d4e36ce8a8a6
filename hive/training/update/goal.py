"""The common end of policies that learn in one run: all end after the same round.

Every learner has a block of shared memory that the others read: whether it has ended its last round, and the last round
of all, once its mean return has reached the goal. That round is so far ahead that no policy can have ended it without
seeing this: its rollouts need a behaviour version that is published later.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.runtime import Actor, Message, SharedIn, SharedOut
from hive.runtime.actor.ports import ports_of

GOAL_POLL_S = 0.01  # seconds between two looks at the rounds that the other policies have ended
GOAL_BYTES = 16
ENDED, LAST_ROUND = 0, 1  # positions in a Goal


class Goal(Message):
    """learner -> the other learners. int64 [2]: whether its policy has ended its last round; the last of all, or 0."""


class SharedGoal:
    """The end of a run, as one of several learners sees it: its own words, and those of the others."""

    def __init__(self, own: NDArray[np.uint8], others: Sequence[NDArray[np.uint8]]) -> None:
        self._own = own[:GOAL_BYTES].view(np.int64)
        self._others = [block[:GOAL_BYTES].view(np.int64) for block in others]

    def last_round(self) -> int:
        """Return the last round of all, 0 if none is known."""
        known = [int(words[LAST_ROUND]) for words in (self._own, *self._others)]
        return min((number for number in known if number), default=0)

    def end_after(self, number: int) -> None:
        """Have all policies end after this round, unless an earlier one is known."""
        if not self._own[LAST_ROUND]:
            self._own[LAST_ROUND] = number

    async def all_ended(self) -> None:
        """Say that this policy has ended its last round, and wait until all have."""
        self._own[ENDED] = 1
        while not all(words[ENDED] for words in self._others):
            await asyncio.sleep(GOAL_POLL_S)


@functools.cache
def with_goal(learner: type[Actor], policies: int) -> type[Actor]:
    """Return a learner's class with the ports `own_goal`, and `goal_of_0`, `goal_of_1`, ... of the other policies."""
    ports: dict[str, Any] = {"own_goal": SharedOut(Goal)}
    ports |= {f"goal_of_{number}": SharedIn(Goal, optional=True) for number in range(policies)}
    return type(learner.__name__, (learner,), ports)


def shared_goal(learner: Actor) -> SharedGoal | None:
    """Return the end of the run as a learner sees it, None in a run with one policy."""
    own = getattr(learner, "own_goal", None)
    if own is None:
        return None
    ports = [getattr(learner, name) for name in ports_of(type(learner)) if name.startswith("goal_of_")]
    others = [port for port in ports if port.connected]
    return SharedGoal(own.memory, [port.memory for port in others])
