"""The trainer's actors in whole runs, inline: the versions that actors use, the end of a run, and its files."""

from __future__ import annotations

import asyncio
import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_trainer import Trainer
from trained_runs import train

from hive.config import Config
from hive.errors import EnvironmentFailed, NotFinite
from hive.experience import Rollout
from hive.gradients import SAMPLES, VERSION
from hive.records import read_jsonl, read_nan_dump
from hive.records.checkpoints.weights import load_weights
from hive.runtime import Topology
from hive.runtime.memory.status import read_status
from hive.runtime.supervise.accounting import holds
from hive.runtime.supervise.supervisor import Supervisor
from hive.training import RESULTS, Blueprint, GradientWorkerActor, GWorker, LearnerActor
from hive.training.update.learner import PASSED, Learner, LearnerStep

SAMPLES_A_ROLLOUT = 16  # two environments, eight steps

PLACEMENTS: dict[str, dict[str, Any]] = {
    "four processes": {},
    "collector in the gradient worker's": {"collection__workers": 0},
    "gradients in the learner's": {"gradients__workers": 0},
    "one process": {"collection__workers": 0, "gradients__workers": 0},
    "single": {"run__scheme": '"single"'},
}


def library(config: Config, rounds: int, collectors: int = 1) -> str:
    """The digest of the same training in a plain loop."""
    trainer = Trainer(config, collectors)
    trainer.train(rounds)
    block = trainer.weights[trainer.turns % 2]
    return hashlib.sha256(block[: trainer.blueprint.flat.parameter_bytes]).hexdigest()


# --- the end of a run


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_run_ends_at_its_steps_wherever_its_actors_live(tmp_path: Path, placement: str) -> None:
    run = train(tmp_path, **PLACEMENTS[placement])
    outcome = run.outcome
    assert (outcome.state, outcome.reason, outcome.error) == ("finished", "256 steps", "")
    assert outcome.exact
    assert set(outcome.restarts.values()) == {0}
    assert tuple(run.results) == RESULTS
    collector = run.supervisor.state.plan.numbers["collector-0"]
    page = read_status(run.supervisor.memory.pages, collector)
    assert page.spent_ns["start"][1] > 0  # its environments: the limit of this phase is env.start_limit_s
    assert page.position is not None
    assert page.position[0] >= 256 // SAMPLES_A_ROLLOUT - 1
    assert (run.results["updates"], run.results["env_steps"], run.results["skipped"]) == (16, 256, 0)
    assert run.results["episodes"] > 0
    assert run.results["train_s"] > 0
    assert math.isfinite(run.results["mean_return_100"])


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_nothing_is_lost_uncounted(tmp_path: Path, placement: str) -> None:
    channels = train(tmp_path, collection__communication='"pipelined"', **PLACEMENTS[placement]).outcome.channels
    assert set(channels) == {"rollouts", "gradients", "metrics", "checkpoints", "improved"}
    assert all(holds(account) and account["in_flight"] == 0 for account in channels.values())
    assert channels["gradients"]["consumed"] == 16
    assert channels["rollouts"]["consumed"] >= 16


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_placement_changes_no_byte(tmp_path: Path, placement: str) -> None:
    """Nor does it matter that there are actors: the digest is that of a plain loop."""
    run = train(tmp_path, collection__communication='"synchronous"', **PLACEMENTS[placement])
    assert run.outcome.digest == library(run.config, rounds=16)


def test_two_collectors_are_the_two_of_a_plain_loop(tmp_path: Path) -> None:
    run = train(tmp_path, collection__workers=2)
    assert (run.results["updates"], run.results["env_steps"]) == (8, 256)
    assert run.outcome.digest == library(run.config, rounds=8, collectors=2)


def test_steps_are_judged_at_the_end_of_a_round(tmp_path: Path) -> None:
    """The round that passes them is the last one, and whole."""
    run = train(tmp_path, run__steps=241)
    assert (run.outcome.reason, run.results["env_steps"]) == ("241 steps", 256)
    assert train(tmp_path, run__steps=1).results["updates"] == 1


@pytest.mark.parametrize(("bootstrap_rounds", "turns"), [(1, 13), (3, 5)])
def test_a_return_is_judged_over_a_hundred_episodes(tmp_path: Path, bootstrap_rounds: int, turns: int) -> None:
    """Each rollout ends eight episodes, each with the required return: 104 after 13 rollouts, 120 after 15."""
    run = train(
        tmp_path,
        "OneState",
        env__options="{terminates=2}",
        run__stop_at_return=2.0,
        run__steps=10_000,
        gradients__bootstrap_rounds=bootstrap_rounds,
    )
    assert (run.outcome.state, run.outcome.reason) == ("finished", "mean return 2.0 >= 2")
    assert run.results["updates"] == turns
    assert run.results["episodes"] == 8 * turns * bootstrap_rounds
    assert run.results["mean_return_100"] == 2.0


def test_a_return_that_is_not_reached_ends_nothing(tmp_path: Path) -> None:
    run = train(tmp_path, "OneState", env__options="{terminates=2}", run__stop_at_return=2.01)
    assert (run.outcome.reason, run.results["updates"]) == ("256 steps", 16)


def test_an_infinite_return_is_no_goal_reached(tmp_path: Path) -> None:
    """Every second rollout overflows, so updates are made while the mean of the last 100 returns is infinite."""
    values = {"env__options": "{when=1, times=2, terminates=8}", "run__stop_at_return": 1.0, "run__steps": 1_000}
    run = train(tmp_path, "Explodes", collection__rollout=4, **values)
    assert run.results["mean_return_100"] == math.inf
    assert (run.results["episodes"] >= 100, run.results["updates"] > 0, run.results["skipped"] > 0) == (True,) * 3
    assert (run.outcome.state, run.outcome.reason) == ("finished", "1,000 steps")


@pytest.mark.parametrize("goal", [{}, {"run__stop_at_return": 1.0}])
def test_a_run_whose_updates_were_all_skipped_fails(tmp_path: Path, goal: dict[str, Any]) -> None:
    """Its reason names the cause; fewer turns than MOST_SKIPPED were made."""
    values = {"env__options": "{when=1, times=9, terminates=2}", "run__steps": 1_000, **goal}
    cause = "the last was skipped because its loss was not finite"
    with pytest.raises(NotFinite, match=f"^no update was made in 63 turns: {cause}"):
        train(tmp_path, "Explodes", **values)


def test_a_stopped_run_keeps_its_weights(tmp_path: Path) -> None:
    def stop_soon(supervisor: Supervisor) -> None:
        loop = asyncio.get_running_loop()
        if supervisor.results().get("updates", 0) > 0:
            supervisor.request("enough")
        else:
            loop.call_later(0.01, stop_soon, supervisor)

    run = train(tmp_path, run__steps=10**9, watch=stop_soon)
    assert (run.outcome.state, run.outcome.reason) == ("stopped", "enough")
    assert all(holds(account) and account["in_flight"] == 0 for account in run.outcome.channels.values())
    assert run.saved_sha256() == run.outcome.digest
    assert int(run.checkpoint().name) == run.results["updates"] > 0


def test_an_environment_that_raises_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailed, match="the motor is stuck"):
        train(tmp_path, "Fails", env__options="{when=30}")


# --- what is left


def test_the_digest_is_that_of_the_saved_weights(tmp_path: Path) -> None:
    run = train(tmp_path)
    assert run.checkpoint().name == "000016"
    assert load_weights(run.checkpoint())[1]["update"] == 16
    assert run.saved_sha256() == run.outcome.digest


def test_buffers_of_the_network_reach_the_checkpoint(tmp_path: Path) -> None:
    run = train(tmp_path, network__module='"small_environments:Normalising"')
    weights, _ = load_weights(run.checkpoint())
    assert weights["scale"].tolist() == [1.0, 2.0]
    assert run.saved_sha256() == run.outcome.digest


def test_the_last_line_of_the_metrics_is_the_end(tmp_path: Path) -> None:
    run = train(tmp_path)
    last = list(read_jsonl(run.directory.metrics_file))[-1]
    assert (last["updates"], last["steps"]) == (16, 256)
    assert last["episodes"] == run.results["episodes"]
    assert last["return/mean_100"] == pytest.approx(run.results["mean_return_100"])
    assert set(last) - {"t", "steps", "updates", "seconds", "episodes", "return/mean_100"} == {
        "return/deviation_100",
        "length/mean_100",
        "length/deviation_100",
        *(f"ends/{how}" for how in ("terminated", "truncated", "limit")),
        "learner/entropy",
        "learner/explained_variance",
        "learner/target_rms",
        *(f"learner/{which.name}" for which in PASSED),
        "learner/gradient_norm",
        "learner/learning_rate",
        "learner/policy_loss",
        "learner/skipped",
        "learner/value_loss",
        "learner/value_mean",
        "rate/env_steps_per_s",
        "rate/updates_per_s",
        "lag/gradient_mean",
        "lag/gradient_max",
        "lag/gradient_0",
        "lag/policy_mean",
        "lag/policy_max",
        "lag/policy_0",
    }


def test_status_pages_count_rollouts_and_updates(tmp_path: Path) -> None:
    run = train(tmp_path, collection__workers=2)
    pages = run.supervisor.memory.pages
    learner, first = read_status(pages, 3), read_status(pages, 0)
    assert (learner.name, learner.version, learner.counters["updates"]) == ("learner-0", 8, 8)
    assert first.name == "collector-0"
    assert first.counters["env_steps"] % SAMPLES_A_ROLLOUT == 0
    assert first.counters["env_steps"] >= 8 * SAMPLES_A_ROLLOUT
    assert {"policy", "env"} <= set(first.spent_ns)


# --- the same run every time

MODES: dict[str, dict[str, Any]] = {
    "synchronous": {},
    "pipelined": {"collection__communication": '"pipelined"'},
    "gradients pipelined": {"gradients__communication": '"pipelined"'},
    "all of it": {
        "collection__communication": '"pipelined"',
        "collection__max_lag": 2,
        "collection__workers": 3,
        "collection__broadcast_interval": 2,
        "gradients__communication": '"pipelined"',
        "gradients__bootstrap_rounds": 3,
    },
}


@pytest.mark.rotates
@pytest.mark.parametrize("mode", MODES)
def test_the_same_seed_ends_with_the_same_bytes(tmp_path: Path, mode: str) -> None:
    first, second, other = (train(tmp_path, run__seed=seed, **MODES[mode]) for seed in (1, 1, 2))
    assert first.outcome.digest == second.outcome.digest
    assert first.results["mean_return_100"] == second.results["mean_return_100"]
    assert other.outcome.digest != first.outcome.digest


def test_modes_are_different_runs(tmp_path: Path) -> None:
    """So that the equality above says something: a lag is seen in the weights."""
    digests = {train(tmp_path, **values).outcome.digest for values in MODES.values()}
    assert len(digests) == len(MODES)


# --- who uses which version


class Noted:
    """A gradient worker or learner that records its arguments."""

    def __init__(self, worker: Any, seen: list[Any]) -> None:
        self.worker = worker
        self.seen = seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self.worker, name)


class NotedGWorker(Noted):
    worker: GWorker

    def compute(self, rollouts: Any, out: Any, *, sequence: int, version: int, **options: Any) -> None:
        self.seen.append((sequence, version, [Rollout(arrays).version for arrays in rollouts]))
        self.worker.compute(rollouts, out, sequence=sequence, version=version, **options)


class NotedLearner(Noted):
    worker: Learner

    def turn(self, gradients: Any, *blocks: Any) -> LearnerStep:
        self.seen.append([int(gradient["header"][VERSION]) for gradient in gradients])
        return self.worker.turn(gradients, *blocks)


class WatchedGradientWorker(GradientWorkerActor):
    """Notes (gradient, its state version, the versions of its rollouts)."""

    def __init__(self, blueprint: Blueprint, directory: Path, seen: list[Any]) -> None:
        super().__init__(blueprint, directory)
        self.worker = NotedGWorker(self.worker, seen)  # type: ignore[assignment]


class WatchedLearner(LearnerActor):
    """Notes the state versions of the gradients of each turn."""

    def __init__(self, blueprint: Blueprint, seen: list[Any]) -> None:
        super().__init__(blueprint)
        self.learner = NotedLearner(self.learner, seen)  # type: ignore[assignment]


def replace(topology: Topology, group: str, actor: type, **parameters: Any) -> None:
    topology[group].cls = actor
    topology[group].parameters.update(parameters)


LAGS = [  # collectors, broadcast interval, collection lag, bootstrap rounds, gradient lag
    (1, 1, 0, 1, 0),
    (1, 1, 1, 1, 0),
    (2, 1, 3, 1, 0),
    (2, 2, 0, 1, 0),
    (1, 2, 1, 1, 1),
    (1, 3, 2, 1, 0),
    (1, 1, 0, 1, 1),
    (1, 1, 1, 1, 2),
    (2, 1, 0, 3, 0),
    (1, 2, 1, 3, 1),
]


@pytest.mark.rotates
@pytest.mark.parametrize(("collectors", "interval", "lag", "bootstrap_rounds", "gradient_lag"), LAGS)
def test_versions_follow_from_numbers(
    tmp_path: Path, collectors: int, interval: int, lag: int, bootstrap_rounds: int, gradient_lag: int
) -> None:
    gradients: list[tuple[int, int, list[int]]] = []
    turns: list[list[int]] = []

    def watched(topology: Topology) -> None:
        replace(topology, "gradient-workers", WatchedGradientWorker, seen=gradients)
        replace(topology, "learner", WatchedLearner, seen=turns)

    modes = ['"synchronous"', '"pipelined"']
    run = train(
        tmp_path,
        change=watched,
        collection__workers=collectors,
        collection__broadcast_interval=interval,
        collection__communication=modes[lag > 0],
        collection__max_lag=lag,
        gradients__bootstrap_rounds=bootstrap_rounds,
        gradients__communication=modes[gradient_lag > 0],
        gradients__max_lag=gradient_lag,
    )
    made = len(turns) * bootstrap_rounds
    assert made * collectors * SAMPLES_A_ROLLOUT == run.results["env_steps"] >= 256
    assert [sequence for sequence, _, _ in gradients] == list(range(len(gradients)))
    assert len(gradients) >= made
    for sequence, version, rollouts in gradients:
        assert rollouts == [max(0, sequence // interval - lag)] * collectors
        assert version == max(0, sequence // bootstrap_rounds - gradient_lag)
    for number, versions in enumerate(turns):
        assert versions == [max(0, number - gradient_lag)] * bootstrap_rounds


def test_the_lag_that_is_shown_is_that_of_the_gradients(tmp_path: Path) -> None:
    run = train(tmp_path, gradients__communication='"pipelined"', gradients__max_lag=2, record__every_s=60)
    (line,) = read_jsonl(run.directory.metrics_file)
    assert line["lag/gradient_mean"] == pytest.approx((0 + 1 + 14 * 2) / 16)


def test_several_rounds_make_one_update_of_all_their_samples(tmp_path: Path) -> None:
    run = train(tmp_path, gradients__bootstrap_rounds=3)
    assert (run.results["updates"], run.results["env_steps"]) == (6, 6 * 3 * SAMPLES_A_ROLLOUT)


# --- what goes wrong


def test_gradients_that_are_not_finite_are_named_and_not_applied(tmp_path: Path) -> None:
    """Steps 20 and 21 earn nearly the largest float: the third rollout's gradient is infinite."""
    run = train(tmp_path, "Explodes", env__options="{when=20}", algorithm__clip_gradients=0)
    assert run.outcome.state == "finished"
    assert (run.results["skipped"], run.results["updates"], run.results["env_steps"]) == (1, 15, 256)
    weights, _ = load_weights(run.checkpoint())
    assert all(np.isfinite(array).all() for array in weights.values())
    (found,) = [event for event in run.events if event[0] == "not finite"]
    kept = run.directory.nan_dumps / "gradient-worker-0-000002"
    assert found[1] == f"the loss is inf, found by gradient-worker-0; its rollouts, inputs and weights are in {kept}"
    assert {"cause": "loss", "actor": "gradient-worker-0"}.items() <= found[2].items()
    (skipped,) = [event for event in run.events if event[0] == "skipped"]
    assert skipped[1] == "turn 3 was not applied: the loss of gradient 2 of gradient-worker-0 is not finite"
    arrays, facts = read_nan_dump(kept)
    assert facts == {"cause": "loss", "text": "the loss is inf", "state_version": 2, "left_out": []}
    assert arrays["rollout-0-2.rewards"].max() == np.float32(3e38)
    assert {f"weights.{name}" for name in weights} <= arrays.keys()


def test_non_finite_stop_ends_and_saves_the_run(tmp_path: Path) -> None:
    with pytest.raises(
        NotFinite, match=r"^the loss of turn 3 was not finite \(\[supervision\] non_finite = \"stop\"\)"
    ):
        train(
            tmp_path,
            "Explodes",
            env__options="{when=20}",
            algorithm__clip_gradients=0,
            supervision__non_finite='"stop"',
        )


def test_when_nothing_is_finite_any_more_the_run_ends(tmp_path: Path) -> None:
    with pytest.raises(NotFinite, match=r"^the loss of turn 100 was not finite \(100 turns in a row\)"):
        train(tmp_path, "Explodes", env__options="{when=0, times=1000000}", run__steps=100_000)


def lose_a_rollout(supervisor: Supervisor, *, of_both: bool) -> None:
    """As a gradient worker leaves it that was killed in the first round, with the rollout of collector-0 claimed.

    That of collector-1 is there and unclaimed if `of_both`, else yet to be made.
    """
    from hive.runtime.memory.segments import REASONS

    dead = (2, 255)  # gradient-worker-0, of an incarnation that never was
    for producer in range(1 + of_both):
        name = f"rollouts:collector-{producer}"
        words = supervisor.memory.views.slab(name).words
        words.commit(words.reserve(producer, 0), producer, 0)
        if producer == 0:
            words.claim(*dead)
            assert words.recover(*dead, False, REASONS.index("consumer_died")) == 1


@pytest.mark.parametrize("of_both", [True, False])
def test_a_round_that_lost_a_rollout_is_made_of_the_rest(tmp_path: Path, of_both: bool) -> None:
    """Nothing is in the rollout of collector-1 that `lose_a_rollout` has committed: 0 samples; else 16."""
    samples: list[list[int]] = []

    class Counts(LearnerActor):
        def _turn(self, claimed: Any) -> None:
            samples.append([int(slot.arrays["header"][SAMPLES]) for slot in claimed])
            super()._turn(claimed)

    run = train(
        tmp_path,
        collection__workers=2,
        change=lambda topology: replace(topology, "learner", Counts),
        watch=lambda supervisor: lose_a_rollout(supervisor, of_both=of_both),
    )
    left = 0 if of_both else SAMPLES_A_ROLLOUT
    assert samples == [[left]] + [[2 * SAMPLES_A_ROLLOUT]] * 8
    assert (run.results["updates"], run.results["env_steps"]) == (8 + (left > 0), 256 + left)
    assert run.checkpoint().name == "000009"
    assert all(holds(account) and account["in_flight"] == 0 for account in run.outcome.channels.values())
    (note,) = [event for event in run.events if event[0] == "lost"]
    assert note[2]["rollouts"] == 1
