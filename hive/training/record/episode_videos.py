"""Records the first episodes of evaluations of a run as videos, beside the evaluator's other work.

    offer(due, weights)    after an evaluation: copies the weights, which are unpinned then
    run()                  plays the episodes again with pictures      -> videos/<update>-<episode>.mp4
    evaluating()           a block in which the recording stands still

Episode e of an evaluation in B environments is an episode of environment e mod B. It is played again in one environment
with the seed of that environment, so recording changes no number. (The network then sees one observation instead of B;
rounding of float32 may differ, so a video may rarely show another end than the evaluation had.)

A recording rests after every step, and encodes in a thread. Evaluations come first: a recording in
progress waits for them, and those that end meanwhile are not recorded, but counted. Recordings of a run that ends are
lost.

    error                                   what follows
    a file cannot be written                a line in the log, once until one succeeds; the next one is tried
    the environment cannot be drawn         a warning, and no more recordings
    the process exits, before a picture     a warning, and no more recordings: its renderer crashes it
    the process exits, after a picture      the recording is lost; no more recordings after two in a row
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.envs import EnvContext, recipe_of
from hive.envs.agents.seats import EndedEpisode, Seat
from hive.envs.agents.table import Bots, seat_of_all
from hive.envs.drawing.rendered_table import rendered_table
from hive.envs.drawing.rendering import Picture, Rendered, choose_renderer, prepare_drawing, rendered_environment
from hive.envs.make import differs_by_environment
from hive.errors import HiveError, RecordError
from hive.experience import Purpose
from hive.networks.weights.flat import aligned_block
from hive.records import RunDirectory
from hive.records.documents import failure
from hive.records.return_text import return_text
from hive.records.sinks.drawing_marks import DrawingMarks
from hive.records.sinks.videos import VideoWriter, evaluation_video, surplus_videos, video_suffix, video_writer
from hive.runtime import RUNTIME, Actor
from hive.runtime.actor.error_location import named
from hive.training.blueprint import Blueprint
from hive.training.collect.collector import seed_all_globals
from hive.training.crew import Crew
from hive.training.evaluate.evaluator import evaluator_contexts, player_of
from hive.training.evaluate.play import ENDLESS, Play
from hive.training.messages import EvaluationDue

REST = 1.0  # seconds of rest for each second of CPU time: drawing leaves half of a core, or more, to the training
MOST_LOST = 2  # recordings lost in a row: one exit may be a kill, two at this very moment are the renderer's doing


@dataclass(frozen=True)
class _Player:
    """Plays in one environment. context: who it is. suffix: of its files."""

    context: EnvContext
    rendered: Rendered
    play: Play
    suffix: str


class EpisodeVideos:
    """Records for one evaluator. `actor`: the evaluator, whose log, events and status page it uses."""

    def __init__(self, blueprint: Blueprint, directory: RunDirectory, actor: Actor, crew: Crew | None = None) -> None:
        """crew: the policies that play together; None: the blueprint's alone."""
        self.blueprint = blueprint
        self.crew = crew
        self.blueprints = (blueprint,) if crew is None else crew.blueprints
        self.folder = directory.videos
        self.actor = actor
        evaluation = blueprint.config.evaluation
        self.videos, self.envs, self.keep = evaluation.videos, evaluation.envs, evaluation.keep_videos
        self.marks = DrawingMarks(self.folder, actor.index)
        self.off = False
        self._job: tuple[EvaluationDue, list[NDArray[np.uint8]]] | None = None
        self._player: _Player | None = None
        self._phase = actor.status.phase("record", RUNTIME)  # not busy: a pause does not wait for a recording
        self._drawn = False  # whether this incarnation has drawn a picture
        self._skipped = self._failed = False  # whether that has been logged since the last recording
        self._offered, self._may_play = asyncio.Event(), asyncio.Event()
        self._may_play.set()

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Stop the recording while the block runs."""
        self._may_play.clear()
        try:
            yield
        finally:
            self._may_play.set()

    def offer(self, due: EvaluationDue, weights: Sequence[NDArray[np.uint8]]) -> None:
        """Record the evaluation that has ended, unless the previous recording is still in progress.

        weights: of each policy, uint8 [block_bytes or more] of its turn; they are copied.
        """
        if not self.videos or self.off or self.marks.off:
            return
        if self._job is None:
            copies = [aligned_block(one.flat.block_bytes) for one in self.blueprints]
            for copy, block in zip(copies, weights, strict=True):
                copy[:] = block[: len(copy)]
            self._job = due, copies
            self._skipped = False
            self._offered.set()
            return
        self.actor.status.count("videos_skipped")
        if not self._skipped:
            still = f"evaluation {self._job[0].turn} is still being recorded"
            self.actor.note("skipped", f"evaluation {due.turn} is not recorded: {still}")
        self._skipped = True

    async def run(self) -> None:
        """Record what is offered, until it is cancelled."""
        if not self.videos:
            return
        self._examine_previous()
        while not self.off:
            await self._offered.wait()
            self._offered.clear()
            assert self._job is not None
            try:
                await self._record(*self._job)
                self._failed = False
            except RecordError as error:
                self.actor.status.count("videos_failed")
                self._report(error)
            except HiveError as error:
                self._turn_off(str(error), error.hint)
            except Exception as error:  # of a library that draws, or of the environment
                self.actor.log.debug("the recording failed", exc_info=True)
                self._turn_off(f"`{self.blueprint.config.evaluation_env.id}` cannot be drawn: {named(error)}")
            finally:
                self._job = None
        self.close()

    def close(self) -> None:
        """Close the environment."""
        player, self._player = self._player, None
        if player is not None:
            player.play.close()

    def _examine_previous(self) -> None:
        """Find out whether the previous incarnation exited while it recorded."""
        try:
            if not self.actor.incarnation:
                self.marks.forget()
            lost = self.marks.take_lost()
        except RecordError as error:
            self._report(error)
            return
        if lost is None:
            return
        for path in self.folder.glob(f".{evaluation_video(self.folder, lost.turn, 0, '').name[:-1]}*"):
            with suppress(OSError):
                path.unlink()  # the part of a video
        name, env = self.actor.name, self.blueprint.config.evaluation_env.id
        if lost.drawn and lost.times < MOST_LOST:
            self.actor.note("lost", f"{name} exited while it recorded evaluation {lost.turn}, which has no video")
            return
        when = f"recorded, {lost.times} times in a row" if lost.drawn else "drew its first picture"
        hint = (
            "its stack is in crash/; `hive play RUN -o a.mp4` tries the same, and MUJOCO_GL selects MuJoCo's renderer"
        )
        self._turn_off(f"{name} exited while it {when}: the renderer of `{env}` may crash its process", hint)

    async def _record(self, due: EvaluationDue, weights: Sequence[NDArray[np.uint8]]) -> None:
        """Record one evaluation, and remove the oldest videos beyond the limit."""
        try:
            self.folder.mkdir(exist_ok=True)
        except OSError as error:
            raise failure("make", self.folder, error) from error
        complete = False
        self.marks.begin(due.turn, drawn=self._drawn)
        try:
            for first in range(min(self.videos, self.envs)):
                player = await self._player_of(first)
                for one, block in zip(player.play.players, weights, strict=True):
                    one.bind(block)
                await self._play(player, due, first)
            complete = True
        finally:
            self.marks.end(complete=complete)
            self.actor.status.enter(self.actor.status.runtime)
        for path in surplus_videos(self.folder, self.keep):
            with suppress(OSError):  # another evaluator has removed it
                path.unlink()

    async def _player_of(self, first: int) -> _Player:
        """Return what plays environment `first` of the evaluator: another one only where environments differ."""
        env, contexts = self.blueprint.config.evaluation_env, evaluator_contexts(self.blueprint, self.actor.index)
        context = contexts[first if differs_by_environment(recipe_of(env)) else 0]
        if self._player is None or self._player.context != context:
            self.close()
            self._player = await self._make_player(context)
        return self._player

    async def _make_player(self, context: EnvContext) -> _Player:
        """Build the environment with pictures, and the policy that plays in it."""
        suffix = video_suffix()
        prepare_drawing(window=False)
        await asyncio.to_thread(choose_renderer)  # the trials take seconds
        seed_all_globals(self.blueprint.config.run.seed, Purpose.evaluation_building, 0, 0)
        config, observation = self.blueprint.config, self.blueprint.environment.observation
        env, seats = config.evaluation_env, self._seats()
        if seats is None:
            rendered = rendered_environment(env, observation, context=context)
        else:
            rendered = rendered_table(env, *seats, context=context)
        how: dict[str, Any] = {"seed": config.run.seed, "episodes": ENDLESS, "max_steps": config.evaluation.max_steps}
        players = [player_of(one) for one in self.blueprints]
        return _Player(context, rendered, Play(rendered.table, players, **how), suffix)

    def _seats(self) -> tuple[Sequence[Seat], Bots] | None:
        """Return the seats and bots of environments of several agents; None for one agent."""
        if self.crew is not None:
            return self.crew.policies.seats, self.crew.policies.bots
        environment = self.blueprint.environment
        return ([seat_of_all("", environment)], {}) if environment.agents else None

    async def _play(self, player: _Player, due: EvaluationDue, first: int) -> None:
        """Record the episodes of environment `first`, each to a file."""
        self.actor.status.enter(self._phase)
        numbers = range(first, self.videos, self.envs)
        player.play.quota[:] = len(numbers)
        player.play.begin(0 if self.blueprint.config.evaluation.same_starts else due.turn, first)
        ended: list[EndedEpisode] = []
        pictures: list[Picture] = []
        for number in numbers:  # one step may end several: a bot may play an episode alone
            path = evaluation_video(self.folder, due.turn, number, player.suffix)
            with ExitStack() as stack:
                writer = stack.enter_context(video_writer(path, player.rendered.fps))
                rest_s = 0.0
                while True:
                    while pictures and not (pictures[0].first and writer.pictures):
                        await asyncio.to_thread(writer.add, pictures.pop(0).pixels)  # may wait for ffmpeg
                    if ended or writer.full:
                        break
                    await asyncio.sleep(rest_s)
                    await self._may_play.wait()
                    begun = time.process_time()
                    ended = self._step(player)
                    rest_s = REST * (time.process_time() - begun)
                    pictures += player.rendered.take()
                    self._mark_drawn(due)
                await _finish(stack.pop_all(), writer)
            self.actor.status.count("videos")
            returned = sum(ended[0].returns.values()) if ended else 0.0
            shown = f"return {return_text(returned)}" if ended else "cut at its limit of pictures"
            self.actor.log.info("recorded %s: %d pictures, %s", path.name, writer.pictures, shown)
            if not ended:
                return
            del ended[0]

    def _step(self, player: _Player) -> list[EndedEpisode]:
        """Make one step with its pictures. Return the episodes that have ended."""
        self.actor.status.enter(self._phase)
        return player.play.step()

    def _mark_drawn(self, due: EvaluationDue) -> None:
        if not self._drawn:
            self._drawn = True
            self.marks.begin(due.turn, drawn=True)

    def _report(self, error: RecordError) -> None:
        """Log that a file cannot be written, once until a recording succeeds."""
        if not self._failed:
            self.actor.log.warning("an evaluation was not recorded: %s", _line(str(error), error.hint))
        self._failed = True

    def _turn_off(self, cause: str, hint: str = "") -> None:
        """Record nothing more, and log why, unless another evaluator already has."""
        self.off = True
        if self.marks.off:
            return
        try:
            self.folder.mkdir(exist_ok=True)
            self.marks.turn_off(cause)
        except (OSError, RecordError):
            pass  # every incarnation then logs the cause again
        text = f"evaluations are no longer recorded: {_line(cause, hint)}"
        self.actor.log.warning("%s", text)
        self.actor.note("videos off", text)


async def _finish(written: ExitStack, writer: VideoWriter) -> None:
    """Complete a video. A cancellation does not wait for ffmpeg and for the disk: it leaves no video."""
    try:
        await asyncio.to_thread(written.close)
    except asyncio.CancelledError:
        writer.abandon()
        raise


def _line(cause: str, hint: str) -> str:
    return f"{cause}; {hint}" if hint else cause
