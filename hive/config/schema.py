"""Every key of the config: its table, type, default, limits and meaning. To add a key, add a line.

Those of [algorithm] are in `hive.config.algorithms`.

    [run] [env] [collection] [gradients] [algorithm] [network] [record] [evaluation] [checkpoint] [supervision]

Each table is a frozen dataclass; `Config` holds one of each, and where every value came from. A `Config`
comes from `load_config`, which fills in the defaults that depend on other keys, so every attribute has its
final type: `config.collection.workers` is a number even where the file says "auto".
"""

from __future__ import annotations

import dataclasses
import os
import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hive.config.algorithms import AlgorithmConfig
from hive.config.keys import REQUIRED, is_place, is_reference, key, keys_of
from hive.config.schemes import SCHEMES
from hive.config.values import toml_text

__all__ = [
    "CUSTOM",
    "SECTIONS",
    "CheckpointConfig",
    "CollectionConfig",
    "Config",
    "Entry",
    "EnvConfig",
    "EvaluationConfig",
    "GradientsConfig",
    "NetworkConfig",
    "RecordConfig",
    "RunConfig",
    "SupervisionConfig",
]

NAME_LENGTH = 64  # of a run: with its number far below the 255 bytes of a file name, and it fits a table
EVALUATION_ENVS = 16  # at most by default: as many as a collector has, so that an evaluator takes no more memory
WORKERS = 1024  # of a kind on one machine: each is a process, and a slip of the finger should not fork a million

NAME = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9._-]{{0,{NAME_LENGTH - 1}}}")

LAGS = {"synchronous": 0, "pipelined": 1, "asynchronous": 4}  # communication -> default `max_lag`
CUSTOM = "custom"  # the table whose keys are those of actors of one's own

CLASS = {"accepts": is_reference, "expected": '"package.module:name"'}


def _cores_but_one() -> int:
    """Leaves a core to the gradient worker and the supervisor."""
    return max(1, len(os.sched_getaffinity(0)) - 1)


def _lag(table: Mapping[str, Any]) -> int:
    """The default `max_lag` of a table with `communication`."""
    return LAGS[table["communication"]]


def _slots(table: Mapping[str, Any]) -> int:
    """The default `slots`: see `_slots_breach`."""
    return int(table["max_lag"]) + (1 if table["communication"] == "asynchronous" else 2)


def _quota(table: Mapping[str, Any]) -> float:
    """The default `fraction_samples`."""
    return 1.0 if table["fraction_workers"] == 1.0 else 0.0


def _top_k(table: Mapping[str, Any]) -> float:
    """The default `top_k`: a fifth of the bytes."""
    return 0.1 if table["compression"] == "top-k" else 1.0


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
        "a2c, a3c, ppo, dd-ppo, impala, nstep-q, rapid, single or your own module:function",
        choices=tuple(SCHEMES),
        accepts=is_reference,
        expected=f'{", ".join(map(toml_text, SCHEMES))} or "package.module:function"',
    )
    seed: int = key(1, "everything that is random follows from it", minimum=0)
    topology: str | None = key(
        None,
        'your own function of the config: "file.py", "package.module", or one of them with ":function"',
        accepts=is_place,
        expected='"file.py", "package.module", or one of them with ":function"',
    )
    init_from: str | None = key(
        None, "a run or a checkpoint whose weights this run begins with; all else begins anew", accepts=str.isprintable
    )
    update_hook: str | None = key(None, 'shown every update: your own "package.module:function"', **CLASS)
    steps: int = key(500_000, "environment steps, then the run has finished", minimum=1)
    stop_at_return: float | None = key(
        None, "finish once the mean of the last 100 training returns is this high", words={"none": lambda: None}
    )


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
        maximum=WORKERS,
        words={"auto": _cores_but_one},
    )
    envs: int = key(16, "environments per collector", minimum=1)
    rollout: int = key(32, "steps per environment in a rollout", minimum=1)
    communication: str = key(
        "pipelined",
        'weights acted with: "synchronous": newest; "pipelined": max_lag versions older; "asynchronous": any',
        choices=tuple(LAGS),
    )
    max_lag: int = key(
        REQUIRED,
        "versions by which rollouts are older; default: 0 synchronous, 1 pipelined, 4 asynchronous",
        minimum=0,
        resolve=_lag,
    )
    ownership: str = key(
        "pool",
        '"pool": all gradient workers share all collectors; "gradient_worker": each has its own',
        choices=("pool", "gradient_worker"),
    )
    fraction_workers: float = key(
        1.0, "of the collectors: when so many have finished a round the others stop", above=0, maximum=1
    )
    fraction_samples: float = key(
        REQUIRED,
        "of its rollout that a collector may finish even then; default: 0, with fraction_workers = 1 all of it",
        minimum=0,
        maximum=1,
        resolve=_quota,
    )
    broadcast_interval: int = key(1, "rounds between two versions of the policy", minimum=1)
    slots: int = key(
        REQUIRED,
        "rollouts in shared memory per collector; default: max_lag + 2, asynchronous max_lag + 1",
        minimum=2,
        resolve=_slots,
    )


@dataclass(frozen=True, kw_only=True)
class GradientsConfig:
    """[gradients]: from rollouts to updates."""

    workers: int = key(
        1,
        "gradient workers; 0: the learner computes the gradients",
        minimum=0,
        maximum=WORKERS,
    )
    communication: str = key(
        "synchronous",
        '"synchronous": of the newest weights; "pipelined": of older ones; "asynchronous": as they come',
        choices=tuple(LAGS),
    )
    bootstrap_rounds: int = key(1, "gradients of each worker in one update", minimum=1)
    max_lag: int = key(
        REQUIRED,
        "updates by which gradients are older; default: 0 synchronous, 1 pipelined, 4 asynchronous",
        minimum=0,
        resolve=_lag,
    )
    stale: str = key(
        "drop",
        'asynchronous gradients older than max_lag: "drop", "scale" by 1 / (1 + lag) or "accept"',
        choices=("drop", "scale", "accept"),
    )
    decentralised: bool = key(
        False, "every gradient worker applies all gradients itself, instead of waiting for the learner's weights"
    )
    compression: str = key(
        "none",
        '"none"; "bf16", "fp16": half the bytes; "top-k": the largest elements, the rest waits with the worker',
        choices=("none", "bf16", "fp16", "top-k"),
    )
    top_k: float = key(
        REQUIRED,
        "of the elements, 8 bytes each, that top-k sends; default: 0.1, without top-k all",
        above=0,
        maximum=1,
        resolve=_top_k,
    )
    device: str = key(
        "cpu",
        'where gradients are computed: "cpu"',
        choices=("cpu",),
        expected='"cpu" (this release computes gradients on the CPU only)',
    )


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """[network]: the layers."""

    middleware: tuple[int, ...] = key((64, 64), "widths of the dense layers before the heads", minimum=1)
    activation: str = key("tanh", "of these layers: tanh or relu", choices=("tanh", "relu"))
    module: str | None = key(None, 'your own layers instead: "package.module:Class"', **CLASS)
    separate_networks: bool = key(True, "policy and value share no layer; false: they share all but their heads")
    normalize_rewards: bool = key(
        False, "rewards are divided by the deviation of their discounted sum, over all data so far"
    )
    normalize_observations: bool = key(False, "observations get mean 0 and deviation 1, over all that was seen so far")
    policy_head: str | None = key(None, 'your own policy head: "package.module:Class"', **CLASS)
    value_head: str | None = key(None, 'your own value head: "package.module:Class"', **CLASS)


def _are_sinks(sinks: list[str]) -> bool:
    """Metrics are always written down; nothing is written twice."""
    known = all(sink in ("jsonl", "tensorboard") or is_reference(sink) for sink in sinks)
    return known and "jsonl" in sinks and len(set(sinks)) == len(sinks)


@dataclass(frozen=True, kw_only=True)
class RecordConfig:
    """[record]: what is written down."""

    every_s: float = key(1.0, "seconds between two lines of metrics", above=0)
    sinks: tuple[str, ...] = key(
        ("jsonl",),
        'where metrics go: "jsonl" always; "tensorboard" and your own "package.module:Class" if you like',
        accepts=_are_sinks,
        expected='an array with "jsonl", and with "tensorboard" or "package.module:Class" once each',
    )
    log_level: str = key("info", "debug, info, warning or error", choices=("debug", "info", "warning", "error"))


def _is_schedule(every: Mapping[str, Any]) -> bool:
    """`{}` or `{ updates = N }`."""
    return not every or (set(every) == {"updates"} and type(every["updates"]) is int and every["updates"] > 0)


def _is_schedule_or_clock(every: Mapping[str, Any]) -> bool:
    """The same, or `{ seconds = N }`."""
    return _is_schedule(every) or (
        set(every) == {"seconds"} and type(every["seconds"]) in (int, float) and every["seconds"] > 0
    )


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """[evaluation]: how good the policy is without its noise."""

    every: Mapping[str, Any] = key(
        {},
        "when a process of its own plays whole episodes with these weights; {}: never",
        accepts=_is_schedule,
        expected="{ updates = N }, or {} for none",
    )
    episodes: int = key(10, "of an evaluation", minimum=1)
    envs: int = key(
        REQUIRED,
        "environments that share them out; default: one for each, at most 16",
        minimum=1,
        resolve=lambda table: min(table["episodes"], EVALUATION_ENVS),
    )


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """[checkpoint]: what a run can be resumed from."""

    every: Mapping[str, Any] = key(
        {"updates": 2000},
        "when one is due; { seconds = N } in asynchronous runs; {}: only at the end",
        accepts=_is_schedule_or_clock,
        expected="{ updates = N }, { seconds = N }, or {} for none",
    )
    autosave_s: float = key(
        300.0,
        "seconds without one, then the state is saved in between; no cut, so not exact to resume; 0: never",
        minimum=0,
    )
    keep: int = key(3, "newest checkpoints that are kept; the best and the newest scheduled one stay too", minimum=1)


@dataclass(frozen=True, kw_only=True)
class SupervisionConfig:
    """[supervision]: what happens to actors that die or hang."""

    restarts: int = key(5, "of one actor within window_s; one more ends the run", minimum=0)
    window_s: float = key(60.0, "seconds in which restarts are counted", above=0)
    phase_limit_s: float = key(60.0, "seconds without progress, then an actor is restarted", above=0)
    drain_s: float = key(30.0, "seconds that a stop may take, half of it to save; who is left is killed", above=0)
    non_finite: str = key(
        "skip",
        'NaN or infinity: "skip" that update, or make that collector start again; "stop" the run',
        choices=("skip", "stop"),
    )


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
    algorithm: AlgorithmConfig
    network: NetworkConfig
    record: RecordConfig
    evaluation: EvaluationConfig
    checkpoint: CheckpointConfig
    supervision: SupervisionConfig
    custom: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict, hash=False)
    """[custom.<group>]: parameters of actors of one's own. Their constructors say what they may be."""
    origins: Mapping[str, str] = dataclasses.field(compare=False, repr=False)

    def origin(self, name: str) -> str:
        """Where the value of a key came from: `default`, `scheme single`, `run.toml:12` or `--set`."""
        return self.origins[name]

    @property
    def asynchronous(self) -> bool:
        """Whether anybody takes whatever is ready, so that no number says where a run is."""
        return "asynchronous" in (self.collection.communication, self.gradients.communication)

    @property
    def exact(self) -> bool:
        """Whether such a run is the same run every time: nothing that decides reads a clock."""
        return not self.asynchronous and self.collection.fraction_workers == 1.0

    def value(self, name: str) -> Any:
        """The value of `collection.envs`."""
        section, _, key_name = name.partition(".")
        if section == CUSTOM:
            group, _, key_name = key_name.partition(".")
            return self.custom[group][key_name]
        return getattr(getattr(self, section), key_name)

    def entries(self) -> Iterator[Entry]:
        """Every key, table by table; those of [custom.<group>] last."""
        for section in SECTIONS:
            table: type = type(getattr(self, section))
            for name, declared in keys_of(table).items():
                full = f"{section}.{name}"
                yield Entry(full, self.value(full), self.origins[full], declared.limits.doc)
        for group, parameters in self.custom.items():
            for name, value in parameters.items():
                yield Entry(f"{CUSTOM}.{group}.{name}", value, self.origins[f"{CUSTOM}.{group}"], f"of `{group}`")

    def differences(self, other: Config) -> list[str]:
        """The names of the keys whose values differ, and of those that only the algorithm of one has."""
        # No key of an algorithm is ever None, so None stands for one that is not there.
        mine, theirs = ({entry.name: entry.value for entry in config.entries()} for config in (self, other))
        return [name for name in mine | theirs if mine.get(name) != theirs.get(name)]


SECTIONS: Mapping[str, type] = {
    name: table for name, table in typing.get_type_hints(Config).items() if name not in ("custom", "origins")
}
"""Table -> its dataclass; of [algorithm] the one that its algorithms share."""
