"""A normalised update from a replay memory is that of plain torch in float64: its statistics, batch and step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from replay_loop import ReplayLoop, Values
from small_trainer import Arrays
from torch import Tensor
from torch.nn import functional

from hive import _native
from hive.config import load_config
from hive.experience import Purpose, stream_seed
from hive.gradients import SAMPLES
from hive.networks.rows.normalization import LIMIT
from hive.training import Blueprint
from hive.training.update.replay_memory import DrawnRows

TURNS = 3
NORMALISED = ["network.normalize_observations=true", "network.normalize_rewards=true"]
SIZES = ["network.middleware=[8, 8]", "collection.envs=2", "collection.rollout=16", "algorithm.batch_size=32"]
STEPS = ["algorithm.n_step=1", "algorithm.learning_starts=0", 'algorithm.updates_per_step="1/32"']
# A large epsilon, because the first steps of Adam are else those of a sign.
SMOOTH = ["algorithm.optimizer_epsilon=1e-3", "algorithm.learning_rate_schedule=constant", "algorithm.clip_gradients=0"]
EXAMPLES = {
    "sac": ("Pendulum-v1", []),
    "dqn": ("CartPole-v1", ["algorithm.double=false", "algorithm.huber_loss=false"]),
}


def blueprint_of(scheme: str, id: str, *sets: str) -> Blueprint:
    text = f'[run]\nscheme = "{scheme}"\n[env]\nid = "{id}"\n'
    return Blueprint(load_config("small.toml", [*NORMALISED, *SIZES, *STEPS, *SMOOTH, *sets], text=text))


def statistics(rollouts: list[Arrays], discount: float) -> tuple[Tensor, Tensor, float]:
    """Mean and deviation of all observations, and the deviation of the discounted sums of rewards."""
    seen = np.concatenate([one["observations"][:-1].reshape(-1, one["observations"].shape[-1]) for one in rollouts])
    sums, found = np.zeros(rollouts[0]["rewards"].shape[1]), []
    for one in rollouts:
        for t, rewards in enumerate(one["rewards"]):
            sums = sums * discount + rewards
            found.append(sums)
            sums = np.where(one["terminated"][t] | one["truncated"][t], 0.0, sums)
    mean, deviation = seen.mean(0, dtype=np.float64), seen.std(0, dtype=np.float64)
    return torch.from_numpy(mean), torch.from_numpy(deviation), float(np.std(found))


def dense(values: Values, prefix: str, rows: Tensor, activation: Callable[[Tensor], Tensor]) -> Tensor:
    """What the layers of a trunk return, written out."""
    names = [name.removesuffix(".weight") for name in values if name.startswith(prefix) and name.endswith(".weight")]
    for number, name in enumerate(names):
        rows = rows @ values[f"{name}.weight"].T + values[f"{name}.bias"]
        rows = activation(rows) if number < len(names) - 1 else rows
    return rows


def drawn_action(outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Action scaled to -1 ... 1 and its log density, of a squashed Gaussian of one element."""
    mean, log_std = outputs[:, :1], outputs[:, 1:].clamp(-20.0, 2.0)
    u = mean + log_std.exp() * noise
    slope = 2.0 * (math.log(2.0) - u - functional.softplus(-2.0 * u))
    return u.tanh(), (-0.5 * noise**2 - log_std - 0.5 * math.log(2.0 * math.pi) - slope).sum(-1)


def noise_of(seed: int, stream: int) -> Tensor:
    """The noise of one draw of a gradient: of the targets' actions or of the actor's."""
    drawn = np.empty(32, np.float32)
    _native.philox_normals(seed, stream, drawn)
    return torch.from_numpy(drawn).double()[:, None]


def sac_loss(values: Values, target: Values, batch: Any, draw: Callable[[], Tensor], config: Any) -> Tensor:
    fixed = {name: value.detach() for name, value in values.items()}

    def critics(of: Values, observations: Tensor, actions: Tensor) -> Tensor:
        rows = torch.cat([actions, observations], -1)
        return torch.stack([dense(of, f"network.critic.branches.{i}.", rows, torch.relu)[:, 0] for i in range(2)])

    actor = "network.actor."
    temperature = config.temperature * fixed["network.temperature.log"].exp()
    following, log_probs = drawn_action(dense(fixed, actor, batch.following, torch.relu), draw())
    soft = critics(target, batch.following, following).amin(0) - temperature * log_probs
    errors = batch.rewards + batch.discounts * soft - critics(values, batch.observations, batch.actions / 2.0)
    actions, log_probs = drawn_action(dense(values, actor, batch.observations, torch.relu), draw())
    actor_loss = (temperature * log_probs - critics(fixed, batch.observations, actions).amin(0)).mean()
    learned = values["network.temperature.log"] * (log_probs.detach().mean() + config.target_entropy)
    return (0.5 * errors**2).mean(-1).sum() + actor_loss - learned


def dqn_loss(values: Values, target: Values, batch: Any, draw: Callable[[], Tensor], config: Any) -> Tensor:
    best = dense(target, "network.", batch.following, torch.relu).amax(-1)
    q = dense(values, "network.", batch.observations, torch.relu)[torch.arange(len(best)), batch.actions.long()]
    return ((batch.rewards + batch.discounts * best - q) ** 2).mean()


class Raw:
    """The rows of a batch as the environments returned them, normalised here by the statistics."""

    def __init__(self, loop: ReplayLoop, drawn: DrawnRows, known: tuple[Tensor, Tensor, float]) -> None:
        config = loop.blueprint.replay.config
        rows = loop.worker.rows.gather(drawn.positions, n_step=1, discount=config.discount)
        mean, deviation, spread = known

        def normalised(rows: NDArray[Any]) -> Tensor:
            return ((torch.from_numpy(rows).double() - mean) / (deviation**2 + 1e-8).sqrt()).clamp(-LIMIT, LIMIT)

        self.observations, self.following = normalised(rows.observations), normalised(rows.next_observations)
        self.actions = torch.from_numpy(rows.actions).double()
        self.rewards = (torch.from_numpy(rows.returns).double() / math.sqrt(spread**2 + 1e-8)).clamp(-LIMIT, LIMIT)
        self.discounts = torch.from_numpy(rows.discounts).double()


def adam(loop: ReplayLoop, values: Values, gradients: Values, before: Values, step: int) -> Values:
    """Adam's step number `step` from moments of zero, of all gradients so far."""
    config = loop.blueprint.config.algorithm
    found = {}
    for name, gradient in gradients.items():
        first, second = before.get(f"{name} 1", torch.zeros(())), before.get(f"{name} 2", torch.zeros(()))
        before[f"{name} 1"] = first = 0.9 * first + 0.1 * gradient
        before[f"{name} 2"] = second = 0.999 * second + 0.001 * gradient**2
        scale = (second / (1.0 - 0.999**step)).sqrt() + config.optimizer_epsilon
        found[name] = values[name] - config.learning_rate * (first / (1.0 - 0.9**step)) / scale
    return found


@pytest.mark.parametrize("backend", ["native", "torch"])
@pytest.mark.parametrize("scheme", EXAMPLES)
def test_a_normalised_update_is_that_of_plain_torch(scheme: str, backend: str) -> None:
    id, sets = EXAMPLES[scheme]
    relu = ["network.activation=relu", f"network.backend={backend}"]
    if scheme == "sac":
        relu.append("algorithm.critic_first=false")
    loop = ReplayLoop(blueprint_of(scheme, id, *sets, *relu))
    config, seed = loop.blueprint.replay.config, loop.blueprint.config.run.seed
    loss = sac_loss if scheme == "sac" else dqn_loss
    moments: Values = {}
    for turn in range(TURNS):
        known = statistics(loop.rollouts, config.discount) if turn else None
        values, target = loop.values(), loop.values(target=True)
        drawn = loop.turn()
        if known is None:  # the first weights have no statistics
            assert loop.slot["header"][SAMPLES] == 0
            continue
        learned = {name: values[name].requires_grad_() for name in loop.blueprint.flat.names}
        forward = stream_seed(seed, Purpose.training_forward, 0, turn)
        drawing = iter([noise_of(forward, 2 * turn + use) for use in range(2)])
        of = loss(values, target, Raw(loop, drawn, known), drawing.__next__, config)
        gradients = dict(zip(learned, torch.autograd.grad(of, [*learned.values()]), strict=True))
        found = loop.blueprint.flat.gradient_arrays(loop.slot["gradient"])
        for (name, gradient), own in zip(gradients.items(), found, strict=True):
            assert own == pytest.approx(gradient.numpy(), abs=1e-6), name
        expected, after = adam(loop, values, gradients, moments, turn), loop.values()
        for name, value in expected.items():
            assert after[name].numpy() == pytest.approx(value.detach().numpy(), abs=1e-6), name
    mean, _, spread = statistics(loop.rollouts, config.discount)
    after = loop.values()
    assert after["normalizer.shift"].numpy() == pytest.approx(mean.numpy(), abs=1e-6)
    assert after["reward_normalizer.scale"].item() == pytest.approx(1.0 / spread, rel=1e-6)
    assert after["normalizer.seen"][0] == TURNS * loop.blueprint.round_steps


def test_initial_errors_are_those_of_normalised_steps_and_unknown_before_the_first_statistics() -> None:
    loop = ReplayLoop(
        blueprint_of("dqn", "CartPole-v1", "algorithm.initial_errors=true", "algorithm.priority_exponent=0.6")
    )
    loop.turn()
    assert np.isnan(loop.rollouts[0]["errors"]).all()
    weights = loop.values()
    loop.turn()
    rollout = loop.rollouts[1]
    seen = torch.from_numpy(rollout["observations"]).double()
    rows = ((seen - weights["normalizer.shift"]) * weights["normalizer.scale"]).clamp(-LIMIT, LIMIT)
    values = dense(weights, "network.", rows, torch.relu).numpy()
    assert loop.blueprint.config.network.activation == "relu"
    rewards = rollout["rewards"] * weights["reward_normalizer.scale"].item()
    known = np.isfinite(rollout["errors"]) & (rollout["terminated"] == 0)
    taken = np.take_along_axis(values[:-1], rollout["actions"][..., None], -1)[..., 0]
    following = loop.blueprint.config.algorithm.discount * values[1:].max(-1)
    assert known.sum() > 5
    assert rollout["errors"][known] == pytest.approx(np.abs(rewards + following - taken)[known], abs=1e-5)
