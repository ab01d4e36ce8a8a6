"""The sentence over canned runs: each case of the module's docstring, and sentences that would be wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
from canned_runs import (
    COLLECTING,
    STEPPED,
    WAITING_FOR_GRADIENTS,
    WAITING_FOR_ROLLOUTS,
    T,
    environment,
    looked_at,
    snapshot,
    trainer,
    working,
)
from canned_status import account, starting, status

from hive.monitor import Extras, History, bound_by, snapshot_of
from hive.monitor.bound_by import LONG_S, NOTHING_YET
from hive.monitor.rows import ProcessFacts
from hive.records.environments import EnvironmentRow

IDLE_COLLECTOR = {"env": 0.1, "wait rollouts:out": 0.9}
SLOW_LEARNER = {"update": 0.97, "wait gradients": 0.03}
WAITS_FOR_ROOM = {"gradient": 0.1, "wait gradients:out": 0.85, "wait rollouts": 0.05}


def said(**shape: Any) -> str:
    return snapshot(**shape).bound_by


# --- at work


def test_environments_that_are_slow() -> None:
    assert said() == "collectors (env 74 % of their time) - collection.workers"


def test_a_policy_that_is_slow() -> None:
    acting = {"env": 0.2, "policy": 0.75, "wait behaviour": 0.05}
    assert said(collectors=(acting, acting)) == "collectors (policy 75 % of their time) - collection.envs"


def test_work_of_two_kinds_is_named_by_both() -> None:
    both = {"env": 0.36, "policy": 0.3, "runtime": 0.3, "wait behaviour": 0.04}
    assert said(collectors=(both,)) == "collectors (env and policy 66 % of their time) - collection.workers"


def test_a_slow_learner() -> None:
    bound = said(collectors=(IDLE_COLLECTOR,) * 2, worker=WAITS_FOR_ROOM, learner=SLOW_LEARNER)
    assert bound == "learner (update 97 % of its time) - gradients.bootstrap_rounds"


def test_a_slow_learner_of_a_replay_memory() -> None:
    of_rollouts = snapshot(collectors=(IDLE_COLLECTOR,) * 2, worker=WAITS_FOR_ROOM, learner=SLOW_LEARNER)
    bound = bound_by(dataclasses.replace(of_rollouts, replay={"replay/fill": 0.5}))
    assert bound == "learner (update 97 % of its time) - algorithm.updates_per_step"


def test_a_slow_gradient_worker() -> None:
    worker = {"gradient": 0.96, "wait rollouts": 0.02, "runtime": 0.02}
    bound = said(collectors=({"env": 0.4, "wait rollouts:out": 0.6},) * 2, worker=worker)
    assert bound == "gradient-workers (gradient 96 % of their time) - gradients.workers"


def test_a_group_that_no_other_waits_for_is_never_the_bottleneck() -> None:
    """A recorder that writes all the time, and an evaluator that plays, limit no other group."""
    busy = {"recorder": {"phases": {"runtime": 100.0}, "kinds": {"runtime": "runtime"}, "wait_in": 0.0}}
    assert said(changes=busy).startswith("collectors")


def test_more_processes_do_not_help_where_there_is_no_core_left() -> None:
    full = Extras(t=T, cores=2, cores_busy=1.96)
    assert snapshot(full).bound_by == "collectors (env 74 % of their time), and all 2 cores are busy"
    assert snapshot(Extras(t=T, cores=2, cores_busy=1.5)).bound_by.endswith("collection.workers")


def test_other_processes_that_have_the_cores_are_reported() -> None:
    """The run's six processes use 0.4 cores together."""
    processes = {pid: ProcessFacts("S", cpu, 0) for pid, cpu in ((99, 0.01), (100, 0.2), (101, 0.15), (1001, 0.04))}
    crowded = Extras(t=T, processes=processes, cores=2, cores_busy=2.0)
    words = "other processes have the cores: this run gets 0.4 of 2 cores"
    assert snapshot(crowded).bound_by == f"collectors (env 74 % of their time), and {words}"
    turns = snapshot(
        crowded, collectors=[{"env": 0.4, "wait behaviour": 0.6}], worker={"gradient": 0.3, "wait rollouts": 0.7}
    )
    assert turns.bound_by.endswith(f"in turn (40 % and 30 % of the time), and {words.replace('0.4', '0.2')}")
    ours = {100: ProcessFacts("R", 1.0, 0), 101: ProcessFacts("R", 0.9, 0)}
    assert snapshot(Extras(t=T, processes=ours, cores=2, cores_busy=2.0)).bound_by.endswith("and all 2 cores are busy")
    one = Extras(t=T, processes={100: ProcessFacts("R", 0.5, 0)}, cores=1, cores_busy=1.0)
    assert snapshot(one).bound_by.endswith("this run gets 0.5 of 1 core")
    only = Extras(t=T, processes={100: ProcessFacts("R", 0.99, 0)}, cores=1, cores_busy=1.0)
    assert snapshot(only).bound_by.endswith("and the only core is busy")


# --- environments that processes step


def stepped(*of_second: EnvironmentRow, first: Sequence[EnvironmentRow] = (), **shape: Any) -> str:
    """Return the sentence of a run whose collectors have these environments."""
    return snapshot(Extras(t=T, environments={"collector-0": tuple(first), "collector-1": of_second}), **shape).bound_by


def test_a_slow_environment_is_named() -> None:
    slow = (*map(environment, range(3)), environment(3, median_step_s=5e-4))
    assert stepped(*slow) == "collectors (env 3 takes 5 times the median)"
    assert stepped(environment(0), environment(1, median_step_s=3.1e-4)).startswith("collectors (env 1 takes 3 times")
    assert stepped(*slow, first=[environment(9), environment(8, median_step_s=9e-4)]).startswith("collectors (env 8")


@pytest.mark.parametrize(
    "rows",
    [
        [environment(0)],
        [environment(0), environment(1, median_step_s=2.9e-4)],
        [environment(0), environment(1, median_step_s=None)],
        [environment(0, median_step_s=0.0), environment(1, median_step_s=0.0)],
        [environment(0), environment(1), environment(2, median_step_s=1.0, state="left out")],
    ],
)
def test_environments_of_which_none_is_slow(rows: list[EnvironmentRow]) -> None:
    assert stepped(*rows) == "collectors (env 74 % of their time) - collection.workers"


def test_a_slow_environment_is_not_the_reason_where_others_work() -> None:
    slow = (environment(0), environment(1, median_step_s=1e-3))
    acting = {"env": 0.2, "policy": 0.75, "wait behaviour": 0.05}
    assert stepped(*slow, collectors=(acting, acting)).startswith("collectors (policy 75 %")
    learner = stepped(*slow, collectors=(IDLE_COLLECTOR,) * 2, worker=WAITS_FOR_ROOM, learner=SLOW_LEARNER)
    assert learner.startswith("learner (update")


def test_a_straggler_with_a_slow_environment() -> None:
    waiting = {"env": 0.3, "policy": 0.1, "wait behaviour": 0.6}
    slow = (environment(0), environment(1, median_step_s=1e-3))
    bound = stepped(*slow, collectors=(waiting, {"env": 0.95, "policy": 0.05}))
    words = "env 1 takes 10 times the median, while the others wait"
    assert bound == f"collector-1 ({words}) - collection.fraction_workers"


def test_environments_that_are_down_are_named() -> None:
    both = snapshot(Extras(t=T, environments=STEPPED)).bound_by
    assert both == "collectors (env 2 takes 5 times the median; env 4 is being restarted)"
    new = [environment(n, state="starting") for n in range(3)]
    again = [environment(n, state="resetting", incarnation=1) for n in (7, 8)]
    words = "env 7 and env 8 are being restarted, 3 envs are starting"
    assert stepped(environment(9), *new, *again).startswith(f"collectors (env 74 % of their time; {words})")


def test_a_collector_that_waits_for_all_its_environments() -> None:
    down = [environment(n, state="starting", incarnation=1) for n in range(2)]
    waits = {"collector-1": {"activity": "env", "since_s": 9.0}}
    words = "waits for its environments: env 0 and env 1 are being restarted"
    assert stepped(*down, changes=waits) == f"collector-1 ({words})"
    assert stepped(*down, environment(2, state="left out")) == f"collector-1 ({words})"
    idle = ({"env": 0.9, "wait behaviour": 0.1}, {"wait anything": 1.0})
    assert stepped(*down, collectors=idle) == f"collector-1 ({words})"


# --- one of several


def test_an_actor_that_hangs_is_named_with_its_phase_and_duration() -> None:
    hanging = {"collector-1": {"activity": "env", "since_s": 12.34}}
    waiting = {"wait behaviour": 0.98, "runtime": 0.02}
    bound = said(collectors=(waiting, {"env": 1.0}), changes=hanging)
    assert bound == "collector-1 (in `env` for 12.3 s) - supervision.phase_limit_s"
    hanging["collector-1"]["since_s"] = LONG_S - 0.1
    assert "for" not in said(collectors=(waiting, {"env": 1.0}), changes=hanging)


def test_a_wait_that_lasts_is_not_hanging() -> None:
    waits = {"learner-0": {"activity": "wait gradients", "since_s": 60.0}}
    assert said(changes=waits).startswith("collectors")


def test_a_straggler_is_named() -> None:
    waiting = {"env": 0.3, "policy": 0.1, "wait behaviour": 0.6}
    bound = said(collectors=(waiting, waiting, {"env": 0.95, "policy": 0.05}, waiting))
    assert bound == "collector-2 (env 95 % of its time, while the others wait) - collection.fraction_workers"


def test_one_of_sixty_four() -> None:
    waiting = {"env": 0.01, "wait behaviour": 0.99}
    bound = said(collectors=[waiting] * 40 + [{"env": 1.0}] + [waiting] * 23)
    assert bound.startswith("collector-40 (env 100 % of its time, while the others wait)")


def test_an_actor_that_does_not_run() -> None:
    dead = {"collector-1": {"state": "failed"}}
    events = ({"kind": "died", "actor": "collector-1", "text": "it was stopped (SIGSTOP) and so was killed"},)
    seen = snapshot(Extras(t=T, events=events), changes=dead)
    assert seen.bound_by == "collector-1 (failed: it was stopped (SIGSTOP) and so was killed)"
    assert said(changes={"collector-1": {"state": "starting"}}) == "collector-1 (starting)"


def test_a_finished_actor_is_ignored() -> None:
    assert said(changes={"collector-1": {"state": "finished"}}).startswith("collectors (")


# --- in turn


def test_the_groups_of_a_synchronous_run_alternate() -> None:
    bound = said(
        collectors=({"env": 0.45, "wait behaviour": 0.55},) * 2,
        worker={"gradient": 0.35, "wait rollouts": 0.45, "wait weights": 0.2},
        learner={"update": 0.2, "wait gradients": 0.8},
    )
    assert bound == "collectors and gradient-workers in turn (45 % and 35 % of the time) - collection.communication"


# --- too little to say


@pytest.mark.parametrize("state", ["draining", "finished", "stopped", "failed", "lost", "paused"])
def test_a_run_that_is_not_running_has_no_bottleneck(state: str) -> None:
    assert said(state=state).startswith("nothing, the run is ")


def test_nothing_yet() -> None:
    assert snapshot_of(starting()).bound_by == NOTHING_YET
    assert snapshot_of(trainer()).bound_by == NOTHING_YET  # one document covers no time
    assert looked_at([trainer()]).bound_by == NOTHING_YET
    assert snapshot(actors=[]).bound_by == NOTHING_YET
    history = History()
    for t in (0.0, 0.3):
        history.add(trainer(10 + t), T + t)
    assert snapshot_of(trainer(10.3), history).bound_by == NOTHING_YET


# --- user-defined topologies


def custom(**shares: dict[str, float]) -> str:
    """Return the snapshot of count -> doublers -> sum, by the phases of each."""
    edges = {
        "numbers": {"carrier": "message", "source": "counter", "targets": ["doublers"], "capacity": 16, "version": -1},
        "doubled": {"carrier": "message", "source": "doublers", "targets": ["sum"], "capacity": 16, "version": -1},
    }
    documents = []
    for second in range(3):
        rows = [
            working(f"{name}-0", f"{name}s" if name == "doubler" else name, s, 10.0 + second)
            for name, s in shares.items()
        ]
        channels = {"numbers": account(10), "doubled": account(10)}
        documents.append(status(*rows, channels=channels, edges=edges, results_actor=""))
    return looked_at(documents).bound_by


def test_user_defined_actors_are_followed_and_have_no_key() -> None:
    bound = custom(
        counter={"runtime": 0.05, "wait numbers:out": 0.95},
        doubler={"runtime": 0.98, "wait numbers": 0.02},
        sum={"runtime": 0.02, "wait doubled": 0.98},
    )
    assert bound == "doublers (at work 98 % of their time)"


def test_a_channel_is_found_by_a_name_cut_to_the_length_of_a_status_page() -> None:
    name = "measurements_of_everything"
    edges = {name: {"carrier": "slab", "source": "maker", "targets": ["taker"], "capacity": 4, "version": -1}}
    rows = [{"maker": {"env": 1.0}, "taker": {f"wait {name}"[:23]: 1.0}} for _ in range(2)]
    documents = [
        status(
            *(working(f"{n}-0", n, s, 10.0 + second) for n, s in row.items()),
            channels={name: account(3)},
            edges=edges,
            results_actor="taker-0",
        )
        for second, row in enumerate(rows)
    ]
    assert looked_at(documents).bound_by == "maker (env 100 % of its time)"


def test_it_is_pure() -> None:
    seen = snapshot(collectors=(COLLECTING,), worker=WAITING_FOR_ROLLOUTS, learner=WAITING_FOR_GRADIENTS)
    assert bound_by(seen) == bound_by(dataclasses.replace(seen, bound_by="")) == seen.bound_by
