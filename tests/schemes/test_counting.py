"""However episodes end, a run's steps, updates, exploration and schedules are those of its rounds.

Each example is a whole run, inline, whose environments end their episodes as drawn: terminated, truncated without a
declared limit, both, in every step or never. Its rollouts have their configured length.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_runs import Run, train

import hive
from hive.config.schemes import SCHEMES
from hive.experience import FINALS, LENGTH, Rollout
from hive.networks.act.exploration import EpsilonGreedy
from hive.records import read_jsonl
from hive.records.summary import UPDATE_COUNTS, Summary
from hive.runtime import Slot, Topology
from hive.training import CollectorActor
from hive.training.update.learner import PASSED

EVERY_DAY, FULL = 20, 200  # examples
REPLAYING = ("apex", "c51", "ddpg", "dqn", "qr-dqn", "rainbow", "sac", "td3")
CONTINUOUS = ("ddpg", "sac", "td3")
BY_EPOCHS = ("dd-ppo", "ppo", "pqn", "rapid")  # several gradients a round
EXPLORING = ("apex", "c51", "dqn", "nstep-q", "pqn", "qr-dqn", "rainbow")
COLLECTORS = {"apex": 2, "a3c": 2, "dd-ppo": 3, "rapid": 4}  # by default; 1 in other schemes
EPOCHS = 2
RATE = 0.01

FORMS: Mapping[str, Any] = {
    "plain": {},
    "stacks": {"env__frame_stack": 3},
    "memory": {"network__memory": '"gru"', "network__memory_size": 4},
}


@dataclass(frozen=True)
class Example:
    """A run. ends: the codes of the steps of each environment, repeated: 1 terminated, 2 truncated, 3 both, 0 neither.

    together: the environments are a vectorised class that resets in the step after an end. envs, rollout: B and T.
    per_round, starts: with a replay memory, the updates of a round and the steps before the first.
    """

    scheme: str
    ends: tuple[int, ...]
    together: bool
    envs: int
    rollout: int
    rounds: int
    per_round: int
    starts: int
    exploration: int
    form: str
    carrier: str

    @property
    def size(self) -> int:
        """Rows of a rollout."""
        return self.envs * self.rollout


CODES = st.one_of(
    st.sampled_from([(0,), (1,), (2,), (3,)]),
    st.lists(st.sampled_from([0, 0, 1, 2, 2, 3]), min_size=2, max_size=7).map(tuple),
)
EXAMPLES = st.builds(
    Example,
    scheme=st.sampled_from(sorted({*SCHEMES} - {"ippo", "mappo", "bc"})),  # of several agents, and of given transitions
    ends=CODES,
    together=st.sampled_from([False, False, True]),
    envs=st.integers(1, 3),
    rollout=st.integers(1, 7),
    rounds=st.integers(4, 7),
    per_round=st.integers(1, 3),
    starts=st.integers(1, 30),
    exploration=st.integers(1, 60),
    form=st.sampled_from(sorted(FORMS)),
    carrier=st.sampled_from(["shared", "zmq"]),
)


@dataclass
class Seen:
    """What collectors did: (collector, rollout) -> (length, finals, epsilon; None without one, valid steps)."""

    rollouts: dict[tuple[int, int], tuple[int, int, float | None, int]] = field(default_factory=dict)

    def into(self, topology: Topology) -> None:
        seen = self.rollouts

        class Watched(CollectorActor):
            role = "collector"

            def _collect(self, slot: Slot, version: int) -> None:
                super()._collect(slot, version)
                header, policy = slot.arrays["header"], self.collector.distribution.for_rollout(slot.sequence)
                epsilon = policy.epsilon if isinstance(policy, EpsilonGreedy) else None
                facts = int(header[LENGTH]), int(header[FINALS]), epsilon, Rollout(slot.arrays).samples
                seen[self.collector.source, slot.sequence] = facts

        topology["collectors"].cls = Watched


def keys_of(example: Example) -> dict[str, Any]:
    scheme, rows = example.scheme, example.size * COLLECTORS.get(example.scheme, 1)
    actions = "box" if scheme in CONTINUOUS else "discrete"
    keys: dict[str, Any] = {
        "run__steps": example.rounds * rows,
        "env__options": f"{{ends={list(example.ends)}, actions='{actions}'}}",
        "collection__communication": f'"{SCHEMES[scheme].defaults.get("collection.communication", "pipelined")}"',
        "collection__envs": example.envs,
        "collection__rollout": example.rollout,
        "algorithm__learning_rate": RATE,
        "network__middleware": [4],
        "record__every_s": 1e-4,
    }
    if scheme not in CONTINUOUS:
        keys |= {"algorithm__learning_rate_schedule": '"linear"'}
    if scheme in REPLAYING:
        starts = min(example.starts, rows * (example.rounds - 1))
        keys |= {"algorithm__batch_size": 4, "algorithm__learning_starts": starts}
        keys |= {"algorithm__n_step": 1}  # 3 steps may come after the first update
        keys |= {"algorithm__updates_per_step": f'"{example.per_round}/{rows}"'}
    if scheme in BY_EPOCHS:
        keys |= {"algorithm__epochs": EPOCHS, "algorithm__minibatches": 1}
    if scheme in EXPLORING:
        keys |= {"algorithm__exploration_steps": example.exploration}
    if scheme == "dd-ppo":
        keys |= {"collection__fraction_workers": 1.0}  # else rounds are cut short
    elif example.carrier == "zmq":
        keys |= {"run__carrier": '"zmq"'}
    can_remember = scheme not in (*REPLAYING, "nstep-q", "pqn")
    return keys | (FORMS[example.form] if can_remember or example.form != "memory" else {})


class Rounds:
    """The rounds of a run, by the arithmetic of the rows that its collectors saw."""

    def __init__(self, example: Example, run: Run, seen: Seen) -> None:
        self.config, self.seen = run.config, seen
        self.collectors, self.rows = run.config.collectors, example.size * run.config.collectors
        replaying = example.scheme in REPLAYING
        self.updates_each = example.per_round if replaying else EPOCHS if example.scheme in BY_EPOCHS else 1
        self.warmup = -(-run.config.algorithm.learning_starts // self.rows) if replaying else 0  # type: ignore[union-attr]
        whole = max(sequence for _, sequence in seen.rollouts) + 1
        valid = [
            sum(seen.rollouts.get((source, number), (0, 0, None, 0))[3] for source in range(self.collectors))
            for number in range(whole)
        ]
        # A gradient without a valid row is no update. One of a replay memory has rows of earlier rounds.
        counted = [number for number in range(self.warmup, whole) if replaying or valid[number]]
        self.after = [sum(valid[: number + 1]) for number in counted]
        """Steps of the run after each round that updates follow."""

    def steps_after(self, updates: int) -> int:
        return self.after[(updates - 1) // self.updates_each]

    @property
    def updates(self) -> int:
        """Updates of the whole run."""
        return self.updates_each * (1 + next(n for n, steps in enumerate(self.after) if steps >= self.config.run.steps))


def check(example: Example, folder: Path) -> None:
    seen = Seen()
    env = "small_environments:EndingTogether-v0" if example.together else "small_environments:Ending"
    run = train(folder, example.scheme, env, seen.into, **keys_of(example))
    rounds, results, total = Rounds(example, run, seen), run.results, run.config.run.steps
    assert (run.outcome.state, run.outcome.error, results["skipped"]) == ("finished", "", 0)
    assert {length for length, *_ in seen.rollouts.values()} == {example.rollout}
    if example.ends == (2,) and not example.together:
        assert {finals for _, finals, *_ in seen.rollouts.values()} == {example.size}
    check_exploration(rounds)
    asynchronous = run.config.collection.communication == "asynchronous"
    (check_as_ready if asynchronous else check_in_order)(example, run, rounds)
    if example.scheme not in CONTINUOUS:
        for line in read_jsonl(run.directory.metrics_file):
            left = 1 - min(1.0, line["steps"] / total)
            assert math.isclose(line["learner/learning_rate"], RATE * left, abs_tol=1e-12)


def check_in_order(example: Example, run: Run, rounds: Rounds) -> None:
    """Steps and updates are those of whole rounds, at each update that was reported and at the end."""
    results = run.results
    assert results["updates"] == rounds.updates
    if not example.together:  # every row is valid
        assert results["env_steps"] == run.config.run.steps
        assert results["updates"] == rounds.updates_each * (example.rounds - rounds.warmup)
    lines = [(line["updates"], line["steps"]) for line in read_jsonl(run.directory.metrics_file)]
    assert lines[-1] == (results["updates"], results["env_steps"])
    assert [steps for _, steps in lines] == [rounds.steps_after(updates) for updates, _ in lines]


def check_as_ready(example: Example, run: Run, rounds: Rounds) -> None:
    """Which rollouts are used depends on timing, but not how many are for each update."""
    steps, updates, total = run.results["env_steps"], run.results["updates"], run.config.run.steps
    assert steps >= total
    if example.together:
        return
    if example.scheme == "apex":  # rollouts are in the memory up to max_lag rounds before their updates
        owed = steps / rounds.rows - rounds.warmup - updates / rounds.updates_each
        assert 0 <= owed <= run.config.collection.max_lag
        return
    together = run.config.gradients.workers if run.config.gradients.communication == "synchronous" else 1
    assert steps == updates // rounds.updates_each * together * example.size
    assert steps < total + together * example.size


def check_exploration(rounds: Rounds) -> None:
    """Epsilon falls with the rounds after which `exploration_steps` are over, and is 1 before the first update."""
    algorithm: Any = rounds.config.algorithm
    for (_, number), (_, _, epsilon, _) in rounds.seen.rollouts.items():
        if epsilon is None:
            continue
        done = min(1.0, number / math.ceil(algorithm.exploration_steps / rounds.rows))
        falling = algorithm.exploration_start + (algorithm.exploration_end - algorithm.exploration_start) * done
        assert math.isclose(epsilon, 1.0 if number < rounds.warmup else falling)


def check_in_folder(example: Example) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check(example, Path(folder))


@given(EXAMPLES)
@settings(max_examples=EVERY_DAY, deadline=None, derandomize=True)
def test_a_run_is_counted_in_rounds(example: Example) -> None:
    check_in_folder(example)


@pytest.mark.full(reason="many whole runs")
@given(EXAMPLES)
@settings(max_examples=FULL, deadline=None)
def test_any_run_is_counted_in_rounds(example: Example) -> None:
    check_in_folder(example)


@pytest.mark.parametrize(("placement", "workers"), [({}, 1), ({"gradients__workers": 2, "collection__workers": 2}, 2)])
def test_each_update_passes_through_the_accumulator_and_the_wrapper(
    placement: Mapping[str, Any], workers: int, tmp_path: Path
) -> None:
    """All that a run counts of its updates, in its results and in the last record of its metrics."""
    run = train(tmp_path, "nstep-q", env="Bandit", algorithm__target_interval=1, **placement)
    updates = run.results["updates"]
    expected = {"adopted": workers * updates, "reduced": updates, "applied": updates, "target_updates": updates}
    assert updates > 2
    assert {name: run.results[name] for name in expected} == expected
    *_, last = read_jsonl(run.directory.metrics_file)
    assert {name: last[f"learner/{name}"] for name in expected} == expected


@pytest.mark.parametrize(("gradient_workers", "gradients_each"), [(0, 1), (2, 2)])
def test_the_summary_of_a_recorded_run_counts_each_step_of_its_updates(
    gradient_workers: int, gradients_each: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a target network that follows each update, all four counts follow from the number of updates."""
    monkeypatch.setenv("HIVE_HOME", str(tmp_path))
    config = tmp_path / "bandit.toml"
    config.write_text('[run]\nscheme = "nstep-q"\nsteps = 96\n[env]\nid = "small_environments:Bandit"\n')
    sets = [f"gradients.workers={gradient_workers}", f"collection.workers={gradient_workers}"]
    sets += ["collection.envs=2", "collection.rollout=8", "algorithm.target_interval=1"]
    result = hive.train(config, sets=sets, inline=True, quiet=True)
    summary = Summary.read(Path(result.directory) / "summary.json")
    updates = summary.updates
    assert updates > 2
    assert tuple(summary.update_counts) == UPDATE_COUNTS == tuple(count.name for count in PASSED)
    assert [*summary.update_counts.values()] == [gradients_each * updates, updates, updates, updates]
