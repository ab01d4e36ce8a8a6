"""The common end of policies that learn in one run: all end after the same round.

Every learner has a block of shared memory that the others read: the rounds after which it has ended, and those after
which all shall end, once its mean return has reached the goal. These are so many that no policy can have ended them
without seeing it: their rollouts need a behaviour version that is published later.

All policies count the same steps, so they reach `run.steps` after the same round. A policy that has lost rollouts in a
crash counts fewer: it would wait for rollouts that are never made, and ends when the others have.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.runtime import Actor, Message, SharedIn, SharedOut
from hive.runtime.actor.ports import ports_of

GOAL_POLL_S = 0.01  # seconds between two looks at the rounds that the other policies have ended
STALLED_S = (
    2.0  # seconds without a round after which a policy ends if the others have; no rollout takes as long to come
)
GOAL_BYTES = 16
ENDED, LAST = 0, 1  # positions in a Goal


class Goal(Message):
    """learner -> the other learners. int64 [2]: rounds after which its policy has ended; all shall end; or 0."""


class SharedGoal:
    """The end of a run, as one of several learners sees it: its own words, and those of the others."""

    def __init__(self, own: NDArray[np.uint8], others: Sequence[NDArray[np.uint8]]) -> None:
        self._own = own[:GOAL_BYTES].view(np.int64)
        self._others = [block[:GOAL_BYTES].view(np.int64) for block in others]

    def is_over(self, rounds: int) -> bool:
        """Whether all policies shall end after this many rounds, or fewer."""
        known = [int(words[position]) for words in (self._own, *self._others) for position in (ENDED, LAST)]
        return any(0 < last <= rounds for last in known)

    def end_after(self, rounds: int) -> None:
        """Have all policies end after this many rounds, unless that has been said before."""
        if not self._own[LAST]:
            self._own[LAST] = rounds

    async def until_over(self, train: Coroutine[Any, Any, str], rounds: Callable[[], int]) -> str:
        """Return why `train` ends, or that the others have ended while it has nothing to do.

        rounds: counts those that have ended. A learner that waits holds nothing that its cancellation could lose.
        """
        training = asyncio.ensure_future(train)
        try:
            while not training.done():
                before = rounds()
                await asyncio.wait({training}, timeout=STALLED_S)
                stalled = not training.done() and before == rounds()
                if stalled and all(0 < words[ENDED] <= before for words in self._others):
                    return f"the other policies have ended after {before:,} rounds"
            return training.result()
        finally:
            training.cancel()

    async def all_ended(self, rounds: int) -> None:
        """Say that this policy has ended after this many rounds, and wait until all have."""
        self._own[ENDED] = max(rounds, 1)
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
