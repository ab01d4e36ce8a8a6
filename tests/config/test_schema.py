from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import pytest

from hive.config import load_config, render
from hive.config.algorithms import ALGORITHMS, A2CConfig, AlgorithmConfig, IMPALAConfig, PPOConfig
from hive.config.keys import REQUIRED, Key, keys_of
from hive.config.rules import RULES
from hive.config.schema import SECTIONS
from hive.config.schemes import ALGORITHM_DEFAULTS, NORMALIZED
from hive.errors import ConfigError

ENV = '[env]\nid = "CartPole-v1"\n'
TABLES = [*SECTIONS.items(), *(("algorithm", table) for table in ALGORITHMS.values())]
KEYS = {f"{section}.{name}": key for section, table in TABLES for name, key in keys_of(table).items()}

DEFAULTS = {
    "run.name": "cartpole-a2c",
    "run.scheme": "a2c",
    "run.carrier": "slots",
    "run.seed": 1,
    "run.topology": None,
    "run.replay_folder": None,
    "run.init_from": None,
    "run.init_statistics": True,
    "run.update_hook": None,
    "run.setup": None,
    "run.callbacks": (),
    "run.accept": (),
    "run.callback_limit_s": 60.0,
    "run.steps": 500_000,
    "run.stop_at_return": None,
    "run.stop_at_evaluation": None,
    "run.stop_after_evaluations": 1,
    "run.stop_when_no_better": 0,
    "env.id": "CartPole-v1",
    "env.command": (),
    "env.connect": None,
    "env.options": {},
    "env.reset_options": {},
    "env.each": (),
    "env.curriculum": (),
    "env.preset": "none",
    "env.wrappers": (),
    "env.action_mask": None,
    "env.frame_stack": 1,
    "env.agent_index": False,
    "env.state": False,
    "env.info": (),
    "env.vector": "auto",
    "env.images": "auto",
    "env.scale_observations": True,
    "env.scale_actions": True,
    "env.rebuild": False,
    "env.start_limit_s": None,
    "env.processes": "0",
    "env.reset_limit_s": None,
    "env.step_limit_s": None,
    "env.memory_limit": "none",
    "env.restarts": 10,
    "env.window_s": 600.0,
    "env.on_failure": "end",
    "collection.workers": 1,
    "collection.envs": 8,
    "collection.rollout": 8,
    "collection.communication": "pipelined",
    "collection.max_lag": 1,
    "collection.ownership": "pool",
    "collection.fraction_workers": 1.0,
    "collection.fraction_samples": 1.0,
    "collection.helpers": None,
    "collection.broadcast_interval": 1,
    "collection.slots": 3,
    "gradients.workers": 0,
    "gradients.communication": "synchronous",
    "gradients.bootstrap_rounds": 1,
    "gradients.max_lag": 0,
    "gradients.stale": "drop",
    "gradients.decentralized": False,
    "gradients.compression": "none",
    "gradients.native_rounds": True,
    "gradients.top_k": 1.0,
    "gradients.threads": 0,
    "gradients.device": "cpu",
    "algorithm.name": "a2c",
    "algorithm.options": {},
    "algorithm.discount": 0.99,
    "algorithm.gae_lambda": 0.95,
    "algorithm.learning_rate": 1e-3,
    "algorithm.learning_rate_schedule": "linear",
    "algorithm.optimizer": "adam",
    "algorithm.adam_beta1": 0.9,
    "algorithm.adam_beta2": 0.999,
    "algorithm.rmsprop_decay": 0.99,
    "algorithm.optimizer_epsilon": 1e-5,
    "algorithm.momentum": 0.0,
    "algorithm.weight_decay": 0.0,
    "algorithm.value_loss_weight": 0.5,
    "algorithm.entropy_weight": 0.0,
    "algorithm.entropy_weight_schedule": "constant",
    "algorithm.clip_gradients": 0.5,
    "algorithm.normalize_advantages": False,
    "algorithm.importance_clip": 2.0,
    "algorithm.vtrace": False,
    "network.middleware": (64, 64),
    "network.value_middleware": None,
    "network.activation": "tanh",
    "network.memory": "none",
    "network.memory_size": 256,
    "network.initialization": "orthogonal",
    "network.hidden_gain": 2.0**0.5,
    "network.policy_gain": 0.01,
    "network.value_gain": 1.0,
    "network.action_distribution": "gaussian",
    "network.noise_steps": 0,
    "network.action_deviation": "parameter",
    "network.initial_deviation": 1.0,
    "network.layer_norm": False,
    "network.noisy_deviation": 0.0,
    "network.backend": "auto",
    "network.precision": "float32",
    "network.module": None,
    "network.extractor": None,
    "network.extractor_options": {},
    "network.normalize_rewards": True,
    "network.reward_clip": 10.0,
    "network.novelty_weight": 0.0,
    "network.normalize_observations": True,
    "network.separate_networks": True,
    "network.policy_head": None,
    "network.value_head": None,
    "network.weights": {},
    "network.frozen": (),
    "network.critic_parts": (),
    "record.every_s": 1.0,
    "record.sinks": ("jsonl",),
    "record.log_level": "info",
    "evaluation.every": {},
    "evaluation.workers": 1,
    "evaluation.wait": False,
    "evaluation.best_by": "mean_return",
    "evaluation.episodes": 10,
    "evaluation.max_steps": 100_000,
    "evaluation.env": {},
    "evaluation.envs": 10,
    "evaluation.videos": 0,
    "evaluation.keep_videos": 50,
    "evaluation.same_starts": False,
    "checkpoint.every": {"steps": 8 * 50_000},
    "checkpoint.autosave_s": 300.0,
    "checkpoint.keep": 3,
    "checkpoint.replay": True,
    "supervision.restarts": 5,
    "supervision.strict": False,
    "supervision.window_s": 60.0,
    "supervision.phase_limit_s": 60.0,
    "supervision.drain_s": 30.0,
    "supervision.non_finite": "skip",
    "collection.hosts": (),
    "evaluation.hosts": (),
    "hosts.cores": {},
    "hosts.launcher": "join",
    "hosts.address": "",
    "hosts.port": 0,
    "hosts.listen_everywhere": False,
    "hosts.silence_s": 10.0,
    "hosts.unprotected_ray": False,
}

ACTOR_CRITIC = {
    "gae_lambda": 1.0,
    "value_loss_weight": 0.5,
    "entropy_weight": 0.0,
    "entropy_weight_schedule": "constant",
}
OWN = {
    "ppo": {
        **ACTOR_CRITIC,
        "gae_lambda": 0.95,
        "learning_rate": 3e-4,
        "learning_rate_schedule": "constant",
        "normalize_advantages": True,
        "importance_clip": 2.0,
        "vtrace": False,
        "epochs": 10,
        "minibatches": 32,
        "normalize_over": "minibatch",
        "clip_range": 0.2,
        "clip_range_schedule": "constant",
        "value_clip_range": 0.0,
        "target_kl": 0.0,
    },
    "impala": {
        **ACTOR_CRITIC,
        "learning_rate": 7e-4,
        "learning_rate_schedule": "constant",
        "rho_clip": 1.0,
        "c_clip": 1.0,
    },
    "nstep-q": {
        "learning_rate": 2e-3,
        "learning_rate_schedule": "linear",
        "clip_gradients": 10.0,
        "target_interval": 1,
        "target_rate": 0.05,
        "n_step": 8,
        "huber_loss": True,
        "exploration_start": 1.0,
        "exploration_end": 0.02,
        "exploration_steps": 100_000,
    },
    "pqn": {
        "optimizer": "radam",
        "learning_rate": 1e-3,
        "learning_rate_schedule": "linear",
        "clip_gradients": 10.0,
        "huber_loss": False,
        "exploration_start": 1.0,
        "exploration_end": 0.05,
        "exploration_steps": 100_000,
        "q_lambda": 0.85,
        "epochs": 4,
        "minibatches": 4,
    },
}

REFUSED: list[tuple[str, Any]] = [
    ("run.name", ""),
    ("run.name", "a/b"),
    ("run.name", ".hidden"),
    ("run.name", "-x"),
    ("run.name", "x" * 65),
    ("run.name", "x\n"),
    ("run.scheme", "apx"),
    ("run.seed", -1),
    ("run.seed", 2**63),
    ("run.steps", 0),
    ("run.stop_at_return", float("inf")),
    ("env.id", ""),
    ("env.id", "a\nb"),
    ("env.command", "./simulator"),
    ("env.command", [""]),
    ("env.command", ["./simulator", 47000]),
    ("env.command", ["./simulator", "a\0b"]),
    ("env.connect", ""),
    ("env.connect", "47000"),
    ("env.connect", "10.0.0.1:47000"),
    ("env.connect", "unix:"),
    ("env.options", [1]),
    ("env.reset_options", 3),
    ("env.each", [{"index": 0}]),
    ("env.each", [{"options": {}}]),
    ("env.each", [{"index": -1, "options": {}}]),
    ("env.each", [{"index": [], "options": {}}]),
    ("env.each", [{"index": [0, 1.5], "options": {}}]),
    ("env.each", [{"index": True, "options": {}}]),
    ("env.each", [{"index": 0, "option": {}}]),
    ("env.each", [{"index": 0, "options": {}, "seed": 1}]),
    ("env.each", [{"index": 0, "options": 3}]),
    ("env.vector", "fast"),
    ("env.action_mask", ""),
    ("env.wrappers", "FlattenObservation"),
    ("env.wrappers", [3]),
    ("env.preset", "mujoco"),
    ("env.info", ["a", "a"]),
    ("env.info", [""]),
    ("env.info", "is_success"),
    ("env.wrappers", [{"max_episode_steps": 3}]),
    ("env.wrappers", ["two words"]),
    ("collection.workers", -1),
    ("collection.workers", 1025),
    ("collection.workers", "all"),
    ("collection.envs", 0),
    ("collection.rollout", 0),
    ("collection.communication", "async"),
    ("collection.max_lag", -1),
    ("collection.ownership", "learner"),
    ("collection.broadcast_interval", 0),
    ("collection.slots", 1),
    ("gradients.workers", -1),
    ("gradients.workers", 1025),
    ("gradients.workers", "automatic"),
    ("gradients.communication", "async"),
    ("gradients.stale", "keep"),
    ("gradients.bootstrap_rounds", 0),
    ("gradients.compression", "zip"),
    ("gradients.top_k", 0),
    ("gradients.top_k", 1.5),
    ("gradients.device", "gpu"),
    ("gradients.device", "cuda:"),
    ("gradients.device", "cuda:0 "),
    ("algorithm.name", "reinforce"),
    ("algorithm.discount", 1.01),
    ("algorithm.gae_lambda", -0.1),
    ("algorithm.learning_rate", 0),
    ("algorithm.learning_rate_schedule", "step"),
    ("algorithm.entropy_weight_schedule", "step"),
    ("algorithm.clip_range_schedule", "step"),
    ("algorithm.normalize_over", "run"),
    ("algorithm.value_clip_range", -0.1),
    ("algorithm.target_kl", -0.1),
    ("algorithm.optimizer", "lbfgs"),
    ("algorithm.adam_beta1", 1),
    ("algorithm.optimizer_epsilon", 0.0),
    ("algorithm.momentum", 1.0),
    ("algorithm.weight_decay", -1e-9),
    ("algorithm.clip_gradients", -1),
    ("algorithm.normalize_advantages", 1),
    ("algorithm.epochs", 0),
    ("algorithm.minibatches", 0),
    ("algorithm.clip_range", 0),
    ("algorithm.rho_clip", 0),
    ("algorithm.c_clip", 0),
    ("network.middleware", [64, 0]),
    ("network.middleware", 64),
    ("network.value_middleware", [64, 0]),
    ("network.value_middleware", "none"),
    ("network.activation", "sigmoid"),
    ("network.memory", "rnn"),
    ("network.memory_size", 0),
    ("network.initialization", "normal"),
    ("network.hidden_gain", 0),
    ("network.policy_gain", -0.1),
    ("network.value_gain", -0.1),
    ("network.action_distribution", "normal"),
    ("network.noise_steps", "-1"),
    ("network.action_deviation", "both"),
    ("network.initial_deviation", 0),
    ("network.module", "Module"),
    ("network.extractor", "Extractor"),
    ("network.extractor_options", [1]),
    ("record.every_s", 0),
    ("record.sinks", []),
    ("record.sinks", ["tensorboard"]),
    ("record.sinks", ["jsonl", "jsonl"]),
    ("record.sinks", ["jsonl", "mlflow"]),
    ("record.log_level", "trace"),
    ("evaluation.every", {"updates": -1}),
    ("evaluation.every", {"updates": True}),
    ("evaluation.every", {"updates": 2, "episodes": 2}),
    ("evaluation.workers", 0),
    ("evaluation.episodes", 0),
    ("evaluation.max_steps", -1),
    ("env.start_limit_s", 0),
    ("evaluation.envs", 0),
    ("evaluation.videos", -1),
    ("evaluation.keep_videos", 0),
    ("checkpoint.every", {"updates": 0}),
    ("checkpoint.every", {"steps": 0}),
    ("checkpoint.every", {"steps": 1.5}),
    ("checkpoint.every", {"steps": 9, "updates": 9}),
    ("checkpoint.every", {"seconds": 0}),
    ("checkpoint.every", {"seconds": 60, "updates": 7}),
    ("checkpoint.keep", 0),
    ("supervision.restarts", -1),
    ("supervision.window_s", 0),
]

ACCEPTED: list[tuple[str, Any]] = [
    ("run.name", "_A.b-9"),
    ("run.scheme", "my.package:topology"),
    ("run.seed", 2**63 - 1),
    ("run.stop_at_return", -200),
    ("env.id", "ALE/Pong-v5"),
    ("collection.workers", 0),
    ("collection.workers", "auto"),
    ("gradients.workers", 0),
    ("gradients.workers", "auto"),
    ("gradients.workers", 1024),
    ("algorithm.discount", 1),
    ("algorithm.clip_gradients", 0),
    ("network.middleware", []),
    ("network.value_middleware", []),
    ("network.activation", "elu"),
    ("network.policy_gain", 0),
    ("network.value_gain", 0),
    ("network.module", "my.networks:Torso"),
    ("network.extractor", "networks.py:Torso"),
    ("record.sinks", ["tensorboard", "jsonl"]),
    ("record.sinks", ["jsonl", "csv", "wandb"]),
    ("evaluation.every", {}),
    ("evaluation.every", {"updates": 1}),
    ("checkpoint.every", {}),
    ("supervision.restarts", 0),
]


def test_every_key_has_its_default() -> None:
    assert load_config("cartpole.toml", text=ENV).run.scheme == "ppo"
    config = load_config("cartpole.toml", ["run.scheme=a2c"], text=ENV)
    assert {entry.name: entry.value for entry in config.entries()} == DEFAULTS
    for name, value in DEFAULTS.items():
        assert type(config.value(name)) is type(value), name


@pytest.mark.parametrize(("algorithm", "own"), OWN.items())
def test_every_algorithm_has_its_defaults(algorithm: str, own: dict[str, Any]) -> None:
    config = load_config("cartpole.toml", ["run.scheme=a2c", f"algorithm.name={algorithm}"], text=ENV)
    others = {f"algorithm.{name}" for name in ("normalize_advantages", "importance_clip", "vtrace", *ACTOR_CRITIC)}
    shared = {name: value for name, value in DEFAULTS.items() if name not in others}
    named = {"run.name": f"cartpole-{algorithm}", "algorithm.name": algorithm}
    usual = {"collection.envs": 16, "collection.rollout": 32} | dict.fromkeys(NORMALIZED, False)
    usual |= ALGORITHM_DEFAULTS[algorithm]
    named["checkpoint.every"] = {"steps": usual["collection.envs"] * 50_000}
    expected = shared | named | usual | {f"algorithm.{name}": value for name, value in own.items()}
    assert {entry.name: entry.value for entry in config.entries()} == expected
    assert config.algorithm == ALGORITHMS[algorithm]()


def test_algorithms_share_keys_and_limits() -> None:
    assert tuple(table().name for table in ALGORITHMS.values()) == tuple(ALGORITHMS)
    for table in ALGORITHMS.values():
        assert issubclass(table, AlgorithmConfig)
        assert keys_of(table)["name"].limits.choices == tuple(ALGORITHMS)
        for name, key in keys_of(AlgorithmConfig).items():
            assert keys_of(table)[name].limits is key.limits


def test_only_the_environment_has_no_default() -> None:
    needed = [name for name, key in KEYS.items() if key.default is REQUIRED and key.limits.resolve is None]
    assert needed == ["env.id"]


@pytest.mark.parametrize("name", KEYS)
def test_each_key_is_documented_in_a_line_and_has_a_valid_default(name: str) -> None:
    key: Key = KEYS[name]
    assert 3 < len(key.limits.doc) < 105
    assert not key.limits.doc.endswith(".")
    if key.default is not REQUIRED and key.default is not None:
        default = list(key.default) if key.is_array else key.default
        assert key.fault(default) is None
        assert key.convert(default) == key.default


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_refused(name: str, value: Any) -> None:
    assert KEYS[name].fault(value) is not None


@pytest.mark.parametrize(("name", "value"), ACCEPTED)
def test_accepted(name: str, value: Any) -> None:
    assert KEYS[name].fault(value) is None


def test_auto_is_the_default_until_it_is_measured() -> None:
    plain = load_config("x", text=ENV)
    config = load_config("x", ["collection.workers=auto", "gradients.workers=auto"], text=ENV)
    assert config == plain
    assert not plain.automatic
    assert config.automatic == ("collection.workers", "gradients.workers")
    assert config.origin("collection.workers") == "--set"
    a3c = load_config("x", ["run.scheme=a3c", "gradients.workers=auto"], text=ENV)
    assert a3c.gradients.workers == 2
    assert a3c.automatic == ("gradients.workers",)
    assert load_config("x", text=render(a3c)).automatic == a3c.automatic


@pytest.mark.parametrize(
    ("communication", "max_lag", "allowed"),
    [
        ("synchronous", 0, True),
        ("synchronous", 1, False),
        ("pipelined", 0, False),
        ("pipelined", 3, True),
        ("asynchronous", 0, False),
        ("asynchronous", 9, True),
    ],
)
@pytest.mark.parametrize("section", ["collection", "gradients"])
def test_the_lag_must_suit_the_communication(section: str, communication: str, max_lag: int, allowed: bool) -> None:
    overrides = [f"{section}.communication={communication}", f"{section}.max_lag={max_lag}"]
    if allowed:
        assert load_config("x", overrides, text=ENV).value(f"{section}.max_lag") == max_lag
    else:
        with pytest.raises(ConfigError, match=f"{section}.communication = .* requires"):
            load_config("x", overrides, text=ENV)


@pytest.mark.parametrize(("communication", "max_lag"), [("synchronous", 0), ("pipelined", 1), ("asynchronous", 4)])
@pytest.mark.parametrize("section", ["collection", "gradients"])
def test_the_lag_follows_the_communication(section: str, communication: str, max_lag: int) -> None:
    config = load_config("x", [f"{section}.communication={communication}"], text=ENV)
    assert config.value(f"{section}.max_lag") == max_lag


def test_slots_follow_the_lag() -> None:
    lagged = ["run.scheme=a2c", "collection.max_lag=4"]
    assert load_config("x", lagged, text=ENV).collection.slots == 6
    assert load_config("x", [*lagged, "collection.slots=9"], text=ENV).collection.slots == 9
    with pytest.raises(ConfigError, match=r"got 5, but .* with collection\.max_lag = 4 .* requires at least 6"):
        load_config("x", [*lagged, "collection.slots=5"], text=ENV)


@pytest.mark.parametrize(("overrides", "slots"), [([], 5), (["max_lag=1"], 2), (["max_lag=9", "slots=2"], 2)])
def test_slots_of_asynchronous_collectors(overrides: list[str], slots: int) -> None:
    given = [f"collection.{override}" for override in ("communication=asynchronous", *overrides)]
    assert load_config("x", given, text=ENV).collection.slots == slots


@pytest.mark.parametrize(("collectors", "gradient_workers"), [(4, 2), (3, 3), (0, 2), (3, 0), (0, 0)])
def test_gradient_workers_may_own_equal_shares(collectors: int, gradient_workers: int) -> None:
    overrides = [f"collection.workers={collectors}", f"gradients.workers={gradient_workers}"]
    config = load_config("x", [*overrides, "collection.ownership=gradient_worker"], text=ENV)
    assert config.collection.ownership == "gradient_worker"


def test_a_pool_is_shared_anyhow() -> None:
    overrides = ["collection.workers=3", "gradients.workers=2", "collection.ownership=pool"]
    assert load_config("x", overrides, text=ENV).gradients.workers == 2


@pytest.mark.parametrize(
    ("overrides", "envs"), [([], 10), (["episodes=3"], 3), (["episodes=100"], 16), (["episodes=100", "envs=100"], 100)]
)
def test_environments_of_the_evaluator(overrides: list[str], envs: int) -> None:
    config = load_config("x", [f"evaluation.{override}" for override in overrides], text=ENV)
    assert config.evaluation.envs == envs


def test_every_environment_of_the_evaluator_plays() -> None:
    with pytest.raises(
        ConfigError,
        match=r"got 11, but evaluation\.episodes = 10 \(default\) leaves some environments without an episode",
    ):
        load_config("x", ["evaluation.envs=11"], text=ENV)


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (
            ["videos=1"],
            r"got 1, but there are no evaluations: set evaluation\.every, for example to \{ steps = 10_000 \}",
        ),
        (["videos=11", "every={updates=9}"], r"got 11, but evaluation\.episodes = 10 \(default\) is less"),
        (["videos=2", "every={updates=9}", "keep_videos=1"], r"got 1, but evaluation\.videos = 2 .* would not be kept"),
    ],
)
def test_only_episodes_that_are_played_are_recorded(overrides: list[str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        load_config("x", [f"evaluation.{override}" for override in overrides], text=ENV)


def test_who_is_cut_short_keeps_what_it_has() -> None:
    assert load_config("x", ["collection.fraction_workers=0.5"], text=ENV).collection.fraction_samples == 0.0
    overrides = ["collection.fraction_workers=0.5", "collection.fraction_samples=0.25"]
    assert load_config("x", overrides, text=ENV).collection.fraction_samples == 0.25


@pytest.mark.parametrize(
    ("override", "free", "wrong"),
    [
        (
            "collection.fraction_workers=0.5",
            "collection",
            r'"asynchronous" \(--set\) has no rounds that could end early',
        ),
        ("gradients.decentralized=true", "gradients", r'"asynchronous" \(--set\) has no fixed order of gradients'),
    ],
)
def test_what_needs_rounds_is_refused_without(override: str, free: str, wrong: str) -> None:
    load_config("x", [override, "gradients.workers=2"], text=ENV)
    with pytest.raises(ConfigError, match=wrong):
        load_config("x", [override, f"{free}.communication=asynchronous"], text=ENV)


@pytest.mark.parametrize("free", ["collection", "gradients"])
def test_only_asynchronous_runs_save_by_the_clock(free: str) -> None:
    by_clock = "checkpoint.every={seconds=60}"
    config = load_config("x", [by_clock, f"{free}.communication=asynchronous"], text=ENV)
    assert config.checkpoint.every == {"seconds": 60}
    with pytest.raises(ConfigError, match=r'"synchronous" \(default\) requires \{ steps = N \} or \{ updates'):
        load_config("x", [by_clock], text=ENV)


@pytest.mark.parametrize(
    ("overrides", "every"),
    [
        ([], {"steps": 16 * 50_000}),
        (["collection.workers=3", "collection.envs=2"], {"steps": 3 * 2 * 50_000}),
        (["run.scheme=single", "collection.envs=4"], {"steps": 4 * 50_000}),
        (["run.scheme=dd-ppo", "gradients.workers=2", "collection.envs=1"], {"steps": 2 * 50_000}),
        (["run.scheme=sac"], {"steps": 50_000}),
        (["run.scheme=impala"], {"seconds": 300.0}),
        (["gradients.communication=asynchronous"], {"seconds": 300.0}),
        (["run.scheme=apex"], {"seconds": 300.0}),
        (["checkpoint.every={updates=9}"], {"updates": 9}),
    ],
)
def test_checkpoints_are_rare_barriers_by_default_and_by_time_without_any(overrides: list[str], every: object) -> None:
    assert load_config("x", overrides, text=ENV).checkpoint.every == every


@pytest.mark.parametrize(
    ("overrides", "exact"),
    [
        ([], True),
        (["collection.communication=synchronous", "gradients.communication=pipelined"], True),
        (["collection.communication=asynchronous"], False),
        (["gradients.communication=asynchronous"], False),
        (["collection.fraction_workers=0.9"], False),
    ],
)
def test_what_is_the_same_run_every_time(overrides: list[str], exact: bool) -> None:
    assert load_config("x", overrides, text=ENV).exact is exact


def test_rules_are_between_keys() -> None:
    assert {name for rule in RULES for name in (rule.name, *rule.others)} <= set(KEYS)


def test_configs_compare_by_value() -> None:
    one = load_config("a/run.toml", text=ENV)
    other = load_config("b/run.toml", ["run.seed=1"], text=f"\n\n{ENV}")
    assert one == other
    assert hash(one) == hash(other)
    assert one.origin("env.id") != other.origin("env.id")
    assert one.differences(other) == []


def test_differences_are_named() -> None:
    one = load_config("a.toml", text=ENV)
    other = load_config("b.toml", ["env.options.x=1", "algorithm.learning_rate=1e-3"], text=ENV)
    assert one.differences(other) == ["env.options", "algorithm.learning_rate"]
    assert one != other


def test_keys_that_only_one_algorithm_has_differ() -> None:
    one = load_config("a.toml", ["run.scheme=a2c"], text=ENV)
    other = load_config("a.toml", ["run.scheme=a2c", "algorithm.name=impala"], text=ENV)
    own = {f"algorithm.{name}" for name in ("normalize_advantages", "importance_clip", "vtrace", "rho_clip", "c_clip")}
    shared = {"run.name", "collection.envs", "collection.rollout", "checkpoint.every", "algorithm.name"}
    shared |= {f"algorithm.{name}" for name in ("learning_rate", "learning_rate_schedule", "gae_lambda")}
    assert {*one.differences(other)} == {*other.differences(one)} == shared | own


def test_no_key_of_an_algorithm_may_be_none() -> None:
    for table in ALGORITHMS.values():
        assert None not in dataclasses.asdict(table()).values()


def test_configs_are_frozen() -> None:
    config = load_config("a.toml", text=ENV)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.run.seed = 2  # type: ignore[misc]


def test_entries_tell_all() -> None:
    entry = next(entry for entry in load_config("a.toml", text=ENV).entries() if entry.name == "env.id")
    assert (entry.value, entry.origin) == ("CartPole-v1", "a.toml:2")
    assert (
        entry.doc
        == 'Gymnasium id of the environment, "package.module:Class", "file.py:Class", "library.so:Name" (hive/env.h)'
    )


def test_the_config_needs_no_torch() -> None:
    code = "import sys, hive.config; print({'torch', 'numpy', 'gymnasium'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("scheme", "keys"), [("a2c", A2CConfig), ("single", A2CConfig), ("rapid", PPOConfig), ("impala", IMPALAConfig)]
)
def test_an_algorithm_of_ones_own_has_the_keys_of_the_schemes(scheme: str, keys: type) -> None:
    config = load_config("x", [f"run.scheme={scheme}", "algorithm.name=mine:Own"], text='[env]\nid = "x"\n')
    assert type(config.algorithm) is keys
    assert config.algorithm.name == "mine:Own"


@pytest.mark.parametrize(
    ("given", "limit_s"), [((), 300.0), (("supervision.phase_limit_s=1000",), 1000.0), (("env.start_limit_s=2",), 2.0)]
)
def test_the_limit_of_a_start_is_no_shorter_than_that_of_a_step_unless_it_is_set(
    given: tuple[str, ...], limit_s: float
) -> None:
    """A config of before the key has its effect: `phase_limit_s` was the limit of starts, too."""
    assert load_config("cartpole.toml", given, text=ENV).start_limit_s == limit_s
