"""The task between collection workers and a gradient worker: whole rounds, bounded queues, nobody waits for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hive.errors import TopologyError
from hive.workers import CollectorTask, CollectorThread, Snapshot
from hive.workers.collector_task import QUEUE_ITEMS

MOST_STEPS = 50_000_000  # of a rollout that only others end: seconds, so that a task that forgets it fails
QUOTA = 3
LENGTH = 8


class Rollout:
    """As much of a CollectedRollout as the task needs: nothing."""

    def __init__(self, source: int, number: int, steps: int, version: int) -> None:
        self.worker_id, self.seq, self.steps, self.version_collected = source, number, steps, version


class Worker:
    """Makes rollouts of LENGTH steps; a slow one makes them longer and longer until it is told to end."""

    def __init__(self, source: int, *, slow: bool = False, fails_at: int = -1) -> None:
        self.source, self.slow, self.fails_at = source, slow, fails_at
        self.made = 0
        self.inside = 0
        self.snapshots = [Snapshot(0, np.zeros(1, np.uint8))]

    def get_weights(self) -> Snapshot:
        return self.snapshots[-1]

    def set_weights(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)

    def collect_data(self, enough: Callable[[int], bool]) -> Any:
        self.inside += 1
        assert self.inside == 1, "two threads collect with one worker"
        if self.made == self.fails_at:
            self.inside -= 1
            raise ValueError("the environment is broken")
        steps = 0
        while steps < (MOST_STEPS if self.slow else LENGTH):
            steps += 1
            if enough(steps):
                break
        self.made += 1
        self.inside -= 1
        return Rollout(self.source, self.made - 1, steps, self.snapshots[-1].version)


def task_of(workers: int = 0, communication: str = "synchronous", **options: Any) -> tuple[CollectorTask, list[Any]]:
    made: list[Any] = [Worker(0), *(Worker(1 + n) for n in range(workers))]
    return of(made, communication, **options), made


def of(workers: list[Any], communication: str = "synchronous", **options: Any) -> CollectorTask:
    execution = "Parallel" if workers[1:] else "Central"
    return CollectorTask(
        3, workers[0], workers[1:], col_communication=communication, col_execution=execution, **options
    )


def take(task: CollectorTask, count: int) -> None:
    for _ in range(count):
        task.get()


def test_it_has_two_names() -> None:
    assert CollectorThread is CollectorTask
    assert issubclass(CollectorTask, threading.Thread)


@pytest.mark.parametrize("workers", [1, 2, 3, 8, 64])
def test_a_synchronous_item_is_a_whole_round_in_order(workers: int) -> None:
    task, _ = task_of(workers)
    for number in range(20):
        round_ = task.get()
        assert [(one.worker_id, one.seq) for one in round_] == [(1 + w, number) for w in range(workers)]
        assert task.queue.empty()
    task.stop()
    assert not task.is_alive()


def test_a_round_that_nobody_takes_is_told_and_not_waited_for() -> None:
    task, _ = task_of()
    task.step()
    with pytest.raises(RuntimeError, match="has not been taken from the queue"):
        task.step()
    assert [one.seq for one in task.get()] == [0]
    task.step()
    task.stop()


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_an_asynchronous_queue_is_bounded_and_loses_nothing(workers: int) -> None:
    task, made = task_of(workers, "asynchronous")
    taken: dict[int, list[int]] = {}
    for _ in range(60):
        (one,) = task.get()
        taken.setdefault(one.worker_id, []).append(one.seq)
        assert task.queue.qsize() <= QUEUE_ITEMS
    assert all(numbers == list(range(len(numbers))) for numbers in taken.values())
    assert len(taken) == max(workers, 1)
    assert sum(worker.made for worker in made) <= 60 + QUEUE_ITEMS + 2 * max(workers, 1)
    task.stop()
    task.stop()
    assert not task.is_alive()


@pytest.mark.parametrize(("fraction", "cut"), [(0.5, 2), (0.75, 1), (0.4, 2)])
def test_stragglers_stop_when_enough_are_through(fraction: float, cut: int) -> None:
    workers = [Worker(0), *(Worker(1 + n, slow=n < cut) for n in range(4))]
    task = of(workers, col_fraction_workers=fraction, quota=QUOTA)
    for _ in range(3):
        steps = [one.steps for one in task.get()]  # type: ignore[attr-defined]
        assert all(QUOTA <= of_slow < MOST_STEPS for of_slow in steps[:cut])
        assert all(QUOTA <= of_fast <= LENGTH for of_fast in steps[cut:])
    task.stop()


def test_weights_are_broadcast_every_so_many_steps_in_one_piece() -> None:
    task, workers = task_of(2, broadcast_interval=2)
    versions = []
    for number in range(6):
        workers[0].set_weights(Snapshot(number + 1, np.zeros(1, np.uint8)))
        assert task.should_broadcast() == (task.num_sent_since_broadcast >= 2)
        versions.append([one.version_collected for one in task.get()])
    assert versions == [[v, v] for v in (0, 0, 3, 3, 5, 5)]
    task.broadcast_new_weights()
    assert task.num_sent_since_broadcast == 0
    assert workers[1].snapshots[-1] is workers[2].snapshots[-1] is workers[0].get_weights()
    task.stop()


@pytest.mark.parametrize(("workers", "communication"), [(0, "asynchronous"), (2, "asynchronous"), (2, "synchronous")])
def test_what_fails_is_raised_where_rollouts_are_taken(workers: int, communication: str) -> None:
    made = [Worker(0, fails_at=1), *(Worker(1 + n, fails_at=1) for n in range(workers))]
    task = of(made, communication)
    with pytest.raises((RuntimeError, ValueError), match="the environment is broken"):
        take(task, 10)
    assert not any(worker.inside for worker in made)
    task.stop()


def test_who_waits_for_a_stopped_task_is_told() -> None:
    task, _ = task_of(2)
    task.stop()
    with pytest.raises(RuntimeError, match="collector-task-3 has been stopped"):
        task.get()


def test_a_slow_worker_is_stopped_in_the_middle_of_its_rollout() -> None:
    task = of([Worker(0), Worker(1, slow=True)], "asynchronous")
    with pytest.raises(TimeoutError, match="no rollout for 0 s"):
        task.get(timeout=0)
    task.stop()
    assert not task.is_alive()


def test_modes_are_checked_before_any_thread_starts() -> None:
    before = threading.active_count()
    for options in ({"col_fraction_workers": 0.5}, {"col_execution": "Parallel"}, {"broadcast_interval": 0}):
        with pytest.raises(TopologyError):
            CollectorTask(0, Worker(0), [], **options)  # type: ignore[arg-type]
    assert threading.active_count() == before
