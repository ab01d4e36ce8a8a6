"""Tests the list of the episodes that the learner counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.experience import Rollout, rollout_layout
from hive.gradients import clear, gradient_layout, put_episodes
from hive.runtime.memory.segments import Arrays
from hive.training.messages import EpisodesEnded
from hive.training.record.episode_list import EpisodeList
from hive.training.update.ended_episodes import EndedEpisodes


def allocate(layout: Any) -> Arrays:
    views: Arrays = layout.views(np.zeros(layout.bytes + 64, np.uint8)[: layout.bytes])
    return views


def rollout(source: int, ends: Sequence[tuple[int, int, float, int]], infos: int = 0) -> Rollout:
    """Of 4 steps of 3 environments. ends: (step, column, return, length)."""
    arrays = allocate(rollout_layout(4, 3, ((2,), "float32"), ((), "int64"), infos=infos))
    Rollout.write_header(arrays, version=0, length=4, finals=0, source=source, sequence=0)
    for step, column, returned, length in ends:
        arrays["episode_returns"][step, column], arrays["episode_lengths"][step, column] = returned, length
        if infos:
            arrays["infos"][step, column] = returned + 0.5
    return Rollout(arrays)


def gradient(rollouts: Sequence[Rollout], infos: int = 0) -> Arrays:
    arrays = allocate(gradient_layout(16, 1, 0, 24, infos=infos, columns=True))
    clear(arrays, 0)
    parts = [one.episodes() for one in rollouts]
    put_episodes(arrays, parts, [one.episode_infos() for one in rollouts], [one.episode_columns() for one in rollouts])
    return arrays


def taken(ended: EndedEpisodes) -> EpisodesEnded:
    found = ended.take()
    assert found is not None
    return found


def rows(message: EpisodesEnded) -> list[tuple[float, int, int]]:
    columns: list[NDArray[Any]] = [message.returns, message.lengths, message.columns]
    return [(float(r), int(n), int(c)) for r, n, c in zip(*columns, strict=True)]


def counted(episodes: int, updates: int) -> dict[str, float]:
    return {"episodes": episodes, "updates": updates, "env_steps": 12 * updates, "train_s": updates / 2}


COUNTED = counted(14, 3)
FIRST = rollout(0, [(2, 0, 7.0, 3), (1, 2, 5.0, 2), (1, 1, 4.0, 2)], infos=1)
SECOND = rollout(1, [(0, 2, -1.0, 9)], infos=1)
IN_ORDER = [(4.0, 2, 1), (5.0, 2, 2), (7.0, 3, 0), (-1.0, 9, 5)]  # by collector, step and environment


def test_episodes_have_the_order_and_the_columns_of_the_whole_run() -> None:
    ended = EndedEpisodes(infos=1)
    ended.of_gradients([gradient([FIRST], infos=1), gradient([SECOND], infos=1)], COUNTED)
    found = taken(ended)
    assert rows(found) == IN_ORDER
    assert found.first == 11, "the last of the four is number 14"
    assert found.infos[:, 0].tolist() == [4.5, 5.5, 7.5, -0.5]
    assert {*found.updates.tolist(), *found.env_steps.tolist(), *found.seconds.tolist()} == {3, 36, 1.5}
    assert ended.take() is None, "none is reported twice"


def test_a_replay_memory_lists_them_alike() -> None:
    of_rollouts, of_gradients = EndedEpisodes(infos=1), EndedEpisodes(infos=1)
    of_rollouts.of_rollouts([FIRST, SECOND], COUNTED)
    of_gradients.of_gradients([gradient([FIRST, SECOND], infos=1)], COUNTED)
    one, other = taken(of_rollouts), taken(of_gradients)
    assert rows(one) == rows(other) == IN_ORDER
    assert (one.first, one.infos.tolist()) == (other.first, other.infos.tolist())


def test_the_columns_of_several_agents_are_environment_and_agent() -> None:
    ended = EndedEpisodes(infos=2)
    arrays = np.float32([0.1, 2, 3]), np.int32([5, 6, 7]), np.int32([0, 5, 4])
    ended.of_arrays(*arrays, np.float32([[1.5, np.nan], [np.nan, np.nan], [3, 0.3]]), counted(9, 2))
    episodes = EpisodeList(("left", "right"), ("win", "score")).episodes(taken(ended))
    assert [(one.number, one.environment, one.agent, one.episode_return) for one in episodes] == [
        *((7, 0, "left", 0.1), (8, 2, "right", 2.0), (9, 2, "left", 3.0)),
    ]
    assert [one.info for one in episodes] == [{"win": 1.5}, {}, {"win": 3.0, "score": 0.3}]
    assert (episodes[0].steps, episodes[0].updates, episodes[0].seconds, episodes[0].length) == (24, 2, 1.0, 5)


def test_several_turns_make_one_message_whose_numbers_go_on() -> None:
    ended = EndedEpisodes(infos=0)
    ended.of_gradients([gradient([])], counted(0, 1))
    for turn, returned in ((2, 3.0), (4, 8.0)):
        ended.of_gradients([gradient([rollout(0, [(0, 0, returned, 1)])])], counted(turn // 2, turn))
    found = taken(ended)
    assert (found.first, rows(found)) == (1, [(3.0, 1, 0), (8.0, 1, 0)])
    assert found.env_steps.tolist() == [24, 48]
    assert found.infos.shape == (2, 0)
