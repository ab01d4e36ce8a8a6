"""The tasks of `scripts/parity`: environment, budget and hyper-parameters, in words that both trainers are given.

The settings of a Task are those of RL Zoo (`hive.config.known_tasks`), without gSDE, some with a smaller budget. The
MuJoCo tasks have Stable-Baselines3's defaults with normalization, so that no setting was tuned for either trainer.

    ppo-lstm-cartpole-positions   those of CartPoleNoVel-v1 in RL Zoo's ppo_lstm.yml; RecurrentPPO of SB3-Contrib
    ppo-masked                    those of the example of MaskablePPO in SB3-Contrib's guide, with 8 environments
    ppo-minigrid                  those of MiniGrid-DoorKey-5x5-v0 in RL Zoo, not normalized, with an entropy weight
    ppo-minatar-breakout          those of Atari in RL Zoo

RecurrentPPO begins each epoch at a random row, where it cuts the sequence of one environment in two. hive cuts none. A
minibatch of that task is a whole round, so the updates are otherwise equal (tests/peers/test_sb3_contrib.py).

Images have the layers of hive on both sides (`comparison.sb3_network`): two convolutions of 3 x 3, with 32 filters and
with 64 at stride 2, and a dense layer of 128.

The settings of a ReplayTask are those of RL Zoo too (dqn.yml, qrdqn.yml, sac.yml, td3.yml), and the defaults of
Stable-Baselines3 where it has none; sac-halfcheetah has those of HalfCheetah-v4. hive is given what Stable-Baselines3
cannot change: DQN without the online network's choice of the next action, and the epsilon of Adam.

Stable-Baselines3 has neither n-step Q-learning nor PQN. Their tasks, SchemeTask, have the defaults of hive's scheme.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields, replace
from fractions import Fraction
from typing import Any, Literal

from hive.config import tuned

LATER = {"memory", "masked", "shared", "layers"}
"""Fields that tasks did not have at first: the digest of a task without them is still that of the rows it has."""


class Settings:
    """The settings of a task as one object and as a digest. The base of dataclasses."""

    __slots__ = ()

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that every trainer of this task is given."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]

    @property
    def digest(self) -> str:
        """Eight characters that change with any setting: rows of other settings are not mixed with these."""
        usual = {field.name for field in fields(self) if getattr(self, field.name) == field.default}  # type: ignore[arg-type]
        counted = {name: value for name, value in self.settings.items() if name not in LATER & usual}
        return hashlib.sha256(json.dumps(counted, sort_keys=True).encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class Task(Settings):
    """One environment, trained by one algorithm with one set of hyper-parameters.

    steps: budget, environment steps of all environments together. envs: environments that are stepped side by side.
    rollout: steps of each environment in one round. minibatch: samples of one gradient; A2C takes the whole round.
    linear: the names of hyper-parameters that fall in a straight line to 0 over the budget. memory: cells of an LSTM
    before the dense layers, 0 for none. masked: info["action_mask"] has the allowed actions. layers: widths of the
    dense layers before the heads. shared: policy and value share all layers but the heads, otherwise none.
    """

    name: str
    env: str
    algorithm: Literal["ppo", "a2c"]
    steps: int
    envs: int
    rollout: int
    learning_rate: float
    discount: float = 0.99
    gae_lambda: float = 0.95
    entropy_weight: float = 0.0
    value_loss_weight: float = 0.5
    clip_gradients: float = 0.5
    minibatch: int = 64
    epochs: int = 10
    clip_range: float = 0.2
    linear: tuple[str, ...] = ()
    normalize: bool = False
    seeds: int = 5
    memory: int = 0
    masked: bool = False
    layers: tuple[int, ...] = (64, 64)
    shared: bool = False

    @property
    def peer(self) -> str:
        """The package that trains this task beside hive."""
        return "sb3-contrib" if self.memory or self.masked else "Stable-Baselines3"


@dataclass(frozen=True, slots=True)
class ReplayTask(Settings):
    """One environment, trained from a replay memory by one algorithm with one set of hyper-parameters.

    steps: budget, environment steps. rollout: steps between two series of updates. updates: number of updates in such a
    series. capacity: steps in the memory. learning_starts: steps with random actions before the first update.
    target_interval: environment steps between two changes of the target network; those of sac and td3 change with each
    update. target_rate: the share of the new weights in such a change. exploration_share: part of the budget in which
    the probability of random actions falls from 1 to exploration_end. quantiles: of each action's value, by qr-dqn.
    optimizer_epsilon: of Adam. clip_gradients: maximum norm, 0 for none. layers: widths of the dense layers.
    action_noise: deviation of the noise on td3's actions, in halves of their range.
    """

    name: str
    env: str
    algorithm: Literal["dqn", "qr-dqn", "sac", "td3"]
    steps: int
    learning_rate: float
    batch: int
    capacity: int
    learning_starts: int
    rollout: int
    updates: int
    layers: tuple[int, ...]
    discount: float = 0.99
    target_interval: int = 0
    target_rate: float = 1.0
    exploration_share: float = 0.0
    exploration_end: float = 0.0
    quantiles: int = 0
    optimizer_epsilon: float = 1e-8
    clip_gradients: float = 0.0
    action_noise: float = 0.0
    seeds: int = 5

    @property
    def peer(self) -> str:
        """The package that trains this task beside hive."""
        return "sb3-contrib" if self.algorithm == "qr-dqn" else "Stable-Baselines3"


@dataclass(frozen=True, slots=True)
class SchemeTask(Settings):
    """One environment, trained by a scheme of hive with its defaults, which are those of the commit in a row.

    steps: budget, environment steps of all environments together. goal: a mean training return that counts as solved.
    """

    name: str
    env: str
    scheme: str
    steps: int
    goal: float
    seeds: int = 5


INIT_TRAINERS = ("hive:bare", "hive:init")
"""Trainers of an InitTask: hive with no other key, and with what `hive init` writes."""


@dataclass(frozen=True, slots=True)
class InitTask(Settings):
    """One environment without tuned settings, trained with and without what `hive init` writes for it.

    steps: budget of both, environment steps of all environments together.
    """

    name: str
    env: str
    steps: int
    seeds: int = 3


def _zoo(scheme: str, env: str, name: str = "", **changes: Any) -> Task:
    """Return a task of RL Zoo's settings, which `hive init` writes too. changes: fields that differ here."""
    keys = tuned(env)[scheme].keys
    algorithm = {key.removeprefix("algorithm."): value for key, value in keys.items()}
    envs, rollout = keys["collection.envs"], keys["collection.rollout"]
    shared = ("learning_rate", "discount", "gae_lambda", "entropy_weight", "value_loss_weight", "clip_gradients")
    given = {field: algorithm[field] for field in (*shared, *(("epochs", "clip_range") if scheme == "ppo" else ()))}
    given |= {"steps": keys["run.steps"], "envs": envs, "rollout": rollout}
    given |= {"normalize": keys["network.normalize_observations"]}
    if scheme == "ppo":
        given["minibatch"] = envs * rollout // algorithm["minibatches"]
    falling = ("learning_rate", "clip_range")
    given["linear"] = tuple(field for field in falling if algorithm.get(f"{field}_schedule") == "linear")
    return Task(name or f"{scheme}-{env.partition('-')[0].lower()}", env, scheme, **{**given, **changes})  # type: ignore[arg-type]


def _zoo_replay(scheme: str, env: str, name: str = "", **changes: Any) -> ReplayTask:
    """Return a task with a replay memory of RL Zoo's settings. changes: fields that differ here."""
    keys = tuned(env)[scheme].keys
    algorithm = {key.removeprefix("algorithm."): value for key, value in keys.items()}
    rollout, steps = keys["collection.rollout"], keys["run.steps"]
    updates = round(Fraction(algorithm["updates_per_step"]) * rollout)
    given = {field: algorithm[field] for field in ("learning_rate", "learning_starts", "discount", "target_rate")}
    given |= {"steps": steps, "rollout": rollout, "updates": updates, "layers": tuple(keys["network.middleware"])}
    given |= {"batch": algorithm["batch_size"], "capacity": algorithm["replay_capacity"]}
    given |= {"clip_gradients": algorithm["clip_gradients"], "action_noise": algorithm.get("exploration_noise", 0.0)}
    if scheme == "dqn":
        given["exploration_share"] = algorithm["exploration_steps"] / steps
        given["exploration_end"] = algorithm["exploration_end"]
    task = name or f"{scheme}-{env.partition('-')[0].lower()}"
    return ReplayTask(task, env, **{"algorithm": scheme, **given, **changes})


MUJOCO = {"steps": 200_000, "envs": 1, "rollout": 2048, "learning_rate": 3e-4, "normalize": True, "seeds": 3}

AnyTask = Task | ReplayTask | SchemeTask | InitTask

TASKS: dict[str, AnyTask] = {
    task.name: task
    for task in (
        _zoo("ppo", "CartPole-v1"),
        _zoo("ppo", "Acrobot-v1", steps=200_000),
        _zoo("ppo", "MountainCar-v0", steps=500_000),
        _zoo("ppo", "Pendulum-v1"),
        _zoo("ppo", "LunarLander-v3", steps=300_000),
        _zoo("ppo", "LunarLanderContinuous-v3", "ppo-lunarlander-continuous", steps=300_000),
        _zoo("a2c", "CartPole-v1", steps=200_000),
        _zoo("a2c", "Acrobot-v1", steps=200_000),
        _zoo("a2c", "LunarLander-v3"),
        Task("ppo-halfcheetah", "HalfCheetah-v5", "ppo", **MUJOCO),  # type: ignore[arg-type]
        Task("ppo-hopper", "Hopper-v5", "ppo", **MUJOCO),  # type: ignore[arg-type]
        replace(
            _zoo("ppo", "CartPole-v1", "ppo-lstm-cartpole-positions", memory=256, seeds=3),
            env="cartpole_positions:CartPolePositions",
        ),
        Task(
            *("ppo-masked", "comparison.environments:InvalidActions", "ppo"),
            steps=100_000,
            envs=8,
            rollout=256,
            learning_rate=3e-4,
            discount=0.4,
            masked=True,
            seeds=3,
        ),
        Task(
            *("ppo-minigrid", "comparison.environments:DoorKey", "ppo"),
            steps=200_000,
            envs=8,
            rollout=128,
            learning_rate=2.5e-4,
            entropy_weight=0.01,
            seeds=3,
        ),
        Task(
            *("ppo-minatar-breakout", "comparison.environments:MinAtarBreakout", "ppo"),
            steps=500_000,
            envs=8,
            rollout=128,
            learning_rate=2.5e-4,
            entropy_weight=0.01,
            minibatch=256,
            epochs=4,
            clip_range=0.1,
            linear=("learning_rate", "clip_range"),
            layers=(),
            shared=True,
            seeds=3,
        ),
    )
}
"""Name -> task."""

TASKS |= {
    task.name: task
    for task in (
        _zoo_replay("dqn", "CartPole-v1", target_interval=10),
        _zoo_replay("dqn", "LunarLander-v3", target_interval=250),
        _zoo_replay(
            *("dqn", "CartPole-v1", "qr-dqn-cartpole"),
            algorithm="qr-dqn",
            target_interval=10,
            quantiles=10,
            optimizer_epsilon=0.01 / 64,  # sb3-contrib: 0.01 / batch
            clip_gradients=0.0,
        ),
        _zoo_replay("sac", "Pendulum-v1"),
        _zoo_replay("td3", "Pendulum-v1"),
        replace(
            _zoo_replay("sac", "Pendulum-v1", "sac-halfcheetah", learning_rate=3e-4, learning_starts=10_000),
            env="HalfCheetah-v5",
            steps=50_000,
            seeds=1,
        ),
    )
}

TASKS |= {
    (task := SchemeTask(f"{scheme}-{name}", env, scheme, 500_000, goal)).name: task
    for name, env, goal in (("cartpole", "CartPole-v1", 475.0), ("acrobot", "Acrobot-v1", -100.0))
    for scheme in ("pqn", "nstep-q")
}

TASKS |= {
    f"init-{name}": InitTask(f"init-{name}", env, steps)
    for name, env, steps in (
        ("frozenlake", "FrozenLake-v1", 100_000),
        ("taxi", "Taxi-v4", 150_000),
        ("cliffwalking", "CliffWalking-v1", 100_000),
        ("blackjack", "Blackjack-v1", 60_000),
        ("minigrid-empty", "MiniGrid-Empty-5x5-v0", 40_000),
        ("minigrid-doorkey", "MiniGrid-DoorKey-5x5-v0", 80_000),
        ("minigrid-lava", "MiniGrid-LavaGapS5-v0", 60_000),
        ("minatar-breakout", "comparison.environments:minatar_breakout", 100_000),
        ("minatar-freeway", "comparison.environments:minatar_freeway", 60_000),
        ("windy-lander", "comparison.environments:windy_lander", 100_000),
        ("carracing", "CarRacing-v3", 8_192),
        ("pointmaze", "gymnasium_robotics:PointMaze_UMazeDense-v3", 40_000),
        ("hopper-2", "comparison.environments:fast_hopper", 60_000),
        ("highway", "highway_env:highway-fast-v0", 4_096),
        ("parking", "highway_env:parking-v0", 20_000),
        ("flappybird", "flappy_bird_gymnasium:FlappyBird-v0", 40_000),
        ("2048", "gymnasium_2048:gymnasium_2048/TwentyFortyEight-v0", 40_000),
        ("battleship", "popgym:popgym-BattleshipEasy-v0", 60_000),
        ("minesweeper", "popgym:popgym-MineSweeperEasy-v0", 60_000),
        ("cartpole-positions", "cartpole_positions:CartPolePositions", 60_000),
        ("masked", "comparison.environments:InvalidActions", 40_000),
    )
}
