"""Recorded episodes are those of an evaluation, every picture once; environments without pictures are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_trainer import config_of
from test_playing import saved

from hive.envs import EnvContext, ObservationSpec
from hive.envs.drawing.rendering import rendered_environment
from hive.errors import EnvironmentFailed, UsageError
from hive.training import evaluate, joined, record

Image = pytest.importorskip("PIL.Image", reason="needs the extra video")


def drawn(options: str = "{truncates=3}", name: str = "Drawn", **values: Any) -> Any:
    return config_of(f"drawn_environments:{name}", env__options=options, **values)


def test_each_picture_of_each_episode_is_recorded_once(tmp_path: Path) -> None:
    """The first state, and the last one, after which the vector resets the environment."""
    video = record(saved(tmp_path, drawn()), drawn(), tmp_path / "a.gif", episodes=2)
    assert (video.fps, video.pictures, video.whole) == (20.0, 8, True)
    with Image.open(video.path) as gif:
        shades = [(gif.seek(n), gif.convert("RGB").getpixel((0, 0))[0])[1] for n in range(gif.n_frames)]
    assert shades == [0, 1, 2, 3, 0, 1, 2, 3]


def test_the_episodes_are_those_of_an_evaluation(tmp_path: Path) -> None:
    policy = saved(tmp_path, drawn())
    video = record(policy, drawn(), tmp_path / "a.gif", episodes=2, seed=5)
    played = evaluate(policy, drawn(), episodes=2, envs=1, seed=5)
    assert sum(one.episode_return for one in video.episodes) / 2 == pytest.approx(played.mean_return)


def test_stacks_and_skipped_steps(tmp_path: Path) -> None:
    """One picture for two steps of the environment, so half as many a second."""
    skip = '[{name="MaxAndSkipObservation", skip=2}]'
    config = drawn("{truncates=4}", env__frame_stack=2, env__wrappers=skip)
    video = record(saved(tmp_path, config), config, tmp_path / "a.gif")
    assert (video.fps, video.pictures) == (10.0, 3)


@pytest.mark.parametrize(
    ("config", "error", "text"),
    [
        (config_of("small_environments:OneState"), UsageError, "has no pictures: its metadata"),
        (drawn(name="Unnamed"), EnvironmentFailed, "unexpected keyword argument 'render_mode'"),
        (drawn('{kind="raises"}'), EnvironmentFailed, "cannot be drawn: RuntimeError: no paint"),
        (drawn('{kind="floats"}'), EnvironmentFailed, "drew float32"),
    ],
)
def test_what_cannot_be_drawn(tmp_path: Path, config: Any, error: type[Exception], text: str) -> None:
    policy = saved(tmp_path, config)
    with pytest.raises(error, match=text):
        record(policy, config, tmp_path / "a.gif")
    assert [path.name for path in tmp_path.iterdir()] == ["000007"]


SEEN = ObservationSpec((1,), "float32")


def test_compiled_environments_have_no_pictures() -> None:
    with pytest.raises(UsageError, match=r"compiled with hive/env\.h cannot be rendered"):
        rendered_environment(config_of("./catch.so:Catch").evaluation_env, SEEN, context=EnvContext(0))


def test_evaluations_with_several_seeds_are_joined(tmp_path: Path) -> None:
    policy = saved(tmp_path, drawn())
    one, other = (evaluate(policy, drawn(), episodes=n, seed=n) for n in (3, 5))
    both = joined([one, other])
    assert both.episodes == 8
    assert both.mean_return == pytest.approx((3 * one.mean_return + 5 * other.mean_return) / 8)
    squares = 3 * (one.deviation**2 + one.mean_return**2) + 5 * (other.deviation**2 + other.mean_return**2)
    assert both.deviation == pytest.approx((squares / 8 - both.mean_return**2) ** 0.5)
    assert joined([one]) is one


@pytest.mark.full(reason="plays Atari, twice")
def test_a_game_of_the_preset_is_that_of_the_evaluation(tmp_path: Path) -> None:
    pytest.importorskip("ale_py", reason="needs the extra atari")
    config = config_of("ALE/Pong-v5", env__preset='"atari"', network__middleware=[])
    policy = saved(tmp_path, config)
    video = record(policy, config, tmp_path / "a.gif", seed=4)
    many = evaluate(policy, config, episodes=1, envs=1, seed=4)
    assert (video.episodes[0].episode_return, video.episodes[0].length) == (many.mean_return, many.mean_length)
    assert video.fps == 15.0
    with Image.open(video.path) as gif:
        assert gif.size == (160, 210)
