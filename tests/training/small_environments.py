"""Environments so small that their values are known in advance, and user-defined networks."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from hive.envs.spaces.masked_space import MaskedSpace
from hive.networks import PolicyHead

ACTIONS = {
    "discrete": spaces.Discrete(2),
    "multi-discrete": spaces.MultiDiscrete([2, 3]),
    "box": spaces.Box(-10.0, 10.0, (2,), np.float32),
    "dict": spaces.Dict(
        {"bits": spaces.MultiBinary(2), "pair": spaces.Tuple([spaces.Discrete(3), spaces.Box(-10.0, 10.0, (2,))])}
    ),
}


class Small(gymnasium.Env[Any, Any]):
    """Counts the steps of its episode; subclasses define observations and rewards.

    Terminates with step `terminates` and truncates with step `truncates`.
    """

    observation_space: Any = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space: Any = ACTIONS["discrete"]

    def __init__(self, terminates: int = 0, truncates: int = 0) -> None:
        self.ends = terminates, truncates
        self.at = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.at = 0
        return self.observation(), {}

    def step(self, action: Any) -> Any:
        self.at += 1
        reward = self.reward(action)
        return self.observation(), reward, self.terminated(), self.at == self.ends[1], {}

    def observation(self) -> Any:
        return np.ones(1, np.float32)

    def reward(self, action: Any) -> float:
        return 1.0

    def terminated(self) -> bool:
        return self.at == self.ends[0]


class OneState(Small):
    """One state and a reward of 1 for each step: worth 1 / (1 - discount) if it never ends."""


class Drawing(Small):
    """Observes what it draws from the global generators of NumPy, Python and torch, and what it drew when it was built.

    A step cuts its episode short with probability 1/4.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)

    def __init__(self, **ends: int) -> None:
        super().__init__(**ends)
        self.built = self.draw().sum()

    def draw(self) -> Any:
        return np.array([np.random.rand(), random.random(), float(torch.rand(()))], np.float32)  # noqa: NPY002

    def observation(self) -> Any:
        return np.array([*self.draw(), self.built], np.float32)

    def step(self, action: Any) -> Any:
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, random.random() < 0.25, info


def ended(code: int) -> tuple[bool, bool]:
    """Whether a step terminates and truncates its episode: 0 neither, 1 the former, 2 the latter, 3 both."""
    return code in (1, 3), code in (2, 3)


class Ending(Small):
    """Ends its episodes by `ends`, the codes of its steps, repeated for ever. It declares no limit."""

    def __init__(self, ends: Sequence[int], actions: str = "discrete") -> None:
        super().__init__()
        self.action_space = ACTIONS[actions]
        self.codes = itertools.cycle(ends)

    def step(self, action: Any) -> Any:
        observation, reward, _, _, info = super().step(action)
        return observation, reward, *ended(next(self.codes)), info


class EndingTogether(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """As `Ending`, as a vectorised class that resets an environment in the step after an end."""

    metadata: Any = {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}  # noqa: RUF012  # as in Gymnasium

    def __init__(self, ends: Sequence[int], actions: str = "discrete", num_envs: int = 1) -> None:
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = Small.observation_space, ACTIONS[actions]
        self.codes = [itertools.cycle(ends) for _ in range(num_envs)]
        self.resets = np.zeros(num_envs, bool)  # in the next step

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.resets[:] = False
        return np.ones((self.num_envs, 1), np.float32), {}

    def step(self, actions: Any) -> Any:
        flags = [
            (False, False) if reset else ended(next(codes))
            for reset, codes in zip(self.resets, self.codes, strict=True)
        ]
        terminated, truncated = np.array(flags).T
        self.resets = terminated | truncated
        return np.ones((self.num_envs, 1), np.float32), np.ones(self.num_envs), terminated, truncated, {}


gymnasium.register("EndingTogether-v0", vector_entry_point=EndingTogether)


class Succeeds(Small):
    """Its `info` at the end of an episode: `number` of the episode, from 0, whether that is odd, and `odd` if not."""

    def __init__(self, odd: Any = 7.0, **ends: int) -> None:
        super().__init__(**ends)
        self.odd = odd
        self.number = -1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.number += 1
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        *result, _ = super().step(action)
        if not (result[2] or result[3]):
            return *result, {"is_success": 9.0, "odd": 9.0}
        info = {"is_success": self.number % 2 == 1, "number": np.int64(self.number)}
        return *result, info | ({} if self.number % 2 else {"odd": self.odd})


class Launch(Small):
    """Two states: the first step of an episode costs 5, each later one earns 1. A truncation is not a new launch."""

    observation_space = spaces.Discrete(2)

    def observation(self) -> Any:
        return int(self.at > 0)

    def reward(self, action: Any) -> float:
        return -5.0 if self.at == 1 else 1.0


class Bandit(Small):
    """One of two contexts is shown; the action of its number earns 1. An episode is one step."""

    observation_space = spaces.Discrete(2)

    def observation(self) -> Any:
        self.context = int(self.np_random.integers(2)) if self.at == 0 else 0
        return self.context

    def reward(self, action: Any) -> float:
        return float(action == self.context)

    def terminated(self) -> bool:
        return True


class FarBandit(Bandit):
    """The same, seen from far away: the contexts are 100 and 100.1."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def observation(self) -> Any:
        return np.array([100.0 + 0.1 * super().observation()], np.float32)


class Chain(Small):
    """Five states in a row, entered in the middle. The left end earns 0.2, the right end 1; both end it."""

    observation_space = spaces.Discrete(5)

    def observation(self) -> Any:
        if self.at == 0:
            self.state = 2
        return self.state

    def reward(self, action: Any) -> float:
        self.state += 1 if action else -1
        return {0: 0.2, 4: 1.0}.get(self.state, 0.0)

    def terminated(self) -> bool:
        return self.state in (0, 4)


class Drift(Small):
    """Drifts by chance and by the action, ends by chance: any changed number changes its episodes."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)

    def __init__(self, actions: str = "discrete", truncates: int = 0) -> None:
        super().__init__(truncates=truncates)
        self.action_space = ACTIONS[actions]

    def observation(self) -> Any:
        if self.at == 0:
            self.state = self.np_random.normal(size=3)
        return self.state.astype(np.float32)

    def reward(self, action: Any) -> float:
        if isinstance(action, dict):
            action = spaces.flatten(self.action_space, action)
        self.state = 0.9 * self.state + 0.1 * self.np_random.normal(size=3) + 0.1 * float(np.sum(action))
        return float(self.state[0])

    def terminated(self) -> bool:
        return bool(self.np_random.random() < 0.05)


class Images(Drift):
    """Drift as a small picture."""

    observation_space = spaces.Box(0, 255, (12, 12, 1), np.uint8)

    def observation(self) -> Any:
        numbers = super().observation()
        return np.repeat((np.tanh(numbers) * 100 + 128).astype(np.uint8), 48).reshape(12, 12, 1)


class Parts(Drift):
    """The same in parts, with a mask of the actions: one of them is forbidden now and then."""

    picture = spaces.Box(0, 255, (2,), np.uint8)
    observation_space = MaskedSpace(
        {"drift": Drift.observation_space, "mask": spaces.MultiBinary(2), "picture": picture}, ("mask",), (2,)
    )

    def observation(self) -> Any:
        numbers = super().observation()
        mask = np.array([1, numbers[0] > 0], np.int8)
        return {"drift": numbers, "mask": mask, "picture": np.full(2, self.at, np.uint8)}


class Mixed(Drift):
    """Drift in parts of several kinds, whose names stand before and after that of an action."""

    observation_space = spaces.Dict(
        Able=spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 8.0], np.float32)),
        bytes=spaces.Box(0, 255, (2,), np.uint8),
        drift=Drift.observation_space,
        one=spaces.Discrete(3),
        pair=spaces.Tuple([spaces.Discrete(2), spaces.MultiBinary(2)]),
    )

    def observation(self) -> Any:
        numbers = super().observation()
        positive = (numbers > 0).astype(np.int8)
        return {
            "Able": np.clip(numbers[:2], [-2.0, 0.0], [2.0, 8.0]).astype(np.float32),
            "bytes": (np.tanh(numbers[:2]) * 100 + 128).astype(np.uint8),
            "drift": numbers,
            "one": int(positive.sum() % 3),
            "pair": (int(positive[0]), positive[1:]),
        }


class Cell(Drift):
    """The sign of each of its numbers, as one number."""

    observation_space = spaces.Discrete(8)

    def observation(self) -> Any:
        return int((super().observation() > 0) @ np.array([1, 2, 4]))


class Levels(Drift):
    """Two of its numbers, as bytes."""

    observation_space = spaces.Box(0, 255, (2,), np.uint8)

    def observation(self) -> Any:
        return np.clip(100 + 20 * super().observation()[:2], 0, 255).astype(np.uint8)


class Privileged(Drift):
    """Drift in parts: the policy sees one of its numbers, and the rest, where it is given, is for a critic alone."""

    whole = spaces.Dict(
        {"rest": spaces.Box(-np.inf, np.inf, (2,), np.float32), "byte": spaces.Box(0, 255, (1,), np.uint8)}
    )

    def __init__(self, actions: str = "discrete", truncates: int = 0, privileged: bool = True) -> None:
        super().__init__(actions, truncates)
        self.privileged = privileged
        near = {"near": spaces.Box(-np.inf, np.inf, (1,), np.float32)}
        self.observation_space = spaces.Dict(near | ({"far": self.whole} if privileged else {}))  # type: ignore[assignment]

    def observation(self) -> Any:
        numbers = super().observation()
        far = {"far": {"rest": numbers[1:], "byte": np.full(1, self.at, np.uint8)}} if self.privileged else {}
        return {"near": numbers[:1], **far}


class Contest(Small):
    """An episode of 3 to 9 steps that, with `refuses`, must be played to its end: no reset before that."""

    def __init__(self, refuses: bool = True) -> None:
        super().__init__()
        self.refuses, self.left = refuses, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if self.refuses and self.left:
            raise RuntimeError("the contest is not over")
        result = super().reset(seed=seed)
        self.left = int(self.np_random.integers(3, 10))
        return result

    def terminated(self) -> bool:
        self.left -= 1
        return self.left == 0


class Fails(Small):
    """Raises in step `when`."""

    def __init__(self, when: int) -> None:
        super().__init__()
        self.when = when

    def reward(self, action: Any) -> float:
        if self.at == self.when:
            raise RuntimeError("the motor is stuck")
        return 1.0


class Explodes(Small):
    """Earns 1, but from its step `when` on `times` times nearly the largest float: their sum is infinite."""

    def __init__(self, when: int, times: int = 2, terminates: int = 0) -> None:
        super().__init__(terminates)
        self.when = range(when, when + times)

    def reward(self, action: Any) -> float:
        return 3e38 if self.at in self.when else 1.0


class Picture(Small):
    """uint8 images."""

    observation_space = spaces.Box(0, 255, (36, 36, 1), np.uint8)

    def observation(self) -> Any:
        return np.full((36, 36, 1), self.at, np.uint8)


class Plain(nn.Module):
    """A user-defined network."""

    def __init__(self, given: Any) -> None:
        super().__init__()
        size = int(np.prod(next(iter(given.observations.values())).shape))
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(size, 16), nn.Tanh())
        self.policy, self.value = nn.Linear(16, given.action.n), nn.Linear(16, 1)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        features = self.body(observations)
        return self.policy(features), self.value(features).squeeze(-1)


class Named(Plain):
    """Calls a layer as hive calls the native form of its own networks."""

    def __init__(self, given: Any) -> None:
        super().__init__(given)
        self.dense = nn.Linear(16, 16)

    def forward(self, observations: Any) -> tuple[Tensor, Tensor]:
        seen = next(iter(observations.values())) if isinstance(observations, dict) else observations
        features = self.dense(self.body(seen.flatten(1).float()))
        return self.policy(features), self.value(features).squeeze(-1)


class Dropping(Plain):
    """With dropout: while it trains, it draws from torch's generator."""

    def __init__(self, given: Any) -> None:
        super().__init__(given)
        self.body.append(nn.Dropout(0.5))


class Dropped(nn.Module):
    """An extractor with dropout."""

    def __init__(self, spaces: Any, p: float = 0.05) -> None:
        super().__init__()
        size = int(np.prod(next(iter(spaces.observations.values())).shape))
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(size, 8), nn.Dropout(p))

    def forward(self, observations: Tensor) -> Tensor:
        features: Tensor = self.body(observations)
        return features


class Running(Plain):
    """With BatchNorm, whose buffers are written by a forward pass in training mode; and a constant one."""

    def __init__(self, given: Any) -> None:
        super().__init__(given)
        self.body = nn.Sequential(self.body[0], self.body[1], nn.BatchNorm1d(16))
        self.register_buffer("scale", torch.tensor([1.0, 2.0]))


class Normalising(Running):
    """A network with a frozen BatchNorm, as of a pretrained network: its buffers do not change."""

    def train(self, mode: bool = True) -> Normalising:
        super().train(mode)
        self.body[2].eval()
        return self


class Averaging(Plain):
    """Its buffer is a running mean of the observations, which zeros do not change."""

    def __init__(self, given: Any) -> None:
        super().__init__(given)
        self.register_buffer("mean", torch.zeros(self.body[1].in_features))

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        if self.training:
            self.mean.mul_(0.99).add_(0.01 * observations.detach().flatten(1).mean(0))
        return super().forward(observations)


class Secret(Plain):
    """Multiplies its observations by numbers that it draws and keeps as a plain attribute."""

    def __init__(self, given: Any) -> None:
        super().__init__(given)
        self.factors = torch.randn(self.body[1].in_features)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward(observations.flatten(1) * self.factors)


class Tied(Plain):
    """Takes a view of a weight in its constructor."""

    def __init__(self, given: Any) -> None:
        super().__init__(given)
        self.back = self.body[1].weight.detach().t()

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward(self.body(observations) @ self.back.t())


COMMON = nn.Sequential(nn.Flatten(), nn.Linear(3, 16), nn.Tanh())


class Common(Plain):
    """All networks of this class have the same layers."""

    def __init__(self, given: Any) -> None:
        super().__init__(given)
        self.body = COMMON


class CommonFeatures(nn.Module):
    """The same for an extractor."""

    def __init__(self, given: Any) -> None:
        super().__init__()
        self.body = COMMON

    def forward(self, observations: Tensor) -> Tensor:
        features: Tensor = self.body(observations)
        return features


class Rigid(Plain):
    """All of its parameters are frozen."""

    def __init__(self, given: Any) -> None:
        super().__init__(given)
        self.requires_grad_(False)


class Shaky(Plain):
    """Its policy is only noise of torch's, also while it acts."""

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        policy, value = super().forward(observations)
        return torch.randn_like(policy) + 0.0 * policy, value


class Warm(PolicyHead):
    """Logits at half of the temperature."""

    def forward(self, columns: Tensor) -> Tensor:
        return super().forward(columns) * 2.0


class Silent(nn.Module):
    """Breaks the contract: returns no value."""

    def __init__(self, given: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 2)

    def forward(self, observations: Tensor) -> Any:
        return self.layer(observations)


class Rooms(Small):
    """A picture, a number and the room, of which a random one is closed in each step. A closed room raises."""

    action_space = spaces.Discrete(3)
    observation_space = spaces.Dict(
        {
            "picture": spaces.Box(0, 255, (8, 8), np.uint8),
            "place": spaces.Tuple([spaces.Box(-1.0, 1.0, (2,)), spaces.Discrete(3)]),
            "action_mask": spaces.MultiBinary(3),
        }
    )

    def observation(self) -> Any:
        random = self.np_random
        self.open = np.ones(3, np.int8)
        self.open[random.integers(3)] = 0
        self.room = int(random.integers(3))
        place = random.random(2, np.float32), self.room
        return {"picture": random.integers(0, 256, (8, 8), np.uint8), "place": place, "action_mask": self.open}

    def step(self, action: Any) -> Any:
        if not self.open[action]:
            raise ValueError(f"room {action} is closed")
        self.right = action == self.room
        return super().step(action)

    def reward(self, action: Any) -> float:
        return float(self.right)


class Shut(Rooms):
    """Closes all rooms at the end of an episode."""

    def observation(self) -> Any:
        seen = super().observation()
        return seen | {"action_mask": self.open * (not self.terminated())}


class Lottery(Small):
    """Rewards a global random number, from the third step of an episode on."""

    def __init__(self, truncates: int = 5) -> None:
        super().__init__(truncates=truncates)

    def reward(self, action: Any) -> float:
        return random.random() if self.at > 2 else 1.0


class Twins:
    """Two agents that act at once, for one step, and a state that they do not see."""

    possible_agents = ("a", "b")

    def __init__(self) -> None:
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(-1.0, 1.0, (3,), np.float32)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Any], Any]:
        self.agents = [*self.possible_agents]
        return self._seen(), {}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        self.agents = []
        ends, goes_on = dict.fromkeys("ab", True), dict.fromkeys("ab", False)
        return self._seen(), {name: float(action) for name, action in actions.items()}, ends, goes_on, {}

    def state(self) -> Any:
        return np.ones(4, np.float32)

    def _seen(self) -> dict[str, Any]:
        return {name: np.zeros(3, np.float32) for name in self.possible_agents}


class EachEnds(Small):
    """Ends by the flag that its number says; see `each_end`. Observes which state it is in, one-hot."""

    observation_space = spaces.Box(0.0, 1.0, (6,), np.float32)
    action_space: Any = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, env_context: Any, actions: str = "box") -> None:
        super().__init__()
        self.number = env_context.index % 5
        self.action_space = EachEnds.action_space if actions == "box" else ACTIONS[actions]

    def observation(self) -> Any:
        number = 5 if self.number == 2 and self.at == 0 else self.number
        return np.eye(6, dtype=np.float32)[number]

    def step(self, action: Any) -> Any:
        observation, _, _, _, info = super().step(action)
        terminated, truncated = self.number in (0, 3, 4), self.number in (1, 3)
        if truncated or self.at == 2:
            observation = np.eye(6, dtype=np.float32)[4]
        return observation, 3.0 if self.number == 4 else 1.0, terminated, truncated, info


def each_end(discount: float) -> Any:
    """The values of the states of EachEnds, with a time limit of 2 steps, float64 [6].

    0 terminates, 1 is truncated, 2 reaches the limit after 5, 3 has both flags, 4 terminates and pays 3. Truncated
    episodes last see state 4, and not the state that the next episode begins with.
    """
    follows = np.zeros((6, 6))
    follows[1, 4] = follows[2, 4] = follows[5, 2] = 1.0
    return np.linalg.solve(np.eye(6) - discount * follows, [1.0, 1.0, 1.0, 1.0, 3.0, 1.0])
