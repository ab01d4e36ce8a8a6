"""PPO against the algorithm written out in float64, in slices, over several workers, and in the gradient worker."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, Independent, Normal

from hive.algorithms import A2C, IMPALA, PPO, Algorithm, Evaluate, Moments, Step, merged
from hive.config import A2CConfig, IMPALAConfig, PPOConfig
from hive.envs import Box, Discrete, MultiDiscrete
from hive.gradients import ENV_STEPS, EPISODES, POLICY, SAMPLES, gradient_layout
from hive.networks import FlatParameters, aligned_block, distribution_for
from hive.storage import FINALS, LENGTH, VERSION, Purpose, Rollout, rollout_layout, stream
from hive.workers import GradientWorker

Arrays = dict[str, NDArray[Any]]

SIZE = 3  # of an observation
SPECS: dict[str, Any] = {
    "discrete": Discrete(4),
    "multi-discrete": MultiDiscrete((3, 2)),
    "box": Box((2,), (-1.0, -1.0), (1.0, 1.0)),
}
KINDS = tuple(SPECS)


class Plain(nn.Module):
    """Shared features, a policy and a value."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body, self.policy, self.value = nn.Linear(SIZE, 8), nn.Linear(8, width), nn.Linear(8, 1)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        features = torch.tanh(self.body(observations))
        return self.policy(features), self.value(features).squeeze(-1)


def network_for(kind: str, seed: int = 3) -> Plain:
    torch.manual_seed(seed)
    return Plain(distribution_for(SPECS[kind]).width)


def random_arrays(
    kind: str, seed: int, steps: int = 7, envs: int = 3, length: int | None = None, drift: float = 0.3, version: int = 0
) -> Arrays:
    """Episodes end both ways, some steps are not valid; what nobody may read is NaN.

    A policy acted whose log probabilities are off those of `network_for(kind)` by `drift`, in the mean.
    """
    spec, generator = SPECS[kind], np.random.default_rng(seed)
    length = steps if length is None else length
    layout = rollout_layout(steps, envs, ((SIZE,), "float32"), (spec.shape, spec.dtype), steps * envs)
    arrays: Arrays = layout.views(np.full(layout.bytes, 0xFF, np.uint8))  # NaN, -1, true
    shape = length, envs
    valid, ends = generator.random(shape) > 0.15, generator.integers(0, 5, shape)
    cut = np.argwhere(valid & (ends == 2))
    arrays["header"][[VERSION, LENGTH, FINALS]] = version, length, len(cut)
    arrays["valid"][:length] = valid
    arrays["terminated"][:length], arrays["truncated"][:length] = valid & (ends == 1), valid & (ends == 2)
    for number, (t, b) in enumerate(cut):
        arrays["final_index"][t, b] = number
    arrays["final_observations"][: len(cut)] = generator.normal(size=(len(cut), SIZE))
    arrays["observations"][: length + 1] = generator.normal(size=(length + 1, envs, SIZE))
    arrays["rewards"][:length] = np.where(valid, generator.normal(size=shape), np.nan)
    arrays["episode_lengths"][:length] = arrays["terminated"][:length]
    arrays["episode_returns"][:length] = generator.normal(size=shape)
    if kind == "box":
        arrays["actions"][:length] = generator.normal(size=(*shape, 2))
    else:
        choices = spec.nvec if kind == "multi-discrete" else spec.n
        arrays["actions"][:length] = generator.integers(choices, size=(*shape, *spec.shape))
    with torch.no_grad():
        policy = network_for(kind)(torch.from_numpy(arrays["observations"][:length]))[0]
        own = distribution_for(spec).log_prob(policy, torch.from_numpy(arrays["actions"][:length])).numpy()
    arrays["log_probs"][:length] = np.where(valid, own + generator.normal(0.0, 1.0, shape) * drift, np.nan)
    return arrays


def random_rollout(kind: str, seed: int, **options: Any) -> Rollout:
    return Rollout(random_arrays(kind, seed, **options))


# --- the algorithm, written out


def distributions(kind: str, policy: Tensor) -> list[Distribution]:
    """Independent ones, each of its part of the action."""
    if kind == "multi-discrete":
        return [Categorical(logits=policy[:, :3]), Categorical(logits=policy[:, 3:])]
    if kind == "box":
        return [Independent(Normal(policy[:, :2], policy[:, 2:].exp()), 1)]
    return [Categorical(logits=policy)]


@dataclass
class Exact:
    """The valid samples of a share in float64, in order of rollout, step, environment."""

    observations: Tensor
    actions: Tensor
    log_probs: Tensor
    advantages: Tensor
    targets: Tensor

    def loss(self, kind: str, config: PPOConfig, network: Plain, picked: Any) -> tuple[Tensor, list[float]]:
        """Of some of the samples, with its statistics."""
        policy, values = network(self.observations[picked])
        actions, advantages = self.actions[picked], self.advantages[picked]
        parts = distributions(kind, policy)
        choices = actions.unbind(1) if kind == "multi-discrete" else [actions]
        log_probs = sum(part.log_prob(choice) for part, choice in zip(parts, choices, strict=True))
        ratios = (log_probs - self.log_probs[picked]).exp()
        gained = torch.stack(
            [
                a * (torch.clamp(r, max=1 + config.clip_range) if a > 0 else torch.clamp(r, min=1 - config.clip_range))
                for r, a in zip(ratios, advantages, strict=True)
            ]
        )
        policy_loss, value_loss = -gained.mean(), ((self.targets[picked] - values) ** 2).mean()
        entropy = sum(part.entropy() for part in parts).mean()
        total = policy_loss + config.value_loss_weight * value_loss - config.entropy_weight * entropy
        kl = (ratios - 1 - ratios.log()).mean()
        clipped = np.mean([abs(ratio - 1) > config.clip_range for ratio in ratios.tolist()])
        return total, [policy_loss.item(), value_loss.item(), entropy.item(), kl.item(), float(clipped)]


def exact(config: PPOConfig, network: Plain, rollouts: Sequence[Rollout]) -> Exact:
    """With the values of this network. Advantages are normalised over everything there is, if they are to be."""
    columns: list[list[Any]] = [[], [], [], [], []]
    for r in rollouts:
        with torch.no_grad():
            values = network(torch.tensor(r.observations, dtype=torch.float64))[1].numpy()
            finals = network(torch.tensor(r.final_observations, dtype=torch.float64))[1].numpy()
        advantages = np.zeros(r.rewards.shape)
        for t in reversed(range(r.length)):
            for b in np.flatnonzero(r.valid[t]):
                following = finals[r.final_index[t, b]] if r.truncated[t, b] else values[t + 1, b]
                delta = r.rewards[t, b] + config.discount * following * (not r.terminated[t, b]) - values[t, b]
                ended = r.terminated[t, b] or r.truncated[t, b] or t + 1 == r.length or not r.valid[t + 1, b]
                carry = 0.0 if ended else advantages[t + 1, b]
                advantages[t, b] = delta + config.discount * config.gae_lambda * carry
        parts = r.observations[:-1], r.actions, r.log_probs, advantages, advantages + values[:-1]
        for column, part in zip(columns, parts, strict=True):
            column.append(part[r.valid.astype(bool)])
    joined = [np.concatenate(column) for column in columns]
    if config.normalize_advantages:
        joined[3] = (joined[3] - joined[3].mean()) / joined[3].std()
    observations, actions, log_probs, advantages, targets = (torch.from_numpy(part) for part in joined)
    return Exact(observations.double(), actions, log_probs.double(), advantages, targets)


# --- how it is driven


def drive(
    algorithm: Algorithm,
    network: nn.Module,
    rollouts: Sequence[Rollout],
    noise: np.random.Generator | None = None,
    answer: Callable[[Moments], tuple[float, float]] | None = None,
) -> list[Step]:
    """The steps; questions are answered by the network as it is now, and by `answer`."""
    steps, found = algorithm.steps(rollouts, noise), []
    item = next(steps, None)
    while item is not None:
        reply: Any = None
        if isinstance(item, Evaluate):
            with torch.no_grad():
                reply = network(item.inputs)
        elif isinstance(item, Moments):
            assert answer is not None
            assert not found  # it takes the place of the first gradient
            reply = answer(item)
        else:
            found.append(item)
        try:
            item = steps.send(reply)
        except StopIteration:
            item = None
    return found


def gradient_of(total: Tensor, network: nn.Module) -> NDArray[np.float64]:
    gradients = torch.autograd.grad(total, list(network.parameters()))
    return np.concatenate([gradient.numpy().astype(np.float64).ravel() for gradient in gradients])


def step_gradient(step: Step, network: nn.Module) -> NDArray[np.float64]:
    return gradient_of(step.loss(network(step.inputs)).total, network)


def distance(one: NDArray[Any], other: NDArray[Any]) -> float:
    """Relative to the size of the second."""
    return float(np.linalg.norm(one.astype(np.float64) - other) / np.linalg.norm(other))


def ppo(kind: str, config: PPOConfig, workers: int = 1) -> PPO:
    return PPO(config, distribution_for(SPECS[kind]), workers)


WHOLE = PPOConfig(epochs=1, minibatches=1)  # one gradient of everything

SHARES: dict[str, list[dict[str, int]]] = {
    "one": [{"seed": 1}],
    "one partial": [{"seed": 2, "length": 4}],
    "three, unequal": [{"seed": 3}, {"seed": 4, "length": 2}, {"seed": 5, "steps": 11, "envs": 2}],
}
CONFIGS = {
    "normalised": PPOConfig(discount=0.9, epochs=2, minibatches=3),
    "as they are": PPOConfig(
        discount=0.97,
        gae_lambda=0.8,
        value_loss_weight=0.7,
        entropy_weight=0.3,
        clip_range=0.4,
        epochs=2,
        minibatches=2,
        normalize_advantages=False,
    ),
}


# --- loss and gradient


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("settings", CONFIGS)
@pytest.mark.parametrize("kind", KINDS)
def test_losses_and_gradients_are_those_of_the_reference(kind: str, settings: str, share: str) -> None:
    """Of every slice of every epoch; each has clipped samples and others, and all together both kinds of ends."""
    config, network = CONFIGS[settings], network_for(kind)
    rollouts = [random_rollout(kind, **options) for options in SHARES[share]]
    assert all(r.terminated.any() and r.truncated.any() and not r.valid.all() for r in rollouts if r.length > 2)
    exact_network = copy.deepcopy(network).double()
    samples = exact(config, exact_network, rollouts)
    steps, order, shown = drive(ppo(kind, config), network, rollouts, np.random.default_rng(11)), [], []
    generator = np.random.default_rng(11)
    for _ in range(config.epochs):
        order += np.array_split(generator.permutation(len(samples.targets)), config.minibatches)
    assert len(steps) == len(order)
    for step, picked in zip(steps, order, strict=True):
        total, statistics = samples.loss(kind, config, exact_network, picked)
        loss = step.loss(network(step.inputs))
        assert step.samples == len(picked) == len(step.inputs)
        assert loss.total.item() == pytest.approx(total.item(), rel=1e-5, abs=1e-5)
        assert loss.statistics == pytest.approx(statistics, rel=1e-4, abs=1e-5)
        assert distance(gradient_of(loss.total, network), gradient_of(total, exact_network)) < 1e-5
        shown.append(statistics[-1])
    assert 0 < np.mean(shown) < 1


@pytest.mark.parametrize("kind", KINDS)
def test_where_nothing_is_clipped_it_is_a2c(kind: str) -> None:
    """The policy that acted is the one that learns: ratios are 1, and so is their gradient that of A2C."""
    network, rollout = network_for(kind), random_rollout(kind, 6, drift=0.0)
    config = replace(WHOLE, gae_lambda=0.9)
    (step,) = drive(ppo(kind, config), network, [rollout])
    a2c = A2C(A2CConfig(gae_lambda=0.9, normalize_advantages=True), distribution_for(SPECS[kind]))
    (expected,) = drive(a2c, network, [rollout])
    assert distance(step_gradient(step, network), step_gradient(expected, network)) < 1e-5
    *_, kl, clipped = step.loss(network(step.inputs)).statistics
    assert (kl, clipped) == (pytest.approx(0.0, abs=1e-6), 0.0)


class Reads(nn.Module):
    """The value of an observation is its first number; the policy is one and the same for all."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(4))

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        return self.logits.expand(len(observations), 4), observations[:, 0]


def column(rewards: list[float], observations: list[float], **masks: list[int]) -> Arrays:
    """One environment whose observation is its number; a truncated episode's last one is 100. Action 0, always."""
    steps = len(rewards)
    layout = rollout_layout(steps, 1, ((SIZE,), "float32"), ((), "int64"), 2)
    arrays: Arrays = layout.views(np.zeros(layout.bytes, np.uint8))
    arrays["header"][LENGTH] = steps
    arrays["observations"][:, 0, 0] = observations
    arrays["rewards"][:, 0], arrays["valid"][:], arrays["final_index"][:] = rewards, 1, -1
    arrays["log_probs"][:] = math.log(0.25)
    for name, mask in masks.items():
        arrays[name][:, 0] = mask
    for number, t in enumerate(np.flatnonzero(arrays["truncated"])):
        arrays["final_index"][t], arrays["final_observations"][number, 0] = number, 100.0
        arrays["header"][FINALS] = number + 1
    return arrays


def by_hand(arrays: Arrays, **settings: Any) -> tuple[tuple[float, ...], NDArray[np.float64]]:
    """Statistics and gradient of the one step of everything, with discount 0.5 and no normalisation."""
    network = Reads()
    config = replace(WHOLE, discount=0.5, gae_lambda=1.0, normalize_advantages=False, entropy_weight=0.0, **settings)
    (step,) = drive(ppo("discrete", config), network, [Rollout(arrays)])
    loss = step.loss(network(step.inputs))
    return loss.statistics, gradient_of(loss.total, network)


@pytest.mark.parametrize(
    ("ratio", "advantage", "gained", "clipped"),
    [
        (1.5, 2.0, 1.2 * 2, 1),
        (1.5, -2.0, 1.5 * -2, 1),
        (0.5, 2.0, 0.5 * 2, 1),
        (0.5, -2.0, 0.8 * -2, 1),
        (1.1, 2.0, 1.1 * 2, 0),
        (0.9, -2.0, 0.9 * -2, 0),
    ],
)
def test_the_clip_takes_away_what_would_be_gained_only(
    ratio: float, advantage: float, gained: float, clipped: int
) -> None:
    """Beyond the clip there is no gradient in the direction of the advantage; in the other there is."""
    arrays = column([advantage], [0.0, 0.0])
    arrays["log_probs"][:] = math.log(0.25 / ratio)
    statistics, gradient = by_hand(arrays)
    assert statistics[0] == pytest.approx(-gained, rel=1e-5)
    assert statistics[3:] == pytest.approx((ratio - 1 - math.log(ratio), clipped), rel=1e-4)
    moves = gained == pytest.approx(ratio * advantage)
    assert gradient[0] == pytest.approx(-0.75 * ratio * advantage if moves else 0.0, rel=1e-5)


def test_termination_and_truncation_by_hand() -> None:
    """After a terminated step comes nothing, after a truncated one its true last observation, worth 100."""
    rewards, observations = [1.0, 2.0, 4.0], [10.0, 20.0, 30.0, 40.0]
    statistics, _ = by_hand(column(rewards, observations))
    assert statistics[1] == pytest.approx(((8 - 10) ** 2 + (14 - 20) ** 2 + (24 - 30) ** 2) / 3)
    statistics, _ = by_hand(column(rewards, observations, terminated=[0, 1, 0]))
    assert statistics[1] == pytest.approx(((2 - 10) ** 2 + (2 - 20) ** 2 + (24 - 30) ** 2) / 3)
    statistics, _ = by_hand(column(rewards, observations, truncated=[0, 1, 0]))
    assert statistics[1] == pytest.approx(((27 - 10) ** 2 + (52 - 20) ** 2 + (24 - 30) ** 2) / 3)


def test_a_step_that_only_reset_counts_nowhere() -> None:
    """Its reward is not read; the mean is over two."""
    arrays = column([1.0, np.nan, 4.0], [10.0, 20.0, 30.0, 40.0], terminated=[1, 0, 0], valid=[1, 0, 1])
    statistics, gradient = by_hand(arrays)
    assert statistics[1] == pytest.approx(((1 - 10) ** 2 + (24 - 30) ** 2) / 2)
    assert np.isfinite(gradient).all()


def test_statistics_have_names() -> None:
    assert PPO.statistics == ("policy_loss", "value_loss", "entropy", "kl", "clipped")
    assert PPO.behaviour_log_probs
    statistics, _ = by_hand(column([1.0], [0.0, 0.0]))
    assert len(statistics) == len(PPO.statistics)
    assert statistics[2] == pytest.approx(math.log(4))


def test_a_broken_policy_shows() -> None:
    """NaN in the outputs is not clipped away: the learner finds it in the gradient."""
    network, rollout = network_for("discrete"), random_rollout("discrete", 1)
    (step,) = drive(ppo("discrete", WHOLE), network, [rollout])
    nn.init.constant_(network.policy.bias, math.nan)
    assert np.isnan(step_gradient(step, network)).any()


def test_a_rollout_is_only_read() -> None:
    arrays, network = random_arrays("discrete", 5), network_for("discrete")
    before = {name: array.copy() for name, array in arrays.items()}
    for step in drive(ppo("discrete", PPOConfig()), network, [Rollout(arrays)]):
        step_gradient(step, network)
    assert all(np.array_equal(arrays[name].view(np.uint8), before[name].view(np.uint8)) for name in arrays)


# --- epochs and slices


def valid_rows(rollouts: Sequence[Rollout]) -> NDArray[np.float32]:
    return np.concatenate([r.observations[:-1][r.valid.astype(bool)] for r in rollouts])


def sorted_rows(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """In an order that does not depend on where they came from."""
    return rows[np.lexsort(rows.T)]


@pytest.mark.parametrize(("epochs", "minibatches"), [(1, 1), (3, 1), (2, 4), (4, 7)])
def test_an_epoch_is_every_valid_sample_once(epochs: int, minibatches: int) -> None:
    rollouts = [random_rollout("box", **options) for options in SHARES["three, unequal"]]
    algorithm = ppo("box", PPOConfig(epochs=epochs, minibatches=minibatches))
    steps = drive(algorithm, network_for("box"), rollouts, np.random.default_rng(1))
    assert len(steps) == algorithm.gradients_per_round == epochs * minibatches
    expected = valid_rows(rollouts)
    for epoch in range(epochs):
        slices = steps[epoch * minibatches : (epoch + 1) * minibatches]
        sizes = [step.samples for step in slices]
        assert sizes == [len(step.inputs) for step in slices]
        assert max(sizes) - min(sizes) <= 1
        rows = np.concatenate([step.inputs.numpy() for step in slices])
        np.testing.assert_array_equal(sorted_rows(rows), sorted_rows(expected))


def orders(noise: np.random.Generator | None) -> list[bytes]:
    """What each of two epochs goes through."""
    steps = drive(ppo("discrete", PPOConfig(epochs=2, minibatches=2)), network_for("discrete"), [ROLLOUT], noise)
    rows = [step.inputs.numpy().tobytes() for step in steps]
    return [rows[0] + rows[1], rows[2] + rows[3]]


ROLLOUT = random_rollout("discrete", 1)


def test_the_order_is_that_of_the_stream() -> None:
    """Every epoch has another one; the same stream has the same."""
    key = 7, Purpose.minibatches, 1, 4
    first = orders(stream(*key))
    assert orders(stream(*key)) == first
    assert first[0] != first[1]
    others = [orders(stream(7, Purpose.minibatches, *place)) for place in ((0, 4), (1, 5))]
    assert len({order for pair in (first, *others) for order in pair}) == 6


def test_without_a_stream_the_order_is_always_the_same() -> None:
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    first = orders(None)
    torch.manual_seed(2)
    np.random.seed(2)  # noqa: NPY002
    assert orders(None) == first


def test_more_slices_than_samples() -> None:
    """Those that are left over are steps of no samples: every worker has the same number of slices."""
    algorithm = ppo("discrete", PPOConfig(epochs=2, minibatches=5))
    share = [Rollout(column([1.0, 2.0, 4.0], [10.0, 20.0, 30.0, 40.0]))]
    steps = drive(algorithm, Reads(), share)
    assert [step.samples for step in steps] == [1, 1, 1, 0, 0] * 2
    assert [len(step.inputs) for step in steps] == [1, 1, 1, 0, 0] * 2


def test_a_share_without_a_valid_step_has_steps_of_no_samples() -> None:
    reset_only = random_rollout("discrete", 1)
    reset_only.valid[:] = 0
    algorithm = ppo("discrete", PPOConfig(epochs=1, minibatches=2))
    assert [step.samples for step in drive(algorithm, network_for("discrete"), [reset_only])] == [0, 0]


def test_advantages_are_those_of_the_weights_that_the_round_began_with() -> None:
    """Updates in between change the policy and the values that the loss sees, not its targets."""
    config, rollout = PPOConfig(epochs=2, minibatches=1), random_rollout("discrete", 3)
    began, went_on = network_for("discrete"), network_for("discrete", 4)
    *_, later = drive(ppo("discrete", config), began, [rollout])
    samples = exact(config, copy.deepcopy(began).double(), [rollout])
    moved = copy.deepcopy(went_on).double()
    total, _ = samples.loss("discrete", config, moved, np.arange(later.samples))
    assert distance(step_gradient(later, went_on), gradient_of(total, moved)) < 1e-5
    own = exact(config, moved, [rollout]).loss("discrete", config, moved, np.arange(later.samples))[0]
    assert distance(step_gradient(later, went_on), gradient_of(own, moved)) > 1e-2


@pytest.mark.parametrize(
    ("workers", "normalize", "expected"), [(1, True, 12), (1, False, 12), (2, True, 13), (2, False, 12), (5, True, 13)]
)
def test_gradients_per_round(workers: int, normalize: bool, expected: int) -> None:
    """One more where workers tell each other what they have."""
    config = PPOConfig(epochs=3, minibatches=4, normalize_advantages=normalize)
    algorithm = ppo("discrete", config, workers)
    assert algorithm.gradients_per_round == expected
    assert algorithm.asks_for_moments == (expected == 13)
    asked: list[Moments] = []
    steps = drive(
        algorithm, network_for("discrete"), [ROLLOUT], answer=lambda mine: (asked.append(mine), merged(asked))[1]
    )
    assert len(steps) + len(asked) == expected


# --- several workers


MAKERS: dict[str, Callable[[int], Algorithm]] = {
    "ppo": lambda workers: ppo("discrete", WHOLE, workers),
    "ppo as they are": lambda workers: ppo("discrete", replace(WHOLE, normalize_advantages=False), workers),
    "a2c": lambda workers: A2C(A2CConfig(), distribution_for(SPECS["discrete"]), workers),
    "a2c normalised": lambda workers: A2C(
        A2CConfig(normalize_advantages=True, gae_lambda=0.9), distribution_for(SPECS["discrete"]), workers
    ),
    "impala": lambda workers: IMPALA(IMPALAConfig(), distribution_for(SPECS["discrete"])),
}


def shares_of(workers: int) -> list[list[Rollout]]:
    """Unequal ones: worker w has w + 1 rollouts of different sizes."""
    return [
        [random_rollout("discrete", 30 + 5 * w + n, steps=4 + 3 * w + n, envs=1 + n + w) for n in range(w + 1)]
        for w in range(workers)
    ]


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("name", MAKERS)
def test_several_workers_are_one(name: str, workers: int) -> None:
    """The mean of their gradients by samples is that of one worker with all rollouts."""
    network, shares, algorithm = network_for("discrete"), shares_of(workers), MAKERS[name](workers)
    asked: list[Moments] = []

    def ask(mine: Moments) -> tuple[float, float]:
        asked.append(mine)
        return merged(asked)

    for share in shares:  # first everybody is asked
        drive(algorithm, network, share, answer=ask)
    assert len(asked) == (workers if algorithm.asks_for_moments else 0)
    together = merged(asked)
    parts = [step for share in shares for step in drive(algorithm, network, share, answer=lambda mine: together)]
    everything = [rollout for share in shares for rollout in share]
    (whole,) = drive(MAKERS[name](1), network, everything)
    assert len({part.samples for part in parts}) == len(parts) == workers
    assert sum(part.samples for part in parts) == whole.samples
    mean = sum(step_gradient(part, network) * (part.samples / whole.samples) for part in parts)
    assert distance(np.asarray(mean), step_gradient(whole, network)) < 1e-6


@pytest.mark.parametrize("name", ["ppo", "a2c normalised"])
def test_what_the_others_have_makes_a_difference(name: str) -> None:
    """So that the above says something: normalised by their own moments, two workers are not one."""
    network, shares, algorithm = network_for("discrete"), shares_of(2), MAKERS[name](2)
    parts = [drive(algorithm, network, share, answer=lambda mine: merged([mine]))[0] for share in shares]
    (whole,) = drive(MAKERS[name](1), network, [*shares[0], *shares[1]])
    mean = sum(step_gradient(part, network) * (part.samples / whole.samples) for part in parts)
    assert distance(np.asarray(mean), step_gradient(whole, network)) > 1e-2


@pytest.mark.parametrize("name", ["ppo", "a2c normalised"])
def test_moments_are_asked_for_first_and_their_answer_is_used(name: str) -> None:
    network, share = network_for("discrete"), shares_of(1)[0]
    asked: list[Moments] = []
    (told,) = drive(MAKERS[name](2), network, share, answer=lambda mine: (asked.append(mine), (0.0, 1.0))[1])
    config = {"ppo": WHOLE, "a2c normalised": A2CConfig(gae_lambda=0.9)}[name]
    makes = {"ppo": PPO, "a2c normalised": A2C}[name]
    plain = makes(replace(config, normalize_advantages=False), distribution_for(SPECS["discrete"]))
    (expected,) = drive(plain, network, share)
    assert distance(step_gradient(told, network), step_gradient(expected, network)) < 1e-6
    plainly = PPOConfig(gae_lambda=config.gae_lambda, normalize_advantages=False)
    advantages = exact(plainly, copy.deepcopy(network).double(), share).advantages.numpy()
    (mine,) = asked
    assert mine.count == told.samples == len(advantages)
    assert (mine.total, mine.squares) == pytest.approx((advantages.sum(), (advantages**2).sum()), rel=1e-5)


# --- in the gradient worker


def slot_of(worker: GradientWorker) -> Arrays:
    """What was in it before is still in it."""
    layout = gradient_layout(worker.flat.parameter_elements, len(worker.flat.parameters), 5, 200)
    block = aligned_block(layout.bytes)
    block[:] = 0xA5
    return layout.views(block)


def worker_for(config: PPOConfig, workers: int = 1, source: int = 0, seed: int = 3) -> GradientWorker:
    return GradientWorker(network_for("discrete", seed), ppo("discrete", config, workers), seed=5, source=source)


def computed(worker: GradientWorker, share: Sequence[Arrays], sequence: int, **options: Any) -> Arrays:
    out = slot_of(worker)
    worker.compute(share, out, sequence=sequence, version=40 + sequence, **options)
    return out


SHARE = [random_arrays("discrete", 1, version=9), random_arrays("discrete", 2, envs=2, version=8)]
SHARE_SAMPLES = sum(Rollout(arrays).samples for arrays in SHARE)


def test_a_round_in_the_gradient_worker() -> None:
    """Its gradients are those of the steps, in the order of its own stream."""
    config = PPOConfig(epochs=2, minibatches=3)
    worker = worker_for(config, source=2)
    network, noise = network_for("discrete"), stream(5, Purpose.minibatches, 2, 4)
    steps = drive(ppo("discrete", config), network, [Rollout(arrays) for arrays in SHARE], noise)
    for position, step in enumerate(steps):
        out = computed(worker, SHARE, 24 + position)
        loss = step.loss(network(step.inputs))
        expected = torch.autograd.grad(loss.total, list(network.parameters()))
        for array, tensor in zip(worker.flat.gradient_arrays(out["gradient"]), expected, strict=True):
            np.testing.assert_allclose(array, tensor.numpy(), rtol=1e-5, atol=1e-7)
        assert out["statistics"].tolist() == pytest.approx(loss.statistics, rel=1e-5, abs=1e-7)
        assert out["header"][SAMPLES] == step.samples
        assert out["mask"].all()


def test_what_a_round_counts_stands_on_its_first_gradient_only() -> None:
    worker = worker_for(PPOConfig(epochs=2, minibatches=2))
    outs = [computed(worker, SHARE, sequence) for sequence in range(8)]
    headers = np.array([out["header"] for out in outs])
    episodes = sum(len(Rollout(arrays).episodes()[0]) for arrays in SHARE)
    assert headers[:, VERSION].tolist() == list(range(40, 48))
    assert headers[:, ENV_STEPS].tolist() == [SHARE_SAMPLES, 0, 0, 0] * 2
    assert headers[:, POLICY].tolist() == [8, -1, -1, -1] * 2  # the oldest that acted
    assert headers[:, EPISODES].tolist() == [episodes, 0, 0, 0] * 2
    assert (headers[0::2, SAMPLES] + headers[1::2, SAMPLES]).tolist() == [SHARE_SAMPLES] * 4
    assert not any(out["moments"].any() for out in outs)


def test_with_several_workers_the_first_gradient_is_their_moments() -> None:
    config = PPOConfig(epochs=2, minibatches=2)
    worker = worker_for(config, workers=2)
    first, second = (computed(worker, SHARE, n, moments=(0.25, 2.0) if n else None) for n in (0, 1))
    asked: list[Moments] = []
    steps = drive(
        ppo("discrete", config, 2),
        worker.network,
        [Rollout(arrays) for arrays in SHARE],
        stream(5, Purpose.minibatches, 0, 0),
        lambda mine: (asked.append(mine), (0.25, 2.0))[1],
    )
    assert first["moments"].tolist() == pytest.approx([asked[0].count, asked[0].total, asked[0].squares])
    assert first["moments"][0] == SHARE_SAMPLES
    assert first["header"][[SAMPLES, ENV_STEPS, POLICY]].tolist() == [0, SHARE_SAMPLES, 8]
    assert not first["mask"].any()
    assert second["header"][[SAMPLES, ENV_STEPS, POLICY]].tolist() == [steps[0].samples, 0, -1]
    assert not second["moments"].any()
    loss = steps[0].loss(worker.network(steps[0].inputs))
    assert second["statistics"].tolist() == pytest.approx(loss.statistics, rel=1e-5, abs=1e-6)
    rest = [computed(worker, SHARE, n)["header"][SAMPLES] for n in (2, 3, 4)]
    assert rest == [step.samples for step in steps[1:]]


@pytest.mark.parametrize("begins", [1, 3, 4])
def test_a_successor_in_the_middle_of_a_round_makes_gradients_of_no_samples(begins: int) -> None:
    """What the dead one began is lost; the next round is the same as if nothing had happened."""
    config = PPOConfig(epochs=2, minibatches=2)
    successor, undisturbed = worker_for(config, workers=2), worker_for(config, workers=2)
    moments = {1: (0.0, 1.0), 6: (0.5, 2.0)}
    for sequence in range(begins, 5):
        out = computed(successor, [], sequence, moments=moments.get(sequence))
        assert out["header"].tolist() == [40 + sequence, 0, 0, 0, 0, -1, sequence, 0]
        assert not out["moments"].any()
        assert not out["mask"].any()
    for sequence in range(5, 10):
        one, other = (
            computed(worker, SHARE, sequence, moments=moments.get(sequence)) for worker in (successor, undisturbed)
        )
        assert one["header"].tolist() == other["header"].tolist()
        assert one["header"][SAMPLES] > 0 or sequence == 5
        if sequence > 5:
            assert np.array_equal(one["gradient"], other["gradient"])


def test_a_share_without_samples_is_a_round_of_gradients_of_no_samples() -> None:
    worker = worker_for(PPOConfig(epochs=1, minibatches=2), workers=2)
    for share in ([], [random_arrays("discrete", 1, length=0)]):
        outs = [computed(worker, share, n, moments=(0.0, 1.0) if n == 1 else None) for n in range(3)]
        assert [out["header"][[SAMPLES, ENV_STEPS]].tolist() for out in outs] == [[0, 0]] * 3
        assert not any(out["moments"].any() for out in outs)
    assert computed(worker, SHARE, 3)["moments"][0] == SHARE_SAMPLES


def test_more_slices_than_samples_in_the_gradient_worker() -> None:
    worker = worker_for(PPOConfig(epochs=1, minibatches=5))
    share = [column([1.0, 2.0, 4.0], [10.0, 20.0, 30.0, 40.0])]
    outs = [computed(worker, share, sequence) for sequence in range(5)]
    assert [int(out["header"][SAMPLES]) for out in outs] == [1, 1, 1, 0, 0]
    assert all(np.isfinite(out["gradient"]).all() for out in outs[:3])


def test_each_gradient_is_made_with_the_weights_that_are_bound() -> None:
    """The first weights are asked for values, the others only for gradients."""
    config = PPOConfig(epochs=2, minibatches=1)
    worker, other = worker_for(config), network_for("discrete", 4)
    *_, later = drive(
        ppo("discrete", config),
        network_for("discrete"),
        [Rollout(arrays) for arrays in SHARE],
        stream(5, Purpose.minibatches, 0, 0),
    )
    computed(worker, SHARE, 0)
    block = aligned_block(worker.flat.block_bytes)
    FlatParameters(other).initialize_into(block)
    worker.bind(block)
    out = computed(worker, SHARE, 1)
    expected = torch.autograd.grad(later.loss(other(later.inputs)).total, list(other.parameters()))
    for array, tensor in zip(worker.flat.gradient_arrays(out["gradient"]), expected, strict=True):
        np.testing.assert_allclose(array, tensor.numpy(), rtol=1e-4, atol=1e-6)
