"""The rows of `bench league`: one piece of work each, what hive and its peers are given, and what hive must reach.

A row has one description, `work`, in the words of `scripts/parity` (comparison.tasks). hive's keys follow from it
(`benchmarks.settings.work_keys`), and every peer gets it as JSON, so that networks, updates, batch, number of
environments and hyper-parameters are the same on all sides; examples/guide/speed.md lists what still differs. hive has
its default placement, which with a replay memory is pipelined: it acts with the policy of one round before. Where a
row names Gymnasium's class, hive steps this class too and not its own compiled environment; a shape `hive-compiled`
beside it is shown and has no goal.

Contenders are hive's shapes and these peers, with "-1-thread" added for one thread of torch or one core for JAX:

    sb3                Stable-Baselines3
    sbx                Stable-Baselines3's algorithms in JAX
    rltools            RLtools with Gymnasium's class, through its Python door
    rltools-compiled   the same with its own environment in C++
    environment        the environments of the work alone, with random actions, on one core
    hive-<commit>      hive as it was at that commit, with its own defaults
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from comparison.tasks import TASKS, ReplayTask, Task

from benchmarks.peer_environments import EARLIER
from benchmarks.settings import ENDLESS_STEPS, SETTINGS, START_STEPS, keys_of, work_keys

Figure = Literal["steps_per_s", "seconds", "runtime_cpu_share"]

UNITS: Mapping[Figure, str] = {
    "steps_per_s": "steps/s",
    "seconds": "s of training",
    "runtime_cpu_share": "of the CPU",
}
"""Figure that a row compares -> its unit. More is better of the first, less of the others."""

PYTHON = ("env.vector=python",)  # Gymnasium's class where hive would take its compiled one
SYNCHRONOUS = ("collection.communication=synchronous",)
THREADS = ("sb3-1-thread", "sb3")
CORES = ("sbx-1-thread", "sbx")
EARLIER_HIVE = f"hive-{EARLIER}"


@dataclass(frozen=True)
class Row:
    """One piece of work.

    hive: shape -> its keys beside those of `work`; the first shape is the one that goals are about. goals: peer -> how
    many times as fast hive must be. limit: the most that hive may need, in the unit of `figure`.
    """

    name: str
    title: str
    work: Mapping[str, Any]
    hive: Mapping[str, tuple[str, ...]]
    peers: tuple[str, ...] = ()
    figure: Figure = "steps_per_s"
    goals: Mapping[str, float] = field(default_factory=dict)
    limit: float | None = None

    @property
    def ours(self) -> str:
        """The shape of hive that is compared."""
        return next(iter(self.hive))

    @property
    def shapes(self) -> tuple[str, ...]:
        """All contenders, those of hive first."""
        return (*self.hive, *self.peers)

    def keys(self, shape: str) -> list[str]:
        """Return the keys of a shape of hive, `KEY=VALUE`; of several with one name, the last one counts."""
        return [*work_keys(self.work), *self.hive.get(shape, ())]

    def given(self, peer: str) -> dict[str, Any]:
        """Return what the program of a peer is given."""
        return {**self.work, **({"compiled": peer.endswith("-compiled")} if peer.startswith("rltools") else {})}


def _on_policy(name: str, **changes: Any) -> dict[str, Any]:
    """Return the work of a task of scripts/parity; what falls to 0 over a budget stays as it is."""
    task = TASKS[name]
    assert isinstance(task, Task), name
    return replace(task, linear=(), **changes).settings


def _agent(algorithm: Literal["sac", "td3"], env: str, **settings: Any) -> dict[str, Any]:
    """Return the work of an agent with a replay memory and one update after each step, without an end."""
    return ReplayTask(
        *(f"{algorithm}-{env}", env, algorithm),
        steps=ENDLESS_STEPS,
        rollout=1,
        updates=1,
        target_rate=0.005,
        **settings,
    ).settings


# RLtools' defaults of SAC, which are those of its example of Pendulum, with the usual epsilon of Adam.
SAC_PENDULUM = _agent(
    "sac", "Pendulum-v1", learning_rate=1e-3, batch=100, capacity=10_000, learning_starts=100, layers=(64, 64)
)
# RLtools' example of PPO on Pendulum: 74 rounds. Its actor and critic have an optimizer each and clip no gradients.
PPO_PENDULUM = Task(
    *("ppo-pendulum", "Pendulum-v1", "ppo"),
    steps=74 * 4 * 1024,
    envs=4,
    rollout=1024,
    epochs=2,
    minibatch=256,
    learning_rate=1e-3,
    discount=0.9,
    clip_gradients=0.0,
).settings
# Stable-Baselines3's defaults of TD3, with the layers of the row of SAC.
TD3_HALFCHEETAH = _agent(
    *("td3", "HalfCheetah-v5"),
    learning_rate=1e-3,
    batch=256,
    capacity=1_000_000,
    learning_starts=START_STEPS,
    layers=(256, 256),
    action_noise=0.1,
)

ROWS: dict[str, Row] = {
    row.name: row
    for row in (
        Row(
            "sac-pendulum",
            "SAC, Pendulum-v1 of Gymnasium, [64, 64], 1 update of 100 steps after every step",
            SAC_PENDULUM,
            {"hive": PYTHON},
            ("rltools", *CORES, *THREADS),
            goals={"rltools": 1.0},
        ),
        Row(
            "sac-pendulum-compiled",
            "the same with hive's compiled Pendulum, and RLtools with either",
            SAC_PENDULUM,
            {"hive-compiled": ("env.vector=native",)},
            ("rltools", "rltools-compiled"),
            goals={"rltools": 1.3},
        ),
        Row(
            "ppo-pendulum-compiled",
            "PPO, Pendulum-v1 compiled, 4 x 1,024 steps, 2 epochs of 16 minibatches, [64, 64], 303,104 steps",
            PPO_PENDULUM,
            {"hive-compiled": ("env.vector=native", "network.activation=relu")},
            ("rltools-compiled",),
            figure="seconds",
            limit=0.8,
        ),
        Row(
            "dqn-cartpole",
            "DQN, CartPole-v1 of Gymnasium, RL Zoo's settings: 128 updates of 64 steps after every 256 steps",
            SETTINGS["dqn-cartpole"].work,
            {"hive": PYTHON, "hive-compiled": ()},
            (*CORES, *THREADS),
            goals={"sbx": 1.5, "sb3": 4.5},
        ),
        Row(
            "sac-halfcheetah",
            "SAC, HalfCheetah-v5, [256, 256], 1 update of 256 steps after every step",
            SETTINGS["sac-halfcheetah"].work,
            {"hive": ()},
            (*CORES, *THREADS),
            goals={"sbx": 2.0},
        ),
        Row(
            "td3-halfcheetah",
            "TD3, HalfCheetah-v5, [256, 256], 1 update of 256 steps after every step, the actor every second time",
            TD3_HALFCHEETAH,
            {"hive": ()},
            (*CORES, *THREADS),
            goals={"sbx": 2.0},
        ),
        Row(
            "ppo-cartpole",
            "PPO, 8 CartPole-v1 of Gymnasium, RL Zoo's settings: rollouts of 32, 20 epochs of one batch",
            SETTINGS["ppo-cartpole"].work,
            {"hive": PYTHON, "hive-compiled": ()},
            THREADS,
            goals={"sb3": 14.0},
        ),
        Row(
            "ppo-dict",
            "the same with observations that are a dictionary of two vectors",
            {**SETTINGS["ppo-cartpole"].work, "env": "comparison.environments:CartPoleParts"},
            {"hive": ()},
            THREADS,
            goals={"sb3": 1.0},
        ),
        Row(
            "ppo-module",
            "the same with a network of the user, in torch, that has the layers of the others",
            SETTINGS["ppo-cartpole"].work,
            {"hive": (*PYTHON, "network.module=benchmarks.networks:Dense")},
            THREADS,
            goals={"sb3": 1.0},
        ),
        Row(
            "ppo-lstm",
            "the same with an LSTM of 256 cells in policy and value; RecurrentPPO of SB3-Contrib",
            _on_policy("ppo-lstm-cartpole-positions", env="CartPole-v1", steps=ENDLESS_STEPS),
            {"hive": PYTHON},
            THREADS,
            goals={"sb3": 1.0},
        ),
        Row(
            "ppo-grid",
            "PPO, 8 MiniGrid-DoorKey-5x5-v0, 7 x 7 x 3 codes and a direction: 10 epochs of 16 minibatches",
            _on_policy("ppo-minigrid", steps=ENDLESS_STEPS),
            {"hive": ()},
            THREADS,
            goals={"sb3": 1.0},
        ),
        Row(
            "ppo-lunarlander",
            "PPO, 16 LunarLander-v3, RL Zoo's settings, 213,000 steps, hive's default placement",
            _on_policy("ppo-lunarlander", steps=13 * 16 * 1024),
            {"hive": ()},
            ("environment",),
            figure="seconds",
            limit=13.0,
        ),
        Row(
            "ppo-halfcheetah-lag-0",
            f"PPO, 1 HalfCheetah-v5, without lag, 102,400 steps; at {EARLIER} pipelined, as was the default",
            _on_policy("ppo-halfcheetah", steps=50 * 2048),
            {"hive": SYNCHRONOUS},
            (EARLIER_HIVE,),
            figure="seconds",
            goals={EARLIER_HIVE: 1 / 1.1},
        ),
        Row(
            "a2c-cpu-share",
            "A2C, 16 CartPole-v1 of Gymnasium, 2 collectors: the share of the CPU that hive itself takes",
            SETTINGS["a2c-python-16"].work,
            {"hive": tuple(keys_of(SETTINGS["a2c-python-16"], "2-collectors"))},
            figure="runtime_cpu_share",
            limit=0.06,
        ),
    )
}
"""Name -> row, in the order of measurement."""
