"""Rainbow (Hessel et al. 2018): updates of the scheme against the algorithm written out with plain torch in float64.

A gradient worker makes each gradient and the learner applies it, as in a run. The reference takes the batches and the
noise, which both draw from generators with the same seed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from small_trainer import allocate, config_of, weights_of
from torch import Tensor

from hive import _native
from hive.algorithms import Batch
from hive.experience import Purpose, stream_seed
from hive.networks import aligned_block
from hive.training import Blueprint
from hive.training.gradient.replay_worker import ReplayWorker

UPDATES, TARGET_INTERVAL = 3, 2  # the last update has another target network and moments in the optimizer
ROWS, ACTIONS, ATOMS, LEAST, MOST = 16, 2, 11, -3.0, 3.0
RATE, EPSILON, LARGEST_NORM = 1e-3, 3e-4, 0.5
LAYERS = ("trunk.0", "trunk.2", "trunk.4", "heads.0.value", "heads.0.advantage")

Weights = dict[str, Tensor]


def blueprint() -> Blueprint:
    config = config_of(
        "CartPole-v1",
        run__scheme='"rainbow"',
        network__middleware=[12, 8],
        algorithm__dueling=6,
        algorithm__atoms=ATOMS,
        algorithm__v_min=LEAST,
        algorithm__v_max=MOST,
        algorithm__batch_size=ROWS,
        algorithm__learning_rate=RATE,
        algorithm__optimizer_epsilon=EPSILON,
        algorithm__clip_gradients=LARGEST_NORM,
        algorithm__target_interval=TARGET_INTERVAL,
        algorithm__target_rate=1.0,
    )
    assert (config.algorithm.double, config.algorithm.n_step, config.algorithm.priority_exponent > 0) == (True, 3, True)
    assert config.network.noisy_deviation > 0
    return Blueprint(config)


def some_batch(number: int) -> Batch:
    """Transitions of three steps, of which some have terminated or were cut short, with importance weights."""
    random = np.random.default_rng(number)
    discounts = np.array([0.0, 0.99, 0.99**2, 0.99**3, 0.99**3], np.float32)[random.integers(0, 5, ROWS)]
    return Batch(
        torch.from_numpy(random.standard_normal((ROWS, 4), np.float32)),
        torch.from_numpy(random.integers(0, ACTIONS, ROWS)),
        torch.from_numpy(2.0 * random.standard_normal(ROWS, np.float32)),
        torch.from_numpy(discounts),
        torch.from_numpy(random.standard_normal((ROWS, 4), np.float32)),
        torch.from_numpy(random.random(ROWS, np.float32)),
        np.full(ROWS, np.nan, np.float32),
        number,
    )


# --- the reference


def noisy(inputs: Tensor, weights: Weights, layer: str, generator: torch.Generator) -> Tensor:
    mean, deviation = weights[f"{layer}.mean.weight"], weights[f"{layer}.weight_deviation"]
    drawn, word = np.empty(sum(mean.shape), np.float32), torch.empty((), dtype=torch.int64)
    _native.philox_normals(int(word.random_(generator=generator)), 0, drawn)
    scaled = torch.from_numpy(np.sign(drawn) * np.sqrt(np.abs(drawn))).double()
    entering, leaving = scaled[: mean.shape[1]], scaled[mean.shape[1] :]
    bias = weights[f"{layer}.mean.bias"] + weights[f"{layer}.bias_deviation"] * leaving
    return inputs @ (mean + deviation * torch.outer(leaving, entering)).T + bias


def log_probabilities(observations: Tensor, weights: Weights, generator: torch.Generator) -> Tensor:
    """Of all atoms, [N, ACTIONS, ATOMS]."""
    hidden = observations.double()
    for layer in LAYERS[:2]:
        hidden = torch.relu(noisy(hidden, weights, layer, generator))
    streams = torch.relu(noisy(hidden, weights, LAYERS[2], generator))
    value = noisy(streams[:, :6], weights, LAYERS[3], generator).reshape(-1, 1, ATOMS)
    advantage = noisy(streams[:, 6:], weights, LAYERS[4], generator).reshape(-1, ACTIONS, ATOMS)
    return torch.log_softmax(value + advantage - advantage.mean(1, keepdim=True), -1)


def projected(returns: Tensor, probabilities: Tensor) -> Tensor:
    """Algorithm 1 of Bellemare et al. 2017, atom by atom."""
    spacing = (MOST - LEAST) / (ATOMS - 1)
    found = torch.zeros(ATOMS, dtype=torch.float64)
    for moved, probability in zip(returns.clamp(LEAST, MOST).tolist(), probabilities.tolist(), strict=True):
        place = (moved - LEAST) / spacing
        low = min(int(place), ATOMS - 2)
        found[low] += probability * (low + 1 - place)
        found[low + 1] += probability * (place - low)
    return found


def loss_of(batch: Batch, online: Weights, target: Weights, seed: int) -> tuple[Tensor, Tensor]:
    """The loss, and the new priorities [N]: KL(target || prediction)."""
    generator = torch.Generator().manual_seed(seed)
    support = torch.linspace(LEAST, MOST, ATOMS, dtype=torch.float64)
    with torch.no_grad():
        following = log_probabilities(batch.next_observations, target, generator).exp()
        chooses = log_probabilities(batch.next_observations, online, generator).exp()
        best = (chooses * support).sum(-1).argmax(-1)
        moved = batch.returns.double()[:, None] + batch.discounts.double()[:, None] * support
        goals = torch.stack([projected(moved[i], following[i, best[i]]) for i in range(ROWS)])
    rows = torch.arange(ROWS)
    crossed = -(goals * log_probabilities(batch.observations, online, generator)[rows, batch.actions]).sum(-1)
    divergences = (crossed + torch.special.xlogy(goals, goals).sum(-1)).detach()
    return (batch.importance.double() * crossed).mean(), divergences


def test_updates_are_those_of_plain_torch() -> None:
    made = blueprint()
    worker = ReplayWorker(made, 0, aligned_block(made.memory_layout.bytes))
    learner = made.learner()
    blocks = [weights_of(made), aligned_block(made.state.bytes)]
    states = [aligned_block(made.optimizer_state_bytes) for _ in range(2)]
    slot: Any = allocate(made.gradient_layout(1))

    def arrays(update: int) -> dict[str, NDArray[Any]]:
        return made.flat.arrays(blocks[update % 2][: made.flat.block_bytes])

    online = {name: torch.from_numpy(array.astype(np.float64)).requires_grad_() for name, array in arrays(0).items()}
    online = {name: tensor for name, tensor in online.items() if name.startswith(LAYERS)}
    assert {name for name, array in arrays(0).items() if not name.startswith(LAYERS)} <= {"heads.0.support"}
    before = {name: tensor.detach().clone() for name, tensor in online.items()}
    target = dict(before)
    optimizer = torch.optim.Adam(list(online.values()), lr=RATE, eps=EPSILON)
    for number in range(UPDATES):
        batch, now, following = some_batch(number), number % 2, (number + 1) % 2
        worker.bind(blocks[now])
        worker.compute(batch, slot, sequence=number, version=number)
        assert learner.turn([slot], blocks[now], states[now], blocks[following], states[following]).applied

        loss, priorities = loss_of(batch, online, target, stream_seed(1, Purpose.training_forward, 0, number))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(online.values()), LARGEST_NORM)
        optimizer.step()
        if (number + 1) % TARGET_INTERVAL == 0:
            target = {name: tensor.detach().clone() for name, tensor in online.items()}

        np.testing.assert_allclose(batch.errors, priorities, rtol=0, atol=1e-6)
        for name, tensor in online.items():
            np.testing.assert_allclose(arrays(number + 1)[name], tensor.detach(), rtol=0, atol=1e-6, err_msg=name)
    assert min(float((online[name] - before[name]).detach().abs().max()) for name in online) > 1e-4
