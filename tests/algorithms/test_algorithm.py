"""The interface of algorithms: a custom one, written from the docstring, works in a gradient worker and in a script."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from small_algorithms import (
    SPECS,
    Apart,
    Gradient,
    bind,
    computed,
    gradient_in,
    gradients_of,
    network_for,
    random_arrays,
    random_rollout,
    slot_of,
    values_for,
    worker_for,
)
from torch import nn
from torch.optim import SGD

from hive.algorithms import A2C, IMPALA, PPO, PQN, Algorithm, Gradients, Moments, NStepQ
from hive.algorithms.making import make_algorithm
from hive.compat.autonomous import FixedTarget, OptimizerReceiver
from hive.config import A2CConfig, AlgorithmConfig, IMPALAConfig, NStepQConfig, PPOConfig, PQNConfig
from hive.errors import NetworkError
from hive.experience import Purpose, Rollout, stream
from hive.gradients import ENV_STEPS, SAMPLES
from hive.learning import Approximation, TargetNetwork, jointly
from hive.networks import ActionDistribution, Categorical, distribution_for

SHARE = [random_arrays("discrete", 1), random_arrays("discrete", 2, steps=5, envs=2)]
SAMPLES_OF = [Rollout(arrays).samples for arrays in SHARE]


class Reinforce:
    """REINFORCE (Williams 1992) on single steps: a gradient of each rollout."""

    statistics: tuple[str, ...] = ("loss", "rows")
    asks_for_moments = False
    behaviour_log_probs = False

    def __init__(self, gradients: int = 1) -> None:
        self.distribution: ActionDistribution = Categorical(4)
        self.gradients_per_round = gradients

    def connect(self, network: nn.Module, optimizer: Any = None, target: TargetNetwork | None = None) -> None:
        self.policy = Approximation(network, optimizer, target=target)

    def gradients(self, rollouts: Sequence[Rollout], noise: np.random.Generator | None = None) -> Gradients:
        for rollout in rollouts:
            yield self.learn(rollout)

    def learn(self, rollout: Rollout, **changed: Any) -> None:
        loss = self.loss(rollout)
        self.policy.reinforce(loss, **{"samples": rollout.samples, "statistics": (loss.item(), 2.0), **changed})

    def loss(self, rollout: Rollout) -> torch.Tensor:
        valid = rollout.valid.astype(bool)
        (logits,) = self.policy(torch.from_numpy(rollout.observations[:-1][valid]))
        log_prob = self.distribution.log_prob(logits, torch.from_numpy(rollout.actions[valid]))
        return -(log_prob * torch.from_numpy(rollout.rewards[valid])).mean()


class As(Reinforce):
    """REINFORCE whose gradients are those of a function of it."""

    def __init__(self, schedule: Callable[..., Gradients], gradients: int = 2) -> None:
        super().__init__(gradients)
        self.schedule = schedule

    def gradients(self, rollouts: Sequence[Rollout], noise: np.random.Generator | None = None) -> Gradients:
        return self.schedule(self, rollouts, noise)


def expected_of(network: nn.Module, arrays: Any) -> tuple[Any, float]:
    """The gradient of REINFORCE, written out, and its loss."""
    rollout = Rollout(arrays)
    valid = rollout.valid.astype(bool)
    exact = copy.deepcopy(network).double()
    logits = exact(torch.from_numpy(rollout.observations[:-1][valid]).double())[0].log_softmax(-1)
    chosen = logits[range(len(logits)), rollout.actions[valid]]
    loss = -(chosen * torch.from_numpy(rollout.rewards[valid])).mean()
    gradients = torch.autograd.grad(loss, list(exact.parameters()))
    return np.concatenate([gradient.numpy().ravel() for gradient in gradients]), loss.item()


# --- in a gradient worker


def test_a_custom_algorithm_makes_gradients() -> None:
    algorithm: Algorithm = Reinforce()
    network = values_for(3)
    worker = worker_for(algorithm, network)
    out = computed(worker, SHARE[:1])
    gradient, loss = expected_of(network, SHARE[0])
    np.testing.assert_allclose(gradient_in(worker, out), gradient, rtol=1e-4, atol=1e-6)
    assert out["statistics"].tolist() == pytest.approx([loss, 2.0])
    assert out["header"][SAMPLES] == SAMPLES_OF[0]


def test_gradients_of_a_round_are_made_one_after_the_other() -> None:
    """Each gradient uses the weights bound when it is computed; the first carries the counts of the whole round."""
    first, second = values_for(3), values_for(4)
    worker = worker_for(Reinforce(gradients=2), first)
    outs = [computed(worker, SHARE, 0)]
    bind(worker, second)
    outs.append(computed(worker, SHARE, 1))
    for network, arrays, out in zip((first, second), SHARE, outs, strict=True):
        np.testing.assert_allclose(gradient_in(worker, out), expected_of(network, arrays)[0], rtol=1e-4, atol=1e-6)
    counts = [out["header"][[SAMPLES, ENV_STEPS]].tolist() for out in outs]
    assert counts == [[SAMPLES_OF[0], sum(SAMPLES_OF)], [SAMPLES_OF[1], 0]]


def test_a_round_that_another_worker_began_is_not_continued() -> None:
    """The rest of an exited worker's round are gradients of zero samples; the next round is whole."""
    worker = worker_for(Reinforce(gradients=2), values_for(3))
    samples = [int(computed(worker, SHARE, sequence)["header"][SAMPLES]) for sequence in (0, 3, 4, 5)]
    assert samples == [SAMPLES_OF[0], 0, *SAMPLES_OF]


def test_moments_are_answered_and_the_rest_are_plain_calls() -> None:
    answers: list[Any] = []

    def schedule(own: As, rollouts: Sequence[Rollout], noise: np.random.Generator) -> Gradients:
        inputs = torch.from_numpy(rollouts[0].observations.reshape(-1, 3))
        answers.extend([noise.random(), own.policy.no_grad(inputs)[0], own.policy.target(inputs)[0]])
        answers.append((yield Moments(8, 4.0, 3.0)))
        yield own.learn(rollouts[0])

    online, target = values_for(3), values_for(4)
    worker = worker_for(As(schedule), online, has_target=True, source=2)
    bind(worker, online, target)
    asking, made = computed(worker, SHARE[:1], 6), slot_of(worker)
    assert asking["header"][[SAMPLES, ENV_STEPS]].tolist() == [0, SAMPLES_OF[0]]
    assert asking["moments"].tolist() == [8.0, 4.0, 3.0]
    worker.compute(SHARE[:1], made, sequence=7, version=0, moments=(0.5, 2.0))
    drawn, outputs, follows, moments = answers
    assert drawn == stream(5, Purpose.minibatches, 2, 3).random()
    inputs = torch.from_numpy(SHARE[0]["observations"].reshape(-1, 3))
    assert torch.equal(outputs, online(inputs)[0])
    assert torch.equal(follows, target(inputs)[0])
    assert not any(computed_now.requires_grad for computed_now in (outputs, follows))
    assert moments == (0.5, 2.0)
    assert made["header"][SAMPLES] == SAMPLES_OF[0]
    assert not made["moments"].any()


def test_a_bare_yield_is_a_gradient_of_zero_samples() -> None:
    def schedule(own: As, rollouts: Sequence[Rollout], noise: np.random.Generator) -> Gradients:
        yield
        yield own.learn(rollouts[0])

    worker = worker_for(As(schedule), values_for(3))
    nothing, made = (computed(worker, SHARE[:1], sequence) for sequence in (0, 1))
    assert nothing["header"][[SAMPLES, ENV_STEPS]].tolist() == [0, SAMPLES_OF[0]]
    assert not nothing["mask"].any()
    assert not nothing["statistics"].any()
    assert made["header"][SAMPLES] == SAMPLES_OF[0]


def test_a_loss_of_zero_samples_is_not_computed() -> None:
    def schedule(own: As, rollouts: Sequence[Rollout], noise: np.random.Generator) -> Gradients:
        yield own.policy.reinforce(torch.tensor(float("nan")), samples=0)

    out = computed(worker_for(As(schedule, 1), values_for(3)), SHARE[:1])
    assert out["header"][SAMPLES] == 0
    assert not out["mask"].any()


def two_in_one(own: As, rollouts: Sequence[Rollout], noise: np.random.Generator) -> Gradients:
    own.learn(rollouts[0])
    yield own.learn(rollouts[1])


def without_samples(own: As, rollouts: Sequence[Rollout], noise: np.random.Generator) -> Gradients:
    yield own.learn(rollouts[0], samples=None)


def unnamed_statistics(own: As, rollouts: Sequence[Rollout], noise: np.random.Generator) -> Gradients:
    yield own.learn(rollouts[0], statistics=(1.0, 2.0, 3.0))


@pytest.mark.parametrize(
    ("schedule", "cause"),
    [
        (two_in_one, "a second gradient was made before a yield"),
        (without_samples, "the number of samples is missing"),
        (unnamed_statistics, "reports 3 statistics, the algorithm names 2"),
    ],
)
def test_an_invalid_gradient_is_refused(schedule: Any, cause: str) -> None:
    worker = worker_for(As(schedule), values_for(3))
    with pytest.raises(NetworkError, match=cause) as caught:
        computed(worker, SHARE)
    assert caught.value.hint


def test_a_gradient_outside_of_a_round_is_refused() -> None:
    algorithm = Reinforce()
    worker_for(algorithm, values_for(3))
    with pytest.raises(NetworkError, match="no gradient slot is open"):
        algorithm.learn(Rollout(SHARE[0]))


def test_a_loss_of_earlier_weights_is_refused() -> None:
    """Its graph holds views of the weights, which are others after a yield."""

    def schedule(own: As, rollouts: Sequence[Rollout], noise: np.random.Generator) -> Gradients:
        kept = own.loss(rollouts[1])
        yield own.learn(rollouts[0])
        yield own.policy.reinforce(kept, samples=rollouts[1].samples)

    worker = worker_for(As(schedule), values_for(3))
    computed(worker, SHARE, 0)
    bind(worker, values_for(4))
    with pytest.raises(NetworkError, match="outputs of earlier weights") as caught:
        computed(worker, SHARE, 1)
    assert "after each yield" in caught.value.hint


class Separate(Reinforce):
    """A policy and a critic that share no layer, learned by one gradient; each loss contains outputs of both."""

    def connect(self, network: Any, optimizer: Any = None, target: TargetNetwork | None = None) -> None:
        self.actor = Approximation(network.actor, optimizer, name="actor")
        self.critic = Approximation(network.critic, optimizer, name="critic")

    def gradients(self, rollouts: Sequence[Rollout], noise: np.random.Generator | None = None) -> Gradients:
        inputs = torch.from_numpy(rollouts[0].observations.reshape(-1, 3))
        actions, values = self.actor(inputs), self.critic(inputs).squeeze(-1)
        critic_loss = (actions.sum(1) - values).square().mean()
        actor_loss = -(actions[:, 0] * values).mean()
        statistics = critic_loss.item(), actor_loss.item()
        yield jointly((self.critic, critic_loss), (self.actor, actor_loss), samples=7, statistics=statistics)


def separate_gradients(network: Apart, inputs: torch.Tensor) -> list[Any]:
    """Return the gradient of each parameter, from the loss of its own part alone."""
    actions, values = network.actor(inputs), network.critic(inputs).squeeze(-1)
    critic_loss, actor_loss = (actions.sum(1) - values).square().mean(), -(actions[:, 0] * values).mean()
    actor = torch.autograd.grad(actor_loss, list(network.actor.parameters()), retain_graph=True)
    return [*actor, *torch.autograd.grad(critic_loss, list(network.critic.parameters()))]


def test_several_networks_fill_one_slot_and_each_loss_reaches_its_own() -> None:
    torch.manual_seed(3)
    network = Apart()
    worker = worker_for(Separate(), network)
    out = computed(worker, SHARE[:1])
    expected = separate_gradients(network, torch.from_numpy(SHARE[0]["observations"].reshape(-1, 3)))
    rows = np.concatenate([gradient.numpy().ravel() for gradient in expected])
    np.testing.assert_allclose(gradient_in(worker, out), rows, rtol=1e-4, atol=1e-6)
    assert out["header"][SAMPLES] == 7
    assert out["mask"].all()
    assert (out["statistics"] != 0).all()


def test_a_joint_gradient_of_zero_samples_is_not_computed() -> None:
    def nothing(own: Any, rollouts: Sequence[Rollout], noise: np.random.Generator | None = None) -> Gradients:
        bad = torch.tensor(float("nan"))
        yield jointly((own.critic, bad), (own.actor, bad), samples=0)

    algorithm, network = Separate(), Apart()
    algorithm.gradients = nothing.__get__(algorithm)  # type: ignore[method-assign]
    out = computed(worker_for(algorithm, network), SHARE[:1])
    assert (out["header"][SAMPLES], out["mask"].any()) == (0, False)
    algorithm.connect(network)
    assert len(list(algorithm.gradients([]))) == 1  # a bare yield needs no optimizer


def test_several_networks_take_their_steps_together_in_a_script() -> None:
    torch.manual_seed(3)
    network, algorithm = Apart(), Separate()
    before = copy.deepcopy(network)
    expected = separate_gradients(before, torch.from_numpy(SHARE[0]["observations"].reshape(-1, 3)))
    algorithm.connect(network, OptimizerReceiver(SGD(network.parameters(), lr=0.5)))
    assert len(list(algorithm.gradients([Rollout(SHARE[0])]))) == 1
    for parameter, old, gradient in zip(network.parameters(), before.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter, old - 0.5 * gradient)


# --- the same algorithm in a plain script


RATE = 0.05
MAKERS: dict[str, Callable[[], Algorithm]] = {
    "reinforce": lambda: Reinforce(gradients=2),
    "a2c": lambda: A2C(A2CConfig(normalize_advantages=True), distribution_for(SPECS["discrete"])),
    "ppo": lambda: PPO(PPOConfig(epochs=2, minibatches=3), distribution_for(SPECS["discrete"])),
    "impala": lambda: IMPALA(IMPALAConfig(), distribution_for(SPECS["discrete"])),
    "nstep-q": lambda: NStepQ(NStepQConfig(), distribution_for(SPECS["discrete"])),
    "pqn": lambda: PQN(PQNConfig(epochs=2, minibatches=3), distribution_for(SPECS["discrete"])),
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_plain_script_makes_the_updates_of_a_run(name: str) -> None:
    """Two rounds by torch's SGD, and of a gradient worker whose gradients are applied with the same SGD; byte by byte.

    The target network is made equal after every update.
    """
    alone, in_a_run = MAKERS[name](), MAKERS[name]()
    follows = name in ("reinforce", "nstep-q", "pqn")  # those that have a target network
    network: nn.Module = values_for(3) if follows else network_for("discrete")
    weights, optimizer = copy.deepcopy(network), SGD(network.parameters(), lr=RATE)
    target = FixedTarget(1) if follows else None
    alone.connect(network, OptimizerReceiver(optimizer, target), target)
    worker, updates = worker_for(in_a_run, weights, has_target=True), alone.gradients_per_round
    before = copy.deepcopy(weights)
    for number in range(2):
        share = [Rollout(arrays) for arrays in SHARE]
        noise = stream(5, Purpose.minibatches, 0, number)
        for sequence, _ in enumerate(alone.gradients(share, noise), number * updates):
            bind(worker, weights, weights)
            out = computed(worker, SHARE, sequence)
            with torch.no_grad():
                arrays = worker.flat.gradient_arrays(out["gradient"])
                for parameter, array in zip(weights.parameters(), arrays, strict=True):
                    parameter.add_(torch.from_numpy(array), alpha=-RATE)
            for one, other in zip(network.parameters(), weights.parameters(), strict=True):
                assert torch.equal(one, other)
    assert not torch.equal(next(network.parameters()), next(before.parameters()))


def test_in_a_script_samples_are_not_needed_and_each_reinforce_is_an_update() -> None:
    network = values_for(3)
    receiver = OptimizerReceiver(SGD(network.parameters(), lr=RATE))
    for algorithm, updates in ((As(without_samples), 1), (As(two_in_one), 3)):
        algorithm.connect(network, receiver)
        list(algorithm.gradients([Rollout(arrays) for arrays in SHARE]))
        assert receiver.updates == updates


# --- the built-in ones


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (A2CConfig(), A2C),
        (PPOConfig(epochs=1, minibatches=1), PPO),
        (IMPALAConfig(), IMPALA),
        (NStepQConfig(), NStepQ),
        (PQNConfig(epochs=1, minibatches=1), PQN),
    ],
)
def test_the_built_in_ones_are_such(config: AlgorithmConfig, kind: type) -> None:
    algorithm = make_algorithm(config, Categorical(4), 1)
    assert type(algorithm) is kind
    assert algorithm.distribution.width == 4
    assert (algorithm.gradients_per_round, algorithm.asks_for_moments) == (1, False)
    network: nn.Module = values_for(3) if isinstance(algorithm, NStepQ | PQN) else network_for("discrete")
    rollout = random_rollout("discrete", 1)
    (gradient,) = gradients_of(algorithm, network, [rollout])
    assert isinstance(gradient, Gradient)
    assert len(gradient.statistics) == len(algorithm.statistics)
    assert gradient.samples == rollout.samples


def test_an_algorithm_knows_how_many_workers_there_are() -> None:
    by_round = PPOConfig(normalize_over="round")
    configs = A2CConfig(normalize_advantages=True), by_round, PPOConfig(), IMPALAConfig(), NStepQConfig(), PQNConfig()
    alone, together = ([make_algorithm(config, Categorical(2), workers) for config in configs] for workers in (1, 2))
    assert not any(a.asks_for_moments for a in alone)
    assert [a.asks_for_moments for a in together] == [True, True, False, False, False, False]
    more = [b.gradients_per_round - a.gradients_per_round for a, b in zip(alone, together, strict=True)]
    assert more == [1, 1, 0, 0, 0, 0]


def test_a_table_without_an_algorithm() -> None:
    with pytest.raises(TypeError, match="no algorithm for AlgorithmConfig"):
        make_algorithm(AlgorithmConfig(), Categorical(2), 1)
