"""Environments of a few states whose values and best actions follow from one line of arithmetic.

After Andy Jones, "Debugging RL, Without the Agonizing Pain" (2021), https://andyljones.com/posts/rl-debugging.html.
A state is the observation. `g` is the discount factor.
"""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

GOES_ON, TERMINATED, TRUNCATED = (False, False), (True, False), (False, True)

Ending = tuple[bool, bool]


class Probe(gymnasium.Env[Any, Any]):
    """Counts its states from 0. Episodes begin in `starts` in turn; the seed decides with which.

    So environments with different seeds are in different states at the same time.
    """

    states = 1
    starts: ClassVar[tuple[int, ...]] = (0,)
    action_space: Any = spaces.Discrete(2)

    def __init__(self) -> None:
        self.observation_space = spaces.Discrete(self.states)
        self.begun = 0
        self.state = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.begun = seed
        self.state = self.starts[self.begun % len(self.starts)]
        self.begun += 1
        return self.state, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward, self.state, ending = self.follow(action)
        return self.state, reward, *ending, {}

    def follow(self, action: Any) -> tuple[float, int, Ending]:
        """Return the reward of an action in the current state, the next state, and how the episode goes on."""
        raise NotImplementedError


class ConstantReward(Probe):
    """One step, which earns 1: V(0) = 1."""

    def follow(self, action: Any) -> tuple[float, int, Ending]:
        return 1.0, 0, TERMINATED


class Countdown(Probe):
    """Five steps with nothing to choose, which earn 1 each: V(k) = 1 + g + ... + g^(4 - k)."""

    states = 6
    action_space = spaces.Discrete(1)

    def follow(self, action: Any) -> tuple[float, int, Ending]:
        return 1.0, self.state + 1, TERMINATED if self.state == 4 else GOES_ON


class Fork(Probe):
    """Two steps. State 0 earns nothing and leads to states 1 and 2 in turn, which earn 2 and 0.

    V(1) = 2, V(2) = 0, and as the action has no influence, V(0) = g (2 + 0) / 2.
    """

    states = 4

    def follow(self, action: Any) -> tuple[float, int, Ending]:
        if self.state == 0:
            return 0.0, 1 + self.begun % 2, GOES_ON
        return 2.0 if self.state == 1 else 0.0, 3, TERMINATED


class Choice(Probe):
    """One step in state 0, 1 or 2, drawn at random: action 0 is right in states 0 and 2, action 1 in state 1.

    The right action earns 1, the other one nothing.
    """

    states = 3
    right: ClassVar[tuple[int, ...]] = (0, 1, 0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = int(self.np_random.integers(self.states))
        return self.state, {}

    def follow(self, action: Any) -> tuple[float, int, Ending]:
        return float(action == self.right[self.state]), self.state, TERMINATED


class Delay(Probe):
    """Four steps. The first action chooses a branch, and the last step of branch 1 earns 1.

    States 1, 3, 5 are branch 0, states 2, 4, 6 branch 1. Later actions have no influence. V(2) = g^2, V(4) = g,
    V(6) = 1, V(1) = V(3) = V(5) = 0, and if the first action is right, V(0) = g^3.
    """

    states = 8

    def follow(self, action: Any) -> tuple[float, int, Ending]:
        if self.state == 0:
            return 0.0, 1 + int(action), GOES_ON
        if self.state < 5:
            return 0.0, self.state + 2, GOES_ON
        return float(self.state == 6), 7, TERMINATED


class Ends(Probe):
    """Two kinds of episodes in turn, which earn 1 in each of two steps.

    States 0 and 1 would go on for ever, but the episode is truncated: V(0) = V(1) = 1 / (1 - g).
    States 2 and 3 are an episode that terminates: V(2) = 1 + g, V(3) = 1.
    """

    states = 5
    starts = (0, 2)

    def follow(self, action: Any) -> tuple[float, int, Ending]:
        return 1.0, *{0: (1, GOES_ON), 1: (0, TRUNCATED), 2: (3, GOES_ON), 3: (4, TERMINATED)}[self.state]


class Bandit(Probe):
    """One step. Arm 1 earns 1, arm 0 nothing."""

    def follow(self, action: Any) -> tuple[float, int, Ending]:
        return float(action), 0, TERMINATED


SWITCHES = spaces.MultiBinary([2, 2])
GRID = spaces.MultiDiscrete([[3, 2], [2, 3]])
INTEGERS = spaces.Box(-1, 1, (2,), np.int8)
PAIR = spaces.Tuple([spaces.Discrete(3, start=7), spaces.MultiBinary(2)])
TURN = spaces.Box(-4.0, 4.0, (2,), np.float64)
ROBOT = spaces.Dict(
    {"arm": spaces.Dict({"grip": spaces.MultiBinary(2), "turn": TURN}), "mode": spaces.Discrete(2, start=-1)}
)
COMBINATIONS: dict[str, tuple[spaces.Space[Any], tuple[Any, Any]]] = {
    "multi-binary": (SWITCHES, ([[0, 1], [1, 0]], [[1, 0], [0, 1]])),
    "grid": (GRID, ([[2, 0], [1, 1]], [[0, 1], [0, 2]])),
    "integers": (INTEGERS, ([-1, 1], [1, 0])),
    "tuple": (PAIR, ((8, [0, 1]), (9, [1, 0]))),
    "dict": (
        ROBOT,
        (
            {"arm": {"grip": [0, 1], "turn": [1.0, -1.0]}, "mode": -1},
            {"arm": {"grip": [1, 0], "turn": [-1.0, 1.0]}, "mode": 0},
        ),
    ),
}
"""Kind -> the action space, and the right actions of states 0 and 1."""


class Combination(Choice):
    """One step in state 0 or 1, with an action of many elements: 1 if all of them are right, otherwise nothing.

    Continuous elements at distances d from the right ones leave exp(-sum d^2) of it.
    """

    states = 2

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.action_space, self.combinations = COMBINATIONS[kind]

    def follow(self, action: Any) -> tuple[float, int, Ending]:
        assert self.action_space.contains(action)
        return _share(action, self.combinations[self.state]), self.state, TERMINATED


def _share(action: Any, right: Any) -> float:
    if isinstance(right, dict):
        return float(np.prod([_share(action[name], part) for name, part in right.items()]))
    if isinstance(right, tuple):
        return float(np.prod([_share(*pair) for pair in zip(action, right, strict=True)]))
    if np.asarray(action).dtype.kind == "f":
        return float(np.exp(-np.sum((action - right) ** 2)))
    return float(np.array_equal(action, right))


class Targets(Choice):
    """One step with a continuous action, which earns -(action - target)^2. The targets of the states are -1 and 1."""

    states = 2
    action_space = spaces.Box(-4.0, 4.0, (1,), np.float32)
    targets: ClassVar[tuple[float, ...]] = (-1.0, 1.0)

    def follow(self, action: Any) -> tuple[float, int, Ending]:
        return -float((action[0] - self.targets[self.state]) ** 2), self.state, TERMINATED


class MaskedArm(Choice):
    """One step with three arms, which earn 1, 0.5 and 0. In state 0 all are allowed, in state 1 all but the best.

    V(0) = 1 and V(1) = 0.5. A forbidden arm raises.
    """

    states = 2
    action_space = spaces.Discrete(3)
    earned: ClassVar[tuple[float, ...]] = (1.0, 0.5, 0.0)

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Dict(
            {"state": spaces.Discrete(2), "action_mask": spaces.MultiBinary(3)}  # type: ignore[assignment]
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.state == 1 and action == 0:
            raise ValueError("arm 0 is forbidden")
        return self.seen(), self.earned[action], *TERMINATED, {}

    def seen(self) -> dict[str, Any]:
        """Return the observation of the current state, with its mask."""
        return {"state": self.state, "action_mask": np.array([self.state == 0, True, True], np.int8)}


class Parts(Probe):
    """One step. The action that earns 1 has the number 4 a + 2 b + c; a, b and c are three parts of the observation."""

    action_space = spaces.Discrete(8)

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Dict(  # type: ignore[assignment]
            {
                "picture": spaces.Box(0, 255, (4,), np.uint8),
                "place": spaces.Dict({"x": spaces.Box(-1, 1, (1,), np.float32)}),
                "pair": spaces.Tuple([spaces.Discrete(2)]),
            }
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = int(self.np_random.integers(8))
        return self.seen(self.state), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.seen(self.state), float(action == self.state), *TERMINATED, {}

    @staticmethod
    def seen(state: int) -> dict[str, Any]:
        """Return the observation of a state."""
        a, b, c = state // 4, state // 2 % 2, state % 2
        picture = np.full(4, 255 * a, np.uint8)
        return {"picture": picture, "place": {"x": np.array([2.0 * b - 1.0], np.float32)}, "pair": (c,)}


class Remember(Probe):
    """Five steps. The episode begins in state 0 or 1, and its last action, in state 5, is right if it is that number.

    A right one earns 1. The states between do not show the number, so without a memory half of the episodes earn it.
    """

    states = 6
    starts = (0, 1, 1, 0, 0)

    def follow(self, action: Any) -> tuple[float, int, Ending]:
        if self.state == 5:
            return float(action == self.shown), 5, TERMINATED
        if self.state < 2:
            self.shown = self.state
        return 0.0, max(self.state, 1) + 1, GOES_ON


class Recall(Probe):
    """Four steps in random states 0 and 1. The right action is the state two steps before, or 1 if there was none.

    A right one earns 1.
    """

    states = 2

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.seen = [int(self.np_random.integers(2))]
        return self.seen[-1], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        right = self.seen[-3] if len(self.seen) > 2 else 1
        self.seen.append(int(self.np_random.integers(2)))
        return self.seen[-1], float(action == right), len(self.seen) == 5, False, {}


class Lock(Probe):
    """Sixteen right actions in a row open the lock and earn 1; a wrong one ends the episode. By chance: 1 in 65,536."""

    states = 17
    right = (0, 0, 1, 0, 1, 1, 1, 0, 1, 0, 0, 1, 1, 0, 1, 0)

    def follow(self, action: Any) -> tuple[float, int, Ending]:
        if action != self.right[self.state]:
            return 0.0, 0, TERMINATED
        opened = self.state == len(self.right) - 1
        return float(opened), self.state + 1, TERMINATED if opened else GOES_ON
