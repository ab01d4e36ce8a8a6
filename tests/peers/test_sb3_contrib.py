"""One update of PPO with an action mask, and with an LSTM, gives SB3-Contrib's weights: the same rollout, to 1e-6.

MaskablePPO makes minibatches as PPO does. RecurrentPPO permutes nothing: it puts the rows of one environment after
those of another one, begins at a random row, and cuts minibatches of equal size, if need be within an environment,
where it continues from the state that it stored while it acted. hive permutes environments and cuts between them. The
two agree where the random row is the first one of an environment, and hive's permutation a rotation. That is what this
test arranges.

Needs `pip install '.[peers]'`; without it these tests are skipped.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

sys.path += [str(Path(__file__).parents[up] / name) for up, name in ((0, ""), (1, "training"), (2, "scripts"))]

from same_rollout import CLOSE, ENVS, STEPS, Arrays, Orders, acting, one_round, weights_of
from small_trainer import Trainer, config_of

import hive.algorithms.ppo

pytestmark = pytest.mark.full(reason="needs the extra `peers`")
sb3_contrib = pytest.importorskip("sb3_contrib", reason="pip install '.[peers]'")

ROUNDS = 3  # later ones have moments in the optimizer, and episodes that ended within the rollout
CELLS = 16
MASKED = {
    f"network.branches.{branch}.trunk.{ours}": theirs
    for branch, name, head in ((0, "policy", "action_net"), (1, "value", "value_net"))
    for ours, theirs in ((0, f"mlp_extractor.{name}_net.0"), (2, f"mlp_extractor.{name}_net.2"), (4, head))
}
RECURRENT = {
    f"branches.{branch}.output.{ours}": theirs
    for branch, name, head in ((0, "policy", "action_net"), (1, "value", "value_net"))
    for ours, theirs in ((0, f"mlp_extractor.{name}_net.0"), (2, f"mlp_extractor.{name}_net.2"), (4, head))
}
"""hive's layer -> that of SB3-Contrib."""
LSTM = {"branches.0.cell": "lstm_actor", "branches.1.cell": "lstm_critic"}

PPO = {"algorithm__epochs": 2, "algorithm__minibatches": 2}
BOTH = [
    ({"algorithm__normalize_advantages": "false"}, {"normalize_advantage": False}),
    ({"algorithm__normalize_over": '"minibatch"'}, {"normalize_advantage": True}),
    ({"algorithm__normalize_over": '"minibatch"', "algorithm__clip_range": 0.01}, {"clip_range": 0.01}),
]
IDS = ["plain", "minibatches normalised", "narrow clip"]


def trainer_of(env: str, **options: Any) -> Trainer:
    values = {
        "run__scheme": '"ppo"',
        "collection__envs": ENVS,
        "collection__rollout": STEPS,
        "network__middleware": [64, 64],
        "network__separate_networks": "true",
        "algorithm__learning_rate": 1e-3,
        "algorithm__discount": 0.98,
        "algorithm__gae_lambda": 0.9,
        "algorithm__entropy_weight": 0.01,
        **PPO,
        **options,
    }
    return acting(config_of(env, **values))


def peer_of(kind: Any, policy: str, make: Any, **options: Any) -> Any:
    from stable_baselines3.common.logger import Logger
    from stable_baselines3.common.vec_env import DummyVecEnv

    model = kind(
        policy,
        DummyVecEnv([make] * ENVS),
        n_steps=STEPS,
        batch_size=ENVS * STEPS // 2,
        n_epochs=2,
        gamma=0.98,
        gae_lambda=0.9,
        ent_coef=0.01,
        learning_rate=1e-3,
        device="cpu",
        **options,
    )
    model._logger = Logger(None, [])
    return model


def peer_name(name: str, layers: Mapping[str, str]) -> str:
    layer, _, kind = name.rpartition(".")
    return f"{LSTM[layer]}.{kind}_l0" if layer in LSTM else f"{layers[layer]}.{kind}"


def give_weights(trainer: Trainer, model: Any, layers: Mapping[str, str]) -> None:
    parameters = dict(model.policy.named_parameters())
    given = {peer_name(name, layers): array for name, array in weights_of(trainer).items()}
    assert given.keys() == parameters.keys()
    with torch.no_grad():
        for name, array in given.items():
            parameters[name].copy_(torch.from_numpy(array.copy()))


def difference(trainer: Trainer, model: Any, layers: Mapping[str, str]) -> float:
    """The largest difference between two weights."""
    parameters = {name: p.detach().numpy() for name, p in model.policy.named_parameters()}
    return max(
        float(np.abs(array - parameters[peer_name(name, layers)]).max()) for name, array in weights_of(trainer).items()
    )


def changed(trainer: Trainer, before: Arrays) -> float:
    return min(float(np.abs(array - before[name]).max()) for name, array in weights_of(trainer).items())


# --- masks


def give_masked(trainer: Trainer, rollout: Arrays, model: Any) -> None:
    """Fill the peer's buffer as its `collect_rollouts` does; observations become the numbers that they stand for."""
    spec = trainer.blueprint.environment.observation
    assert spec.mask is not None
    part, buffer, policy = spec.parts[0], model.rollout_buffer, model.policy

    def numbers(rows: NDArray[Any]) -> NDArray[np.int64]:
        return part.view(rows).argmax(-1)

    buffer.reset()
    begins = np.ones(ENVS, bool)
    for t in range(STEPS):
        rows, actions = rollout["observations"][t], rollout["actions"][t].copy()
        observations, masks = numbers(rows), spec.mask.view(rows) != 0
        rewards = rollout["rewards"][t].copy()
        with torch.no_grad():
            seen = torch.from_numpy(observations)
            values, log_probs, _ = policy.evaluate_actions(seen, torch.from_numpy(actions), action_masks=masks)
            for env in np.flatnonzero(rollout["truncated"][t]):
                last = numbers(rollout["final_observations"][rollout["final_index"][t, env]][None])
                rewards[env] += model.gamma * policy.predict_values(torch.from_numpy(last)).item()
        shaped = actions.reshape(ENVS, -1)
        buffer.add(observations[:, None], shaped, rewards, begins, values, log_probs, action_masks=masks)
        begins = (rollout["terminated"][t] | rollout["truncated"][t]).astype(bool)
    with torch.no_grad():
        following = policy.predict_values(torch.from_numpy(numbers(rollout["observations"][STEPS])))
    buffer.compute_returns_and_advantage(following, begins)


@pytest.mark.parametrize(("ours", "theirs"), BOTH, ids=IDS)
def test_masked_updates_give_the_weights_of_the_peer(
    monkeypatch: pytest.MonkeyPatch, ours: dict[str, Any], theirs: dict[str, Any]
) -> None:
    from comparison.environments import InvalidActions

    Orders(monkeypatch)
    trainer = trainer_of("comparison.environments:InvalidActions", env__action_mask='"info"', **ours)
    model = peer_of(sb3_contrib.MaskablePPO, "MlpPolicy", InvalidActions, **theirs)
    give_weights(trainer, model, MASKED)
    before = {name: array.copy() for name, array in weights_of(trainer).items()}
    truncated = 0
    for number in range(ROUNDS + 1):  # episodes have 100 steps
        rollout = one_round(trainer, number)
        truncated += int(rollout["truncated"].sum())
        give_masked(trainer, rollout, model)
        model.train()
        assert difference(trainer, model, MASKED) <= CLOSE
    assert truncated, "no episode was truncated"
    assert changed(trainer, before) > 100 * CLOSE


# --- memory


class Rotations:
    """Lets hive permute environments by rotations, and SB3-Contrib begin with the same environment."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.drawn: list[int] = []
        draw = hive.algorithms.ppo.PPO.gradients

        def recording(algorithm: Any, rollouts: Any, noise: Any = None) -> Iterator[Any]:
            return draw(algorithm, rollouts, _Rotating(noise, self.drawn))  # type: ignore[arg-type]

        monkeypatch.setattr(hive.algorithms.ppo.PPO, "gradients", recording)
        monkeypatch.setattr(np.random, "randint", lambda count: self.drawn.pop(0) * STEPS)


class _Rotating:
    def __init__(self, generator: np.random.Generator, drawn: list[int]) -> None:
        self.generator = generator
        self.drawn = drawn

    def permutation(self, count: int) -> NDArray[np.int64]:
        first = int(self.generator.integers(count))
        self.drawn.append(first)
        return np.roll(np.arange(count), -first)


class Acting:
    """The states of the peer's two LSTMs between rollouts, which hive stores with a rollout."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.states = model._last_lstm_states
        self.begins = np.ones(ENVS, bool)

    def give(self, rollout: Arrays) -> None:
        """Fill the peer's buffer as its `collect_rollouts` does, with the actions of hive."""
        model, policy, buffer = self.model, self.model.policy, self.model.rollout_buffer
        buffer.reset()
        kept = torch.from_numpy(~self.begins).float()[:, None]
        stored = torch.cat([part[0] for pair in (self.states.pi, self.states.vf) for part in pair], -1) * kept
        np.testing.assert_allclose(rollout["state"], stored.numpy(), atol=CLOSE)
        for t in range(STEPS):
            observations, actions = rollout["observations"][t].copy(), torch.from_numpy(rollout["actions"][t].copy())
            rewards, starts = rollout["rewards"][t].copy(), torch.from_numpy(self.begins).float()
            with torch.no_grad():
                seen = torch.from_numpy(observations)
                values, log_probs, _ = policy.evaluate_actions(seen, actions, self.states, starts)
                after = policy(seen, self.states, starts)[-1]
                for env in np.flatnonzero(rollout["truncated"][t]):
                    last = torch.from_numpy(rollout["final_observations"][rollout["final_index"][t, env]][None].copy())
                    state = tuple(part[:, env : env + 1].contiguous() for part in after.vf)
                    rewards[env] += model.gamma * policy.predict_values(last, state, torch.zeros(1)).item()
            shaped = actions.numpy().reshape(ENVS, -1)
            buffer.add(observations, shaped, rewards, self.begins, values, log_probs, lstm_states=self.states)
            self.states, self.begins = after, (rollout["terminated"][t] | rollout["truncated"][t]).astype(bool)
        with torch.no_grad():
            seen = torch.from_numpy(rollout["observations"][STEPS].copy())
            following = policy.predict_values(seen, self.states.vf, torch.from_numpy(self.begins).float())
        buffer.compute_returns_and_advantage(following, self.begins)


@pytest.mark.parametrize(("ours", "theirs"), BOTH, ids=IDS)
def test_recurrent_updates_give_the_weights_of_the_peer(
    monkeypatch: pytest.MonkeyPatch, ours: dict[str, Any], theirs: dict[str, Any]
) -> None:
    import gymnasium

    Rotations(monkeypatch)
    memory = {"network__memory": '"lstm"', "network__memory_size": CELLS}
    trainer = trainer_of("CartPole-v1", env__options="{max_episode_steps = 20}", **memory, **ours)
    kwargs = {"lstm_hidden_size": CELLS, "net_arch": {"pi": [64, 64], "vf": [64, 64]}}
    model = peer_of(
        sb3_contrib.RecurrentPPO,
        "MlpLstmPolicy",
        lambda: gymnasium.make("CartPole-v1"),
        policy_kwargs=kwargs,
        **theirs,
    )
    give_weights(trainer, model, RECURRENT)
    before = {name: array.copy() for name, array in weights_of(trainer).items()}
    peer, truncated, terminated = Acting(model), 0, 0
    for number in range(ROUNDS):
        rollout = one_round(trainer, number)
        truncated, terminated = (
            truncated + int(rollout["truncated"].sum()),
            terminated + int(rollout["terminated"].sum()),
        )
        peer.give(rollout)
        model.train()
        assert difference(trainer, model, RECURRENT) <= CLOSE
    assert truncated, "no episode was truncated"
    assert terminated, "no episode was terminated"
    assert changed(trainer, before) > 100 * CLOSE
