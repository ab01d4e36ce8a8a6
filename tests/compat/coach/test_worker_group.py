"""Synchronous workers: one call in the order of their numbers, and a wait that always ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from worker_threads import PATIENCE_S, in_threads

from hive.compat.coach.worker_group import WorkerGroup
from hive.errors import NetworkError


def test_the_last_to_come_acts_once_for_all_in_the_order_of_their_numbers() -> None:
    group: WorkerGroup[str] = WorkerGroup(3)
    acts: list[Mapping[int, str]] = []

    def work(worker: int) -> Callable[[], None]:
        def rounds() -> None:
            for number in range(20):
                group.together("main", worker, f"{worker}:{number}", acts.append)

        return rounds

    assert in_threads(work(2), work(0), work(1)) == [None] * 3
    assert [list(act.items()) for act in acts] == [
        [(worker, f"{worker}:{number}") for worker in range(3)] for number in range(20)
    ]


def test_a_worker_alone_does_not_wait() -> None:
    acts: list[Any] = []
    WorkerGroup(1).together("main", 0, "mine", acts.append)
    assert acts == [{0: "mine"}]


def test_a_missing_worker_ends_the_wait_with_an_error_that_names_it() -> None:
    group: WorkerGroup[str] = WorkerGroup(4, timeout_s=0.5)
    raised = in_threads(
        *[lambda worker=worker: group.together("main", worker, None, lambda brought: None) for worker in (0, 2)]
    )
    assert all(isinstance(error, NetworkError) for error in raised)
    assert {str(error) for error in raised} == {"no gradients of `main` from worker 1, 3 within 0.5 s"}


def test_after_a_meeting_that_failed_the_next_one_works() -> None:
    group: WorkerGroup[str] = WorkerGroup(2, timeout_s=0.05)
    with pytest.raises(NetworkError, match="from worker 1 within"):
        group.together("main", 0, "first", lambda brought: None)
    group.timeout_s = PATIENCE_S
    acts: list[Any] = []
    calls = [lambda worker=worker: group.together("main", worker, "again", acts.append) for worker in (0, 1)]
    assert in_threads(*calls) == [None, None]
    assert acts == [{0: "again", 1: "again"}]


def test_all_workers_raise_the_error_of_act() -> None:
    group: WorkerGroup[str] = WorkerGroup(2)

    def act(brought: Mapping[int, Any]) -> None:
        raise NetworkError("nothing was applied", hint="look at worker 1")

    raised = in_threads(*[lambda worker=worker: group.together("main", worker, None, act) for worker in (0, 1)])
    assert [str(error) for error in raised] == ["nothing was applied"] * 2
    assert [getattr(error, "hint", "") for error in raised] == ["look at worker 1"] * 2
    assert raised[0] is not raised[1]


def test_networks_meet_each_for_itself_and_are_made_once() -> None:
    group: WorkerGroup[object] = WorkerGroup(2)
    made = [group.global_network("actor", object) for _ in range(2)]
    assert made[0] is made[1]
    assert group.global_network("critic", object) is not made[0]
    acts: list[Any] = []
    calls = [
        lambda: [group.together(name, 0, name, acts.append) for name in ("actor", "critic")],
        lambda: [group.together(name, 1, name, acts.append) for name in ("actor", "critic")],
    ]
    assert in_threads(*calls) == [None, None]
    assert acts == [{0: "actor", 1: "actor"}, {0: "critic", 1: "critic"}]


def test_numbers_are_checked() -> None:
    for workers, timeout_s in ((0, 1.0), (1.5, 1.0), (2, 0.0), (2, float("nan"))):
        with pytest.raises(NetworkError, match="invalid group of"):
            WorkerGroup(workers, timeout_s=timeout_s)  # type: ignore[arg-type]
    group: WorkerGroup[str] = WorkerGroup(2, timeout_s=PATIENCE_S)
    for worker in (-1, 2):
        with pytest.raises(NetworkError, match=f"no worker {worker} in a group of 2"):
            group.together("main", worker, None, lambda brought: None)


def test_two_workers_of_one_number_are_found_out() -> None:
    group: WorkerGroup[str] = WorkerGroup(2, timeout_s=0.5)
    raised = in_threads(*[lambda: group.together("main", 0, None, lambda brought: None)] * 2)
    texts = sorted(str(error) for error in raised)
    assert texts[0].startswith("no gradients of `main` from worker 1")
    assert texts[1] == "worker 0 has contributed gradients of `main` twice"
