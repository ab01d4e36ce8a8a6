"""Plays a policy in one environment with pictures: into a video, or into a window.

    played = record(policy, config, Path("pole.mp4"), episodes=2)
    show(policy, config, title="pole", episodes=None, ended=print)      # until the window is closed

It is the `Evaluator` of a run with one environment, so the policy acts as in evaluations: with its memory, stacks,
masks and normalization. The episodes are those of environment 0 of `evaluate` with the same seed, unless actions are
sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hive.config import Config
from hive.envs.drawing.rendering import RenderedEnvironment, prepare_drawing, rendered_environment, rendered_spec
from hive.envs.drawing.window import Window
from hive.experience import Purpose
from hive.policy.loaded import Policy
from hive.records.sinks.videos import check_video_file, video_writer
from hive.runtime.process.user_code.guest import Guest
from hive.training.collect.collector import seed_all_globals
from hive.training.evaluate.evaluator import ENDLESS, Evaluator
from hive.training.evaluate.playing import check_spaces, due_of, evaluator_of, limit_of
from hive.training.messages import EvaluationDue


@dataclass(frozen=True)
class Episode:
    """The return and the number of steps of an episode. cut: whether it did not end, but came to the limit of steps."""

    episode_return: float
    length: int
    cut: bool = False


@dataclass(frozen=True)
class Recording:
    """A video: its file, its pictures and pictures per second, and the whole episodes in it.

    whole: whether all requested episodes are in it; otherwise it ends at the limit of `hive.records.sinks.videos`.
    """

    path: Path
    fps: float
    pictures: int
    episodes: tuple[Episode, ...]
    whole: bool


def episodes_of(evaluator: Evaluator, due: EvaluationDue) -> Iterator[Episode | None]:
    """Play the episodes of an evaluator with one environment. Yield after each step: the episode that ended, or None.

    Raises EnvironmentFailed.
    """
    evaluator.begin(due)
    done = None
    while done is None:
        cut = evaluator.cut
        done = evaluator.step()
        length = int(evaluator.row.episode_lengths[0])
        ended = Episode(float(evaluator.row.episode_returns[0]), length, cut=evaluator.cut > cut)
        yield ended if length else None


def record(
    policy: Policy,
    config: Config,
    path: Path,
    *,
    episodes: int = 1,
    seed: int = 0,
    sample: bool = False,
    max_steps: int | None = None,
    progress: Callable[[int], object] = lambda pictures: None,
) -> Recording:
    """Play `episodes` episodes of the environment of `config` into one video. No display is needed.

    path: ends in .mp4 or .gif. sample, max_steps, errors: as for `evaluate`. progress: called with the number of
    pictures so far. Also raises UsageError if the environment has no pictures or a package is missing, and RecordError
    if the file cannot be written; then there is no file.
    """
    check_video_file(path)
    with Guest():
        return _record(policy, config, path, episodes, seed, sample, limit_of(config, max_steps), progress)


def _record(
    policy: Policy,
    config: Config,
    path: Path,
    episodes: int,
    seed: int,
    sample: bool,
    max_steps: int,
    progress: Callable[[int], object],
) -> Recording:
    prepare_drawing(window=False)
    rendered = _rendered(policy, config, seed, window=False)
    done: list[Episode] = []
    try:
        evaluator = evaluator_of(
            policy, rendered.vector, seed=seed, episodes=episodes, sample=sample, max_steps=max_steps
        )
        with video_writer(path, rendered.fps) as writer:
            for episode in episodes_of(evaluator, due_of(policy)):
                for picture in rendered.take():
                    writer.add(picture.pixels)
                done += [episode] if episode else []
                progress(writer.pictures)
                if writer.full:
                    break
    finally:
        rendered.vector.close()
    return Recording(path, rendered.fps, writer.pictures, tuple(done), len(done) == episodes)


def show(
    policy: Policy,
    config: Config,
    *,
    title: str,
    episodes: int | None = None,
    seed: int = 0,
    sample: bool = False,
    max_steps: int | None = None,
    ended: Callable[[Episode], object] = lambda episode: None,
) -> list[Episode]:
    """Play in a window in real time until `episodes` have ended or the window is closed; return the whole episodes.

    ended: called with each. sample, max_steps: as for `evaluate`. Raises UsageError if no window can be opened, and
    what `record` raises.
    """
    prepare_drawing(window=True)
    rendered = _rendered(policy, config, seed, window=True)
    window = Window(title, rendered.fps)
    done: list[Episode] = []
    try:
        limit = limit_of(config, max_steps)
        evaluator = evaluator_of(
            policy, rendered.vector, seed=seed, episodes=episodes or ENDLESS, sample=sample, max_steps=limit
        )
        for episode in episodes_of(evaluator, due_of(policy)):
            for picture in rendered.take():
                window.show(picture.pixels)
            window.poll()
            if episode:
                done.append(episode)
                ended(episode)
            if window.closed:
                break
    finally:
        window.close()
        rendered.vector.close()
    return done


def _rendered(policy: Policy, config: Config, seed: int, *, window: bool) -> RenderedEnvironment:
    env = config.evaluation_env
    check_spaces(policy, env.id, rendered_spec(env))
    seed_all_globals(seed, Purpose.evaluation_building, 0, 0)
    return rendered_environment(env, window=window)
