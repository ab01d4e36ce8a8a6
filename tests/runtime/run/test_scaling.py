"""Which keys can change during a run, which changes are refused, and how stages are combined."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import namedtuple
from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hive.config import Config, load_config, render
from hive.errors import ConfigError, UsageError
from hive.records import RunDirectory
from hive.runtime import Slots
from hive.runtime.actor.actor import Actor
from hive.runtime.actor.ports import Inlet, Outlet
from hive.runtime.memory.segments import Layout
from hive.runtime.process.processes import SharedMemory
from hive.runtime.run import execute, scaling
from hive.runtime.run.execute import _stages
from hive.runtime.run.live_run import LiveRun
from hive.runtime.run.scaling import SCALED, changed_config, changed_keys, combined_outcome, description, live_change
from hive.runtime.supervise.outcome import Outcome
from hive.runtime.topology.plan import Plan
from hive.runtime.topology.topology import Topology
from hive.runtime.wire.messages import Message


class Empty(Message):
    pass


Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    directory = RunDirectory.create(tmp_path, "cart")
    config = load_config("run.toml", ["run.scheme=a2c", "collection.workers=2"], text='[env]\nid = "CartPole-v1"\n')
    directory.resolved_file.write_text(render(config))
    return directory


def config_of(run: RunDirectory) -> Config:
    return load_config(run.resolved_file)


def test_numbers_of_workers_change_and_nothing_else(run: RunDirectory) -> None:
    before = config_of(run)
    after = changed_config(run, before, ["collection.workers=4", "gradients.workers = 2"])
    assert before.differences(after) == ["collection.workers", "gradients.workers"]
    assert (after.collection.workers, after.gradients.workers) == (4, 2)
    assert description(before, after) == "collection.workers 2 -> 4, gradients.workers 0 -> 2"
    assert config_of(run) == before  # nothing is written yet


@pytest.mark.parametrize(
    ("sets", "error", "text"),
    [
        (["collection.envs=4"], UsageError, "`collection.envs` cannot be changed during a run"),
        (["collection.workers=4", "run.seed=2"], UsageError, "`run.seed` cannot be changed during a run"),
        (["nonsense"], UsageError, "`nonsense` cannot be changed during a run"),
        (["n_envs=4"], UsageError, "(?m)^unknown key `n_envs`; hive calls it `collection.envs`$"),
        (
            ["gradients.decentralised=true"],
            UsageError,
            "(?m)^unknown key `gradients.decentralised`; hive calls it `gradients.decentralized`$",
        ),
        (["workers=4"], UsageError, "did you mean `collection.workers` or `gradients.workers`"),
        (["collection.workers=many"], ConfigError, "collection.workers=many: expected an integer"),
        (["collection.workers=-1"], ConfigError, "collection.workers=-1: expected an integer"),
        (
            ["collection.workers=2"],
            UsageError,
            "already has these values: collection.workers = 2, gradients.workers = 0",
        ),
    ],
)
def test_invalid_changes_are_refused(run: RunDirectory, sets: list[str], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        changed_config(run, config_of(run), sets)


REPLAY = ["run.scheme=dqn", "collection.workers=2"]


def test_the_rows_of_a_replay_memory_keep_their_collectors(run: RunDirectory) -> None:
    text = '[env]\nid = "CartPole-v1"\n'
    for more, count in (["checkpoint.replay=false"], "collection.workers=4"), ([], "gradients.workers=2"):
        run.resolved_file.write_text(render(load_config("run.toml", [*REPLAY, *more], text=text)))
        changed_config(run, config_of(run), [count])
    with pytest.raises(UsageError, match="cannot have 4 collectors instead of 2: its replay memory has rows of each"):
        changed_config(run, config_of(run), ["collection.workers=4"])


def test_keys_of_the_algorithm_change_at_once(run: RunDirectory) -> None:
    before = config_of(run)
    after = live_change(run, before, ["algorithm.learning_rate=1e-4", "algorithm.entropy_weight = 0.02"])
    assert before.differences(after) == ["algorithm.learning_rate", "algorithm.entropy_weight"]
    assert (after.algorithm.learning_rate, after.algorithm.entropy_weight) == (1e-4, 0.02)
    assert config_of(run) == before  # nothing is written yet


def test_points_take_the_place_of_a_rate_and_give_it_back(run: RunDirectory) -> None:
    """A rate is not sent with points, and only after a schedule that replaces them, because they refuse it."""
    points, rate = "algorithm.learning_rate_schedule", "algorithm.learning_rate"
    run.resolved_file.write_text(render(load_config(run.resolved_file, [f"{rate}=0.5"])))
    before = config_of(run)
    after = live_change(run, before, [f"{points}=[[0, 1e-3], [50_000, 1e-4]]"])
    assert changed_keys(before, after) == [points]
    run.resolved_file.write_text(render(after))
    with pytest.raises(ConfigError, match=f"the points of {points}"):
        live_change(run, after, [f"{rate}=0.1"])
    assert changed_keys(after, live_change(run, after, [f"{rate}=0.5", f"{points}=constant"])) == [points, rate]
    assert changed_keys(after, live_change(run, after, [f"{points}=constant"])) == [points, rate]  # of the default


@pytest.mark.parametrize(
    ("sets", "error", "text"),
    [
        (["run.steps=4"], UsageError, "(?m)^`run.steps` cannot be changed during a run$"),
        (["algorithm=4"], UsageError, "(?m)^`algorithm` cannot be changed during a run$"),
        (["lr=1e-4"], UsageError, "(?m)^unknown key `lr`; hive calls it `algorithm.learning_rate`$"),
        (
            ["learning_rate=1e-4"],
            UsageError,
            r"(?m)^unknown key `learning_rate`; did you mean `algorithm\.learning_rate`",
        ),
        (["algorithm.gamma=0.9"], ConfigError, r"hive calls it `algorithm\.discount`"),
        (["n_steps=5"], UsageError, r"(?m)^unknown key `n_steps`; hive calls it `collection\.rollout`; "),
        (["batch_size=5"], UsageError, "(?m)^unknown key `batch_size`; hive divides a round"),
        (["algorithm.lerning_rate=1"], ConfigError, r"did you mean `algorithm\.learning_rate`"),
        (["algorithm.learning_rate=-1"], ConfigError, "expected a number"),
        (["algorithm.learning_rate=fast"], ConfigError, "expected a number"),
        (
            ["algorithm.optimizer=sgd"],
            ConfigError,
            "is fixed for a run: it determines which moments the learner's optimizer state holds",
        ),
        (["algorithm.name=ppo"], ConfigError, "is fixed for a run"),
        (["algorithm.discount=0.99"], UsageError, "(?m)^cart-1 already has these values: algorithm.discount=0.99$"),
    ],
)
def test_invalid_live_changes_are_refused(
    run: RunDirectory, sets: list[str], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        live_change(run, config_of(run), sets)


def test_a_change_reaches_all_policies_or_is_refused(run: RunDirectory) -> None:
    sets = ["run.scheme=a2c", 'policies.one.agents="a"', 'policies.two.agents="b"']
    run.resolved_file.write_text(render(load_config("run.toml", sets, text='[env]\nid = "CartPole-v1"\n')))
    assert live_change(run, config_of(run), ["algorithm.learning_rate=1e-4"]).algorithm.learning_rate == 1e-4
    own = render(load_config(run.resolved_file, ["policies.two.algorithm.learning_rate=2e-4"]))
    run.resolved_file.write_text(own)
    with pytest.raises(UsageError, match=r"`algorithm\.learning_rate` would not reach the policy `two`") as caught:
        live_change(run, config_of(run), ["algorithm.learning_rate=1e-4"])
    assert caught.value.hint.startswith("hive down cart-1; hive resume cart-1 --set algorithm.learning_rate=1e-4 ")


def test_a_memory_of_any_policy_fixes_the_collectors(run: RunDirectory) -> None:
    sets = ["run.scheme=a2c", "collection.workers=2", 'policies.one.agents="a"', 'policies.two.agents="b"']
    sets += ['policies.two.algorithm={name="dqn"}']
    run.resolved_file.write_text(render(load_config("run.toml", sets, text='[env]\nid = "CartPole-v1"\n')))
    with pytest.raises(UsageError, match="its replay memory has rows of each of them"):
        changed_config(run, config_of(run), ["collection.workers=4"])


def test_hints_of_refused_changes(run: RunDirectory) -> None:
    with pytest.raises(UsageError) as caught:
        live_change(run, config_of(run), ["collection.workers=4"])
    assert caught.value.hint == "`hive scale` changes numbers of workers"
    run.resolved_file.write_text(
        render(load_config(run.resolved_file, ["gradients.decentralized=true", "gradients.workers=2"]))
    )
    with pytest.raises(UsageError, match=r"(?m)would not change it at the same turn$") as caught:
        live_change(run, config_of(run), ["algorithm.discount=0.9"])
    assert caught.value.hint == "hive down cart-1; hive resume cart-1 --set algorithm.discount=0.9"


@pytest.mark.parametrize("sums", [True, False])
def test_a_discount_that_collectors_elsewhere_use_is_not_changed_here_alone(run: RunDirectory, sums: bool) -> None:
    away = ["collection.hosts=['a']", "hosts.cores={a=2}", f"network.normalize_rewards={str(sums).lower()}"]
    run.resolved_file.write_text(render(load_config(run.resolved_file, [*away, "hosts.address=10.0.0.1"])))
    if not sums:
        assert live_change(run, config_of(run), ["algorithm.discount=0.9"]).algorithm.discount == 0.9
        return
    with pytest.raises(UsageError, match="collectors on other hosts would keep") as caught:
        live_change(run, config_of(run), ["algorithm.discount=0.9"])
    assert caught.value.hint.endswith("--set algorithm.discount=0.9")


def test_scaling_needs_room_on_the_disk(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    for update, size in ((10, 1 << 20), (20, 2 << 20)):
        (run.checkpoints / f"{update:06d}").mkdir()
        (run.checkpoints / f"{update:06d}" / "weights.safetensors").write_bytes(bytes(size))
    needed = scaling.FREE_CHECKPOINTS * (2 << 20)
    for free, fits in ((needed, True), (needed - 1, False)):
        monkeypatch.setattr(shutil, "disk_usage", lambda path, free=free: Usage(0, 0, free))
        if fits:
            changed_config(run, config_of(run), ["collection.workers=3"])
        else:
            with pytest.raises(UsageError, match="and needs 6 MiB; the disk has 6 MiB left"):
                changed_config(run, config_of(run), ["collection.workers=3"])


def outcome(**fields: Any) -> Outcome:
    base = {"state": "scaled", "reason": "", "error": "", "hint": "", "exact": True, "restarts": {}, "channels": {}}
    return Outcome(**(base | {"results": {}, "digest": ""} | fields))


def account(produced: int, consumed: int, **dropped: int) -> dict[str, Any]:
    in_flight = produced - consumed - sum(dropped.values())
    return {"produced": produced, "consumed": consumed, "dropped": dropped, "in_flight": in_flight}


def test_the_outcome_of_one_stage_is_unchanged() -> None:
    only = outcome(state="finished", restarts={"a-0": 1}, channels={"out": account(3, 2, stale=1)}, digest="d")
    assert combined_outcome([only]) == only


class Producer(Actor):
    out = Outlet(Empty)


class Consumer(Actor):
    inn = Inlet(Empty)


def test_the_memory_of_a_stage_is_released_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that fits the machine only once can be scaled down, since the last stage's memory is released."""
    descriptors: list[int] = []
    taken: list[int] = []

    async def build() -> Plan:
        taken.append(sum(os.fstat(fd).st_blocks for fd in descriptors))
        while descriptors:
            os.close(descriptors.pop())
        topology = Topology()
        producers, consumer = topology.add(Producer, count=2), topology.add(Consumer)
        topology.connect(producers.out, consumer.inn, Slots(Layout({"x": ("uint8", (1 << 20,))}), slots=2))
        return topology.plan()

    async def begin(plan: Plan, memory: SharedMemory) -> Outcome:
        for segment in memory.segments.values():
            segment.memory[:] = 1
        held.append(memory)  # a leaked reference
        descriptors[:] = [os.dup(segment.fd) for segment in memory.segments.values()]
        assert sum(os.fstat(fd).st_blocks for fd in descriptors) * 512 > 4 << 20
        return Outcome(SCALED if len(held) < 3 else "finished", "", "", "", True, {}, {}, {}, "")

    async def at_once(building: Coroutine[Any, Any, Plan]) -> Plan:
        return await building

    held: list[SharedMemory] = []
    run = SimpleNamespace(unless_requested=at_once, next_stage=lambda: None)
    monkeypatch.setattr(execute, "conclude", lambda run, outcome: None)
    outcome = asyncio.run(_stages(cast(LiveRun, run), build, begin))
    assert (outcome.state, taken) == ("finished", [0, 0, 0])
    for fd in descriptors:
        os.close(fd)


def test_stages_are_summed_and_not_exact() -> None:
    first = outcome(
        restarts={"a-0": 1, "a-1": 2},
        channels={"out": account(10, 7, stale=2, run_ended=1), "old": account(1, 1)},
        results={"updates": 5},
    )
    last = outcome(
        state="finished",
        reason="done",
        restarts={"a-0": 3, "b-0": 0},
        channels={"out": account(5, 4, run_ended=1), "new": account(2, 2)},
        results={"updates": 9},
        digest="d",
    )
    whole = combined_outcome([first, last])
    assert (whole.state, whole.reason, whole.results, whole.digest) == ("finished", "done", {"updates": 9}, "d")
    assert not whole.exact
    assert whole.restarts == {"a-0": 4, "a-1": 2, "b-0": 0}
    assert whole.channels == {
        "out": account(15, 11, stale=2, run_ended=2),
        "old": account(1, 1),
        "new": account(2, 2),
    }
    assert first.channels["out"] == account(10, 7, stale=2, run_ended=1)  # unchanged
