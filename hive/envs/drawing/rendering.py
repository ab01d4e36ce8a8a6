"""One environment of a config that also gives pictures, for videos and for a window.

It is stepped as a vector of one environment, so policies, wrappers, masks, rewards and returns are those of every other
vector. With the same seeds it makes the episodes of environment 0 of `configured_vector`: rendering changes no number,
Gymnasium's classic control has the bits of its compiled form, and the preset "atari" gets the same seeds.

    step()      -> [the picture of the first state, if an episode begins,] the picture after the step

A vector resets an environment in the step that ends its episode, so pictures are taken inside of it, around each step.

Libraries that draw look for a display when they are first used. `prepare_drawing` sets their environment variables
before that: SDL (classic control, Box2D, MiniGrid) then draws into memory. Without a display MuJoCo gets EGL or OSMesa,
whichever works on this machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from hive.config import EnvConfig
from hive.distribution import pip_install
from hive.envs.agents.lone import LoneTable
from hive.envs.agents.playable import Table
from hive.envs.configured import configured_spec, recipe_of
from hive.envs.context import EnvContext
from hive.envs.loading import close
from hive.envs.make import LIBRARY, make_any, make_environment, takes_native
from hive.envs.spaces.observation import ObservationSpec
from hive.envs.spaces.spec import EnvironmentSpec
from hive.envs.vectors.native_vector import SEED_BITS
from hive.envs.vectors.python_vector import PythonVector
from hive.envs.vectors.vector import VectorEnvironment
from hive.envs.wrappers import steps_inside, with_names
from hive.errors import EnvironmentFailed, EnvironmentMissing, HiveError, UsageError
from hive.runtime.actor.error_location import is_interrupt, named

DEFAULT_FPS = 30.0  # of environments whose metadata has no `render_fps`; Gymnasium's own default
GL_BACKENDS = ("egl", "osmesa")  # ways in which MuJoCo draws without a display, the faster first
GL_CHECK_S = 30  # for starting an interpreter and a software renderer on a busy machine
QUIET_SDL = {"SDL_AUDIODRIVER": "dummy", "PYGAME_HIDE_SUPPORT_PROMPT": "1"}  # no sound device; no line on stdout


@dataclass(frozen=True)
class Picture:
    """A picture of an environment after a step, or before the first step of an episode if `first`.

    pixels: uint8 [height, width, 3].
    """

    pixels: NDArray[np.uint8]
    first: bool


@dataclass(frozen=True)
class Rendered:
    """A `table` of one environment. `fps`: steps or turns per second of its real time, for a viewer."""

    table: Table
    fps: float
    _film: Film

    def take(self) -> list[Picture]:
        """Return the pictures since the last call, oldest first; none if the environment draws its own window."""
        return self._film.take()


def has_display() -> bool:
    """Whether the environment variables name a display."""
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def prepare_drawing(*, window: bool) -> None:
    """Set the environment variables of SDL for drawing into a window or into memory. Call it before the first picture.

    Values that the user has set stay.
    """
    quiet = QUIET_SDL if window else {**QUIET_SDL, "SDL_VIDEODRIVER": "dummy"}
    for name, value in quiet.items():
        os.environ.setdefault(name, value)


def choose_renderer() -> None:
    """Choose the renderer of MuJoCo, if its module is imported, there is no display and the user has not chosen one.

    The first call tries renderers in other interpreters, for a second each or until a timeout. Raises
    EnvironmentMissing if none works.
    """
    if "mujoco" in sys.modules and not has_display() and "MUJOCO_GL" not in os.environ:
        os.environ["MUJOCO_GL"] = _gl_backend()


def check_pictures(env: EnvConfig) -> None:
    """Build the environment once. Raises UsageError if it has no pictures, and the errors of `make_environment`."""
    render_mode_of(env, EnvContext(0), window=False)


def rendered_spec(env: EnvConfig) -> EnvironmentSpec:
    """Describe the environment that is built with pictures. Raises what `configured_spec` raises."""
    _refuse_compiled(env.id)
    return configured_spec(dataclasses.replace(env, vector="python"))


def rendered_environment(
    env: EnvConfig, observation: ObservationSpec, *, context: EnvContext, window: bool = False
) -> Rendered:
    """Build the environment of a config with pictures, for one agent.

    observation: that its policy sees. context: who it is. window: whether it may draw a window of its own, if it has no
    pictures. Raises UsageError if it has neither, and the errors of `make_environment`; a
    step raises EnvironmentFailed if it cannot be drawn.
    """
    mode = render_mode_of(env, context, window)
    recipe = recipe_of(env)
    native = env.preset == "atari" and takes_native(recipe)
    recipe = recipe.at(context)
    inner = make_environment(recipe, mode)
    choose_renderer()
    camera = _Camera(inner, env.id, draws=mode == "rgb_array", seed_bits=SEED_BITS if native else 64)
    name, options = with_names(env.id, recipe.wrappers), [recipe.reset_options]
    vector: VectorEnvironment = PythonVector(name, [camera], env.info, reset_options=options, origins=observation)
    if env.preset == "atari":
        from hive.envs.vectors.atari import AtariOptions, AtariVector

        assert isinstance(vector, PythonVector)
        vector = AtariVector(vector, [camera], [AtariOptions.of(recipe.options)])
    table = LoneTable(vector, observation, env.info)
    return Rendered(table, fps_of(inner.metadata) / steps_inside(inner), camera.film)


def _refuse_compiled(id: str) -> None:
    if LIBRARY.search(id):
        raise UsageError(
            f"`{id}` has no pictures: environments that are compiled with hive/env.h cannot be rendered",
            hint="play a Python class with the same observations and actions: -s env.id=package.module:Class",
        )


def render_mode_of(env: EnvConfig, context: EnvContext, window: bool) -> str:
    """Return the mode to build the environment with: it says which it has only when it is built. Raises UsageError."""
    _refuse_compiled(env.id)
    environment = make_any(dataclasses.replace(recipe_of(env).at(context), wrappers=()))
    modes = (getattr(environment, "metadata", None) or {}).get("render_modes") or []
    close(environment)
    for mode in ("rgb_array", *(["human"] if window else [])):
        if mode in modes:
            return mode
    if env.is_program:
        raise UsageError(
            f"`{env.id}` has no pictures: its hello does not say that it renders",
            hint="answer hello with `renders`, and requests `render` with a picture (guide, simulator protocol)",
        )
    has = ", ".join(map(str, modes)) or "none"
    raise UsageError(
        f'`{env.id}` has no pictures: its metadata["render_modes"] has no "rgb_array" (it has {has})',
        hint='give the class metadata = {"render_modes": ["rgb_array"], "render_fps": 30}, an argument `render_mode`, '
        "and a method `render` that returns uint8 [height, width, 3]",
    )


def fps_of(metadata: Mapping[str, Any]) -> float:
    """Return the steps per second of an environment's real time."""
    try:
        fps = float(metadata.get("render_fps") or 0)
    except (TypeError, ValueError):
        fps = 0.0
    return fps if 0 < fps < float("inf") else DEFAULT_FPS


class Film:
    """Takes pictures around the steps of an environment, which has `render`. draws: whether that returns them."""

    def __init__(self, environment: Any, id: str, *, draws: bool) -> None:
        self._environment = environment
        self._id = id
        self._draws = draws
        self._pictures: list[Picture] = []
        self._begins = False

    def take(self) -> list[Picture]:
        """Return the pictures since the last call, oldest first."""
        taken, self._pictures = self._pictures, []
        return taken

    def begin(self) -> None:
        """An episode begins. It is drawn when its first step is made, because none may follow."""
        self._begins = True

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Draw the state after the step that is made inside, and the first one of an episode."""
        if self._begins:
            self._take(first=True)
        self._begins = False
        yield
        self._take(first=False)

    def _take(self, *, first: bool) -> None:
        if not self._draws:
            return
        pixels = self._drawn()
        if not (isinstance(pixels, np.ndarray) and pixels.dtype == np.uint8 and pixels.shape[2:] == (3,)):
            what = f"{pixels.dtype}{pixels.shape}" if isinstance(pixels, np.ndarray) else type(pixels).__name__
            raise EnvironmentFailed(f"`{self._id}` drew {what}, expected uint8(height, width, 3)", permanent=True)
        self._pictures.append(Picture(pixels, first))

    def _drawn(self) -> Any:
        try:
            return self._environment.render()
        except HiveError:
            raise
        except (ModuleNotFoundError, gymnasium.error.DependencyNotInstalled) as error:
            cause = str(error).partition(",")[0]
            hint = f"install it with: `{pip_install('video')}`" if "pygame" in cause else ""
            raise EnvironmentFailed(f"`{self._id}` cannot be drawn: {cause}", hint=hint, permanent=True) from error
        except BaseException as error:
            if is_interrupt(error):
                raise
            hint = GL_HINT if "mujoco" in sys.modules else ""
            raise EnvironmentFailed(
                f"`{self._id}` cannot be drawn: {named(error)}", hint=hint, permanent=True
            ) from error


class _Camera(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Films an environment. seed_bits: the size to which a vectorized class would truncate the seeds."""

    def __init__(self, environment: gymnasium.Env[Any, Any], id: str, *, draws: bool, seed_bits: int) -> None:
        super().__init__(environment)
        self.film = Film(environment, id, draws=draws)
        self._seeds = 2**seed_bits

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; see gymnasium.Env."""
        self.film.begin()
        return self.env.reset(seed=None if seed is None else seed % self._seeds, options=options)

    def step(self, action: Any) -> Any:
        """Make one step; see gymnasium.Env."""
        with self.film.step():
            return self.env.step(action)


GL_HINT = "MUJOCO_GL selects the renderer of MuJoCo: egl, osmesa or, with a display, glfw"


@functools.cache
def _gl_backend() -> str:
    """Return the first of GL_BACKENDS that works without a display. Raises EnvironmentMissing if none does.

    Each is tried in an interpreter of its own: a failed attempt leaves OpenGL bound to a platform that cannot draw.
    """
    causes = []
    for name in GL_BACKENDS:
        attempt = f"from mujoco.{name} import GLContext; c = GLContext(64, 64); c.make_current(); c.free()"
        try:
            done = subprocess.run(
                [sys.executable, "-P", "-c", attempt],
                env={**os.environ, "MUJOCO_GL": name},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=GL_CHECK_S,
            )
        except subprocess.TimeoutExpired:
            causes.append(f"{name}: no answer in {GL_CHECK_S} s")
            continue
        if done.returncode == 0:
            return name
        lines = [line for line in done.stderr.splitlines() if line and not line.startswith(" ")]
        causes.append(f"{name}: {next((one for one in lines if 'Error' in one), 'it failed')}")
    raise EnvironmentMissing(
        f"no renderer of MuJoCo works without a display ({'; '.join(causes)})",
        hint="install a software renderer: `apt-get install libegl1 libgl1-mesa-dri` or `apt-get install libosmesa6`",
    )
