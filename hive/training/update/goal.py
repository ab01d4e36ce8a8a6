"""The common end of policies that learn in one run: all end after the same round.

Every learner has words of shared memory that the others read. A policy that has its steps waits at the end of its round
until the others have ended that round, too: if all of them have their steps, the run is over, else it goes on. Policies
count the same steps, so that they have them after the same round; one that lost rollouts in a crash has them later.

A goal of the mean return ends all policies after a round that lies ahead: so far that none can have ended it without
seeing this, because its rollouts need a behaviour version that is published later.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Coroutine, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.runtime import Actor, Message, SharedIn, SharedOut
from hive.runtime.actor.ports import ports_of

GOAL_POLL_S = 0.002  # seconds between two looks at the rounds of the other policies, at the end of a run
LOOK_S = 0.05  # seconds between two looks of a learner that has its steps, where rounds have no order
WORDS = 4
REASON_BYTES = 200  # maximum bytes of the reason why all policies end
GOAL_BYTES = 8 * WORDS + REASON_BYTES
ROUNDS, REACHED, LAST, ENDED = range(WORDS)  # positions in a Goal


class Goal(Message):
    """learner -> the other learners. int64 [4] and UTF-8 [REASON_BYTES].

    The rounds that its policy has ended; one more than those after which it had its steps, and than those after which
    all must end (0 each before that is known); 1 once it has ended its last round; the reason why all end.
    """


class SharedGoal:
    """The end of a run, as one of several learners sees it: its own words, and those of the others.

    in_order: whether rounds have an order, as in all modes but the asynchronous ones. There a policy that has its steps
    goes on until all have theirs, or the others have ended and leave it nothing to do.
    """

    def __init__(self, own: NDArray[np.uint8], others: Sequence[NDArray[np.uint8]], *, in_order: bool = True) -> None:
        self._own, *self._others = (block[: 8 * WORDS].view(np.int64) for block in (own, *others))
        self._reasons = [block[8 * WORDS : GOAL_BYTES] for block in (own, *others)]
        self._in_order = in_order

    @property
    def reason(self) -> str:
        """Why a policy has all of them end; "" if none has."""
        return next(
            (text for block in self._reasons if (text := block.tobytes().rstrip(b"\0").decode(errors="ignore"))), ""
        )

    def end_after(self, rounds: int, reason: str) -> None:
        """Have all policies end after this many rounds, unless that has been said before."""
        if not self._own[LAST]:
            text = np.frombuffer(reason.encode()[:REASON_BYTES], np.uint8)
            self._reasons[0][: len(text)] = text
            self._own[LAST] = rounds + 1

    async def is_over(self, rounds: int, *, has_steps: bool) -> bool:
        """Return whether the run is over after this many rounds, which this policy has just ended.

        has_steps: whether it has the steps of the run; it then waits for the others to end that round.
        """
        if has_steps and not self._own[REACHED]:
            self._own[REACHED] = rounds + 1
        self._own[ROUNDS] = rounds  # after what the others read once they have seen it
        if any(0 < words[LAST] <= rounds + 1 for words in (self._own, *self._others)):
            return True
        if not has_steps:
            return False
        while self._in_order and not all(words[ROUNDS] >= rounds for words in self._others):
            await asyncio.sleep(GOAL_POLL_S)
        return all(0 < words[REACHED] <= rounds + 1 or self._has_late(words) for words in self._others)

    def _has_late(self, words: NDArray[np.int64]) -> bool:
        """Whether a policy has its steps, in a run whose rounds have no order."""
        return not self._in_order and bool(words[REACHED])

    async def until_over(self, training: Coroutine[Any, Any, str]) -> str:
        """Return why `training` ends. Without an order of rounds it also ends once the other policies have."""
        if self._in_order:
            return await training
        task = asyncio.ensure_future(training)
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=LOOK_S)
                if not task.done() and self._own[REACHED] and all(words[ENDED] for words in self._others):
                    return "all policies have their steps"
            return task.result()
        finally:
            task.cancel()

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


def shared_goal(learner: Actor, *, in_order: bool) -> SharedGoal | None:
    """Return the end of the run as a learner sees it, None in a run with one policy. in_order: as of SharedGoal."""
    own = getattr(learner, "own_goal", None)
    if own is None:
        return None
    ports = [getattr(learner, name) for name in ports_of(type(learner)) if name.startswith("goal_of_")]
    others = [port for port in ports if port.connected]
    return SharedGoal(own.memory, [port.memory for port in others], in_order=in_order)
