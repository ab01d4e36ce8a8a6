"""The evaluator's actor in whole runs, inline: what it evaluates, what it leaves alone, and how it is interrupted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from small_trainer import LIMIT_S, config_of, weights_of
from trained_runs import train

from hive.records import RunDirectory, best_policy, list_checkpoints, read_jsonl
from hive.runtime import Actor, Bytes, Inlet, Topology
from hive.runtime.memory.status import read_status
from hive.runtime.supervise.supervisor import Supervisor
from hive.schemes import build
from hive.training import Blueprint, Evaluation, EvaluationDue, Evaluator, EvaluatorActor, LearnerActor

EVERY_FOUR = {"evaluation__every": "{updates=4}", "evaluation__episodes": 3, "evaluation__envs": 2}
NEVER_ENDS: dict[str, Any] = {"env": "OneState", "run__steps": 512, **EVERY_FOUR}

AXES = {"t", "turn", "steps", "updates", "seconds"}
CLOCKS = {"t", "seconds", "wall_s"}
RESULT = {"mean_return", "deviation", "min", "max", "mean_length", "wall_s"}


class Patient(LearnerActor):
    """Waits for the evaluation before it continues, so that none is skipped."""

    async def _call_back(self) -> None:
        await super()._call_back()
        while self.weights.board.view.words.pinned(len(self.gradients.producers) + 1):
            await asyncio.sleep(0)


def patiently(topology: Topology) -> None:
    topology["learner"].cls = Patient


def until_recorded(file: str) -> Callable[[Topology], None]:
    """Has the learner wait in turn 4 until this video exists."""

    class Recorded(Patient):
        async def _call_back(self) -> None:
            await super()._call_back()
            while self.turn == 4 and self.blueprint.config.evaluation.videos and not Path(file).exists():
                await asyncio.sleep(0)

    def change(topology: Topology) -> None:
        topology["learner"].cls = Recorded

    return change


# --- what is evaluated


def test_turns_are_evaluated_at_the_configured_interval(tmp_path: Path) -> None:
    run = train(tmp_path, evaluation__wait="true", **EVERY_FOUR)
    lines = run.evaluations()
    assert [(line["turn"], line["updates"], line["steps"]) for line in lines] == [
        (turn, turn, 16 * turn) for turn in (4, 8, 12, 16)
    ]
    assert all(set(line) == {*AXES, "episodes", *RESULT} and line["episodes"] == 3 for line in lines)
    assert len({line["mean_return"] for line in lines}) == 4
    assert run.outcome.channels["evaluations_due"]["consumed"] == 4
    assert run.outcome.channels["evaluations"]["consumed"] == 4
    assert run.counters("evaluator-0")["evaluations"] == 4
    assert "evaluations_skipped" not in run.counters("learner-0")


def test_its_status_names_the_evaluated_turn_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A view that shows it stepping shows what it evaluates too, however slow the first step is."""
    seen: list[tuple[int, int]] = []
    held: list[Supervisor] = []
    begin = Evaluator.begin

    def looking(self: Evaluator, due: EvaluationDue) -> None:
        state = held[0].state
        number = next(n for n, actor in enumerate(state.plan.actors) if actor.name == "evaluator-0")
        seen.append((due.turn, read_status(held[0].memory.pages, number).version))
        begin(self, due)

    monkeypatch.setattr(Evaluator, "begin", looking)
    train(tmp_path, watch=held.append, evaluation__wait="true", **EVERY_FOUR)
    assert seen == [(turn, turn) for turn in (4, 8, 12, 16)]


@pytest.mark.rotates
@pytest.mark.parametrize("workers", [1, 3])
def test_a_run_that_waits_makes_every_evaluation_and_the_same_ones(tmp_path: Path, workers: int) -> None:
    """The evaluators are slowed down until the run would have skipped most of them; the weights stay the same."""
    values = {**EVERY_FOUR, "evaluation__every": "{updates=1}", "evaluation__wait": "true"}

    class Slow(EvaluatorActor):
        async def _play(self, due: EvaluationDue, weights: Sequence[Bytes]) -> list[Evaluation]:
            for _ in range(100 * (due.turn % 3)):  # later ones end before earlier ones
                await asyncio.sleep(0)
            return await super()._play(due, weights)

    def slowly(topology: Topology) -> None:
        topology["evaluator"].cls = Slow

    fast, slow = train(tmp_path, **values), train(tmp_path, change=slowly, evaluation__workers=workers, **values)
    found = [{line["turn"]: line["mean_return"] for line in run.evaluations()} for run in (fast, slow)]
    assert found[0] == found[1]
    assert list(found[0]) == list(range(1, 17))
    best = [best_policy(run.directory.best) for run in (fast, slow)]
    assert best[0] is not None
    assert best[1] is not None
    assert best[0].update == best[1].update == max(found[0], key=lambda turn: (found[0][turn], -turn))
    assert fast.outcome.digest == slow.outcome.digest
    assert "evaluations_skipped" not in slow.counters("learner-0")


def test_a_checkpoint_waits_for_the_evaluations_before_it(tmp_path: Path) -> None:
    """So that a run resumed from it lacks none of them."""
    run = train(tmp_path, evaluation__wait="true", evaluation__workers=2, checkpoint__every="{updates=8}", **EVERY_FOUR)
    texts = [text for kind, text, _ in run.events if kind == "saved"]
    assert [text.split()[1] for text in texts] == ["000008", "000016"]
    saved = {c.update: (c.path / "DONE").stat().st_mtime for c in list_checkpoints(run.directory.checkpoints)}
    made = {line["turn"]: line["t"] for line in run.evaluations()}
    assert max(made[4], made[8]) <= saved[8] + 0.001


def test_they_are_metrics_too(tmp_path: Path) -> None:
    run = train(tmp_path, evaluation__wait="true", **EVERY_FOUR)
    names = {f"evaluation/{name}" for name in RESULT}
    found = [line for line in read_jsonl(run.directory.metrics_file) if names & line.keys()]
    assert [line["steps"] for line in found] == [64, 128, 192, 256]
    for metric, line in zip(found, run.evaluations(), strict=True):
        assert {name.removeprefix("evaluation/"): metric[name] for name in names} == {
            name: line[name] for name in RESULT
        }


@pytest.mark.parametrize("workers", [1, 2])
def test_the_weights_are_those_of_the_turn(tmp_path: Path, workers: int) -> None:
    """An evaluation of the checkpoint of the same turn, with the turn's number, gives the same result."""
    run = train(
        tmp_path,
        evaluation__wait="true",
        checkpoint__every="{updates=4}",
        checkpoint__keep=9,
        gradients__workers=workers,
        collection__workers=workers,
        **EVERY_FOUR,
    )
    blueprint = Blueprint(run.config)
    evaluator, block = Evaluator.of_run(blueprint), weights_of(blueprint)
    arrays, lines = blueprint.flat.arrays(block), {line["turn"]: line for line in run.evaluations()}
    saved = list_checkpoints(run.directory.checkpoints)
    assert {checkpoint.update for checkpoint in saved} >= {4, 8}
    for checkpoint in saved:
        for name, array in checkpoint.tensors().items():
            arrays[name][...] = array
        evaluator.bind(block)
        turn = checkpoint.update
        found = evaluator.evaluate(EvaluationDue(0, turn, turn, 0, 0.0))
        line = lines[turn]
        assert (found.mean_return, found.min, found.max, found.mean_length) == tuple(
            line[name] for name in ("mean_return", "min", "max", "mean_length")
        )


# --- what it leaves alone

MODES: dict[str, dict[str, Any]] = {
    "synchronous": {},
    "pipelined": {"collection__communication": '"pipelined"', "gradients__communication": '"pipelined"'},
    "with chance in the network": {"run__scheme": '"nstep-q"', "network__extractor": '"small_environments:Dropped"'},
    "ppo": {"run__scheme": '"ppo"', "run__steps": 128},
    "single": {"run__scheme": '"single"'},
}


@pytest.mark.rotates
@pytest.mark.parametrize("mode", MODES)
def test_training_ends_with_the_same_bytes_as_without(tmp_path: Path, mode: str) -> None:
    """Though it shares the process, and with it every generator that is not one's own."""
    without = train(tmp_path, **MODES[mode]).outcome
    every_turn = {**EVERY_FOUR, "evaluation__every": "{updates=1}"}
    run = train(tmp_path, **{**MODES[mode], **every_turn})
    assert run.evaluations()
    assert run.outcome.digest == without.digest
    assert (run.outcome.results["mean_return_100"], run.outcome.exact) == (without.results["mean_return_100"], True)


@pytest.mark.parametrize("scheme", ["a2c", "ppo"])
def test_videos_change_no_evaluation_and_no_weights(tmp_path: Path, scheme: str) -> None:
    """Though evaluator, recording and training share the process here."""
    pytest.importorskip("imageio_ffmpeg", reason="needs the extra video")
    drawn = {"env__options": "{truncates=3}", "run__scheme": f'"{scheme}"', **EVERY_FOUR, "evaluation__episodes": 2}
    change = until_recorded(str(tmp_path / "test-2/videos/000004-1.mp4"))
    without, run = (
        train(tmp_path, "drawn_environments:Drawn", change=change, evaluation__videos=videos, **drawn)
        for videos in (0, 2)
    )
    assert [path.name for path in sorted(run.directory.videos.glob("*.mp4"))][:2] == ["000004-0.mp4", "000004-1.mp4"]
    assert not without.directory.videos.exists()
    assert run.outcome.digest == without.outcome.digest
    assert run.outcome.exact
    numbers = [[{k: v for k, v in line.items() if k not in CLOCKS} for line in r.evaluations()] for r in (without, run)]
    assert len(numbers[0]) >= 4
    assert numbers[0] == numbers[1]


def test_without_a_schedule_there_is_no_evaluator(tmp_path: Path) -> None:
    config = config_of("small_environments:Drift")
    topology = build(config, RunDirectory.create(tmp_path, "test").path)
    assert "evaluator" not in topology
    plan = topology.plan()
    assert not any("evaluat" in channel.name for channel in plan.channels)


def test_it_has_a_process_of_its_own_and_a_block_more(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path, "test").path
    for scheme in ("a2c", "single"):
        without, plan = (
            build(config_of("small_environments:Drift", run__scheme=f'"{scheme}"', **values), directory).plan()
            for values in ({}, EVERY_FOUR)
        )
        assert plan.processes.keys() - without.processes.keys() == {"evaluator-0"}
        blocks, more = (next(s.plan for s in p.segments if s.name == "weights") for p in (without, plan))
        assert (more.readers - blocks.readers, more.blocks - blocks.blocks) == (1, 1)  # type: ignore[union-attr]


# --- when it takes long


def test_evaluations_due_while_one_runs_are_skipped_and_counted(tmp_path: Path) -> None:
    """Episodes of this environment never end; nor does the first evaluation. It is dropped with the run."""
    run = train(tmp_path, **NEVER_ENDS)
    assert (run.outcome.state, run.outcome.reason) == ("finished", "512 steps")
    assert run.outcome.results["updates"] == 32
    assert run.evaluations() == []
    assert run.counters("learner-0")["evaluations_skipped"] == 7
    assert run.outcome.channels["evaluations_due"]["consumed"] == 1
    skipped = [text for kind, text, _ in run.events if kind == "skipped"]
    assert skipped == ["evaluation 8 was skipped: the previous one is still running"]


def test_several_evaluators_play_at_the_same_time(tmp_path: Path) -> None:
    run = train(tmp_path, evaluation__workers=3, **NEVER_ENDS)
    assert run.counters("learner-0")["evaluations_skipped"] == 5
    skipped = [text for kind, text, _ in run.events if kind == "skipped"]
    assert skipped == ["evaluation 16 was skipped: the previous 3 are still running"]
    assert run.outcome.digest == train(tmp_path, **NEVER_ENDS).outcome.digest


def test_the_result_is_the_same_whoever_plays(tmp_path: Path) -> None:
    one, three = (train(tmp_path, evaluation__workers=workers, **EVERY_FOUR) for workers in (1, 3))
    assert sum(three.counters(f"evaluator-{e}").get("evaluations", 0) for e in range(3)) == len(three.evaluations())
    mine = {line["turn"]: line["mean_return"] for line in three.evaluations()}
    shared = [line for line in one.evaluations() if line["turn"] in mine]
    assert shared
    assert all(line["mean_return"] == mine[line["turn"]] for line in shared)


def test_it_stops_when_requested(tmp_path: Path) -> None:
    """It stops in the middle of an episode that would never end, and unpins the weights."""
    boards: list[Any] = []

    def stop_soon(supervisor: Supervisor) -> None:
        board = supervisor.memory.views.board("weights")
        boards.append(board)

        async def stop() -> None:
            while not board.words.pinned(2):
                await asyncio.sleep(0)
            for _ in range(50):
                await asyncio.sleep(0)
            supervisor.request("enough")

        supervisor.spawn(stop())

    began = time.monotonic()
    run = train(tmp_path, watch=stop_soon, **{**NEVER_ENDS, "run__steps": 10**9})
    assert (run.outcome.state, run.outcome.reason) == ("stopped", "enough")
    assert time.monotonic() - began < LIMIT_S / 2
    assert run.evaluations() == []
    assert not boards[0].words.pinned(2)


# --- who wants to know


class Listener(Actor):
    """A user's actor."""

    evaluations = Inlet(Evaluation)

    def __init__(self, heard: list[Evaluation]) -> None:
        self.heard = heard

    async def run(self) -> None:
        async for evaluation in self.evaluations:
            self.heard.append(evaluation)


def test_actors_of_your_own_hear_of_it(tmp_path: Path) -> None:
    heard: list[Evaluation] = []

    def listen(topology: Topology) -> None:
        patiently(topology)
        topology.connect(topology["evaluator"].evaluations, topology.add(Listener, heard=heard).evaluations)

    run = train(tmp_path, change=listen, **EVERY_FOUR)
    lines = run.evaluations()
    assert [(e.turn, e.mean_return) for e in heard] == [(line["turn"], line["mean_return"]) for line in lines]
    assert run.outcome.channels["evaluations"]["consumed"] == 2 * len(heard) == 8


def test_episodes_that_do_not_end_are_cut_and_the_run_says_so(tmp_path: Path) -> None:
    run = train(tmp_path, **NEVER_ENDS, evaluation__max_steps=20)
    evaluations = run.evaluations()
    assert evaluations
    assert {(one["episodes"], one["mean_length"]) for one in evaluations} == {(3, 20.0)}
    texts = [text for kind, text, _ in run.events if kind == "cut"]
    assert len(texts) == len(evaluations)
    ending = "3 of 3 episodes did not end within 20 steps (evaluation.max_steps) and count up to there"
    assert all(text.endswith(ending) for text in texts)
