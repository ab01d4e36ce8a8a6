"""The preset "atari": games of ale_py with the preprocessing of Mnih et al. (2015, "Human-level control").

Each step repeats its action for 4 frames and observes the maximum of the last two, as 84 x 84 gray bytes. Each game
begins with up to 30 frames without an action, and with FIRE where the game has it. ale_py's own vectorized class
computes all of this; it takes 20 % less CPU time per step than gymnasium.wrappers.AtariPreprocessing with the same
result (tests/envs/test_atari.py). A single environment, which wrappers require, is such a class with one game.

Training and reported returns differ on purpose, as in Stable-Baselines3, whose Monitor is inside of these wrappers:

    rewards            their sign, if `clip_rewards`
    terminated         also where a life was lost, if `terminal_on_life_loss`; the game continues
    returns, lengths   those of whole games, with the rewards of the game

So evaluations report the scores of whole games too.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from hive.config.values import closest
from hive.envs.loading import construct
from hive.envs.vectors.native_vector import NativeVector
from hive.envs.vectors.python_vector import PythonVector
from hive.envs.vectors.rows import StepRow
from hive.envs.vectors.seeding import runs_python
from hive.errors import ConfigError, EnvironmentMissing

ENTRY_POINT = "ale_py.env:AtariEnv"
SCREEN = 210, 160  # height and width of pictures: the size of most games' screens, and close to that of the others
FRAMES_PER_SECOND = 60  # rate at which the console draws


@dataclass(frozen=True, kw_only=True)
class AtariOptions:
    """The options of the preset: the keys of [env.options]. Unlike ale_py's ids, actions are not sticky by default."""

    noop_max: int = 30  # frames without an action at the start of a game, at most; 0: none
    frame_skip: int = 4  # frames per step
    screen_size: int = 84  # height and width of observations
    grayscale: bool = True  # false: three colors, [screen_size, screen_size, 3]
    fire_reset: bool = True  # press FIRE at the start, in games that have it
    terminal_on_life_loss: bool = False
    clip_rewards: bool = True
    repeat_action_probability: float = 0.0  # sticky actions: 0.25 in Machado et al. (2018)
    full_action_space: bool = False  # all 18 actions instead of those that the game uses
    max_num_frames_per_episode: int = 108_000  # half an hour; then the game is truncated
    threads: int = 1  # that step the games of one vector; results do not depend on it

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> AtariOptions:
        """Check the options of a config. Raises ConfigError for an unknown name, a wrong type or a wrong value."""
        usual = dataclasses.asdict(cls())
        for name, value in options.items():
            if name not in usual:
                near = closest(name, usual)
                hint = f"did you mean `{near}`?" if near else f"it has {', '.join(usual)}"
                raise ConfigError(f'env.options: the preset "atari" has no option `{name}`', hint=hint)
            least = 0 if name == "noop_max" else 1
            kind = type(usual[name])
            number = kind is float and type(value) in (int, float) and 0 <= value <= 1
            if not (number or (type(value) is kind and (kind is bool or (kind is int and value >= least)))):
                kinds = {bool: "true or false", int: f"an integer >= {least}", float: "a number from 0 to 1"}
                raise ConfigError(f"env.options.{name}: expected {kinds[kind]}, got {value!r}")
        return cls(**options)


class Games(gymnasium.vector.VectorWrapper):
    """ale_py's vectorized class with `count` games, each observation a single frame: [count, height, width] uint8.

    Rewards are those of the game. `lives` [count] are those after the last step. screen: whether the frames are
    pictures for people, [count, *SCREEN, 3], instead of those that `options` defines. Raises EnvironmentMissing if the
    game's ROM is missing.
    """

    runs_python = False

    def __init__(self, game: str, count: int, options: AtariOptions, *, screen: bool = False) -> None:
        super().__init__(_vector(game, count, options, screen=screen))
        frame = self.env.single_observation_space
        assert isinstance(frame, Box)
        self.single_observation_space = Box(0, 255, frame.shape[1:], np.uint8)
        self.observation_space = Box(0, 255, (count, *frame.shape[1:]), np.uint8)
        self.lives: NDArray[np.int32] = np.zeros(count, np.int32)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Start all games; see gymnasium.vector.VectorEnv."""
        frames, info = self.env.reset(seed=seed, options=options)
        self.lives = info["lives"]
        return frames[:, 0], info

    def step(self, actions: NDArray[np.int64]) -> tuple[Any, ...]:
        """Make one step of each game; see gymnasium.vector.VectorEnv."""
        frames, rewards, terminated, truncated, info = self.env.step(actions)
        self.lives = info["lives"]
        if "final_obs" in info:
            info["final_obs"] = info["final_obs"][:, 0]
        return frames[:, 0], rewards, terminated, truncated, info


class AtariGame(gymnasium.Env[Any, Any]):
    """One game as a single environment, for wrappers and pictures. Its rewards are those of the game.

    ale_py's vectorized class has no pictures, so with the render mode "rgb_array" a second game gets the same seeds and
    actions, and observes the screen. Both are the same game, because emulators have no other input.

    found: the registered spec of `id`. Raises what `game_of` and `Games` raise.
    """

    def __init__(self, id: str, found: Any, options: AtariOptions, render_mode: str | None = None) -> None:
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": FRAMES_PER_SECOND / options.frame_skip}
        self.render_mode = render_mode
        self._screen = Games(game_of(id, found), 1, options, screen=True) if render_mode else None
        self._picture: Any = None
        self._next_picture: Any = None
        self._games = Games(game_of(id, found), 1, options)
        self.spec = copy.copy(found)
        self.spec.max_episode_steps = math.ceil(options.max_num_frames_per_episode / options.frame_skip)
        self.spec.kwargs = {**found.kwargs, "frameskip": options.frame_skip}
        self.observation_space = self._games.single_observation_space
        self.action_space = self._games.single_action_space
        self._next: Any = None  # the first observation of the next game, which the end of a game returned

    @property
    def lives(self) -> int:
        """Lives left after the last step."""
        return int(self._games.lives[0])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start a game; see gymnasium.Env."""
        super().reset(seed=seed)
        first, self._next = self._next, None
        self._picture, self._next_picture = self._next_picture, None
        if first is None or seed is not None:
            if seed is None and self._screen is not None:  # both games need the same seed
                seed = int(self.np_random.integers(2**31))
            seeds = None if seed is None else np.array([seed % 2**31])
            first = self._games.reset(seed=seeds)[0][0]
            if self._screen is not None:
                self._picture = self._screen.reset(seed=seeds)[0][0]
        return first, {"lives": self.lives}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Make one step; see gymnasium.Env."""
        actions = np.array([action], np.int64)
        frames, rewards, terminated, truncated, info = self._games.step(actions)
        frame, ended = frames[0], bool(terminated[0] or truncated[0])
        if ended:
            self._next, frame = frame, info["final_obs"][0]
        if self._screen is not None:
            pictures, *_, info = self._screen.step(actions)
            self._picture = pictures[0]
            if ended:
                self._next_picture, self._picture = self._picture, info["final_obs"][0]
        return frame, float(rewards[0]), bool(terminated[0]), bool(truncated[0]), {"lives": self.lives}

    def render(self) -> Any:
        """Return the screen after the last step, uint8 [*SCREEN, 3]; see gymnasium.Env."""
        return self._picture

    def close(self) -> None:
        """Close the game and its screen."""
        for games in filter(None, (self._games, self._screen)):
            games.close()


class AtariVector:
    """A `VectorEnvironment`, which documents `reset` and `step`, that turns the rows of games into those of training.

    vector: steps the games. games: the `Games` or single environments that it steps, which know the lives. options: of
    each game, or one of all.
    """

    def __init__(
        self, vector: NativeVector | PythonVector, games: Games | Sequence[Any], options: Sequence[AtariOptions]
    ) -> None:
        self.count = vector.count
        self.observation, self.action = vector.observation, vector.action
        self.runs_python = runs_python(vector)
        self.environments = vector.environments
        self._vector = vector
        self._games = games
        self._clips = np.array([one.clip_rewards for one in options])  # [1] or [B], as the next one
        self._ends_lives = np.array([one.terminal_on_life_loss for one in options])
        self._before = np.zeros(self.count, np.int32)

    @property
    def refused(self) -> str:
        """As of `PythonVector`."""
        return str(getattr(self._vector, "refused", ""))

    def reset(self, seeds: Sequence[int], observations: NDArray[Any]) -> None:
        """Start a game in every environment."""
        self._vector.reset(seeds, observations)
        self._before = self._lives()

    def step(self, actions: NDArray[Any], row: StepRow) -> None:
        """Step every game; write the signs of rewards and the ends of lives into `row`."""
        self._vector.step(actions, row)
        if self._clips.any():
            np.sign(row.rewards, out=row.rewards, where=self._clips)
        if self._ends_lives.any():
            lives = self._lives()
            lost = (lives < self._before) & (lives > 0) & (row.episode_lengths == 0) & self._ends_lives
            row.terminated[lost] = 1
            self._before = lives

    def play(self, episodes: NDArray[np.int64]) -> None:
        """Let each environment play so many more games, if they are single ones."""
        if isinstance(self._vector, PythonVector):
            self._vector.play(episodes)

    @property
    def takes_attributes(self) -> bool:
        """Whether its games can be given values: not those that are stepped together in C++."""
        return not isinstance(self._games, Games)

    def set_attributes(self, values: Mapping[str, Any]) -> None:
        """Give every game these values before its next reset."""
        self._vector.set_attributes(values)

    def close(self) -> None:
        """Close the games."""
        self._vector.close()

    def _lives(self) -> NDArray[np.int32]:
        if isinstance(self._games, Games):
            return self._games.lives
        return np.array([game.unwrapped.lives for game in self._games], np.int32)


def game_of(id: str, spec: Any) -> str:
    """Return ale_py's name of the game that a registered environment plays. Raises ConfigError for any other."""
    if getattr(spec, "entry_point", None) != ENTRY_POINT:
        raise ConfigError(
            f'`{id}` is not a game of ale_py, which env.preset = "atari" requires',
            hint='choose an id such as "ALE/Pong-v5", or set env.preset = "none"',
        )
    game: str = spec.kwargs["game"]
    return game


def _vector(game: str, count: int, options: AtariOptions, *, screen: bool = False) -> Any:
    from ale_py.roms import get_rom_path
    from ale_py.vector_env import AtariVectorEnv

    try:
        path = get_rom_path(game)
    except OSError as error:
        raise EnvironmentMissing(f"the ROM of `{game}` cannot be read: {error}", hint=REINSTALL) from None
    if path is None:
        raise EnvironmentMissing(f"ale_py has no ROM of `{game}`", hint=REINSTALL)
    what = f"the game `{game}` of ale_py"
    height, width = SCREEN if screen else (options.screen_size, options.screen_size)
    return construct(
        "environment",
        game,
        what,
        lambda: AtariVectorEnv(
            game,
            count,
            num_threads=min(options.threads, count),
            stack_num=1,
            noop_max=options.noop_max,
            frameskip=options.frame_skip,
            img_height=height,
            img_width=width,
            grayscale=options.grayscale and not screen,
            use_fire_reset=options.fire_reset,
            repeat_action_probability=options.repeat_action_probability,
            full_action_space=options.full_action_space,
            max_num_frames_per_episode=options.max_num_frames_per_episode,
            reward_clipping=False,  # AtariVector clips, because returns are reported as the game counts them
            autoreset_mode="SameStep",
        ),
    )


REINSTALL = "install it with: `pip install --force-reinstall ale-py`, and check ALE_ROMS_DIR if it is set"
