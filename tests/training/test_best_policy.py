"""The best policy of a run: which turn it is of, what a kill or a failed write leaves, and that training ignores it."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trained_runs
from small_trainer import LIMIT_S, config_of, weights_of

import hive
from hive.algorithms.parameters import update_parameter
from hive.errors import ConfigError
from hive.gradients import POLICY
from hive.records import RunDirectory, best_facts, best_policy, list_checkpoints, read_jsonl, replace_best
from hive.runtime import Slot
from hive.runtime.supervise.supervisor import Outcome
from hive.schemes import build
from hive.testing import run_inline
from hive.training import Blueprint, LearnerActor, Recorder
from hive.training.messages import Improved
from hive.training.record import best_policy as best_policy_module
from hive.training.record.best_policy import BestPolicy, best_by, is_balanced, latest_by_episode

# 32 episodes a turn; a return of 1.0 after some 30 turns.
BANDIT: dict[str, Any] = {
    "collection__envs": 4,
    "algorithm__learning_rate": 0.05,
    "algorithm__learning_rate_schedule": '"constant"',
    "algorithm__entropy_weight": 0.01,
    "run__steps": 3200,
}
EVALUATED = {"evaluation__every": "{updates=5}", "evaluation__episodes": 20, "evaluation__envs": 4}
COLLAPSE = 60  # the turn from which on the learning rate ruins the policy


class Collapsing(LearnerActor):
    """Ruins the policy in the middle of the run, as `hive set RUN algorithm.learning_rate=50` does."""

    async def _call_back(self) -> None:
        if self.turn == COLLAPSE:
            update_parameter(self.learner, "learning_rate", 50.0)
        await super()._call_back()
        while self.evaluating.exist and self.weights.board.view.words.pinned(len(self.gradients.producers) + 1):
            await asyncio.sleep(0)  # so that no evaluation is skipped


def train(
    folder: Path, cls: type[LearnerActor] = LearnerActor, recorder: type[Recorder] = Recorder, **values: Any
) -> tuple[Outcome, RunDirectory]:
    directory = RunDirectory.create(folder, "test")
    topology = build(config_of("small_environments:Bandit", **{**BANDIT, **values}), directory.path)
    topology["learner"].cls, topology["recorder"].cls = cls, recorder
    if recorder is not Recorder:
        topology["recorder"].processes = topology["learner"].processes
    return run_inline(topology, seconds=LIMIT_S), directory


def share_right(policy: hive.Policy) -> float:
    """The share of the bandit's two contexts in which the policy takes the right action."""
    return float(np.mean(policy(np.eye(2, dtype=np.float32)) == [0, 1]))


@pytest.mark.parametrize(("by", "values"), [("training", {}), ("evaluation", EVALUATED)])
def test_a_policy_that_was_good_before_a_collapse_is_kept(tmp_path: Path, by: str, values: dict[str, Any]) -> None:
    outcome, directory = train(tmp_path, Collapsing, **values)
    assert outcome.results["mean_return_100"] < 0.8
    latest, best = hive.load(str(directory.path)), hive.load(str(directory.path), which="best")
    assert (share_right(latest), share_right(best)) == (0.5, 1.0)
    assert best.mean_return == 1.0
    facts = best_facts(directory)
    assert facts is not None
    assert (facts["by"], facts["mean_return"], facts["steps"]) == (by, 1.0, 32 * facts["updates"])
    assert facts["updates"] <= COLLAPSE
    if by == "evaluation":
        lines = list(read_jsonl(directory.evaluations_file))
        first = max(lines, key=lambda line: line["mean_return"])  # `max` returns the first of equal ones
        assert (facts["updates"], facts["mean_return"]) == (first["turn"], first["mean_return"])
        assert best_policy(directory.best).state["episodes"] == 20  # type: ignore[union-attr]


@pytest.mark.parametrize("values", [{}, EVALUATED])
def test_its_weights_are_those_of_its_turn(tmp_path: Path, values: dict[str, Any]) -> None:
    every_turn = {"checkpoint__every": "{updates=1}", "checkpoint__keep": 999, "run__steps": 640}
    _, directory = train(tmp_path, Collapsing, **every_turn, **values)
    best = best_policy(directory.best)
    assert best is not None
    saved = {checkpoint.update: checkpoint for checkpoint in list_checkpoints(directory.checkpoints)}[best.update]
    expected = saved.tensors()
    assert best.tensors().keys() == expected.keys()
    assert all((best.tensors()[name] == expected[name]).all() for name in expected)
    assert best.state["policy"] == saved.state["policy"]


PIPELINED = {"collection__communication": "pipelined", "collection__max_lag": 2}
ASYNCHRONOUS = {"collection__communication": "asynchronous", "run__scheme": "a2c"}


@pytest.mark.parametrize("values", [{}, PIPELINED, {"collection__broadcast_interval": 2}, ASYNCHRONOUS])
def test_it_is_the_policy_that_has_played_the_episodes(tmp_path: Path, values: dict[str, Any]) -> None:
    """Not the one that was made of them, which may be worse."""
    blocks: dict[int, bytes] = {}
    played: list[int] = []
    sent: list[Improved] = []

    class Watching(LearnerActor):
        def __init__(self, blueprint: Blueprint) -> None:
            super().__init__(blueprint)
            publish, offer = self.versions.publish, self.best.offer

            def noted(turn: int, claimed: Sequence[Slot] = ()) -> None:
                publish(turn, claimed)
                board = self.behaviour.board
                blocks[board.latest] = board.read(board.latest).tobytes()

            async def offered(turn: int, *, last: bool = False) -> None:
                before = self.best.schedule.best
                await offer(turn, last=last)
                if self.best.schedule.best > before:
                    versions.append(*played)

            self.versions.publish, self.best.offer = noted, offered  # type: ignore[method-assign]

        def _turn(self, claimed: list[Slot]) -> None:
            played[:] = [max(int(slot.arrays["header"][POLICY]) for slot in claimed)]
            super()._turn(claimed)

    class Keeping(Recorder):
        def _compare(self, best: BestPolicy, *improved: Improved) -> None:
            sent.extend(improved)

    versions: list[int] = []
    train(tmp_path, Watching, Keeping, run__steps=1280, gradients__native_rounds="false", **values)
    assert len(sent) > 3
    assert [message.weights.tobytes() for message in sent] == [blocks[version] for version in versions[: len(sent)]]
    assert all(message.turn == message.updates < 40 for message in sent)
    assert [message.env_steps for message in sent] == [32 * message.turn for message in sent]


def test_the_weights_that_are_sent_do_not_change_afterwards(tmp_path: Path) -> None:
    """A recorder in the learner's process receives the object itself, and the learner overwrites its blocks."""
    sent: list[Improved] = []

    class Keeping(Recorder):
        def _compare(self, best: BestPolicy, *improved: Improved) -> None:
            sent.extend(improved)

    train(tmp_path, recorder=Keeping, run__steps=1280)
    assert len({message.weights.tobytes() for message in sent}) == len(sent) > 5


def test_training_ends_with_the_same_bytes_as_without(tmp_path: Path) -> None:
    outcome, directory = train(tmp_path, run__steps=640)
    without, empty = train(tmp_path, run__steps=640, checkpoint__every="{}")
    assert (best_facts(directory) is None, best_facts(empty)) == (False, None)
    assert (outcome.digest, outcome.exact) == (without.digest, True)
    assert outcome.channels["improved"]["produced"] > 1
    assert "improved" not in without.channels


DUEL = {"evaluation__every": "{updates=8}", "evaluation__wait": "true", "run__stop_when_no_better": 2}


def duel(folder: Path, **values: Any) -> tuple[list[dict[str, Any]], RunDirectory, dict[str, str]]:
    """Train one policy for both agents of a zero-sum game; return its evaluations and warnings."""
    values = {"run__steps": 1280, "collection__envs": 4, "collection__rollout": 8, **values}
    run = trained_runs.train(folder, "small_agents:Duel", **values)
    warnings = {details["warning"]: details["cause"] for kind, _, details in run.events if kind == "warning"}
    return run.evaluations(), run.directory, warnings


def test_returns_that_add_up_to_the_same_choose_no_policy_and_end_no_run(tmp_path: Path) -> None:
    lines, directory, warnings = duel(tmp_path, **DUEL)
    assert {line["mean_return"] for line in lines} == {0.0}
    assert any(line.get("balanced") for line in lines)
    assert lines[-1]["steps"] >= 1280 - 8 * 32, "the run made all its steps"
    kept = best_policy(directory.best)
    assert kept is not None
    assert kept.update == lines[-1]["turn"], "the newest is as good as any"
    assert "add up to the same" in warnings["goal not judged"]


def test_a_training_in_which_returns_add_up_to_the_same_keeps_a_late_policy(tmp_path: Path) -> None:
    _, directory, warnings = duel(tmp_path)
    kept = best_policy(directory.best)
    assert kept is not None
    assert (kept.state["balanced"], kept.mean_return) == (True, 0.0)
    assert kept.update > 30
    assert warnings == {}


def test_a_value_of_info_chooses_among_several_agents(tmp_path: Path) -> None:
    info = {"env__info": '["named", "no"]'}
    lines, directory, warnings = duel(tmp_path, **{**DUEL, "evaluation__best_by": '"info/named"', **info})
    assert all(0.0 <= line["info/named"] <= 1.0 for line in lines)
    facts = best_policy(directory.best)
    assert facts is not None
    assert facts.state["value"] == max(line["info/named"] for line in lines)
    assert "goal not judged" not in warnings
    by_agent = {**DUEL, "evaluation__best_by": '"info/return/same"'}
    lines, directory, _ = duel(tmp_path, **by_agent)
    assert best_policy(directory.best).state["value"] == max(line["info/return/same"] for line in lines)  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match="has one agent"):
        Blueprint(config_of("small_environments:Bandit", **by_agent))
    _, directory, warnings = duel(tmp_path, **{**DUEL, "evaluation__best_by": '"info/no"', **info})
    assert best_policy(directory.best) is None
    assert 'evaluation.best_by = "info/no"' in warnings["goal not judged"]


@pytest.mark.parametrize(
    ("returns", "balanced"),
    [
        ([[3.0, -3.0], [-1.0, 1.0]], True),
        ([[0.1 + 0.2, 0.7], [0.4, 0.6]], True),
        ([[5.0, 5.0], [5.0, 5.0]], False),
        ([[3.0, -3.0], [-1.0, 2.0]], False),
        ([[3.0], [-3.0]], False),
        ([[3.0, -3.0]], False),
        ([[math.nan, 1.0], [0.0, 1.0]], False),
    ],
)
def test_returns_are_balanced_if_they_vary_and_their_sums_do_not(returns: list[list[float]], balanced: bool) -> None:
    assert is_balanced(returns) == balanced
    ring = np.tile(np.array(returns, np.float32), (200, 1))[: 300 // len(returns[0])]
    latest = latest_by_episode(np.roll(ring.ravel()[-100:], 7), 307, len(returns[0]))
    assert is_balanced(latest) == balanced


# --- the writer


class Fixture:
    """A run directory and writers of its best policy."""

    def __init__(self, folder: Path, **values: Any) -> None:
        self.directory = RunDirectory.create(folder, "test")
        self.blueprint = Blueprint(config_of("small_environments:OneState", **values))
        self.weights = weights_of(self.blueprint)

    def writer(self) -> BestPolicy:
        return BestPolicy(self.blueprint, self.directory, logging.getLogger("test"))

    def offer(self, writer: BestPolicy, turn: int, mean_return: float) -> tuple[int, float | None] | None:
        """Offer a turn; return the update and the mean return of the best policy then."""
        writer.offer(self.weights, turn, updates=turn, env_steps=16 * turn, mean_return=mean_return, episodes=100)
        best = best_policy(self.directory.best)
        return None if best is None else (best.update, best.mean_return)


def test_the_highest_finite_return_wins_and_of_equal_ones_the_first(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path)
    writer = fixture.writer()
    assert [fixture.offer(writer, turn, mean) for turn, mean in enumerate((math.nan, math.inf, -math.inf))] == [
        None
    ] * 3
    returns = [-3.0, -4.0, -3.0, math.nan, -1.0, math.inf, -1.0, 2.0]
    assert [fixture.offer(writer, turn, mean) for turn, mean in enumerate(returns)] == [
        *[(0, -3.0)] * 4,
        *[(4, -1.0)] * 3,
        (7, 2.0),
    ]


def test_of_several_evaluators_the_better_policy_is_kept(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path)
    one, other = fixture.writer(), fixture.writer()
    assert fixture.offer(one, 8, 5.0) == (8, 5.0)
    assert fixture.offer(other, 4, 4.0) == (8, 5.0)  # though it has not seen the first one
    assert fixture.offer(other, 12, 6.0) == (12, 6.0)
    assert fixture.offer(one, 16, 5.5) == (12, 6.0)


def test_a_successor_and_a_resumed_run_keep_the_best_policy_unless_it_is_beaten(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path)
    fixture.offer(fixture.writer(), 9, 5.0)
    (fixture.directory.best / ".000012.hive-tmp").mkdir()  # the predecessor was killed while it wrote another
    successor = fixture.writer()
    assert [path.name for path in fixture.directory.best.iterdir()] == ["000009"]
    assert fixture.offer(successor, 3, 4.5) == (9, 5.0)
    assert fixture.offer(successor, 4, 5.5) == (4, 5.5)


@pytest.mark.parametrize(
    "values",
    [EVALUATED, {"env__options": "{size = 2}"}, {**EVALUATED, "evaluation__max_steps": 50}],
)
def test_a_best_policy_that_was_measured_otherwise_does_not_compare(
    tmp_path: Path, values: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    fixture = Fixture(tmp_path, **(EVALUATED if "evaluation__max_steps" in values else {}))
    fixture.offer(fixture.writer(), 9, 135.8)
    fixture.blueprint = Blueprint(
        config_of("small_environments:OneState", **values), environment=fixture.blueprint.environment
    )
    with caplog.at_level(logging.INFO):
        assert fixture.offer(fixture.writer(), 12, 50.0) == (12, 50.0)
    assert "that of update 9 was chosen by other returns" in caplog.messages[0]
    assert fixture.offer(fixture.writer(), 15, 49.0) == (12, 50.0)


def test_a_predecessor_killed_between_writing_and_removing_leaves_the_better_one(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path)
    fixture.offer(fixture.writer(), 9, 5.0)
    (fixture.directory.best / "000009").rename(fixture.directory.path / "older")
    replace_best(fixture.directory.best, 12, tensors={}, state={"mean_return": 6.0})
    (fixture.directory.path / "older").rename(fixture.directory.best / "000009")
    assert fixture.writer().value == 6.0
    assert fixture.offer(fixture.writer(), 15, 7.0) == (15, 7.0)
    assert [path.name for path in fixture.directory.best.iterdir()] == ["000015"]


def test_a_write_that_fails_is_logged_and_the_next_better_one_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fixture = Fixture(tmp_path)
    writer = fixture.writer()
    fixture.directory.best.write_text("")  # in the place of the folder
    assert fixture.offer(writer, 1, 1.0) is None
    assert caplog.messages[0].startswith("the best policy was not kept: cannot make `")
    fixture.directory.best.unlink()
    assert fixture.offer(writer, 2, 1.0) == (2, 1.0)


def test_no_policy_is_kept_by_training_return_where_no_checkpoint_is_scheduled(monkeypatch: pytest.MonkeyPatch) -> None:
    def kept_by(**values: Any) -> str | None:
        return best_by(Blueprint(config_of("small_environments:OneState", **values)))

    never = {"checkpoint__every": "{}"}
    assert [kept_by(), kept_by(**never)] == ["training", None]
    assert [kept_by(**EVALUATED), kept_by(**EVALUATED, **never)] == ["evaluation"] * 2
    monkeypatch.setattr(best_policy_module, "MAX_ARRAY_BYTES", 100)  # more than one message can hold
    assert kept_by() is None


def test_of_equal_returns_the_earliest_turn_is_kept_in_whatever_order_they_arrive(tmp_path: Path) -> None:
    made = Blueprint(config_of("small_environments:Bandit"))
    weights, log = weights_of(made), logging.getLogger("test")
    for order in ((5, 9), (9, 5)):
        directory = RunDirectory.create(tmp_path, "test")
        writers = [BestPolicy(made, directory, log) for _ in order]  # each evaluator has its own
        for writer, turn in zip(writers, order, strict=True):
            writer.offer(weights, turn, updates=turn, env_steps=turn, mean_return=3.0, episodes=4)
        kept = best_policy(directory.best)
        assert kept is not None
        assert kept.update == 5
