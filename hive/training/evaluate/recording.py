"""Plays a policy in one environment with pictures: into a video, or into a window.

    played = record(policy, config, Path("pole.mp4"), episodes=2)
    show(policy, config, title="pole", episodes=None, ended=print)      # until the window is closed

It is the `Evaluator` of a run with one environment, so the policy acts as in evaluations: with its memory, stacks,
masks and normalization. The episodes are those of environment 0 of `evaluate` with the same seed, unless actions are
sampled.

An environment of several agents is played by all policies of the config, given by their names:

    record({"cross": cross, "circle": circle}, config, Path("game.mp4"))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hive.config import Config
from hive.config.references import give_setup
from hive.envs import EnvironmentSpec
from hive.envs.drawing.rendering import Picture, prepare_drawing, rendered_environment, rendered_spec
from hive.envs.drawing.window import Window
from hive.experience import Purpose
from hive.policy.loaded import Policy
from hive.records.sinks.videos import check_video_file, video_writer
from hive.runtime.process.user_code.guest import Guest
from hive.training.collect.collector import seed_all_globals
from hive.training.evaluate.evaluator import ENDLESS, Evaluator, evaluation_contexts
from hive.training.evaluate.playing import check_spaces, due_of, evaluator_of, limit_of, seated
from hive.training.messages import EvaluationDue


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


@dataclass(frozen=True)
class _Stage:
    """An environment that is played with pictures. episodes: yields after each step, as `episodes_of`."""

    fps: float
    take: Callable[[], list[Picture]]
    close: Callable[[], None]
    episodes: Iterator[Episode | None]


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
            with video_writer(path, stage.fps) as writer:
                for episode in stage.episodes:
                    for picture in stage.take():
                        writer.add(picture.pixels)
                    done += [episode] if episode else []
                    progress(writer.pictures)
                    if writer.full:
                        break
        finally:
            stage.close()
    return Recording(path, stage.fps, writer.pictures, tuple(done), len(done) == episodes)


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
    window = Window(title, stage.fps)
    done: list[Episode] = []
    try:
        for episode in stage.episodes:
            for picture in stage.take():
                window.show(picture.pixels)
            window.poll()
            if episode:
                done.append(episode)
                ended(episode)
            if window.closed:
                break
    finally:
        window.close()
        stage.close()
    return done


def _stage(
    policy: Players, config: Config, episodes: int, seed: int, sample: bool, max_steps: int, *, window: bool
) -> _Stage:
    env = config.evaluation_env
    give_setup(config.run.setup)
    spec = rendered_spec(env)
    if spec.agents:
        policies = policy if isinstance(policy, Mapping) else {"": policy}
        return _table_stage(policies, config, spec, episodes, seed, sample, max_steps, window=window)
    if isinstance(policy, Mapping):
        (policy,) = policy.values()
    check_spaces(policy, env.id, spec)
    seed_all_globals(seed, Purpose.evaluation_building, 0, 0)
    (context,) = evaluation_contexts(seed, 1)
    rendered = rendered_environment(env, context=context, window=window, origins=policy.observation)
    evaluator = evaluator_of(policy, rendered.vector, seed=seed, episodes=episodes, sample=sample, max_steps=max_steps)
    return _Stage(rendered.fps, rendered.take, rendered.vector.close, episodes_of(evaluator, due_of(policy)))


def _table_stage(
    policies: Mapping[str, Policy],
    config: Config,
    spec: EnvironmentSpec,
    episodes: int,
    seed: int,
    sample: bool,
    max_steps: int,
    *,
    window: bool,
) -> _Stage:
    """Make the stage of several agents, on which each step is one of all agents, or the turn of one."""
    from hive.envs.drawing.rendered_table import rendered_table  # here: they import gymnasium
    from hive.training.evaluate.table import table_episodes

    table = seated(policies, config, spec)
    seed_all_globals(seed, Purpose.evaluation_building, 0, 0)
    (context,) = evaluation_contexts(seed, 1)
    rendered = rendered_table(config.evaluation_env, table.seats, table.bots, context=context, window=window)
    played = table_episodes(rendered.table, policies, seed=seed, episodes=episodes, sample=sample, max_steps=max_steps)

    def each() -> Iterator[Episode | None]:
        for ended in played:
            for one in ended:
                yield Episode(sum(one.returns.values()), one.steps, one.cut, one.returns)
            if not ended:
                yield None

    return _Stage(rendered.fps, rendered.take, rendered.table.close, each())
