"""Whatever trains can be loaded, acts, is evaluated, exported and resumed: every key that shapes a policy.

Each case is a whole run in this process, of one algorithm and of random values of all keys that fit together.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from any_environment import ACTIONS, CHOICES, OBSERVATIONS
from gymnasium import spaces

import hive
from hive.config import Config, load_config
from hive.envs.make import make_environment
from hive.envs.recipe import Recipe
from hive.envs.vectors.checks import at
from hive.errors import HiveError
from hive.launch.resuming import prepare
from hive.policy.loaded import Policy
from hive.records import Summary
from hive.runtime.run.execute import run_inline
from hive.training import Blueprint, evaluate

STEPS = 2 * 2 * 8  # of two rounds
VALUES: dict[str, tuple[Any, ...]] = {
    "run.scheme": ("a2c", "ppo", "impala", "nstep-q", "pqn", "dqn", "c51", "qr-dqn", "sac", "td3", "ddpg"),
    "env.options": tuple(
        {"observation": seen, "action": action, "masked": masked}
        for seen, action, masked in itertools.product(OBSERVATIONS, ACTIONS, ("", "", "part", "info"))
    ),
    "env.frame_stack": (1, 3),
    "network.middleware": ([8], [], [8, 6]),
    "network.value_middleware": (None, [5], []),
    "network.activation": ("tanh", "relu", "leaky_relu", "elu", "gelu", "silu"),
    "network.memory": ("none", "lstm", "gru"),
    "network.initialization": ("orthogonal", "uniform"),
    "network.action_distribution": ("gaussian", "squashed", "gsde"),
    "network.noise_steps": (0, 2),
    "network.action_deviation": ("parameter", "output"),
    "network.layer_norm": (False, True),
    "network.noisy_deviation": (0.0, 0.5),
    "network.backend": ("auto", "torch"),
    "network.precision": ("float32", "bfloat16"),
    "network.separate_networks": (True, False),
    "network.normalize_rewards": (False, True),
    "network.normalize_observations": (False, True),
    "network.novelty_weight": (0.0, 0.5),
    "network.module": (None, "any_environment:Net"),
    "network.extractor": (None, "any_environment:First"),
    "network.policy_head": (None, "any_environment:Warm"),
    "network.value_head": (None, "any_environment:Half"),
    "algorithm.optimizer": ("adam", "adamw", "radam", "rmsprop", "sgd"),
    "algorithm.momentum": (0.0, 0.9),
    "algorithm.weight_decay": (0.0, 0.1),
    "algorithm.clip_gradients": (0.5, 0.0),
    "algorithm.n_step": (1, 3),
    "algorithm.priority_exponent": (0.0, 0.6),
    "algorithm.initial_errors": (False, True),
    "algorithm.double": (False, True),
    "algorithm.dueling": (0, 8),
    "algorithm.atoms": (51, 2),
    "algorithm.quantiles": (200, 1),
    "algorithm.huber_loss": (True, False),
    "algorithm.critic_first": (False, True),
    "algorithm.learn_temperature": (True, False),
    "gradients.compression": ("none", "bf16", "top-k"),
}
"""Key -> its values, the usual one first."""

SMALL = {
    "run.steps": STEPS,
    "env.id": "any_environment:AnyEnv",
    "collection.envs": 2,
    "collection.rollout": 8,
    "collection.workers": 0,
    "gradients.workers": 0,
    "checkpoint.every": {"updates": 1000},  # the last one is enough
    "algorithm.replay_capacity": 200,
    "algorithm.learning_starts": 16,
    "algorithm.batch_size": 8,
    "algorithm.updates_per_step": "1/4",  # the first one or two are left out where the network normalises
    "algorithm.epochs": 1,
    "algorithm.minibatches": 2,
    "network.memory_size": 4,
}
EVERYDAY = 12
CASES = 154  # 14 of each algorithm

Case = dict[str, Any]


def config_of(case: Mapping[str, Any]) -> Config:
    """Return the config of a case. Raises ConfigError for values that exclude each other."""
    masked = case["env.options"]["masked"]
    mask = {"env.action_mask": {"part": "mask", "info": "info"}[masked]} if masked else {}
    scheme = f'[run]\nscheme = "{case["run.scheme"]}"\n[env]\nid = "any_environment:AnyEnv"\n'
    usual = load_config("any.toml", text=scheme).algorithm
    keys = {**SMALL, **mask, **case}
    given = {name: keys[name] for name in keys if not name.startswith("algorithm.") or hasattr(usual, name[10:])}
    return load_config("any.toml", [f"{name}={toml(value)}" for name, value in given.items()], text=scheme)


def accepted(case: Mapping[str, Any], *, whole: bool) -> bool:
    """Whether a config accepts the case and, if `whole`, a run too."""
    try:
        config = config_of(case)
        if whole:
            Blueprint(config)
    except HiveError:
        return False
    return True


def drawn(number: int) -> Case:
    """Return case `number`: an algorithm, and values for as many other keys as fit together."""
    draw = random.Random(number)
    schemes = VALUES["run.scheme"]
    options = [one for one in VALUES["env.options"] if fits(schemes[number % len(schemes)], one)]
    case = {"run.scheme": schemes[number % len(schemes)], "env.options": draw.choice(options)}
    wanted = {name: draw.choice(values) for name, values in VALUES.items() if name not in case}
    wanted = {name: value for name, value in wanted.items() if value is not None and value != VALUES[name][0]}
    order = draw.sample(list(wanted), len(wanted))
    for whole in (False, True):
        found = dict(case)
        for name in order:
            more = {**found, name: wanted[name]}
            if accepted(more, whole=whole):
                found = more
        if accepted(found, whole=True):
            return found
    raise AssertionError(f"nothing fits {case}")


def fits(scheme: str, options: Mapping[str, str]) -> bool:
    if scheme in ("td3", "ddpg"):
        return options["action"] == "box" and not options["masked"]
    if scheme == "sac":
        return options["action"] == "discrete" or (options["action"] == "box" and not options["masked"])
    if options["masked"] and options["action"] not in CHOICES:
        return False
    return scheme in ("a2c", "ppo", "impala") or options["action"] == "discrete"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIVE_HOME", str(tmp_path / "runs"))


FULL = pytest.mark.full(reason="whole runs of all keys: 60 s", rotates=True)


@pytest.mark.rotates
@pytest.mark.parametrize(
    "number", [number if number < EVERYDAY else pytest.param(number, marks=FULL) for number in range(CASES)]
)
def test_whatever_trains_is_a_policy(number: int, tmp_path: Path) -> None:
    case = drawn(number)
    config = config_of(case)
    result = hive.train(config, inline=True, quiet=True)
    assert result.updates >= 2, case
    policy = hive.load(str(result.directory), own_code=True)
    acts(policy, case)
    played = evaluate(policy, config, episodes=2)
    assert np.isfinite(played.mean_return)
    file = tmp_path / "policy.onnx"
    exported = hive.export(str(result.directory), str(file), own_code=True)
    assert exported.compared
    resumed = prepare(result.directory.name, exact=False, sets=[f"run.steps={2 * STEPS}"])
    run_inline(resumed)
    summary = Summary.read(resumed.summary_file)
    assert (summary.error, summary.env_steps) == (None, 2 * STEPS)


def acts(policy: Policy, case: Mapping[str, Any]) -> None:
    """A batch of observations and each of them alone get actions of the environment's space, and the same ones."""
    options = case["env.options"]
    environment = make_environment(Recipe("any_environment:AnyEnv", options))
    seen = [environment.reset(seed=seed) for seed in range(3)]
    masks = [info.get("action_mask") for _, info in seen]
    batch = stacked([observation for observation, _ in seen])
    together = None if masks[0] is None else np.stack(masks)
    state = policy.initial_state(3)
    remembers = state is not None
    for noise in (None, np.random.default_rng(0)):
        actions = policy(batch, state, action_mask=together, noise=noise)
        alone = [
            policy(observation, policy.initial_state(), action_mask=mask, noise=noise)
            for (observation, _), mask in zip(seen, masks, strict=True)
        ]
        if remembers:
            actions, alone = actions[0], [action for action, _ in alone]
        for index, action in enumerate(alone):
            assert environment.action_space.contains(action), action
            own = at(actions, index)
            assert environment.action_space.contains(own)
            if noise is None:
                flat = [spaces.flatten(environment.action_space, one) for one in (action, own)]
                np.testing.assert_allclose(*flat, rtol=1e-3, atol=1e-5)


def stacked(observations: Sequence[Any]) -> Any:
    """Return observations as one batch, in their dictionaries and tuples."""
    first = observations[0]
    if isinstance(first, dict):
        return {name: stacked([one[name] for one in observations]) for name in first}
    if isinstance(first, tuple):
        return tuple(stacked([one[place] for one in observations]) for place in range(len(first)))
    return np.stack(observations)


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {toml(one)}" for name, one in value.items()) + "}"
    return str(value).lower() if isinstance(value, bool) else repr(value)
