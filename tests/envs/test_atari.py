"""The preset "atari": its frames are those of Gymnasium's own preprocessing, and what training sees of a game."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from hive.envs import Recipe, StepRow, describe, make_environment, make_vector, preset_for
from hive.errors import ConfigError, EnvironmentMissing

pytest.importorskip("ale_py", reason="needs the extra atari")

PLAIN: dict[str, Any] = {"noop_max": 0, "fire_reset": False}


def played(id: str, options: dict[str, Any], steps: int, kind: str = "auto", count: int = 2) -> dict[str, np.ndarray]:
    """The rows of `steps` steps of random actions, as arrays [T, count, ...]."""
    spec = describe(Recipe(id, options, kind, preset="atari"))
    vector = make_vector(id, options, count, kind, preset="atari")
    row, generator = StepRow.allocate(spec.observation, count), np.random.default_rng(2)
    vector.reset(range(5, 5 + count), row.observations)
    rows: dict[str, list[Any]] = {name: [] for name in StepRow.__slots__ if name != "finals"} | {"finals": []}
    for _ in range(steps):
        row.finals.count = 0
        vector.step(generator.integers(spec.action.n, size=count), row)  # type: ignore[union-attr]
        for name, values in rows.items():
            values.append(np.copy(row.finals.observations if name == "finals" else getattr(row, name)))
    vector.close()
    return {name: np.array(values) for name, values in rows.items()}


def test_frames_rewards_and_ends_are_those_of_gymnasiums_preprocessing() -> None:
    pytest.importorskip("cv2", reason="needs the extra atari")
    id = "ALE/Breakout-v5"
    base = gymnasium.make(
        id, frameskip=1, repeat_action_probability=0.0, obs_type="grayscale", max_num_frames_per_episode=320
    )
    theirs = gymnasium.wrappers.AtariPreprocessing(base, noop_max=0)
    ours = make_environment(Recipe(id, PLAIN | {"max_num_frames_per_episode": 320}, preset="atari"))
    assert ours.action_space == theirs.action_space
    assert ours.observation_space == theirs.observation_space
    generator = np.random.default_rng(1)
    assert np.array_equal(ours.reset(seed=1)[0], theirs.reset(seed=1)[0])
    rewarded = 0
    for _ in range(79):
        action = generator.integers(ours.action_space.n)  # type: ignore[attr-defined]
        mine, other = ours.step(action), theirs.step(action)
        assert np.array_equal(mine[0], other[0])
        assert mine[1:4] == other[1:4]
        rewarded += mine[1] != 0  # type: ignore[operator]
    assert rewarded > 0
    assert ours.step(0)[2:4] == (False, True)


def test_a_vector_and_single_games_write_the_same_rows() -> None:
    options = {"max_num_frames_per_episode": 200, "repeat_action_probability": 0.25, "terminal_on_life_loss": True}
    native, single, threads = (
        played("ALE/Breakout-v5", options | {"threads": threads}, 90, kind)
        for kind, threads in (("native", 1), ("python", 1), ("auto", 2))
    )
    assert native["truncated"].sum() > 0
    assert native["terminated"].sum() > 0
    for name, values in native.items():
        assert np.array_equal(values, single[name]), name
        assert np.array_equal(values, threads[name]), name


def test_returns_are_the_games_and_rewards_their_signs() -> None:
    limit = {"max_num_frames_per_episode": 400}
    raw = played("ALE/MsPacman-v5", limit | {"clip_rewards": False}, 100, count=1)
    signs = played("ALE/MsPacman-v5", limit, 100, count=1)
    assert raw["rewards"].max() > 1.0
    assert np.array_equal(signs["rewards"], np.sign(raw["rewards"]))
    assert np.array_equal(signs["episode_returns"], raw["episode_returns"])
    assert raw["episode_returns"][99] == raw["rewards"].sum()
    assert raw["episode_lengths"][99] == 100


def test_a_lost_life_ends_an_episode_for_the_values_and_not_the_game() -> None:
    usual = played("ALE/Breakout-v5", {}, 100, count=1)
    lives = played("ALE/Breakout-v5", {"terminal_on_life_loss": True}, 100, count=1)
    for name in ("observations", "rewards", "truncated", "episode_returns", "episode_lengths"):
        assert np.array_equal(usual[name], lives[name]), name
    assert lives["terminated"].sum() - usual["terminated"].sum() >= 2
    assert (lives["terminated"] >= usual["terminated"]).all()


class Lives:
    """A vector of one game with the given lives after its reset and each step; length 9 where the game ends."""

    count = 1
    environments = ()
    observation = action = None

    def __init__(self, lives: list[int], ends: set[int]) -> None:
        self.left, self.ends = lives, ends
        self.at = 0
        self.unwrapped = self

    @property
    def lives(self) -> int:
        return self.left[self.at]

    def reset(self, seeds: Any, observations: Any) -> None:
        pass

    def step(self, actions: Any, row: StepRow) -> None:
        self.at += 1
        row.rewards[:] = -7.0
        row.terminated[:], row.episode_lengths[:] = self.at in self.ends, 9 * (self.at in self.ends)


@pytest.mark.parametrize("ends_lives", [True, False])
def test_each_lost_life_ends_once_and_the_last_with_the_game(ends_lives: bool) -> None:
    """Some games have 0 lives for a few frames before they end; a game may win lives back."""
    from hive.envs.vectors.atari import AtariOptions, AtariVector

    lives = [3, 3, 2, 2, 3, 1, 0, 0, 3, 3, 2]
    vector: Any = Lives(lives, ends={8})
    game = AtariVector(vector, [vector], [AtariOptions(terminal_on_life_loss=ends_lives)])
    row = StepRow.allocate(describe(Recipe("CartPole-v1")).observation, 1)
    game.reset([0], row.observations)
    ended = []
    for step in range(1, len(lives)):
        game.step(np.zeros(1, np.int64), row)
        assert row.rewards.tolist() == [-1.0]
        ended += [step] if row.terminated[0] else []
    assert ended == ([2, 5, 8, 10] if ends_lives else [8])


@pytest.mark.full(reason="builds three games, which load their ROM")
def test_games_begin_with_fire_and_up_to_30_frames_without_an_action() -> None:
    from hive.envs.vectors.atari import AtariOptions, Games

    games = Games("breakout", 1, AtariOptions())
    frames = [int(games.reset(seed=seed)[1]["episode_frame_number"][0]) for seed in [1, *[None] * 40]]
    assert 20 < max(frames) <= 30
    assert len(set(frames)) > 10
    for fire, first in ((True, 1), (False, 0)):
        games = Games("breakout", 1, AtariOptions(noop_max=0, fire_reset=fire))
        assert games.reset(seed=3)[1]["episode_frame_number"] == first, "the frame of FIRE"


def test_the_description() -> None:
    spec = describe(Recipe("ALE/Pong-v5", preset="atari"))
    assert (spec.observation.shape, spec.observation.dtype) == ((84, 84), "uint8")
    assert (spec.max_episode_steps, spec.frame_skip) == (27_000, 4)
    twice = [{"name": "RepeatAction", "num_repeats": 2}]
    wrapped = describe(Recipe("ALE/Pong-v5", {"screen_size": 42, "frame_skip": 2}, "auto", twice, "atari"))
    assert (wrapped.observation.shape, wrapped.max_episode_steps, wrapped.frame_skip) == ((42, 42), 27_000, 4)
    assert describe(Recipe("ALE/Pong-v5")).frame_skip == 4
    assert describe(Recipe("CartPole-v1")).frame_skip == 1


def test_a_starting_config_of_a_game_has_the_preset() -> None:
    from hive.cli.init import _starting_config
    from hive.config import load_config

    assert [preset_for(id) for id in ("ALE/Pong-v5", "PongNoFrameskip-v4", "CartPole-v1")] == ["atari", "atari", "none"]
    config = load_config("pong.toml", text=_starting_config("ALE/Pong-v5", None))
    assert (config.env.preset, config.network.normalize_rewards) == ("atari", False)


@pytest.mark.parametrize(
    ("options", "text", "hint"),
    [
        ({"frameskip": 4}, 'the preset "atari" has no option `frameskip`', "did you mean `frame_skip`?"),
        ({"xyzzy": 4}, 'the preset "atari" has no option `xyzzy`', "it has noop_max, frame_skip,"),
        ({"noop_max": -1}, "env.options.noop_max: expected an integer >= 0, got -1", ""),
        ({"frame_skip": 0}, "env.options.frame_skip: expected an integer >= 1, got 0", ""),
        ({"clip_rewards": 1}, "env.options.clip_rewards: expected true or false, got 1", ""),
        ({"repeat_action_probability": 2}, "expected a number from 0 to 1, got 2", ""),
    ],
)
def test_wrong_options(options: dict[str, Any], text: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_vector("ALE/Pong-v5", options, 2, preset="atari")
    assert text in str(caught.value)
    assert hint in caught.value.hint


def test_other_environments_and_missing_roms(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="`CartPole-v1` is not a game of ale_py"):
        describe(Recipe("CartPole-v1", preset="atari"))
    monkeypatch.setenv("ALE_ROMS_DIR", str(tmp_path))
    with pytest.raises(EnvironmentMissing, match="the ROM of `pong` cannot be read") as caught:
        describe(Recipe("ALE/Pong-v5", preset="atari"))
    assert "ale-py" in caught.value.hint
