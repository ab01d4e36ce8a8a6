"""The common end of policies: all end after the same round, also where one has lost rollouts."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np

from hive.training.update.goal import GOAL_BYTES, SharedGoal


def two(*, in_order: bool = True) -> tuple[SharedGoal, SharedGoal]:
    """Two learners that read each other's words."""
    blocks = [np.zeros(GOAL_BYTES, np.uint8) for _ in range(2)]
    return tuple(SharedGoal(blocks[n], [blocks[1 - n]], in_order=in_order) for n in range(2))  # type: ignore[return-value]


async def _both(*waiting: Any) -> list[bool]:
    return list(await asyncio.wait_for(asyncio.gather(*waiting), 10))


def test_policies_that_have_their_steps_after_the_same_round_end_there() -> None:
    one, other = two()
    assert asyncio.run(_both(one.is_over(7, has_steps=True), other.is_over(7, has_steps=True))) == [True, True]


def test_a_policy_that_has_not_begun_has_ended_no_round() -> None:
    one, other = two()

    async def play() -> bool:
        await other.is_over(0, has_steps=False)
        ending = asyncio.ensure_future(one.is_over(1, has_steps=True))
        await asyncio.sleep(0)
        assert not ending.done()
        await other.is_over(1, has_steps=True)
        return await ending

    assert asyncio.run(play())


def test_a_policy_waits_for_one_that_has_fewer_steps_and_goes_on() -> None:
    one, other = two()
    assert asyncio.run(_both(one.is_over(7, has_steps=True), other.is_over(7, has_steps=False))) == [False, False]
    assert asyncio.run(_both(one.is_over(8, has_steps=True), other.is_over(8, has_steps=True))) == [True, True]


def test_a_policy_that_is_ahead_does_not_end_before_the_other_has_ended_its_round() -> None:
    one, other = two()
    assert asyncio.run(_both(other.is_over(8, has_steps=False))) == [False]
    assert asyncio.run(_both(one.is_over(7, has_steps=True))) == [False]
    assert asyncio.run(_both(other.is_over(9, has_steps=True), one.is_over(9, has_steps=True))) == [True, True]


def test_a_goal_of_the_return_ends_all_after_the_round_that_it_names() -> None:
    one, other = two()
    one.end_after(5, "enough")
    one.end_after(9, "too late")
    assert one.reason == other.reason == "enough"
    for goal in (one, other):
        assert asyncio.run(_both(goal.is_over(4, has_steps=False), goal.is_over(5, has_steps=False))) == [False, True]


def test_without_an_order_a_policy_ends_once_the_others_have_and_leave_it_nothing_to_do() -> None:
    one, other = two(in_order=False)

    async def play() -> str:
        assert not await one.is_over(1, has_steps=True)
        assert await other.is_over(1, has_steps=True)
        idle: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def train() -> str:
            return await idle

        ending = asyncio.ensure_future(one.until_over(train()))
        ended = asyncio.ensure_future(other.all_ended())
        reason = await asyncio.wait_for(ending, 10)
        await one.all_ended()
        await ended
        return reason

    assert asyncio.run(play()) == "all policies have their steps"
