"""Novelty as a part of the reward: what the algorithm sees, and what the predictor learns from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from small_algorithms import SIZE, SPECS, share_of

from hive.algorithms import A2C, PPO, Algorithm
from hive.algorithms.batches.novelty import SeeksNovelty
from hive.algorithms.parameters import update_parameter
from hive.config import A2CConfig, PPOConfig
from hive.errors import ConfigError, NetworkError
from hive.learning import Part
from hive.networks import InputArray, NetworkParameters, Spaces, build_network, distribution_for
from hive.networks.rows.normalization import NormalizedNetwork
from hive.networks.rows.novelty import Novelty

SHARE = "three, unequal"


class Keeper:
    """A GradientReceiver that keeps the parts of every gradient."""

    def __init__(self) -> None:
        self.made: list[tuple[Sequence[Part], int | None, Sequence[float]]] = []

    def watch(self, outputs: Any) -> Any:
        return outputs

    def reinforce(self, parts: Sequence[Part], samples: int | None, statistics: Sequence[float]) -> None:
        self.made.append((parts, samples, statistics))


class Nothing:
    """An algorithm whose gradients have no samples; it keeps the rewards that it saw."""

    distribution = distribution_for(SPECS["discrete"])
    statistics = ("one", "two")
    gradients_per_round = 1
    asks_for_moments = behaviour_log_probs = False

    def connect(self, network: Any, optimizer: Any = None, target: Any = None) -> None:
        self.optimizer = optimizer

    def gradients(self, rollouts: Any, noise: Any = None) -> Any:
        self.rewards = [rollout.rewards for rollout in rollouts]
        yield self.optimizer.reinforce([], 0, ())


def network() -> tuple[NormalizedNetwork, Novelty]:
    spaces = Spaces({"observation": InputArray((SIZE,), "float32")}, SPECS["discrete"])
    made = build_network(NetworkParameters(novelty=True), spaces, torch.Generator().manual_seed(2))
    assert isinstance(made, NormalizedNetwork)
    assert isinstance(made.novelty, Novelty)
    made.novelty.spread.seen.copy_(torch.tensor([4.0, 2.0, 16.0]))
    return made, made.novelty


def gradients_of(algorithm: Algorithm, weight: float = 0.5) -> tuple[Keeper, Novelty, list[Any]]:
    made, novelty = network()
    keeper, rollouts = Keeper(), share_of("discrete", SHARE)
    seeks = SeeksNovelty(algorithm, weight)
    seeks.connect(made, keeper)
    for _ in seeks.gradients(rollouts, np.random.default_rng(4)):
        pass
    return keeper, novelty, rollouts


def test_a_reward_gains_the_novelty_of_the_next_observation() -> None:
    plain = [rollout.rewards for rollout in share_of("discrete", SHARE)]
    inner = Nothing()
    _, novelty, rollouts = gradients_of(inner)
    for before, after, rollout in zip(plain, inner.rewards, rollouts, strict=True):
        with torch.no_grad():
            following = novelty(torch.from_numpy(rollout.observations[1:].reshape(-1, SIZE))).numpy()
            finals = novelty(torch.from_numpy(rollout.final_observations)).numpy()
        for place in np.ndindex(rollout.novelty.shape):
            if (final := rollout.final_index[place]) >= 0:
                expected_novelty = finals[final]  # not that of the first observation of the next episode
            elif rollout.terminated[place]:
                expected_novelty = None
            else:
                expected_novelty = following.reshape(rollout.novelty.shape)[place]
            if expected_novelty is not None:
                assert rollout.novelty[place] == pytest.approx(expected_novelty, rel=1e-5)
        expected = before + 0.5 * np.minimum(rollout.novelty / 2.0, 10.0)
        np.testing.assert_allclose(after, expected, rtol=1e-5)


def test_an_empty_gradient_stays_empty() -> None:
    keeper, _, _ = gradients_of(Nothing())
    assert keeper.made == [([], 0, ())]


def test_each_gradient_trains_the_predictor_with_as_many_observations() -> None:
    config = PPOConfig(epochs=2, minibatches=3)
    keeper, novelty, rollouts = gradients_of(PPO(config, Nothing.distribution))
    valid = np.concatenate([r.observations[:-1][r.valid.astype(bool)] for r in rollouts])
    assert len(keeper.made) == 6
    seen = []
    for parts, samples, statistics in keeper.made:
        own, of_predictor = parts
        (observations,) = of_predictor.inputs
        assert len(observations) == samples
        seen.append(observations.numpy())
        gradients = torch.autograd.grad(of_predictor.loss, list(novelty.parameters()))
        assert all(gradient.abs().sum() > 0 for gradient in gradients)
        assert not any(torch.autograd.grad(own.loss, list(novelty.parameters()), allow_unused=True))
        assert len(statistics) == len(PPO.statistics) + 1
        assert statistics[-1] == of_predictor.loss.item()
    for epoch in (seen[:3], seen[3:]):  # each has every valid observation once
        rows = np.concatenate(epoch)
        np.testing.assert_array_equal(rows[np.lexsort(rows.T)], valid[np.lexsort(valid.T)])


def test_it_stands_for_its_algorithm() -> None:
    seeks = SeeksNovelty(A2C(A2CConfig(normalize_advantages=True), Nothing.distribution, workers=2), 0.1)
    assert seeks.statistics == (*A2C.statistics, "novelty")
    assert (seeks.gradients_per_round, seeks.asks_for_moments) == (2, True)
    assert update_parameter(seeks, "entropy_weight", 0.5) == A2CConfig().entropy_weight
    assert seeks.algorithm.config.entropy_weight == 0.5  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="cannot be changed"):
        update_parameter(SeeksNovelty(Nothing(), 0.1), "entropy_weight", 0.5)


def test_a_script_with_an_optimizer_of_torch_is_refused() -> None:
    made, _ = network()
    with pytest.raises(NetworkError, match="novelty is learned in runs only"):
        SeeksNovelty(Nothing(), 0.1).connect(made, torch.optim.SGD(made.parameters(), 0.1))
