"""`scripts/parity`: the statistics that a verdict rests on, and rows that are kept once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparison import cells, defaults
from comparison.cells import FOLDER, Cell, Row, append_row, missing, read_rows
from comparison.hive_cell import episode_of, keys_of
from comparison.judge import EPISODES, judge
from comparison.report import difference, improvement, overall, steps_to, text_of
from comparison.tasks import TASKS, SchemeTask

from hive.config import DQNConfig, load_config


@pytest.mark.parametrize(
    ("hive", "verdict"),
    [
        ([100.0, 101.0, 99.0, 100.0], "not worse"),
        ([110.0, 111.0, 109.0, 110.0], "better"),
        ([95.0, 94.0, 96.0, 95.0], "not worse"),
        ([60.0, 61.0, 59.0, 60.0], "worse"),
        ([100.0, 60.0, 130.0, 80.0], "undecided"),
        ([100.0], "undecided"),
    ],
)
def test_a_verdict_follows_the_interval_of_the_difference(hive: list[float], verdict: str) -> None:
    """The peer has 100 and a random policy 0, so a tenth of the difference is 10."""
    assert difference(hive, [100.0, 99.0, 101.0, 100.0], 0.0).verdict == verdict


def test_the_score_is_0_for_a_random_policy_and_1_for_the_peer() -> None:
    peer, low = {"a": [10.0, 10.0], "b": [-100.0, -100.0]}, {"a": 0.0, "b": -500.0}
    assert overall(peer, peer, low).value == pytest.approx(1.0)
    assert overall({"a": [0.0, 0.0], "b": [-500.0, -500.0]}, peer, low).value == pytest.approx(0.0)
    assert improvement(peer, peer).value == pytest.approx(0.5)
    assert improvement({"a": [11.0, 12.0], "b": [0.0, 0.0]}, peer).value == pytest.approx(1.0)


def test_only_hive_trains_the_tasks_of_a_scheme(tmp_path: Path) -> None:
    name, task = "pqn-cartpole", TASKS["pqn-cartpole"]
    assert list(missing(["random", "hive", "sb3"], [name], 1, [])) == [Cell("hive", name, 1)]
    assert keys_of(task.settings, 3) == [
        *("run.scheme=pqn", "run.seed=3", "run.steps=500000", "env.id=CartPole-v1", "record.every_s=0.5")
    ]
    row = Row("hive", name, 1, task.digest, 500, 1.5, 499.5, 0.1, "abc", "torch=2")
    append_row(row, [(8, 0.1, 10.0)], tmp_path)
    assert (read_rows(tmp_path), sorted(path.name for path in tmp_path.iterdir())) == (
        [row],
        ["q_learning.csv", "q_learning_curves.csv"],
    )
    curve = np.array([[100.0, 1.0, 20.0], [200.0, 2.0, 480.0], [300.0, 3.0, 470.0]])
    assert (steps_to(475.0, curve), steps_to(490.0, curve)) == ("200", "never")


DIGESTS = {
    "ppo-cartpole": "2d98b180",
    "ppo-acrobot": "43cfb877",
    "ppo-mountaincar": "72592ea4",
    "ppo-pendulum": "6f091922",
    "ppo-lunarlander": "1a989e69",
    "ppo-lunarlander-continuous": "443838e2",
    "a2c-cartpole": "0e5cf766",
    "a2c-acrobot": "82ced45c",
    "a2c-lunarlander": "1137ea81",
    "ppo-halfcheetah": "235d22ae",
    "ppo-hopper": "47fd3349",
    "pqn-cartpole": "bd3f5d69",
    "nstep-q-cartpole": "7bebeefe",
    "pqn-acrobot": "229f8aee",
    "nstep-q-acrobot": "d1a10a8e",
}
"""Of the committed rows, which took days: a field that a task gains must not change them."""


def test_tasks_keep_the_digests_of_their_rows() -> None:
    assert {name: TASKS[name].digest for name in DIGESTS} == DIGESTS
    every = [task.digest for task in TASKS.values()]
    assert len(set(every)) == len(every)


def test_a_digest_changes_with_every_field_that_is_not_usual() -> None:
    base = TASKS["ppo-cartpole"]
    others: list[dict[str, Any]] = [{"memory": 8}, {"masked": True}, {"layers": (64,)}, {"shared": True}]
    digests = {replace(base, **other).digest for other in others}
    assert len(digests | {base.digest}) == 1 + len(others)


def test_keys_of_memory_masks_and_shared_layers() -> None:
    def added(name: str) -> set[str]:
        return {*keys_of(TASKS[name].settings, 1)} - {*keys_of(TASKS["ppo-cartpole"].settings, 1)}

    assert added("ppo-lstm-cartpole-positions") == {
        *("env.id=cartpole_positions:CartPolePositions", "network.memory=lstm", "network.memory_size=256")
    }
    assert "env.action_mask=info" in added("ppo-masked")
    assert {"network.separate_networks=false", "network.middleware=[]"} <= added("ppo-minatar-breakout")


def test_keys_of_a_replay_memory() -> None:
    config = load_config("cell.toml", keys_of(TASKS["dqn-cartpole"].settings, 1), text="")
    given = config.algorithm
    assert isinstance(given, DQNConfig)
    assert (given.updates_per_step, given.batch_size, given.learning_starts) == ("1/2", 64, 1000)
    assert (given.exploration_steps, given.exploration_end, given.double) == (8000, 0.04, False)
    assert (given.clip_gradients, given.optimizer_epsilon, given.huber_loss) == (10.0, 1e-8, True)
    assert (config.network.middleware, config.network.initialization) == ((256, 256), "uniform")
    assert (config.collection.workers, config.collection.envs, config.collection.rollout) == (1, 1, 256)


@pytest.mark.parametrize(
    ("task", "updates"),
    [("dqn-cartpole", 128), ("dqn-lunarlander", 250), ("qr-dqn-cartpole", 128)],
)
def test_the_target_network_is_copied_after_as_many_updates_as_in_the_peer(task: str, updates: int) -> None:
    """The peer counts environment steps. On CartPole it uses only the last of its 25 copies within 256 steps."""
    keys = keys_of(TASKS[task].settings, 1)
    assert [key for key in keys if key.startswith("algorithm.target_interval")] == [
        f"algorithm.target_interval={updates}"
    ]


@pytest.mark.parametrize("task", ["sac-pendulum", "td3-pendulum", "sac-halfcheetah"])
def test_the_target_networks_of_actor_critics_move_with_each_update(task: str) -> None:
    keys = keys_of(TASKS[task].settings, 1)
    assert {"algorithm.target_rate=0.005", 'algorithm.updates_per_step="1"', "collection.rollout=1"} <= {*keys}
    assert not any("interval" in key or "exploration_steps" in key for key in keys)


class Counting:
    """A policy whose state is the number of steps in the episode; it notes states and masks."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, Any]] = []

    def initial_state(self) -> int:
        return 0

    def __call__(self, observation: Any, state: int, action_mask: Any = None) -> tuple[int, int]:
        self.seen.append((state, action_mask))
        return state % 2, state + 1


def test_each_judged_episode_begins_with_a_new_memory() -> None:
    policy = Counting()
    returns = judge("CartPole-v1", lambda: episode_of(policy, masked=False))
    assert len(returns) == EPISODES
    assert [state for state, _ in policy.seen] == [step for length in returns for step in range(int(length))]


def test_a_masked_policy_is_given_the_mask_of_the_state() -> None:
    policy = Counting()
    act = episode_of(policy, masked=True)
    assert [act(None, {"action_mask": mask}) for mask in "ab"] == [0, 1]
    assert policy.seen == [(0, "a"), (1, "b")]


def test_the_table_names_the_peer_of_each_task() -> None:
    rows = [
        Row(trainer, name, seed, TASKS[name].digest, 100, 1.5, value, 0.1, "abc", "torch=2")
        for name in ("ppo-cartpole", "ppo-masked", "qr-dqn-cartpole")
        for trainer, value in (("hive", 90.0), ("sb3", 91.0), ("random", 5.0))
        for seed in (1, 2)
    ]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text_of(rows).splitlines()]
    peers = {line[0]: line[3] for line in cells if len(line) == len(cells[0])}
    assert (peers["ppo-cartpole"], peers["ppo-masked"]) == ("Stable-Baselines3", "sb3-contrib")
    assert (peers["qr-dqn-cartpole"], TASKS["dqn-cartpole"].peer) == ("sb3-contrib", "Stable-Baselines3")


def test_a_cell_with_a_row_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = TASKS["ppo-cartpole"]
    row = Row("sb3", task.name, 1, task.digest, 100, 1.5, 499.5, 0.1, "abc", "torch=2")
    append_row(row, [(8, 0.1, 10.0), (16, 0.2, 30.0)], tmp_path)
    assert read_rows(tmp_path) == [row]
    assert (tmp_path / "parity_curves.csv").read_text().splitlines()[1:] == [
        f"sb3,ppo-cartpole,1,{task.digest},8,0.1,10.0",
        f"sb3,ppo-cartpole,1,{task.digest},16,0.2,20.0",
    ]
    left = list(missing(["random", "sb3"], [task.name], 2, [row]))
    assert left == [Cell("random", task.name, 1), Cell("sb3", task.name, 2)]
    monkeypatch.setitem(cells.TASKS, task.name, TASKS["a2c-cartpole"])
    assert read_rows(tmp_path) == [], "rows of other settings do not count"


def test_published_rows_of_hive_have_todays_defaults() -> None:
    """A row that was measured with other defaults says nothing of what a user gets: measure the task again."""
    rows = [row for row in read_rows() if row.trainer == "hive" and not isinstance(TASKS[row.task], SchemeTask)]
    page = (FOLDER.parent / "guide" / "learning.md").read_text()
    published = [row for row in rows if f"\n| {row.task} | " in page]
    found = {row.task: [*defaults.changes(row.defaults, keys_of(TASKS[row.task].settings, 1))] for row in published}
    assert len(found) >= 12
    assert {task: changed for task, changed in found.items() if changed} == {}


def test_a_changed_default_is_found_unless_the_task_gives_the_key(tmp_path: Path) -> None:
    file = tmp_path / "defaults.json"
    earlier = defaults.defaults_of("ppo") | {"algorithm.epochs": 4}
    known = defaults.remember(earlier, file)
    assert [*defaults.changes(known, [], file)] == ["algorithm.epochs was 4 and is 10"]
    assert [*defaults.changes(known, ["algorithm.epochs=10"], file)] == []
    assert [*defaults.changes("", [], file)] == ["the row does not say which defaults it was measured with"]
    assert defaults.remember(earlier, file) == known
    assert [*defaults.stored(file)] == [known]
