"""The learner's schedule of saves: at resume barriers, by turns, by the clock, and when a save is overdue."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from small_trainer import config_of

from hive.training import Blueprint
from hive.training.record.best_policy import BestSchedule
from hive.training.resume_barriers import SaveSchedule
from hive.training.run_start import schedule_of


class Watch:
    """A clock that is put forward by hand."""

    seconds = 0.0

    def now_ns(self) -> int:
        return int(self.seconds * 1e9)

    def wall(self) -> float:
        return self.seconds


def schedule(**values: Any) -> tuple[SaveSchedule, Watch]:
    config, watch = config_of("small_environments:OneState", **values), Watch()
    return SaveSchedule(config, schedule_of(Blueprint(config)).barriers, watch), watch


PPO = {"run__scheme": '"ppo"', "algorithm__epochs": 2, "algorithm__minibatches": 2}
LOOSE = {"collection__communication": '"asynchronous"'}
OFTEN = {"checkpoint__every": "{updates=10}"}


def due(saves: SaveSchedule, turns: int = 40) -> list[int]:
    return [turn for turn in range(1, turns + 1) if saves.due(turn)]


def test_a_deterministic_run_saves_at_its_barriers() -> None:
    assert due(schedule(**OFTEN)[0]) == [10, 20, 30, 40]
    pipelined = schedule(**OFTEN, collection__communication='"pipelined"')[0]
    assert due(pipelined) == [11, 21, 31]  # once the round in the pipeline is consumed


def test_barriers_are_ends_of_rounds() -> None:
    assert due(schedule(**OFTEN, **PPO)[0]) == [12, 24, 36]  # rounds have four turns each


def test_an_asynchronous_run_counts_turns() -> None:
    assert due(schedule(**OFTEN, **LOOSE)[0]) == [10, 20, 30, 40]


def test_a_schedule_in_seconds_is_due_once_per_interval() -> None:
    saves, watch = schedule(**LOOSE, checkpoint__every="{seconds=60}")
    told = []
    for second in range(0, 200, 20):
        watch.seconds = second
        told += [second] * saves.due(1 + second)
    assert told == [60, 120, 180]


def test_nothing_falls_due_where_nothing_is_scheduled() -> None:
    saves, watch = schedule(checkpoint__every="{}", checkpoint__autosave_s=1.0)
    watch.seconds = 1e6
    assert due(saves) == []
    assert not any(saves.overdue(turn) for turn in range(1, 40))


@pytest.mark.parametrize("values", [{}, LOOSE])
def test_a_save_is_overdue_after_autosave_s(values: dict[str, Any]) -> None:
    saves, watch = schedule(**values, checkpoint__autosave_s=100.0)
    watch.seconds = 59.9
    assert not saves.overdue(5)
    watch.seconds = 60.0  # the first one comes after a minute
    assert saves.overdue(5)
    assert saves.overdue(6)  # until it is saved: the recorder may have been busy
    saves.saved()
    watch.seconds = 159.9
    assert not saves.overdue(7)
    watch.seconds = 160.0
    assert saves.overdue(8)


def test_every_save_restarts_the_interval() -> None:
    saves, watch = schedule(**OFTEN, checkpoint__autosave_s=100.0)
    watch.seconds = 50.0
    saves.saved()  # scheduled or requested
    watch.seconds = 110.0
    assert not saves.overdue(5)


def test_overdue_are_only_ends_of_rounds() -> None:
    saves, watch = schedule(**PPO)
    watch.seconds = 1e6
    assert [turn for turn in range(1, 10) if saves.overdue(turn)] == [4, 8]


def test_none_is_ever_overdue_with_a_limit_of_nothing() -> None:
    saves, watch = schedule(checkpoint__autosave_s=0.0)
    watch.seconds = 1e9
    assert not any(saves.overdue(turn) for turn in range(1, 40))


# --- the best policy by training return


def offered(returns: list[float], episodes: int = 100) -> list[int]:
    """The turns from 1 on that are offered."""
    bests = BestSchedule()
    return [turn for turn, mean in enumerate(returns, start=1) if bests.improved(turn, episodes, mean)]


def test_turns_with_a_higher_return_than_all_before_are_offered() -> None:
    assert offered([-9.0, -8.0, -8.0, -8.5, -1.0, 3.0, 2.0, 3.5]) == [1, 2, 5, 6, 8]


def test_a_return_that_is_not_finite_is_never_the_best() -> None:
    assert offered([math.nan, -math.inf, math.inf, 1.0, math.nan, math.inf, 2.0]) == [4, 7]


def test_a_mean_of_fewer_than_a_hundred_episodes_is_not_compared() -> None:
    assert offered([1.0, 2.0], episodes=99) == []


def test_a_return_that_rises_all_the_time_is_offered_ever_less_often() -> None:
    turns = offered([float(turn) for turn in range(1, 100_001)])
    assert len(turns) < 450
    assert turns[:5] == [1, 2, 3, 4, 5]
    assert all(later - earlier <= 1 + 0.02 * later for earlier, later in itertools.pairwise(turns))
