"""A program as a single environment of Gymnasium, for what needs one: `hive check`, evaluations with pictures."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers import TimeLimit
from numpy.typing import NDArray

from hive.config import START_LIMIT_S
from hive.envs.context import EnvContext
from hive.envs.external.client import ProgramClient
from hive.envs.external.conversation import Answer
from hive.envs.external.specs import masked_space
from hive.envs.recipe import Recipe
from hive.envs.vectors.checks import at
from hive.errors import EnvironmentFailed

STEP_LIMIT_S = 60.0  # for each answer of a program that no limit of a config applies to
CLOSE_S = 5.0  # time for its exit


class ProgramEnvironment(gymnasium.Env[Any, Any]):
    """One program with one environment. Each call raises EnvironmentFailed for what the program does wrong.

    limit_s: of its start. render_mode: "rgb_array", or None.
    """

    def __init__(
        self,
        recipe: Recipe,
        context: EnvContext,
        render_mode: str | None = None,
        limit_s: float = START_LIMIT_S,
    ) -> None:
        self.render_mode = render_mode
        self._id = recipe.id
        self._client = ProgramClient(recipe)
        self._client.start([context])
        try:
            self._wait("answer hello", limit_s)
            said = self._client.said
            assert said is not None, "it has answered"
            if render_mode is not None and not said.renders:
                raise EnvironmentFailed(
                    f"`{recipe.id}` renders no images", hint="its answer to hello says so", permanent=True
                )
            self.observation_space = masked_space(recipe, said)
        except BaseException:
            self.close()
            raise
        self.action_space = said.action
        self.metadata = {"render_modes": ["rgb_array"] if said.renders else [], "render_fps": 30}
        self.spec = EnvSpec("program", max_episode_steps=said.max_episode_steps)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        seeds = None if seed is None else [seed]
        observations = self._asked("reset", lambda: self._client.talk().reset([0], seeds, [options or {}]))
        return at(observations, 0), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step the program once."""
        answer: Answer = self._asked("step", lambda: self._client.talk().step(_batch_of_one(action)))
        info = {name: float(values[0]) for name, values in answer.info.items() if not np.isnan(values[0])}
        ends = bool(answer.terminated[0]), bool(answer.truncated[0])
        return at(answer.observations, 0), float(answer.rewards[0]), *ends, info

    def render(self) -> NDArray[np.uint8]:
        """Return a picture, uint8 [height, width, 3]."""
        image: NDArray[np.uint8] = self._asked("render", lambda: self._client.talk().render(0))
        return image

    def close(self) -> None:
        """End the program, or the connection with it."""
        self._client.close()
        self._client.end(CLOSE_S)

    def _asked(self, request: str, work: Callable[[], Generator[int, None, Any]]) -> Any:
        """Return what the answer to a request has."""
        found: list[Any] = []

        def order() -> Generator[int, None, None]:
            found.append((yield from work()))

        self._client.order("reset" if request == "reset" else "step", order)
        self._wait(f"answer {request}", STEP_LIMIT_S)
        return found[0]

    def _wait(self, what: str, limit_s: float) -> None:
        if not self._client.done(limit_s):
            raise EnvironmentFailed(f"`{self._id}` did not {what} within {limit_s:g} s", hint=self._client.tail())


def program_environment(recipe: Recipe, context: EnvContext, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    """Start a program as a single environment, inside TimeLimit if it declares the length of its episodes."""
    environment = ProgramEnvironment(recipe, context, render_mode)
    most = environment.spec.max_episode_steps if environment.spec else None
    return environment if most is None else TimeLimit(environment, most)


def _batch_of_one(action: Any) -> Any:
    if isinstance(action, Mapping):
        return {name: np.asarray(part)[None] for name, part in action.items()}
    return np.asarray(action)[None]
