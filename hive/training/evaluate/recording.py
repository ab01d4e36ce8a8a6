"""Plays a policy in one environment with pictures: into a video, or into a window.

    played = record(policy, config, Path("pole.mp4"), episodes=2)
    show(policy, config, title="pole", episodes=None, ended=print)      # until the window is closed

It is the play of evaluations with one environment, so the policy acts as there: with its memory, stacks,
masks and normalization. The episodes are those of environment 0 of `evaluate` with the same seed, unless actions are
sampled.

An environment of several agents is played by all policies of the config, given by their names:

    record({"cross": cross, "circle": circle}, config, Path("game.mp4"))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hive.config import Config
from hive.config.references import give_setup
from hive.envs.agents.lone import LONE
from hive.envs.drawing.rendered_table import rendered_table
from hive.envs.drawing.rendering import Rendered, prepare_drawing, rendered_environment, rendered_spec
from hive.envs.drawing.window import Window
from hive.experience import Purpose
from hive.policy.acting import Acting
from hive.policy.loaded import Policy
from hive.records.sinks.videos import check_video_file, video_writer
from hive.runtime.process.user_code.guest import Guest
from hive.training.collect.collector import seed_all_globals
from hive.training.evaluate.evaluator import evaluation_contexts
from hive.training.evaluate.play import ENDLESS, Play
from hive.training.evaluate.playing import check_spaces, limit_of, seated


@dataclass(frozen=True)
class Episode:
    """The return and the number of steps of an episode. cut: whether it did not end, but came to the limit of steps.

    returns: of each agent, where there are several; `episode_return` is then their sum, and `length` may be in turns.
    """

    episode_return: float
    length: int
    cut: bool = False
    returns: Mapping[str, float] = field(default_factory=dict)


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


@dataclass(frozen=True)
class _Stage:
    """An environment that is played with pictures: a step of all agents, or the turn of one, between two of them."""

    rendered: Rendered
    play: Play

    def episodes(self) -> Iterator[Episode | None]:
        """Yield after each step: the episode that ended, or None. Raises EnvironmentFailed."""
        self.play.begin(0)
        while not self.play.over:
            ended = self.play.step()
            for one in ended:
                returns = {} if LONE in one.returns else one.returns
                yield Episode(sum(one.returns.values()), one.steps, one.cut, returns)
            if not ended:
                yield None


Players = Policy | Mapping[str, Policy]
"""The policy that plays an environment of one agent, or those of several agents, by their names."""


def record(
    policy: Players,
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
    done: list[Episode] = []
    with Guest():
        prepare_drawing(window=False)
        limit = limit_of(config, max_steps)
        stage = _stage(policy, config, episodes, seed, sample, limit, window=False)
        try:
            with video_writer(path, stage.rendered.fps) as writer:
                for episode in stage.episodes():
                    for picture in stage.rendered.take():
                        writer.add(picture.pixels)
                    done += [episode] if episode else []
                    progress(writer.pictures)
                    if writer.full:
                        break
        finally:
            stage.play.close()
    return Recording(path, stage.rendered.fps, writer.pictures, tuple(done), len(done) == episodes)


def show(
    policy: Players,
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
    stage = _stage(policy, config, episodes or ENDLESS, seed, sample, limit_of(config, max_steps), window=True)
    window = Window(title, stage.rendered.fps)
    done: list[Episode] = []
    try:
        for episode in stage.episodes():
            for picture in stage.rendered.take():
                window.show(picture.pixels)
            window.poll()
            if episode:
                done.append(episode)
                ended(episode)
            if window.closed:
                break
    finally:
        window.close()
        stage.play.close()
    return done


def _stage(
    policy: Players, config: Config, episodes: int, seed: int, sample: bool, max_steps: int, *, window: bool
) -> _Stage:
    env = config.evaluation_env
    give_setup(config.run.setup)
    spec = rendered_spec(env)
    policies = policy if isinstance(policy, Mapping) else {"": policy}
    (context,) = evaluation_contexts(seed, 1)
    if spec.agents:
        table = seated(policies, config, spec)
        seed_all_globals(seed, Purpose.evaluation_building, 0, 0)
        rendered = rendered_table(env, table.seats, table.bots, context=context, window=window)
    else:
        (one,) = policies.values()
        check_spaces(one, env.id, spec)
        seed_all_globals(seed, Purpose.evaluation_building, 0, 0)
        rendered = rendered_environment(env, one.observation, context=context, window=window)
    players = [Acting.of(one) for one in policies.values()]
    how: dict[str, Any] = {"seed": seed, "episodes": episodes, "max_steps": max_steps}
    return _Stage(rendered, Play(rendered.table, players, sample=sample, **how))
