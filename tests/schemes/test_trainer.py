"""The trainer as a topology: who is there, in which process, and with how much memory between them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_trainer import config_of

from hive.errors import EnvironmentMissing, TopologyError
from hive.runtime import Plan, Slots, Topology
from hive.runtime.carriers.carrier import PlanChannel, PlanSegment
from hive.schemes.trainer import trainer
from hive.training import RESULTS, Blueprint

ENV = "small_environments:Drift"
PIPELINED = '"pipelined"'


def topology_of(**values: Any) -> Topology:
    return trainer(config_of(ENV, **values), Path("nowhere"))


def plan_of(**values: Any) -> Plan:
    return topology_of(**values).plan()


def processes(plan: Plan) -> dict[str, list[str]]:
    return {name: [plan.actors[n].name for n in numbers] for name, numbers in plan.processes.items()}


def channel(plan: Plan, name: str) -> PlanChannel:
    return next(channel for channel in plan.channels if channel.name == name)


def segment(plan: Plan, name: str) -> PlanSegment:
    return next(segment for segment in plan.segments if segment.name == name)


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        ((2, 1), {"collector-0": 1, "collector-1": 1, "gradient-worker-0": 1, "learner-0": 1, "recorder": 1}),
        ((0, 1), {"gradient-worker-0": 2, "learner-0": 1, "recorder": 1}),
        ((2, 0), {"collector-0": 1, "collector-1": 1, "learner-0": 2, "recorder": 1}),
        ((0, 0), {"learner-0": 3, "recorder": 1}),
    ],
)
def test_worker_counts_place_the_actors(workers: tuple[int, int], expected: dict[str, int]) -> None:
    plan = plan_of(collection__workers=workers[0], gradients__workers=workers[1])
    found = processes(plan)
    assert {name: len(actors) for name, actors in found.items()} == expected
    everyone = sorted(actor for actors in found.values() for actor in actors)
    collectors = [f"collector-{n}" for n in range(max(workers[0], 1))]
    assert everyone == [*collectors, "gradient-worker-0", "learner-0", "recorder"]


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        ((3, 2), {"gradient-worker-0": 1, "gradient-worker-1": 1}),
        ((0, 2), {"gradient-worker-0": 2, "gradient-worker-1": 2}),
        ((1, 3), {"gradient-worker-0": 1, "gradient-worker-1": 1, "gradient-worker-2": 1}),
    ],
)
def test_each_gradient_worker_has_a_process(workers: tuple[int, int], expected: dict[str, int]) -> None:
    """Without collectors of their own, each of them collects for itself."""
    plan = plan_of(collection__workers=workers[0], gradients__workers=workers[1])
    found = {name: len(actors) for name, actors in processes(plan).items() if name.startswith("gradient")}
    assert found == expected
    assert processes(plan)["learner-0"] == ["learner-0"]
    collectors = [actor for actor in plan.actors if actor.group == "collectors"]
    assert len(collectors) == (workers[0] or workers[1])


@pytest.mark.parametrize(
    ("communication", "ownership", "by_share"),
    [
        ("synchronous", "pool", True),
        ("pipelined", "pool", True),
        ("asynchronous", "pool", False),
        ("asynchronous", "gradient_worker", True),
    ],
)
def test_each_worker_claims_its_share_of_rollouts(communication: str, ownership: str, by_share: bool) -> None:
    """In deterministic modes each worker has its share; otherwise any worker takes a rollout, unless they are owned."""
    plan = plan_of(
        collection__workers=4,
        gradients__workers=2,
        collection__communication=f'"{communication}"',
        collection__ownership=f'"{ownership}"',
    )
    assert channel(plan, "rollouts").options["by_share"] == by_share
    assert [plan.actors[n].name for n in channel(plan, "rollouts").consumers] == [
        "gradient-worker-0",
        "gradient-worker-1",
    ]
    lookers = {plan.actors[n].group for n in channel(plan, "behaviour").consumers}
    assert ("gradient-workers" in lookers) == (communication == "asynchronous")


def test_producers_and_consumers_of_every_channel() -> None:
    plan = plan_of(collection__workers=3)
    names = [actor.name for actor in plan.actors]
    found = {
        c.name: (c.carrier, [names[p] for p in c.producers], [names[p] for p in c.consumers]) for c in plan.channels
    }
    collectors = ["collector-0", "collector-1", "collector-2"]
    assert found == {
        "rollouts": ("slots", collectors, ["gradient-worker-0"]),
        "gradients": ("slots", ["gradient-worker-0"], ["learner-0"]),
        "optimizer_state": ("board", ["learner-0"], ["recorder"]),
        "weights": ("board", ["learner-0"], ["gradient-worker-0", "recorder"]),
        "behaviour": ("board", ["learner-0"], collectors),
        "metrics": ("messages", ["learner-0"], ["recorder"]),
        "checkpoints": ("messages", ["learner-0"], ["recorder"]),
        "improved": ("messages", ["learner-0"], ["recorder"]),
    }


def test_the_recorder_is_the_last_to_go() -> None:
    assert [actor.name for actor in plan_of().actors if actor.last] == ["recorder"]


def test_everybody_is_brought_back() -> None:
    assert all(actor.restart for actor in plan_of().actors)


@pytest.mark.parametrize(("lag", "interval"), [(0, 1), (1, 1), (3, 2)])
def test_rollouts_have_a_slot_for_each_in_flight_and_one_for_the_consumer(lag: int, interval: int) -> None:
    mode = PIPELINED if lag else '"synchronous"'
    plan = plan_of(
        collection__workers=2,
        collection__communication=mode,
        collection__max_lag=lag,
        collection__broadcast_interval=interval,
    )
    made = channel(plan, "rollouts")
    assert (made.options["by_share"], made.options["on_death"]) == (True, "drop")
    assert len(made.segments) == 2
    assert all(segment(plan, name).count == lag + 2 for name in made.segments)
    assert segment(plan, "behaviour").keep == lag + 1


def test_slots_are_as_many_as_are_asked_for() -> None:
    plan = plan_of(collection__slots=9)
    assert {segment(plan, name).count for name in channel(plan, "rollouts").segments} == {9}


@pytest.mark.parametrize(("rounds", "lag"), [(1, 0), (3, 0), (1, 2), (3, 1)])
def test_gradients_have_slots_for_a_turn_and_those_in_flight(rounds: int, lag: int) -> None:
    mode = PIPELINED if lag else '"synchronous"'
    plan = plan_of(gradients__bootstrap_rounds=rounds, gradients__communication=mode, gradients__max_lag=lag)
    made = channel(plan, "gradients")
    assert made.options["on_death"] == "reoffer"  # its successor receives the gradients that a learner had claimed
    assert segment(plan, made.segments[0]).count >= rounds + lag + 1
    assert segment(plan, "weights").keep == lag + 1


def test_a_gradient_slot_has_room_for_the_episodes_of_its_whole_share() -> None:
    config = config_of(ENV, collection__workers=3, collection__envs=2, collection__rollout=8)
    carrier = trainer(config, Path("nowhere")).channels["gradient-workers.gradients"].carrier
    assert isinstance(carrier, Slots)
    assert carrier.layout.fields["episode_returns"][1] == (3 * 2 * 8,)


@pytest.mark.parametrize(
    ("communication", "collectors", "workers", "share"),
    [("synchronous", 4, 2, 2), ("pipelined", 3, 2, 2), ("synchronous", 1, 3, 1), ("asynchronous", 4, 2, 1)],
)
def test_a_share_is_the_rollouts_of_one_gradient_worker(
    communication: str, collectors: int, workers: int, share: int
) -> None:
    topology = topology_of(
        collection__workers=collectors, gradients__workers=workers, collection__communication=f'"{communication}"'
    )
    carrier = topology.channels["gradient-workers.gradients"].carrier
    assert isinstance(carrier, Slots)
    assert carrier.layout.fields["episode_returns"][1] == (share * 2 * 8,)
    segments = channel(topology.plan(), "gradients").segments
    assert segments == tuple(f"gradients:gradient-worker-{w}" for w in range(workers))


def test_every_gradient_worker_can_hold_a_version_of_the_state() -> None:
    plan = plan_of(gradients__workers=5, gradients__communication=PIPELINED)
    weights = segment(plan, "weights")
    assert weights.readers >= 5
    assert weights.count >= weights.readers + weights.keep + 1


def test_weights_and_optimizer_state_change_together() -> None:
    plan, blueprint = plan_of(), Blueprint(config_of(ENV))
    weights, optimizer_state = segment(plan, "weights"), segment(plan, "optimizer_state")
    assert weights.commit_with == "optimizer_state"
    assert optimizer_state.commit_with == ""
    assert weights.item_bytes == blueprint.state.bytes
    assert segment(plan, "behaviour").item_bytes == blueprint.flat.block_bytes
    assert optimizer_state.item_bytes == blueprint.optimizer_state_bytes
    assert weights.count >= weights.readers + weights.keep + 1


def test_the_summary_shows_the_learner_and_its_parameters() -> None:
    plan, blueprint = plan_of(), Blueprint(config_of(ENV))
    assert (plan.results_actor, plan.results) == ("learner-0", RESULTS)
    assert (plan.digest_segment, plan.digest_bytes) == ("weights", blueprint.flat.block_bytes)


def test_mistakes_are_found_before_any_actor_starts() -> None:
    with pytest.raises(EnvironmentMissing, match="no environment `NoSuch-v0`"):
        trainer(config_of("NoSuch-v0"), Path("nowhere"))


# --- workers that would wait for each other forever


@pytest.mark.parametrize("scheme", ["ppo", "impala"])
def test_workers_that_hold_all_rollouts_are_refused(scheme: str) -> None:
    """The first two would keep both and wait for the third, who gets none."""
    values: dict[str, Any] = {
        "run__scheme": f'"{scheme}"',
        "collection__communication": '"asynchronous"',
        "collection__max_lag": 1,
        "gradients__communication": '"synchronous"',
        "gradients__workers": 3,
    }
    with pytest.raises(
        TopologyError, match="3 gradient workers hold a rollout each, but there are only 2 slots"
    ) as caught:
        plan_of(**values)
    assert caught.value.hint == "set collection.slots to 3 or more"
    for enough in ({"collection__slots": 3}, {"collection__workers": 2}, {"gradients__workers": 2}):
        assert plan_of(**{**values, **enough}).actors
    assert plan_of(**{**values, "gradients__communication": '"asynchronous"'}).actors
    assert plan_of(**{**values, "collection__communication": PIPELINED}).actors


@pytest.mark.parametrize(
    ("scheme", "own", "other"),
    [
        ("ppo", {"algorithm__normalize_over": '"round"'}, 'algorithm.normalize_over = "minibatch"'),
        ("a2c", {"algorithm__normalize_advantages": "true"}, "algorithm.normalize_advantages = false"),
    ],
)
def test_moments_within_one_update_are_refused(scheme: str, own: dict[str, Any], other: str) -> None:
    """They come back with an update, and the gradients that need them would be part of it."""
    values: dict[str, Any] = {
        "run__scheme": f'"{scheme}"',
        **own,
        "collection__workers": 2,
        "gradients__workers": 2,
        "gradients__bootstrap_rounds": 2,
    }
    with pytest.raises(TopologyError, match=r"2 gradient workers .* with gradients\.bootstrap_rounds = 2") as caught:
        plan_of(**values)
    assert caught.value.hint == f"set gradients.bootstrap_rounds = 1, or {other}"
    for allowed in (
        {"gradients__workers": 1},
        {"gradients__bootstrap_rounds": 1},
        {"gradients__communication": '"asynchronous"'},
        {"algorithm__normalize_advantages": "false"},
        {other.replace(".", "__").split(" = ")[0]: other.split(" = ")[1]},
    ):
        assert plan_of(**{**values, **allowed}).actors


def test_a_replay_memory_that_no_checkpoint_has_room_for_is_refused() -> None:
    full = {
        "run__scheme": '"dqn"',
        "run__steps": 10**15,
        "algorithm__replay_capacity": 10**12,
        "algorithm__learning_starts": 0,
    }
    with pytest.raises(TopologyError, match=r"full replay memory has .* TiB, and the disk of .* left") as caught:
        plan_of(**full)
    assert "algorithm.replay_capacity" in str(caught.value.hint)
    plan_of(**full, checkpoint__replay="false")
    plan_of(**{**full, "run__steps": 10_000})  # which never fills it
