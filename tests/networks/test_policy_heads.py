"""The squashed policy and PPO's: outputs, losses, and the variable that agents adapt."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hive.compat.coach.losses import head_loss
from hive.compat.coach.torch_architecture import TorchArchitecture
from hive.envs.spaces.actions import Box, Discrete
from hive.envs.spaces.observation import ObservationSpec
from hive.errors import NetworkError
from hive.networks import HeadParameters, NetworkParameters, PolicyHead, PolicyHeadParameters, PPOHeadParameters, Spaces
from hive.networks.act.bounded import LOG_STD_BOUNDS
from hive.networks.build.heads import PPOHead, SquashedPolicyHead

LOGITS = torch.tensor([[0.0, 1.0], [2.0, 0.0], [0.5, 0.5]])
ACTIONS = torch.tensor([0, 1, 1])
ADVANTAGES = torch.tensor([1.0, -1.0, 2.0])
BOX = Box((2,), (-1.0, -3.0), (1.0, 3.0))


def ppo(**parameters: float | None) -> PPOHead:
    return PPOHead(PPOHeadParameters(**parameters), Discrete(2))  # type: ignore[arg-type]


def log_probs() -> torch.Tensor:
    return LOGITS.log_softmax(-1)[torch.arange(3), ACTIONS]


def test_entropy_is_taken_from_the_loss_of_a_policy() -> None:
    plain = PolicyHead(HeadParameters("policy"), Discrete(2))
    curious = PolicyHead(PolicyHeadParameters(beta_entropy=0.5), Discrete(2))
    entropy = torch.distributions.Categorical(logits=LOGITS).entropy()
    expected = head_loss(plain).loss(LOGITS, ADVANTAGES, ACTIONS) - 0.5 * entropy
    torch.testing.assert_close(head_loss(curious).loss(LOGITS, ADVANTAGES, ACTIONS), expected)


def test_a_policy_refuses_actions_that_there_are_not() -> None:
    with pytest.raises(NetworkError, match="actions range from 0 to 2, but there are only 2"):
        head_loss(PolicyHead(HeadParameters("policy"), Discrete(2))).loss(LOGITS, ADVANTAGES, torch.tensor([0, 1, 2]))


def test_at_the_old_policy_the_ratio_is_one() -> None:
    head = ppo(beta_entropy=0.0, initial_kl_coefficient=7.0)
    torch.testing.assert_close(head_loss(head).loss(LOGITS, ADVANTAGES, ACTIONS, log_probs()), -ADVANTAGES)


def test_the_ratio_is_clipped_where_that_is_worse() -> None:
    """Ratios 1.5: a good action gains no more than 1.2, a bad one loses all 1.5; 0.5 the other way round."""
    for ratio, good, bad in ((1.5, -1.2, 1.5), (0.5, -0.5, 0.8)):
        old = log_probs() - np.log(ratio)
        losses = head_loss(ppo(beta_entropy=0.0)).loss(LOGITS, torch.tensor([1.0, -1.0, 1.0]), ACTIONS, old)
        np.testing.assert_allclose(losses.numpy(), [good, bad, good], rtol=1e-5)
    unclipped = ppo(beta_entropy=0.0, clip_likelihood_ratio_using_epsilon=None)
    losses = head_loss(unclipped).loss(LOGITS, torch.ones(3), ACTIONS, log_probs() - np.log(3.0))
    np.testing.assert_allclose(losses.numpy(), [-3.0] * 3, rtol=1e-5)


def test_entropy_and_divergence_are_in_the_loss() -> None:
    entropy = torch.distributions.Categorical(logits=LOGITS).entropy()
    old = log_probs() - 0.1
    none = head_loss(ppo(beta_entropy=0.0)).loss(LOGITS, ADVANTAGES, ACTIONS, old)
    both = head_loss(ppo(beta_entropy=0.3, initial_kl_coefficient=2.0)).loss(LOGITS, ADVANTAGES, ACTIONS, old)
    divergence = np.exp(0.1) - 1.0 - 0.1
    torch.testing.assert_close(both, none + 2.0 * divergence - 0.3 * entropy)


def test_the_divergence_estimate_is_unbiased() -> None:
    """Over all actions with the old probabilities it is the divergence KL(old || new)."""
    new, old = torch.tensor([[0.2, 0.9]]).log_softmax(-1), torch.tensor([[1.0, 0.1]]).log_softmax(-1)
    head = ppo(beta_entropy=0.0, initial_kl_coefficient=1.0)
    none = torch.zeros(1)
    estimate = sum(
        float(old[0, a].exp() * head_loss(head).loss(new, none, torch.tensor([a]), old[:, a])) for a in range(2)
    )
    assert estimate == pytest.approx(float((old.exp() * (old - new)).sum()), rel=1e-5)


def test_the_kl_coefficient_is_a_variable_that_the_loss_follows() -> None:
    spaces = Spaces({"observation": ObservationSpec((2,), "float32")}, Discrete(2))
    network = TorchArchitecture(NetworkParameters(heads_parameters=[PPOHeadParameters(beta_entropy=0.0)]), spaces)
    inputs = {
        "observation": np.ones((4, 2), np.float32),
        "output_0_0": np.array([0, 1, 0, 1]),
        "output_0_1": np.full(4, -3.0, np.float32),
    }
    before = network.accumulate_gradients(inputs, np.zeros(4, np.float32))[0]
    network.set_variable_value("heads.0.kl_coefficient", np.float32(2.0), None)
    assert network.get_variable_value("heads.0.kl_coefficient") == 2.0
    assert before == 0.0
    assert network.accumulate_gradients(inputs, np.zeros(4, np.float32))[0] > 1.0


def test_continuous_ppo_takes_the_densities() -> None:
    head = PPOHead(PPOHeadParameters(beta_entropy=0.0), BOX)
    output = head(torch.randn(3, head.width))
    actions = torch.randn(3, 2)
    old = head.distribution.log_prob(output, actions)
    torch.testing.assert_close(head_loss(head).loss(output, ADVANTAGES, actions, old), -ADVANTAGES)
    assert head_loss(head).extra_inputs == (("float32", (2,)), ("float32", ()))


def test_squashed_outputs_depend_on_the_observation_and_are_clamped() -> None:
    head = SquashedPolicyHead(HeadParameters("squashed_policy"), BOX)
    output = head(torch.tensor([[1.0, -1.0, 100.0, -100.0]]))
    assert output.tolist() == [[1.0, -1.0, LOG_STD_BOUNDS[1], LOG_STD_BOUNDS[0]]]
    actions = torch.zeros(1, 2)
    expected = -2.0 * head.distribution.log_prob(output, actions)
    assert torch.equal(head_loss(head).loss(output, torch.tensor([2.0]), actions), expected)


def test_impossible_heads_are_refused() -> None:
    with pytest.raises(NetworkError, match="needs a box action"):
        SquashedPolicyHead(HeadParameters("squashed_policy"), Discrete(2))
