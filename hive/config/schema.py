"""Every key of the config: its table, type, default, limits and meaning. To add a key, add a line.

    [run] [env] [collection] [gradients] [algorithm] [network] [record] [supervision]

Each table is a frozen dataclass; `Config` holds one of each, and where every value came from. A `Config`
comes from `load_config`, which fills in the defaults that depend on other keys, so every attribute has its
final type: `config.collection.workers` is a number even where the file says "auto".
"""

from __future__ import annotations

import dataclasses
import os
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hive.config.keys import REQUIRED, is_reference, key, keys_of
from hive.config.schemes import SCHEMES
from hive.config.values import toml_text

__all__ = [
    "RULES",
    "SECTIONS",
    "A2CConfig",
    "CollectionConfig",
    "Config",
    "Entry",
    "EnvConfig",
    "GradientsConfig",
    "NetworkConfig",
    "RecordConfig",
    "Rule",
    "RunConfig",
    "SupervisionConfig",
]

NAME_LENGTH = 64  # of a run: with its number far below the 255 bytes of a file name, and it fits a table
COLLECTORS = 1024  # on one machine: each is a process, and a slip of the finger should not fork a million

NAME = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9._-]{{0,{NAME_LENGTH - 1}}}")

COMMUNICATIONS = ("synchronous", "pipelined")
CLASS = {"accepts": is_reference, "expected": '"package.module:Class"'}


def _cores_but_one() -> int:
    """Leaves a core to the gradient worker and the supervisor."""
    return max(1, len(os.sched_getaffinity(0)) - 1)


def _lag(table: Mapping[str, Any]) -> int:
    """The default `max_lag` of a table with `communication`."""
    return 0 if table["communication"] == "synchronous" else 1


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """[run]: what is trained, and until when."""

    name: str = key(
        "run",
        "of the run, a number is appended; default: the name of the file",
        accepts=lambda name: NAME.fullmatch(name) is not None,
        expected=f"at most {NAME_LENGTH} letters, digits and `.` `_` `-`, beginning with none of `.` `-`",
    )
    scheme: str = key(
        "a2c",
        '"a2c", "single" (all in one process) or "package.module:function"',
        choices=tuple(SCHEMES),
        accepts=is_reference,
        expected=f'{", ".join(map(toml_text, SCHEMES))} or "package.module:function"',
    )
    seed: int = key(1, "everything that is random follows from it", minimum=0)
    steps: int = key(500_000, "environment steps, then the run has finished", minimum=1)
    stop_at_return: float | None = key(None, "finish once the mean of the last 100 training returns is this high")


@dataclass(frozen=True, kw_only=True)
class EnvConfig:
    """[env]: the environment."""

    id: str = key(
        REQUIRED,
        'of Gymnasium, or "package.module:Class"',
        accepts=lambda id: id.isprintable() and id != "",
        expected="the name of an environment",
    )
    options: Mapping[str, Any] = key({}, "keyword arguments of the environment")
    vector: str = key(
        "auto",
        '"native": vectorised by the environment\'s own class; "python": by hive; "auto": native if it can',
        choices=("auto", "python", "native"),
    )


@dataclass(frozen=True, kw_only=True)
class CollectionConfig:
    """[collection]: from environments to rollouts."""

    workers: int = key(
        1,
        'collectors; "auto": as many as cores but one; 0: the gradient worker collects',
        minimum=0,
        maximum=COLLECTORS,
        words={"auto": _cores_but_one},
    )
    envs: int = key(16, "environments per collector", minimum=1)
    rollout: int = key(32, "steps per environment in a rollout", minimum=1)
    communication: str = key(
        "pipelined",
        '"synchronous": wait for the newest weights; "pipelined": act max_lag versions behind',
        choices=COMMUNICATIONS,
    )
    max_lag: int = key(
        REQUIRED,
        "versions by which rollouts are older; default: 0 synchronous, 1 pipelined",
        minimum=0,
        resolve=_lag,
    )
    broadcast_interval: int = key(1, "rounds between two versions of the policy", minimum=1)
    slots: int = key(
        REQUIRED,
        "rollouts in shared memory per collector; default: max_lag + 2",
        minimum=2,
        resolve=lambda table: table["max_lag"] + 2,
    )


@dataclass(frozen=True, kw_only=True)
class GradientsConfig:
    """[gradients]: from rollouts to updates."""

    workers: int = key(
        1,
        "gradient workers; 0: the learner computes the gradients",
        minimum=0,
        maximum=1,
        expected="0 or 1 (this release runs at most one gradient worker)",
    )
    communication: str = key(
        "synchronous",
        '"synchronous": gradients of the newest weights; "pipelined": of older ones',
        choices=COMMUNICATIONS,
    )
    bootstrap_rounds: int = key(1, "gradients of each worker in one update", minimum=1)
    max_lag: int = key(
        REQUIRED,
        "updates by which gradients are older; default: 0 synchronous, 1 pipelined",
        minimum=0,
        resolve=_lag,
    )
    device: str = key(
        "cpu",
        'where gradients are computed: "cpu"',
        choices=("cpu",),
        expected='"cpu" (this release computes gradients on the CPU only)',
    )


@dataclass(frozen=True, kw_only=True)
class A2CConfig:
    """[algorithm] with name = "a2c"."""

    name: str = key("a2c", "the algorithm", choices=("a2c",))
    discount: float = key(0.99, "of the reward one step later", minimum=0, maximum=1)
    gae_lambda: float = key(1.0, "of generalised advantages; 1: n-step returns", minimum=0, maximum=1)
    learning_rate: float = key(7e-4, "step size of the optimizer", above=0)
    learning_rate_schedule: str = key(
        "constant", '"constant", or "linear": falls to 0 at run.steps', choices=("constant", "linear")
    )
    optimizer: str = key("adam", "adam, adamw, rmsprop or sgd", choices=("adam", "adamw", "rmsprop", "sgd"))
    adam_optimizer_beta1: float = key(0.9, "decay of adam's mean of gradients", minimum=0, below=1)
    adam_optimizer_beta2: float = key(0.999, "decay of adam's mean of squares", minimum=0, below=1)
    rms_prop_optimizer_decay: float = key(0.99, "decay of rmsprop's mean of squares", minimum=0, below=1)
    optimizer_epsilon: float = key(1e-5, "added to the root of that mean", above=0)
    momentum: float = key(0.0, "of sgd and rmsprop", minimum=0, below=1)
    weight_decay: float = key(0.0, "decoupled in adamw, added to the gradient in the others", minimum=0)
    value_loss_weight: float = key(0.5, "of the value loss in the sum", minimum=0)
    entropy_weight: float = key(0.01, "of the policy's entropy in the sum", minimum=0)
    clip_gradients: float = key(0.5, "largest norm of the whole gradient; 0: no clipping", minimum=0)
    normalize_advantages: bool = key(False, "advantages of a batch get mean 0 and deviation 1")


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """[network]: the layers."""

    middleware: tuple[int, ...] = key((64, 64), "widths of the dense layers before the heads", minimum=1)
    activation: str = key("tanh", "of these layers: tanh or relu", choices=("tanh", "relu"))
    module: str | None = key(None, 'your own layers instead: "package.module:Class"', **CLASS)
    separate_networks: bool = key(False, "policy and value share no layer")


@dataclass(frozen=True, kw_only=True)
class RecordConfig:
    """[record]: what is written down."""

    every_s: float = key(1.0, "seconds between two lines of metrics", above=0)
    sinks: tuple[str, ...] = key(
        ("jsonl",),
        'where metrics go: "jsonl" always, "tensorboard" if you like',
        accepts=lambda sinks: sorted(sinks) in (["jsonl"], ["jsonl", "tensorboard"]),
        expected='["jsonl"] or ["jsonl", "tensorboard"]',
    )
    log_level: str = key("info", "debug, info, warning or error", choices=("debug", "info", "warning", "error"))


@dataclass(frozen=True, kw_only=True)
class SupervisionConfig:
    """[supervision]: what happens to actors that die or hang."""

    restarts: int = key(5, "of one actor within window_s; one more ends the run", minimum=0)
    window_s: float = key(60.0, "seconds in which restarts are counted", above=0)
    phase_limit_s: float = key(60.0, "seconds without progress, then an actor is restarted", above=0)
    drain_s: float = key(30.0, "seconds that a stop may take before actors are killed", above=0)


@dataclass(frozen=True)
class Entry:
    """One key of a config: its name (`collection.envs`), value, origin and meaning."""

    name: str
    value: Any
    origin: str
    doc: str


@dataclass(frozen=True, kw_only=True)
class Config:
    """A whole config. Two are equal if their values are, wherever these came from."""

    run: RunConfig
    env: EnvConfig
    collection: CollectionConfig
    gradients: GradientsConfig
    algorithm: A2CConfig
    network: NetworkConfig
    record: RecordConfig
    supervision: SupervisionConfig
    origins: Mapping[str, str] = dataclasses.field(compare=False, repr=False)

    def origin(self, name: str) -> str:
        """Where the value of a key came from: `default`, `scheme single`, `run.toml:12` or `--set`."""
        return self.origins[name]

    def value(self, name: str) -> Any:
        """The value of `collection.envs`."""
        section, _, key_name = name.partition(".")
        return getattr(getattr(self, section), key_name)

    def entries(self) -> Iterator[Entry]:
        """Every key, table by table."""
        for section, table in SECTIONS.items():
            for name, declared in keys_of(table).items():
                full = f"{section}.{name}"
                yield Entry(full, self.value(full), self.origins[full], declared.limits.doc)

    def differences(self, other: Config) -> list[str]:
        """The names of the keys whose values differ."""
        return [entry.name for entry in self.entries() if entry.value != other.value(entry.name)]


SECTIONS: Mapping[str, type] = {
    name: table for name, table in typing.get_type_hints(Config).items() if name != "origins"
}
"""Table -> its dataclass."""


@dataclass(frozen=True)
class Rule:
    """What a key demands of another: `demand(value of other)` is the smallest and the largest of `name`."""

    name: str
    other: str
    demand: Callable[[Any], tuple[int, int | None]]


def _lag_demand(communication: str) -> tuple[int, int | None]:
    return (0, 0) if communication == "synchronous" else (1, None)


RULES = (
    Rule("collection.max_lag", "collection.communication", _lag_demand),
    Rule("gradients.max_lag", "gradients.communication", _lag_demand),
    # A consumer holds one slot, and max_lag + 1 rollouts are in flight.
    Rule("collection.slots", "collection.max_lag", lambda max_lag: (max_lag + 2, None)),
)
"""Rules that hold between two keys."""
