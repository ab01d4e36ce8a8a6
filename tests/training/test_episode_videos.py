"""Recorded episodes are those of the evaluation; errors, crashes and slow recordings cost videos and nothing else."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_trainer import Page, config_of, weights_of

from hive.config import Config
from hive.records import RunDirectory
from hive.records.sinks.drawing_marks import DrawingMarks
from hive.training import Blueprint, EvaluationDue, Evaluator, environment_of
from hive.training.crew import Crew
from hive.training.policies import Policies
from hive.training.record.episode_videos import EpisodeVideos

pytest.importorskip("imageio_ffmpeg", reason="needs the extra video")


class FakeActor:
    """An evaluator that keeps what is logged."""

    name, index = "evaluator-0", 0

    def __init__(self, incarnation: int = 0) -> None:
        self.incarnation = incarnation
        self.page = Page(self.name)
        self.status = self.page.status
        self.notes: list[tuple[str, str]] = []
        self.lines: list[tuple[int, str]] = []
        self.log = logging.Logger(self.name)
        handler = logging.Handler()
        handler.emit = lambda record: self.lines.append((record.levelno, record.getMessage()))  # type: ignore[method-assign]
        self.log.addHandler(handler)

    def note(self, kind: str, text: str, **fields: Any) -> None:
        self.notes.append((kind, text))

    @property
    def warnings(self) -> list[str]:
        return [text for level, text in self.lines if level == logging.WARNING]

    def counter(self, name: str) -> float:
        return dict(self.page.read().counters).get(name, 0.0)


@dataclasses.dataclass
class Setup:
    """An evaluator's recordings, driven by a test."""

    config: Config
    directory: RunDirectory
    crew: Crew | None = None
    blueprint: Blueprint = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.blueprint = Blueprint(self.config) if self.crew is None else self.crew.first
        self.weights = weights_of(self.blueprint)

    def record(self, *turns: int, incarnation: int = 0, index: int = 0) -> FakeActor:
        """Offer the evaluations of these turns, each after the recording of the previous one has ended."""
        actor = FakeActor(incarnation)
        actor.index = index
        self.play(actor, lambda videos: self.one_by_one(videos, turns))
        return actor

    def play(self, actor: FakeActor, drive: Callable[[EpisodeVideos], Any]) -> None:
        async def main() -> None:
            videos = EpisodeVideos(self.blueprint, self.directory, actor, self.crew)  # type: ignore[arg-type]
            task = asyncio.create_task(videos.run())
            await asyncio.sleep(0)
            await drive(videos)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            videos.close()

        asyncio.run(main())

    async def one_by_one(self, videos: EpisodeVideos, turns: tuple[int, ...]) -> None:
        for turn in turns:
            videos.offer(due_of(turn), [self.weights])
            await finished(videos)

    def files(self) -> list[str]:
        return sorted(path.name for path in self.directory.videos.iterdir())


def due_of(turn: int) -> EvaluationDue:
    return EvaluationDue(0, turn, turn, turn, 0.0)


async def finished(videos: EpisodeVideos) -> None:
    while videos._job is not None:
        await asyncio.sleep(0)


def setup(folder: Path, options: str = "{truncates=3}", name: str = "Drawn", **values: Any) -> Setup:
    every = {"evaluation__every": "{updates=4}", "evaluation__videos": 1, **values}
    config = config_of(f"drawn_environments:{name}", env__options=options, **every)
    return Setup(config, RunDirectory.create(folder, "test"))


def test_the_episodes_are_those_of_the_evaluation(tmp_path: Path) -> None:
    """Five episodes in two environments: their returns are random, and depend on the actions."""
    run = setup(tmp_path, evaluation__episodes=5, evaluation__envs=2, evaluation__videos=5)
    evaluator = Evaluator.of_run(run.blueprint)
    evaluator.bind(run.weights)
    evaluation = evaluator.evaluate(due_of(4))
    evaluator.close()
    actor = run.record(4)
    assert run.files() == [f"000004-{episode}.mp4" for episode in range(5)]
    returns = [float(text.rpartition(" ")[2]) for _, text in actor.lines]
    assert sum(returns) / 5 == pytest.approx(evaluation.mean_return, abs=0.05)  # the log has one decimal
    assert min(returns) == pytest.approx(evaluation.min, abs=0.051)
    assert all(": 4 pictures" in text for _, text in actor.lines)
    assert actor.counter("videos") == 5


def test_episodes_that_end_in_the_same_step_have_a_video_each(tmp_path: Path) -> None:
    """The bot folds in its first turn of every second episode, in which no policy has one."""
    bot = {"policies__left__agents": '"left"', "policies__left__scripted": '"drawn_agents:Folder"'}
    bot |= {"policies__right__agents": '"right"'}
    counts = {"evaluation__episodes": 3, "evaluation__envs": 1, "evaluation__videos": 3}
    config = config_of("drawn_agents:Folded", evaluation__every="{updates=4}", **bot, **counts)
    crew = Crew.of(config, Policies.of(config, environment_of(config)), tmp_path, [None])
    actor = Setup(config, RunDirectory.create(tmp_path, "test"), crew).record(4)
    assert [text.partition(": ")[2] for _, text in actor.lines] == [
        f"{pictures} pictures, return 0.0" for pictures in (5, 2, 5)
    ]


def test_the_newest_are_kept(tmp_path: Path) -> None:
    run = setup(tmp_path, evaluation__keep_videos=2)
    run.directory.videos.mkdir()
    (run.directory.videos / "play-000004-seed0.mp4").touch()
    run.record(4, 8, 12)
    assert run.files() == ["000008-0.mp4", "000012-0.mp4", "play-000004-seed0.mp4"]


def test_what_ends_while_a_recording_is_in_progress_is_counted(tmp_path: Path) -> None:
    run, actor = setup(tmp_path), FakeActor()

    async def drive(videos: EpisodeVideos) -> None:
        for turn in (4, 8, 12):
            videos.offer(due_of(turn), [run.weights])
        await finished(videos)
        for turn in (16, 20):
            videos.offer(due_of(turn), [run.weights])
        await finished(videos)

    run.play(actor, drive)
    assert run.files() == ["000004-0.mp4", "000016-0.mp4"]
    assert actor.counter("videos_skipped") == 3
    assert actor.notes == [
        ("skipped", "evaluation 8 is not recorded: evaluation 4 is still being recorded"),
        ("skipped", "evaluation 20 is not recorded: evaluation 16 is still being recorded"),
    ]


def test_a_recording_stands_still_during_an_evaluation(tmp_path: Path) -> None:
    run, actor = setup(tmp_path, "{truncates=1000}"), FakeActor()

    async def drive(videos: EpisodeVideos) -> None:
        videos.offer(due_of(4), [run.weights])
        while not videos._drawn:
            await asyncio.sleep(0)
        with videos.evaluating():
            assert videos._player is not None
            steps = videos._player.play._steps
            for _ in range(20):
                await asyncio.sleep(0)
            assert videos._player.play._steps == steps

    run.play(actor, drive)
    assert run.files() == []  # it was cancelled: neither half a video nor a mark remains


CANNOT = {
    "no pictures": ("small_environments:OneState", "{}", "has no pictures"),
    "no argument": ("drawn_environments:Unnamed", "{}", "unexpected keyword argument 'render_mode'"),
    "an error": ("drawn_environments:Drawn", '{kind="raises"}', "cannot be drawn: RuntimeError: no paint"),
}


@pytest.mark.parametrize("case", CANNOT)
def test_what_cannot_be_drawn_is_a_warning_of_one_evaluator(tmp_path: Path, case: str) -> None:
    id, options, text = CANNOT[case]
    values = {"evaluation__every": "{updates=4}", "evaluation__videos": 1, "env__options": options}
    run = Setup(config_of(id, **values), RunDirectory.create(tmp_path, "test"))
    actor = run.record(4, 8)
    assert len(actor.warnings) == 1
    assert actor.warnings[0].startswith("evaluations are no longer recorded: ")
    assert text in actor.warnings[0]
    assert actor.notes == [("videos off", actor.warnings[0])]
    assert run.files() == [".off"]
    other = run.record(12, incarnation=1, index=1)
    assert (other.lines, other.notes) == ([], [])


def test_a_file_that_cannot_be_written_is_one_line_until_one_can(tmp_path: Path) -> None:
    run, actor = setup(tmp_path), FakeActor()
    run.directory.videos.write_text("")

    async def drive(videos: EpisodeVideos) -> None:
        await run.one_by_one(videos, (4, 8))
        run.directory.videos.unlink()
        await run.one_by_one(videos, (12,))

    run.play(actor, drive)
    assert [text.partition(":")[0] for text in actor.warnings] == ["an evaluation was not recorded"]
    assert actor.counter("videos_failed") == 2
    assert run.files() == ["000012-0.mp4"]


# --- crashes


def test_an_exit_before_the_first_picture_turns_it_off(tmp_path: Path) -> None:
    run = setup(tmp_path)
    run.directory.videos.mkdir()
    DrawingMarks(run.directory.videos, 0).begin(4, drawn=False)
    (run.directory.videos / ".000004-0.mp4.hive-tmp").touch()
    actor = run.record(8, incarnation=1)
    assert len(actor.warnings) == 1
    assert "evaluator-0 exited while it drew its first picture: the renderer of `drawn_env" in actor.warnings[0]
    assert run.files() == [".off"]
    later = run.record(12, incarnation=2)
    assert (later.lines, later.notes, run.files()) == ([], [], [".off"])


def test_one_kill_during_a_recording_loses_it_and_two_turn_it_off(tmp_path: Path) -> None:
    run = setup(tmp_path)
    run.directory.videos.mkdir()
    marks = DrawingMarks(run.directory.videos, 0)
    marks.begin(4, drawn=True)
    actor = run.record(8, incarnation=1)
    assert actor.notes == [("lost", "evaluator-0 exited while it recorded evaluation 4, which has no video")]
    assert run.files() == ["000008-0.mp4"]
    marks.begin(12, drawn=True)
    marks.take_lost()
    marks.begin(16, drawn=True)
    assert "exited while it recorded, 2 times in a row" in run.record(20, incarnation=3).warnings[0]


def test_a_resumed_run_tries_again(tmp_path: Path) -> None:
    run = setup(tmp_path)
    run.directory.videos.mkdir()
    marks = DrawingMarks(run.directory.videos, 0)
    marks.begin(4, drawn=False)
    marks.turn_off("no paint")
    assert run.record(8).warnings == []
    assert run.files() == ["000008-0.mp4"]
