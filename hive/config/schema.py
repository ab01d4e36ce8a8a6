"""Declares every key of the config: its table, type, default, limits and meaning. To add a key, add a line.

The keys of [algorithm] are declared in `hive.config.algorithms`.

    [run] [env] [collection] [gradients] [algorithm] [network] [record] [evaluation] [checkpoint] [supervision] [hosts]

Each table is a frozen dataclass. `Config` holds one of each and the origin of every value. `load_config` creates a
`Config` and fills in the defaults that depend on other keys, so every attribute has its final type:
`config.collection.workers` is a number even where the file contains "auto". It is the default then, and
`config.automatic` names the key, until `hive up` has measured a number (hive.tuning).
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hive.config.algorithms import LARGEST_INTEGER, AlgorithmConfig, ReplayConfig, unused_keys
from hive.config.answers import answers
from hive.config.each import are_each, evaluator_indices, training_indices
from hive.config.keys import REQUIRED, is_reference, is_topology_reference, key, keys_of
from hive.config.limits import START_LIMIT_S
from hive.config.policies import OVERRIDDEN, POLICIES, PolicyConfig
from hive.config.run_names import NAME_LENGTH, program_name
from hive.config.schemes import DEFAULT_SCHEME, SCHEMES
from hive.config.sizes import is_size
from hive.config.values import toml_text
from hive.cores import cores
from hive.warning_names import WARNINGS

EVALUATION_ENVS = 16  # default limit of `evaluation.envs`: that of `collection.envs`, for the same memory
MOST_THREADS = 256  # that native/include/hive/team.hpp shares a pass among
WORKERS = 1024  # maximum workers of one kind: each is a process, and a typing error must not fork a million of them

DEVICE = re.compile(r"auto|cpu|cuda(:\d{1,3})?")
LOCAL = re.compile(r"(127(\.\d{1,3}){3}|localhost|\[::1\]):[^:]+|unix:/.+")  # hive.envs.external.address reads it again
NAME = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9._-]{{0,{NAME_LENGTH - 1}}}")

LAGS = {"synchronous": 0, "pipelined": 1, "asynchronous": 4}  # communication -> default `max_lag`
# Steps of each environment between two resume barriers, where open episodes are cut. Even episodes of 5,000 steps end
# several times in between. It is no time, because the same seed must give the same barriers on every machine.
BARRIER_STEPS = 50_000
AUTOSAVE_S = 300.0  # seconds of work that a crash of the machine may cost by default
REWARD_CLIP = 10.0  # as in OpenAI's Baselines and Stable-Baselines3
HEAD = "head"  # the name of this machine among the hosts
HOST_LENGTH = 20  # maximum characters of a host's name: it is part of the name of a phase, which has 23
HOST = re.compile(rf"[a-z0-9][a-z0-9-]{{0,{HOST_LENGTH - 1}}}")
CUSTOM = "custom"  # the table that holds the parameters of custom actors

CLASS: dict[str, Any] = {"accepts": is_reference, "expected": '"package.module:name" or "path/file.py:name"'}


def _lag(table: Mapping[str, Any]) -> int:
    """Return the default `max_lag` of a table with `communication`."""
    return LAGS[table["communication"]]


def _slots(table: Mapping[str, Any]) -> int:
    """Return the default `slots`; `_slots_breach` in `hive.config.rules` explains the number."""
    return int(table["max_lag"]) + (1 if table["communication"] == "asynchronous" else 2)


def _quota(table: Mapping[str, Any]) -> float:
    """Return the default `fraction_samples`."""
    return 1.0 if table["fraction_workers"] == 1.0 else 0.0


def _top_k(table: Mapping[str, Any]) -> float:
    """Return the default `top_k`: a tenth of the elements, which is a fifth of the bytes (8 instead of 4 each)."""
    return 0.1 if table["compression"] == "top-k" else 1.0


def _are_callbacks(callbacks: list[Any]) -> bool:
    """Whether each is a reference, or a table whose name is one."""
    names = [one.get("name") if isinstance(one, dict) else one for one in callbacks]
    return all(isinstance(name, str) and is_reference(name) for name in names)


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """[run]: name, scheme, seed and goal of the run."""

    name: str = key(
        "run",
        "name of the run, to which a number is appended; if not set: environment and algorithm, as cartpole-ppo",
        accepts=lambda name: NAME.fullmatch(name) is not None,
        expected=f"at most {NAME_LENGTH} letters, digits and `.` `_` `-`, not beginning with `.` or `-`",
    )
    scheme: str = key(
        DEFAULT_SCHEME,
        "ppo, a2c, a3c, dd-ppo, impala, nstep-q, pqn, dqn, sac, td3, ddpg, bc, rapid, single or module:function",
        choices=tuple(SCHEMES),
        accepts=is_reference,
        expected=f'{", ".join(map(toml_text, SCHEMES))} or "package.module:function"',
    )
    carrier: str = key(
        "slots",
        "what carries rollouts and gradients between processes: shared memory, or messages of ZeroMQ",
        choices=("slots", "zmq"),
    )
    seed: int = key(1, "random seed, from which all random numbers of the run are derived", minimum=0)
    topology: str | None = key(
        None,
        'custom topology, a function of the config: "file.py", "package.module", or either with ":function"',
        accepts=is_topology_reference,
        expected='"file.py", "package.module", or either with ":function"',
    )
    replay_folder: str | None = key(
        None,
        "folder on a disk for a replay memory that is larger than RAM; if not set: shared memory",
        accepts=str.isprintable,
    )
    init_from: str | None = key(
        None,
        "run or checkpoint that supplies the initial weights; nothing else is taken from it",
        accepts=str.isprintable,
    )
    init_statistics: bool = key(
        True, "with init_from, continue its statistics of observations and rewards; false: start with empty ones"
    )
    update_hook: str | None = key(
        None, 'custom function that is called with every update: "package.module:function"', **CLASS
    )
    setup: str | None = key(
        None,
        'custom function, called once in every process before custom code is run: "package.module:function"',
        **CLASS,
    )
    callbacks: tuple[Any, ...] = key(
        (),
        'custom classes that are called during the run: "package.module:Class", { name = "...", argument = 1 }',
        accepts=_are_callbacks,
        expected='an array of "package.module:Class" and tables { name = "package.module:Class", argument = value }',
        hash=False,
    )
    accept: tuple[str, ...] = key(
        (),
        "names of warnings that are not shown (warnings.md), because the result is meant to be so",
        accepts=lambda names: all(name in WARNINGS for name in names),
        expected="an array of names of warnings.md",
    )
    callback_limit_s: float = key(60.0, "seconds after which a callback that has not answered is dropped", above=0)
    steps: int = key(500_000, "environment steps after which the run is finished", minimum=1)
    stop_at_return: float | None = key(
        None,
        "finish earlier, once the mean of the last 100 training returns reaches this",
        words={"none": lambda: None},
    )
    stop_at_evaluation: float | None = key(
        None,
        "finish earlier, once an evaluation reaches this mean return, or this value of evaluation.best_by",
        words={"none": lambda: None},
    )
    stop_after_evaluations: int = key(1, "how many successive evaluations must reach run.stop_at_evaluation", minimum=1)
    stop_when_no_better: int = key(
        0,
        "finish earlier, once this many successive evaluations are not better than the best so far; 0: never",
        minimum=0,
    )


def _are_names(names: Sequence[str]) -> bool:
    """Whether these are different printable texts."""
    return all(name and name.isprintable() for name in names) and len({*names}) == len(names)


def _are_stages(stages: list[Any]) -> bool:
    """Whether each has a beginning, options, and nothing else; steps increase."""
    steps = 0
    for stage in stages:
        if not isinstance(stage, dict) or not isinstance(stage.get("options"), dict) or not stage["options"]:
            return False
        begins = stage.keys() - {"options"}
        if begins == {"steps"}:
            if type(stage["steps"]) is not int or stage["steps"] <= steps:
                return False
            steps = stage["steps"]
        elif begins != {"return"} or type(stage["return"]) not in (int, float):
            return False
    return True


def _is_command(command: list[str]) -> bool:
    """Whether it begins with the name of a program; an empty one is none."""
    return not command or (command[0] != "" and not any("\0" in part for part in command))


def _are_wrappers(wrappers: list[Any]) -> bool:
    """Whether each is a name, or a table with a name."""
    names = [one.get("name") if isinstance(one, dict) else one for one in wrappers]
    return all(isinstance(name, str) and (name.isidentifier() or is_reference(name)) for name in names)


@dataclass(frozen=True, kw_only=True)
class EnvConfig:
    """[env]: the environment."""

    id: str = key(
        REQUIRED,
        'Gymnasium id of the environment, "package.module:Class", "file.py:Class", "library.so:Name" (hive/env.h)',
        accepts=lambda id: id.isprintable() and id != "",
        expected="the name of an environment",
    )
    command: tuple[str, ...] = key(
        (),
        'a program instead of id, which then is a label: ["./simulator", "--port", "{index + 47000}"]',
        accepts=_is_command,
        expected='an array of texts that begins with a program: ["./simulator", "--fast"]',
    )
    connect: str | None = key(
        None,
        'where a program listens, on this machine: "127.0.0.1:{index + 47000}" or "unix:/tmp/world-{index}"',
        accepts=lambda address: LOCAL.fullmatch(address) is not None,
        expected='"127.0.0.1:PORT" or "unix:/PATH"',
        words={"none": lambda: None},
    )
    options: Mapping[str, Any] = key({}, "keyword arguments of the environment's constructor")
    reset_options: Mapping[str, Any] = key({}, "options of every reset of an environment: reset(options=...)")
    each: tuple[Any, ...] = key(
        (),
        "further options of single environments: [{ index = 3, options = {...}, reset_options = {...} }]",
        accepts=are_each,
        expected="an array of { index = N, options = {...}, reset_options = {...} }, N from 0, or several: [0, 1]",
        hash=False,
    )
    curriculum: tuple[Any, ...] = key(
        (),
        "stages of training, each with more env.options: [{ steps = N, options = {...} }, { return = R, ... }]",
        accepts=_are_stages,
        expected="an array of { steps = N, options = {...} } with increasing steps, or { return = R, options = {...} }",
        hash=False,
    )
    preset: str = key(
        "none",
        '"atari": no-op starts, 4 frames a step, 84 x 84 gray, signs of rewards; env.options are its options',
        choices=("none", "atari"),
    )
    wrappers: tuple[Any, ...] = key(
        (),
        'wrappers of each environment, in order: a name, or { name = "package.module:Class", size = 7 }',
        accepts=_are_wrappers,
        expected='an array of names, "package.module:Class" and tables { name = "...", argument = value }',
        hash=False,
    )
    frame_stack: int = key(1, "number of the last observations that the policy sees; they are stored once", minimum=1)
    action_mask: str | None = key(
        None,
        'where the allowed actions are: "info": in info["action_mask"]; or a key of the observations',
        accepts=lambda name: name.isprintable() and name != "",
        words={"none": lambda: None},
    )
    agent_index: bool = key(
        False, "several agents: each sees its position among them, as a further part `agent` of its observation"
    )
    state: bool = key(
        False, "several agents: each sees state() of the environment, as a part `state` (for network.critic_parts)"
    )
    info: tuple[str, ...] = key(
        (),
        'values of `info` at the ends of episodes that become metrics and are in evaluations: ["is_success"]',
        accepts=_are_names,
        expected="an array of different names",
    )
    vector: str = key(
        "auto",
        '"python": single environments; "native": compiled or vectorized; "auto": compiled if bit-equal',
        choices=("auto", "python", "native"),
    )
    images: str = key(
        "auto",
        'arrays of 3 axes are images with channels "first" or "last"; "none"; "auto": by shape, see `hive check`',
        choices=("auto", "first", "last", "none"),
    )
    scale_observations: bool = key(
        True, "integers and bytes with declared bounds: low becomes 0 and high 1 for the networks"
    )
    scale_actions: bool = key(
        True, "box actions with finite bounds: a Gaussian policy acts in a scale in which these are -1 and 1"
    )
    rebuild: bool = key(
        False, "construct the environments again at every scheduled checkpoint: exact where a reset does not clear them"
    )
    start_limit_s: float | None = key(
        None,
        "seconds for construction and first reset; if not set: 300, or phase_limit_s if that is longer",
        above=0,
    )
    processes: str = key(
        "0",
        'processes or programs of a collector for its environments; "each": one each; 0: none, or a program each',
        accepts=lambda text: text == "each" or text in map(str, range(WORKERS + 1)),
        expected=f'a number from 0 to {WORKERS}, or "each"',
        numbers=True,
    )
    reset_limit_s: float | None = key(
        None, "with env.processes or a program: seconds of one reset; if not set: env.start_limit_s", above=0
    )
    step_limit_s: float | None = key(
        None, "with env.processes or a program: seconds of one step; if not set: supervision.phase_limit_s", above=0
    )
    memory_limit: str = key(
        "none",
        'with env.processes or a program: memory of it and what it starts, "2 GiB"; "none": no limit',
        accepts=is_size,
        expected='a size such as "2 GiB", "1.5 GB" or "500 MiB", or "none"',
    )
    restarts: int = key(10, "with env.processes or a program: restarts of one within env.window_s", minimum=0)
    window_s: float = key(600.0, "with env.processes or a program: seconds in which env.restarts are counted", above=0)
    on_failure: str = key(
        "end",
        'after more restarts than allowed: "end" the run, or "leave out" the environments of that process',
        choices=("end", "leave out"),
    )

    @property
    def is_apart(self) -> bool:
        """Whether environments have processes of their own."""
        return self.processes != "0" or self.is_program

    @property
    def is_program(self) -> bool:
        """Whether the environment is a program behind a socket."""
        return bool(self.command) or self.connect is not None

    def processes_for(self, count: int) -> int:
        """Return how many processes or programs step `count` environments; 0 if none has one of its own."""
        if not self.is_apart:
            return 0
        return count if self.processes in ("each", "0") else min(int(self.processes), count)


@dataclass(frozen=True, kw_only=True)
class CollectionConfig:
    """[collection]: how collectors turn environment steps into rollouts."""

    workers: int = key(
        1,
        'number of collectors; 0: gradient workers collect; "auto": measured, envs are divided',
        minimum=0,
        maximum=WORKERS,
        measured=True,
    )
    envs: int = key(16, "number of environments per collector", minimum=1)
    rollout: int = key(32, "steps per environment in one rollout", minimum=1)
    communication: str = key(
        "pipelined",
        'policy that acts: "synchronous": newest; "pipelined": max_lag versions older; "asynchronous": latest',
        choices=tuple(LAGS),
    )
    max_lag: int = key(
        REQUIRED,
        "lag of rollouts, in policy versions; if not set: 0 synchronous, 1 pipelined, at most 4 asynchronous",
        minimum=0,
        resolve=_lag,
    )
    ownership: str = key(
        "pool",
        '"pool": all gradient workers share all collectors; "gradient_worker": each has collectors of its own',
        choices=("pool", "gradient_worker"),
    )
    fraction_workers: float = key(
        1.0, "fraction of the collectors that must finish a round; then the others stop early", above=0, maximum=1
    )
    fraction_samples: float = key(
        REQUIRED,
        "fraction of its rollout that a collector always completes; if not set: 0, or 1 if fraction_workers = 1",
        minimum=0,
        maximum=1,
        resolve=_quota,
    )
    helpers: int | None = key(
        None,
        'processes that step environments for each collector; "auto": on spare cores, where it pays (same bits)',
        minimum=0,
        maximum=WORKERS,
        words={"auto": lambda: None},
    )
    broadcast_interval: int = key(1, "rounds between two published versions of the policy", minimum=1)
    hosts: tuple[str, ...] = key(
        (),
        'hosts that the collectors run on, in proportion to their cores; "head" is this machine; []: all run here',
    )
    slots: int = key(
        REQUIRED,
        "rollouts kept in shared memory per collector; if not set: max_lag + 2, or max_lag + 1 if asynchronous",
        minimum=2,
        resolve=_slots,
    )


@dataclass(frozen=True, kw_only=True)
class GradientsConfig:
    """[gradients]: how gradient workers and the learner turn rollouts into updates."""

    workers: int = key(
        0,
        'number of gradient workers; 0: the learner makes the gradients itself; "auto": measured',
        minimum=0,
        maximum=WORKERS,
        measured=True,
    )
    communication: str = key(
        "synchronous",
        'weights of gradients: "synchronous": newest; "pipelined": max_lag updates older; "asynchronous": any',
        choices=tuple(LAGS),
    )
    bootstrap_rounds: int = key(1, "gradients of each gradient worker that are combined in one update", minimum=1)
    max_lag: int = key(
        REQUIRED,
        "lag of gradients, in updates; if not set: 0 synchronous, 1 pipelined, at most 4 asynchronous",
        minimum=0,
        resolve=_lag,
    )
    stale: str = key(
        "drop",
        'asynchronous gradients with more lag than max_lag: "drop", "scale" by 1 / (1 + lag) or "accept" them',
        choices=("drop", "scale", "accept"),
    )
    decentralized: bool = key(
        False, "every gradient worker applies all gradients itself instead of waiting for the learner's weights"
    )
    compression: str = key(
        "none",
        '"none"; "bf16", "fp16": half the bytes; "top-k": largest elements, rest added to the next gradient',
        choices=("none", "bf16", "fp16", "top-k"),
    )
    top_k: float = key(
        REQUIRED,
        "fraction of the elements that top-k sends, 8 bytes each; if not set: 0.1 with top-k, otherwise 1",
        above=0,
        maximum=1,
        resolve=_top_k,
    )
    threads: int = key(
        0,
        'threads of a gradient worker; 0 or "auto": a share of the cores, and one for torch (same bits)',
        minimum=0,
        maximum=MOST_THREADS,
        words={"auto": lambda: 0},
    )
    native_rounds: bool = key(
        True, "make the updates of a round in one native call where that is possible (same bytes, faster)"
    )
    device: str = key(
        "cpu",
        'device that computes the gradients: "cpu"; "cuda", "cuda:1": a GPU; "auto": the first GPU, if any',
        accepts=lambda device: DEVICE.fullmatch(device) is not None,
        expected='"cpu", "cuda", "cuda:1" or "auto"',
    )


def _are_weight_files(weights: Mapping[str, Any]) -> bool:
    """Whether each module has a file, or a table with `file` and optionally `prefix` and an array `skip`."""
    for one in weights.values():
        given = {"prefix": "", "skip": [], **(one if isinstance(one, dict) else {"file": one})}
        if given.keys() != {"file", "prefix", "skip"} or not given["file"] or not isinstance(given["skip"], list):
            return False
        if not all(isinstance(text, str) for text in (given["file"], given["prefix"], *given["skip"])):
            return False
    return True


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """[network]: layers and heads of the networks.

    The initial weights and deviations are those of OpenAI's baselines and Stable-Baselines3 (Andrychowicz et al. 2021,
    "What Matters in On-Policy RL?", compare others). Stable-Baselines3 calls `initialization = "uniform"`
    `ortho_init=False`, and its `log_std_init` is the logarithm of `initial_deviation`: RL Zoo's -2 is exp(-2) = 0.135.
    Its `use_sde=True, sde_sample_freq=4` is `action_distribution = "gsde"` with `noise_steps = 4` (Raffin et al. 2021).
    """

    middleware: tuple[int, ...] = key((64, 64), "widths of the dense layers before the heads", minimum=1)
    value_middleware: tuple[int, ...] | None = key(
        None,
        "the same of the value's network, or of the critics of sac, td3 and ddpg; if not set: middleware",
        minimum=1,
    )
    activation: str = key(
        "tanh",
        "activation function of these layers: tanh, relu, leaky_relu, elu, gelu or silu",
        choices=("tanh", "relu", "leaky_relu", "elu", "gelu", "silu"),
    )
    memory: str = key(
        "none",
        'recurrent cell before these dense layers: "lstm" or "gru"; "none": the policy has no memory',
        choices=("none", "lstm", "gru"),
    )
    memory_size: int = key(256, "cells of the lstm or gru, in each of separate networks", minimum=1)
    initialization: str = key(
        "orthogonal",
        'initial weights: "orthogonal" with the gains below and biases 0, or "uniform": torch.nn.Linear\'s',
        choices=("orthogonal", "uniform"),
    )
    hidden_gain: float = key(2.0**0.5, "gain of the initial weights of all layers but the last", above=0)
    policy_gain: float = key(
        0.01, "gain of the policy's last layer; a small one: first actions hardly depend on observations", minimum=0
    )
    value_gain: float = key(1.0, "gain of the last layer of the value, or of nstep-q's action values", minimum=0)
    action_distribution: str = key(
        "gaussian",
        'box actions: "gaussian", clipped to bounds; "squashed" by tanh; "gsde": noise that depends on the state',
        choices=("gaussian", "squashed", "gsde"),
    )
    noise_steps: int = key(
        0, 'with "gsde": steps after which its noise is drawn again; 0: only with each rollout', minimum=0
    )
    action_deviation: str = key(
        "parameter",
        'standard deviation of box actions: a trained "parameter", or an "output" for each observation',
        choices=("parameter", "output"),
    )
    initial_deviation: float = key(1.0, "initial standard deviation of each element of a box action", above=0)
    layer_norm: bool = key(False, "normalize the outputs of each dense layer before its activation (LayerNorm)")
    noisy_deviation: float = key(
        0.0,
        "initial deviation of the noise in the weights of dense layers (NoisyNet; its authors have 0.5); 0: none",
        minimum=0,
    )
    backend: str = key(
        "auto",
        'what computes dense layers: "native" code of hive, "torch", or "auto": native where it knows all layers',
        choices=("auto", "torch", "native"),
    )
    precision: str = key(
        "float32",
        'numbers that convolutions and the dense layer after them compute with: "float32" or "bfloat16"',
        choices=("float32", "bfloat16"),
    )
    module: str | None = key(None, 'custom network that replaces layers and heads: "package.module:Class"', **CLASS)
    extractor: str | None = key(
        None, 'custom layers that map observations to features, before the dense ones: "package.module:Class"', **CLASS
    )
    extractor_options: Mapping[str, Any] = key({}, "keyword arguments of this class, beside the spaces")
    separate_networks: bool = key(True, "policy and value share no layers; false: they share all layers but the heads")
    normalize_rewards: bool = key(
        False, "divide rewards by the deviation of their discounted sum, over all steps so far"
    )
    reward_clip: float = key(
        REWARD_CLIP, "with normalize_rewards, the largest size of a reward after it; larger ones are clipped", above=0
    )
    normalize_observations: bool = key(
        False, "normalize observations to mean 0 and standard deviation 1, over all steps so far; bytes never"
    )
    novelty_weight: float = key(
        0.0,
        "weight of the novelty (RND), in deviations, that is added to each reward; 0: none",
        minimum=0,
    )
    policy_head: str | None = key(None, 'custom policy head: "package.module:Class"', **CLASS)
    value_head: str | None = key(None, 'custom value head: "package.module:Class"', **CLASS)
    weights: Mapping[str, Any] = key(
        {},
        'initial weights: { encoder = "file.safetensors" }, by the names that `hive check --parameters` prints',
        accepts=_are_weight_files,
        expected='a table of modules, "" for the whole network: "file.safetensors", or a table with file, prefix, skip',
    )
    frozen: tuple[str, ...] = key(
        (),
        'parameters that keep their initial values, as patterns of their names: ["encoder.*"]',
        accepts=_are_names,
        expected='an array of different patterns of names, such as ["encoder.*"]',
    )
    critic_parts: tuple[str, ...] = key(
        (),
        "parts of a dictionary of observations that only the value network or the critics see",
        accepts=_are_names,
        expected="an array of different names of parts",
    )


SINKS = ("jsonl", "episodes", "csv", "tensorboard", "wandb")


def _are_sinks(sinks: list[str]) -> bool:
    """Whether all sinks are valid, "jsonl" is among them (other commands read it), and none is given twice."""
    known = all(sink in SINKS or is_reference(sink) for sink in sinks)
    return known and "jsonl" in sinks and len(set(sinks)) == len(sinks)


@dataclass(frozen=True, kw_only=True)
class RecordConfig:
    """[record]: metrics and logs."""

    every_s: float = key(1.0, "seconds between two lines of metrics", above=0)
    sinks: tuple[str, ...] = key(
        ("jsonl",),
        'where metrics go: "jsonl" (required), "csv", "tensorboard", "wandb", "module:Class"; and "episodes"',
        accepts=_are_sinks,
        expected='an array with "jsonl", and once each "episodes", "csv", "tensorboard", "wandb" or '
        '"package.module:Class"',
    )
    log_level: str = key(
        "info",
        "lowest level that is logged: debug, info, warning or error",
        choices=("debug", "info", "warning", "error"),
    )


def _is_schedule(every: Mapping[str, Any]) -> bool:
    """Whether `every` is `{}`, `{ steps = N }` or `{ updates = N }`."""
    counts = [*every.values()]
    return not every or (set(every) in ({"updates"}, {"steps"}) and type(counts[0]) is int and counts[0] > 0)


def _is_checkpoint_schedule(every: Mapping[str, Any]) -> bool:
    """Whether `every` is `{}`, `{ steps = N }`, `{ updates = N }` or `{ seconds = N }`."""
    if set(every) == {"seconds"}:
        return type(every["seconds"]) in (int, float) and every["seconds"] > 0
    return _is_schedule(every)


def _checkpoints(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the default `every`: by time, except where checkpoints are resume barriers, which may not depend on it."""
    collection, gradients = table["collection"], table["gradients"]
    if "asynchronous" in (collection.communication, gradients.communication):
        return {"seconds": AUTOSAVE_S}
    return {"steps": min(BARRIER_STEPS * _collectors(collection, gradients) * collection.envs, LARGEST_INTEGER)}


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """[evaluation]: episodes that measure the policy without its exploration noise."""

    every: Mapping[str, Any] = key(
        {},
        "how often evaluator processes play whole episodes: { steps = N }, at ends of rounds, or { updates = N }",
        accepts=_is_schedule,
        expected="{ steps = N }, { updates = N }, or {} for none",
    )
    workers: int = key(
        1, "evaluator processes; an evaluation that falls due while all of them play is skipped", minimum=1
    )
    wait: bool = key(
        False, "wait for a free evaluator instead of skipping: the same seed gives the same best policy, but later"
    )
    best_by: str = key(
        "mean_return",
        'what makes the best policy: "mean_return", or "info/NAME", the mean of a value of env.info',
        accepts=lambda name: name == "mean_return" or (name.startswith("info/") and name != "info/"),
        expected='"mean_return" or "info/NAME" with a name of env.info',
    )
    same_starts: bool = key(
        False, "each evaluation plays the same episodes: chance then makes no policy look better than another"
    )
    hosts: tuple[str, ...] = key((), "hosts that the evaluators run on, as collection.hosts; []: all run here")
    episodes: int = key(10, "episodes per evaluation", minimum=1)
    env: Mapping[str, Any] = key({}, "keys of [env] with other values in evaluations; options are added to those there")
    envs: int = key(
        REQUIRED,
        "environments that play these episodes side by side; if not set: one per episode, at most 16",
        minimum=1,
        resolve=lambda table: min(table["episodes"], EVALUATION_ENVS),
    )
    max_steps: int = key(
        100_000,
        "steps after which an episode that does not end is cut, also by `hive eval` and `play`; 0: none",
        minimum=0,
    )
    videos: int = key(0, "first episodes of each evaluation that are recorded in the run's videos/; 0: none", minimum=0)
    keep_videos: int = key(50, "how many of the newest of these videos are kept", minimum=1)


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """[checkpoint]: when checkpoints are written, and how many are kept."""

    every: Mapping[str, Any] = key(
        REQUIRED,
        "how often: { steps = N } or { updates = N }, environments are reset; { seconds = N } if asynchronous",
        hash=False,
        accepts=_is_checkpoint_schedule,
        expected="{ steps = N }, { updates = N }, { seconds = N }, or {} for none",
        resolve=_checkpoints,
    )
    autosave_s: float = key(
        AUTOSAVE_S,
        "write an extra checkpoint after this many seconds without one (a resume from it is not exact); 0: never",
        minimum=0,
    )
    replay: bool = key(
        True, "write the replay memory too, of which each checkpoint adds what is new; false: a resume is not exact"
    )
    keep: int = key(3, "how many of the newest are kept, besides the newest scheduled one and best/", minimum=1)


def _collectors(collection: CollectionConfig, gradients: GradientsConfig) -> int:
    """Return the number of collectors: without dedicated ones, that of the gradient workers or of the learner."""
    return collection.workers or max(gradients.workers, 1)


def _are_hosts(cores: Any) -> bool:
    """Whether each name is that of a host, and has a number of cores."""
    named = all(HOST.fullmatch(name) and name != HEAD for name in cores)
    return named and all(type(number) is int and number > 0 for number in cores.values())


@dataclass(frozen=True, kw_only=True)
class HostsConfig:
    """[hosts]: other machines, on which collectors and evaluators run."""

    cores: Mapping[str, Any] = key(
        {},
        "the other machines by name, with their cores: { left = 16, right = 16 }",
        accepts=_are_hosts,
        expected="names of lower-case letters, digits and `-`, not `head`, each with its number of cores",
    )
    launcher: str = key(
        "join",
        'what starts hive on them: "join": `hive join FILE` there, by hand, ssh or srun; "ray": a Ray cluster',
        choices=("join", "ray"),
    )
    address: str = key(
        "",
        'address of this machine at which the others reach it; "": 127.0.0.1, with ray the one that Ray uses',
        accepts=str.isprintable,
    )
    port: int = key(
        0, "port of the first host, and the next ports of the others; 0: any free ones", minimum=0, maximum=65535
    )
    listen_everywhere: bool = key(False, "listen on every address of this machine, not only on hosts.address")
    silence_s: float = key(10.0, "seconds of silence after which a host counts as lost", minimum=2.0)
    unprotected_ray: bool = key(False, "use a Ray cluster even if it does not ask for a token")


@dataclass(frozen=True, kw_only=True)
class SupervisionConfig:
    """[supervision]: what happens when actors exit, hang or compute NaN."""

    restarts: int = key(
        5,
        "maximum restarts of one actor, within window_s or in a row without progress; one more ends the run",
        minimum=0,
    )
    window_s: float = key(60.0, "length of the window in which restarts are counted, in seconds", above=0)
    phase_limit_s: float = key(60.0, "seconds without progress after which an actor is restarted", above=0)
    drain_s: float = key(
        30.0, "seconds that a stop may take, half of them for saving; then remaining actors are killed", above=0
    )
    strict: bool = key(
        False, "end the run at the first error of an actor or a sink, also of your code, instead of going on"
    )
    non_finite: str = key(
        "skip",
        'on NaN or infinity: "skip" the update, or restart the collector if it came from there; "stop" the run',
        choices=("skip", "stop"),
    )


@dataclass(frozen=True)
class ConfigEntry:
    """One key of a config: its full name (`collection.envs`), value, origin and one-line description.

    value: None for a key that is not set or has no effect, because points of its schedule give its values.
    changed: whether the value is another one than the key would have if it was not given. It is false for what the
    scheme sets, and true for "auto" and parameters of custom actors.
    """

    name: str
    value: Any
    origin: str
    doc: str
    changed: bool


@answers("config")
@dataclass(frozen=True, kw_only=True)
class Config:
    """A complete config. Two configs are equal if their values are; `origins` are not compared."""

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
    hosts: HostsConfig
    custom: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict, hash=False)
    """[custom.<group>]: parameters of custom actors. The annotations of their constructors determine the types."""
    policies: Mapping[str, PolicyConfig] = dataclasses.field(default_factory=dict, hash=False)
    """[policies]: name -> which agents it acts for."""
    origins: Mapping[str, str] = dataclasses.field(compare=False, repr=False)
    learners: Mapping[str, Config] = dataclasses.field(default_factory=dict, hash=False, repr=False)
    """Policy -> the config that it learns with, for those with tables of their own."""
    automatic: tuple[str, ...] = dataclasses.field(default=(), compare=False, repr=False)
    """Full names of the keys that are "auto" and still have their defaults."""
    unset: Mapping[str, Any] = dataclasses.field(default_factory=dict, compare=False, repr=False)
    """Full name of a key -> the value that it has, or would have, if it is not given."""

    def origin(self, name: str) -> str:
        """Return where the value of a key came from: `default`, `scheme single`, `run.toml:12` or `--set`.

        `name` is the full name of the key (`collection.envs`). Raises KeyError for an unknown one.
        """
        return self.origins[name]

    @property
    def asynchronous(self) -> bool:
        """Whether some actor takes any ready message instead of waiting for a specific number."""
        return "asynchronous" in (self.collection.communication, self.gradients.communication)

    @property
    def collectors(self) -> int:
        """Number of collectors: without dedicated ones, that of the gradient workers or of the learner."""
        return _collectors(self.collection, self.gradients)

    @property
    def has_neighbours(self) -> bool:
        """Whether a process has several environments."""
        env, envs = self.env, self.collection.envs
        return envs > (env.processes_for(envs) if env.is_apart else 1)

    @property
    def placement(self) -> Mapping[str, range]:
        """The collectors of each host, in the order of `collection.hosts`; {} if all of them run on this machine."""
        return self._shares(self.collection.hosts, self.collectors)

    @property
    def evaluator_placement(self) -> Mapping[str, range]:
        """The evaluators of each host; {} if all of them run on this machine."""
        return self._shares(self.evaluation.hosts, self.evaluation.workers) if self.evaluation.every else {}

    def _shares(self, names: tuple[str, ...], actors: int) -> Mapping[str, range]:
        """Divide actors among hosts: one each, and the others in proportion to the cores, by the largest remainder."""
        if not names:
            return {}
        each_has = [self.hosts.cores.get(name) or cores() for name in names]
        shares = [1 + (actors - len(names)) * each / sum(each_has) for each in each_has]
        counts = [int(share) for share in shares]
        by_remainder = sorted(range(len(names)), key=lambda i: counts[i] - shares[i])
        for i in by_remainder[: actors - sum(counts)]:
            counts[i] += 1
        ends = list(itertools.accumulate(counts))
        return {name: range(end - count, end) for name, count, end in zip(names, counts, ends, strict=True)}

    @property
    def replay_shape(self) -> tuple[int, int] | None:
        """Collectors and their environments, which the rows of a replay memory belong to; None without a memory."""
        replays = isinstance(self.algorithm, ReplayConfig)
        return (self.collectors, self.collection.envs) if replays else None

    @property
    def evaluation_env(self) -> EnvConfig:
        """The [env] table of evaluations: that of training, with the keys of [evaluation.env].

        Options are added to those of training, but replace them if the environment is another one. `id` alone replaces
        a program, and a program replaces `id`.
        """
        keys = keys_of(EnvConfig)
        values = {name: keys[name].convert(value) for name, value in self.evaluation.env.items()}
        if {"command", "connect"} & values.keys():
            values = {"command": (), "connect": None, **values}
            values = {"id": program_name(values["command"]), **values}
        elif "id" in values:
            values |= {"command": (), "connect": None}
        same = values.get("id", self.env.id) == self.env.id
        for name in ("options", "reset_options"):
            values[name] = {**(getattr(self.env, name) if same else {}), **values.get(name, {})}
        values["each"] = (*(self.env.each if same else ()), *values.get("each", ()))
        if values.get("preset", self.env.preset) == "atari":  # returns are scores, also those of episodes that are cut
            values["options"]["clip_rewards"] = False
        return dataclasses.replace(self.env, **values)

    @property
    def training_indices(self) -> range:
        """The indices of the environments of all collectors."""
        return training_indices(self.collectors, self.collection.envs)

    @property
    def evaluator_indices(self) -> range:
        """The indices of the environments of all evaluators, which follow those of the collectors."""
        return evaluator_indices(self.training_indices, self.evaluation.workers, self.evaluation.envs)

    @property
    def start_limit_s(self) -> float:
        """env.start_limit_s, or its default: START_LIMIT_S, or supervision.phase_limit_s where that is longer."""
        limit_s = self.env.start_limit_s
        return max(START_LIMIT_S, self.supervision.phase_limit_s) if limit_s is None else limit_s

    @property
    def exact(self) -> bool:
        """Whether two runs of this config are bit-identical: no decision depends on a clock."""
        return not self.inexact

    @property
    def inexact(self) -> list[str]:
        """Why two runs of this config may differ, one text for each key; [] if they are bit-identical."""
        modes = {"collection": self.collection.communication, "gradients": self.gradients.communication}
        causes = [f'{table}.communication = "{mode}"' for table, mode in modes.items() if mode == "asynchronous"]
        fraction = self.collection.fraction_workers
        return [*causes, *([f"collection.fraction_workers = {fraction:g}"] if fraction < 1.0 else ())]

    def value(self, name: str) -> Any:
        """Return the value of a key by its full name, such as `collection.envs`.

        Raises AttributeError for an unknown key, and KeyError for an unknown parameter of [custom].
        """
        section, _, key_name = name.partition(".")
        if section == CUSTOM:
            group, _, key_name = key_name.partition(".")
            return self.custom[group][key_name]
        if section == POLICIES:
            policy, _, key_name = key_name.partition(".")
            return self._policy_values(policy)[key_name]
        return getattr(getattr(self, section), key_name)

    @property
    def unused(self) -> frozenset[str]:
        """Full names of the keys without effect, because points of their schedules give the values."""
        return frozenset(f"algorithm.{name}" for name in unused_keys(self.algorithm))

    def entries(self) -> Iterator[ConfigEntry]:
        """Yield every key, table by table; the parameters of [custom.<group>] come last."""
        for section in SECTIONS:
            table: type = type(getattr(self, section))
            for name, declared in keys_of(table).items():
                full = f"{section}.{name}"
                value = None if full in self.unused else self.value(full)
                changed = full in self.automatic or self.value(full) != self.unset[full]
                yield ConfigEntry(full, value, self.origins[full], declared.limits.doc, changed)
        for policy in self.policies:
            for name, value in self._policy_values(policy).items():
                doc = f"of the policy `{policy}`"
                full = f"{POLICIES}.{policy}"
                yield ConfigEntry(f"{full}.{name}", value, self.origins[full], doc, changed=True)
        for group, parameters in self.custom.items():
            for name, value in parameters.items():
                doc = f"parameter of the actors of `{group}`"
                yield ConfigEntry(
                    f"{CUSTOM}.{group}.{name}", value, self.origins[f"{CUSTOM}.{group}"], doc, changed=True
                )

    def _policy_values(self, policy: str) -> dict[str, Any]:
        """Return the keys of a row of [policies], with all values of the tables that it overrides."""
        values = self.policies[policy].values()
        for section in OVERRIDDEN if policy in self.learners else ():
            own = self.learners[policy]
            table: Any = getattr(own, section)
            kind: type = type(table)
            found = {name: getattr(table, name) for name in keys_of(kind) if f"{section}.{name}" not in own.unused}
            values[section] = {name: value for name, value in found.items() if value is not None}
        return values

    def learner(self, policy: str) -> Config:
        """Return the config that a policy of the run learns with: this one, with its own tables."""
        own = self.learners.get(policy)
        if own is None:
            return dataclasses.replace(self, policies={}, learners={})
        tables = {section: getattr(own, section) for section in OVERRIDDEN}
        return dataclasses.replace(
            self,
            **tables,
            policies={},
            learners={},
            origins=_with_tables(self.origins, own.origins),
            unset=_with_tables(self.unset, own.unset),
        )

    def differences(self, other: Config) -> list[str]:
        """Return the full names of keys whose values differ, or that only one of the two algorithms has."""
        # The value of a key of an algorithm is only None if it has no effect, so None can stand for a missing key.
        mine, theirs = ({entry.name: entry.value for entry in config.entries()} for config in (self, other))
        return [name for name in mine | theirs if mine.get(name) != theirs.get(name)]


def _with_tables(run: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the run has for each key, and what `own` has for those of the tables that a policy may override."""
    kept = {name: value for name, value in run.items() if name.partition(".")[0] not in OVERRIDDEN}
    return kept | {name: value for name, value in own.items() if name.partition(".")[0] in OVERRIDDEN}


SECTIONS: Mapping[str, type] = {
    name: table
    for name, table in typing.get_type_hints(Config).items()
    if name not in ("custom", "policies", "learners", "origins", "automatic", "unset")
}
"""Table -> its dataclass; for [algorithm] the base class of all algorithms' tables."""
