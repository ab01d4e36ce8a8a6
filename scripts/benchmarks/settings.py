"""The settings of `bench throughput`, one for each line of work: what hive trains, and the same work for its peers.

A setting has one description, `work`, with the words of `scripts/parity` (comparison.tasks): environment, number of
environments and steps of a round, hyper-parameters, widths of the layers. hive's keys follow from it (`keys_of`), and
every peer gets it as JSON. Policy and value have networks of their own with the same layers on both sides, except with
Pong, where both sides share the convolutions. `tests/scripts/test_bench_settings.py` compares the numbers of weights.

hive runs in several placements:

    default         what a config without these keys gets
    python          the same with Gymnasium's Python environments, where hive would take its compiled ones
    single          one training process, synchronous
    1-collector     one collector, and a learner that makes the gradients
    1-collector-zmq the same with run.carrier = "zmq"
    2-collectors    two collectors with half of the environments each, and a learner that makes the gradients
    2-workers       one collector, two gradient workers with half of each batch, and a learner

IMPALA has no peer here that corrects off-policy rollouts. Its peers train A2C with the same round, batch and network:
in one process V-trace's ratios are 1. PQN's compiled setting has 2 epochs, which cost as much arithmetic as the two
networks of A2C.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from comparison import hive_cell
from comparison.tasks import TASKS, ReplayTask, Task

ENDLESS_STEPS = 10**12  # the bench ends a run, not its budget

START_STEPS = 1000  # with a replay memory: steps before the first update, and until the final share of random actions

PLACEMENTS: dict[str, tuple[str, ...]] = {
    "default": (),
    "python": ("env.vector=python",),
    "single": ("collection.workers=0", "collection.communication=synchronous", "gradients.workers=0"),
    "1-collector": ("collection.workers=1", "gradients.workers=0"),
    "1-collector-zmq": ("collection.workers=1", "gradients.workers=0", "run.carrier=zmq"),
    "2-collectors": ("collection.workers=2", "gradients.workers=0"),
    "2-workers": ("collection.workers=1", "gradients.workers=2"),
}
"""Name of a placement -> its keys. 2-collectors halves collection.envs too (`keys_of`)."""


@dataclass(frozen=True)
class Setting:
    """One line of work. `name` begins the names of its contenders; `title` is for people.

    work: the JSON object that peers get, with the fields of a Task or ReplayTask; `vector` "numpy" asks a plain loop
    for Gymnasium's NumPy vector class. keys: further keys of hive, which override those that follow from `work`.
    placements: of hive. peers: sb3, plain, sample-factory.
    goals: peer -> the ratio that hive's best placement must reach. least_steps_per_s: what it must reach by itself.
    """

    name: str
    title: str
    work: Mapping[str, Any]
    keys: tuple[str, ...] = ()
    placements: tuple[str, ...] = ("default", "single")
    peers: tuple[str, ...] = ("sb3",)
    goals: Mapping[str, float] = field(default_factory=dict)
    least_steps_per_s: float | None = None

    @property
    def learns_from_memory(self) -> bool:
        """Whether it has a replay memory."""
        return "capacity" in self.work


def work_keys(work: Mapping[str, Any]) -> list[str]:
    """Return the keys of hive, `KEY=VALUE`, that follow from a `work`, of which not every field must be there."""
    usual = {"linear": (), "normalize": False, "memory": 0, "masked": False, "shared": False}
    return [*hive_cell.keys_of({**usual, **work}, 1), "record.every_s=1.0"]


def keys_of(setting: Setting, placement: str) -> list[str]:
    """Return the keys of a run of hive, `KEY=VALUE`; of several with one name, the last one counts."""
    keys = [*work_keys(setting.work), *setting.keys, *PLACEMENTS[placement]]
    if placement == "2-collectors":
        keys.append(f"collection.envs={setting.work['envs'] // 2}")
    return keys


ADAM = ("algorithm.optimizer=adam", "algorithm.optimizer_epsilon=1e-5")  # both sides use it: RMSprop is slow in SB3
NUMPY = ("env.id=benchmarks.environments:Vector-v0", "env.vector=native")


def _a2c(env: str, envs: int, rollout: int, **options: Any) -> dict[str, Any]:
    """Return A2C's work with the discount and loss weights of Stable-Baselines3, an entropy weight, and Adam."""
    return Task(
        *("a2c", env, "a2c"),
        steps=ENDLESS_STEPS,
        envs=envs,
        rollout=rollout,
        learning_rate=1e-3,
        gae_lambda=1.0,
        entropy_weight=0.01,
        **options,
    ).settings


def _ppo(name: str, **changes: Any) -> dict[str, Any]:
    """Return the work of a task of PPO without an end; what falls to 0 over a budget stays as it is."""
    task = TASKS[name]
    assert isinstance(task, Task), name
    return replace(task, steps=ENDLESS_STEPS, linear=(), **changes).settings


def _replay(name: str) -> dict[str, Any]:
    """Return the work of a task with a replay memory, without an end.

    The probability of random actions is soon at its end: during the decrease SB3 would save the policy's cost.
    """
    task = TASKS[name]
    assert isinstance(task, ReplayTask), name
    return replace(
        task,
        steps=ENDLESS_STEPS,
        learning_starts=min(task.learning_starts, START_STEPS),
        exploration_share=START_STEPS / ENDLESS_STEPS if task.exploration_share else 0.0,
    ).settings


def _pqn(envs: int, rollout: int, epochs: int, vector: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the work of PQN and hive's keys for it: dense layers of 64 with LayerNorm, RAdam."""
    work = {
        "name": "pqn",
        "scheme": "pqn",
        "algorithm": "pqn",
        "env": "CartPole-v1",
        "steps": ENDLESS_STEPS,
        "envs": envs,
        "rollout": rollout,
        "epochs": epochs,
        "minibatches": 4,
        "vector": vector,
        "learning_rate": 2e-3,
        "discount": 0.98,
        "q_lambda": 0.9,
        "exploration_end": 0.01,
        "clip_gradients": 10.0,
        "layers": [64, 64],
    }
    keys = [f"collection.{name}={work[name]}" for name in ("envs", "rollout")]
    keys += [f"algorithm.{name}={work[name]}" for name in ("epochs", "minibatches", "learning_rate", "discount")]
    keys += [f"algorithm.{name}={work[name]}" for name in ("q_lambda", "exploration_end", "clip_gradients")]
    constant = ("algorithm.learning_rate_schedule=constant", f"algorithm.exploration_steps={START_STEPS}")
    plain = ("network.normalize_observations=false", "network.normalize_rewards=false")
    return work, (*keys, *constant, *plain, f"network.middleware={work['layers']}")


def _python_16(rollout: int) -> Setting:
    return Setting(
        "a2c-python-16" if rollout == 32 else f"a2c-python-16-rollout-{rollout}",
        f"A2C, 16 CartPole-v1 environments in Python, rollouts of {rollout}",
        _a2c("CartPole-v1", 16, rollout),
        (*ADAM, "env.vector=python"),
        ("default", "single", "1-collector", "1-collector-zmq", "2-collectors"),
        ("sb3", "plain"),
        goals={"sb3": 6.0},
    )


PQN_8, PQN_1024 = _pqn(8, 32, 4, "python"), _pqn(1024, 16, 2, "numpy")

SETTINGS: dict[str, Setting] = {
    one.name: one
    for one in (
        _python_16(32),
        _python_16(5),
        Setting(
            "a2c-vector-64",
            "A2C, 64 CartPole-v1 environments of Gymnasium's NumPy vector class, rollouts of 32",
            {**_a2c("CartPole-v1", 64, 32), "vector": "numpy"},
            (*ADAM, *NUMPY),
            ("default", "single", "2-collectors"),
            ("plain",),
            goals={"plain": 4.0},
        ),
        Setting(
            "a2c-compiled-1024",
            "A2C, 1,024 CartPole-v1 environments, rollouts of 16: compiled into hive, NumPy in the peer",
            {**_a2c("CartPole-v1", 1024, 16), "vector": "numpy"},
            (*ADAM, "env.vector=native"),
            ("default", "single", "2-collectors"),
            ("plain",),
            least_steps_per_s=600_000.0,
        ),
        Setting(
            "pqn-cartpole",
            "PQN, 8 CartPole-v1 environments, rollouts of 32, 4 epochs of 4 minibatches",
            *PQN_8,
            ("default", "python", "single"),
            ("plain",),
        ),
        Setting(
            "pqn-compiled-1024",
            "PQN, 1,024 CartPole-v1 environments, rollouts of 16, 2 epochs: compiled into hive, NumPy in the peer",
            *PQN_1024,
            ("default", "single", "2-collectors"),
            ("plain",),
            least_steps_per_s=600_000.0,
        ),
        Setting(
            "impala-cartpole",
            "IMPALA, 16 CartPole-v1 environments, rollouts of 16; the peers train A2C with the same batch",
            _a2c("CartPole-v1", 16, 16),
            (*ADAM, "run.scheme=impala", "env.vector=python"),
            ("1-collector", "2-collectors"),
            ("sb3", "plain"),
        ),
        Setting(
            "ppo-cartpole",
            "PPO, 8 CartPole-v1 environments, RL Zoo's settings: rollouts of 32, 20 epochs of one batch",
            _ppo("ppo-cartpole"),
            (),
            ("default", "python", "single"),
            ("sb3", "plain", "sample-factory"),
            goals={"sb3": 4.0, "plain": 2.2},
        ),
        Setting(
            "ppo-halfcheetah",
            "PPO, 1 HalfCheetah-v5 environment: rollouts of 2,048, 10 epochs of 32 minibatches, normalized",
            _ppo("ppo-halfcheetah"),
            goals={"sb3": 3.5},
        ),
        Setting(
            "ppo-halfcheetah-8",
            "PPO, 8 HalfCheetah-v5 environments: rollouts of 256, 10 epochs of 32 minibatches, normalized",
            _ppo("ppo-halfcheetah", envs=8, rollout=256),
            (),
            ("default", "single", "2-collectors"),
            goals={"sb3": 2.5},
        ),
        Setting(
            "a2c-pong-16",
            "A2C, 16 games of Pong, 84 x 84 pixels, 4 frames stacked, rollouts of 5",
            _a2c("ALE/Pong-v5", 16, 5, shared=True, layers=()),
            (*ADAM, "env.preset=atari", "env.frame_stack=4", "network.activation=relu"),
            ("default", "single", "2-collectors"),
            goals={"sb3": 1.8},
        ),
        Setting(
            "dqn-cartpole",
            "DQN, CartPole-v1, RL Zoo's settings: 128 updates of 64 steps after every 256 steps",
            _replay("dqn-cartpole"),
            (),
            ("default", "python", "single", "2-workers"),
            goals={"sb3": 3.0},
        ),
        Setting(
            "sac-halfcheetah",
            "SAC, HalfCheetah-v5: 1 update of 256 steps after every step",
            _replay("sac-halfcheetah"),
            (),
            ("default", "single", "2-workers"),
            goals={"sb3": 1.5},
        ),
    )
}
"""Name -> setting, in the order of measurement."""
