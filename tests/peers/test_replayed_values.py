"""Updates of DQN give Stable-Baselines3's weights, and those of QR-DQN SB3-Contrib's: the same batches, to 1e-6.

A gradient worker makes each gradient and the learner applies it, as in a run. The peers take the batches in place of
what their replay memory draws.

Needs `pip install '.[peers]'`; without it these tests are skipped.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "training")]

from same_rollout import CLOSE
from small_trainer import allocate, config_of, weights_of

from hive.algorithms import Batch
from hive.networks import aligned_block
from hive.training import Blueprint
from hive.training.gradient.replay_worker import ReplayWorker

pytestmark = pytest.mark.full(reason="needs the extra `peers`")
stable_baselines3 = pytest.importorskip("stable_baselines3", reason="pip install '.[peers]'")
sb3_contrib = pytest.importorskip("sb3_contrib", reason="pip install '.[peers]'")

UPDATES = 5  # later ones have moments in the optimizer, and a target network with other weights
BATCH, ACTIONS, OBSERVATION, QUANTILES = 16, 2, 4, 5
LAYERS = {"trunk.0": "0", "trunk.2": "2", "trunk.4": "4"}
"""hive's layer -> that of the peers, below `q_net.q_net` and `quantile_net.quantile_net`."""

Arrays = dict[str, NDArray[Any]]


class Ours:
    """A gradient worker and a learner, in a loop."""

    def __init__(self, algorithm: str, **options: Any) -> None:
        values = {"run__scheme": f'"{algorithm}"', "network__middleware": [32, 32], "algorithm__batch_size": BATCH}
        self.blueprint = Blueprint(config_of("CartPole-v1", **values, **options))
        self.worker = ReplayWorker(self.blueprint, 0, aligned_block(self.blueprint.memory_layout.bytes))
        self.learner = self.blueprint.learner()
        self.weights = [weights_of(self.blueprint), aligned_block(self.blueprint.state.bytes)]
        self.states = [aligned_block(self.blueprint.optimizer_state_bytes) for _ in range(2)]
        self.slot = allocate(self.blueprint.gradient_layout(1))
        self.turns = 0

    def update(self, batch: Batch) -> None:
        now, following = self.turns % 2, (self.turns + 1) % 2
        self.worker.bind(self.weights[now])
        self.worker.compute(batch, self.slot, sequence=self.turns, version=self.turns)
        blocks = self.weights[now], self.states[now], self.weights[following], self.states[following]
        assert self.learner.turn([self.slot], *blocks).applied
        self.turns += 1

    def arrays(self) -> Arrays:
        """The weights, with the peers' names and order of rows: theirs are grouped by quantile, ours by action."""
        flat = self.blueprint.flat
        named = flat.arrays(self.weights[self.turns % 2][: flat.block_bytes])
        found = {}
        for layer, peer in LAYERS.items():
            for kind in ("weight", "bias"):
                array = named[f"{layer}.{kind}"]
                if len(array) == ACTIONS * QUANTILES:
                    array = array.reshape(ACTIONS, QUANTILES, -1).swapaxes(0, 1).reshape(array.shape)
                found[f"{peer}.{kind}"] = array
        return found


def peer_of(algorithm: str, **options: Any) -> tuple[Any, dict[str, torch.nn.Parameter]]:
    """The peer's model, and the parameters of its online network."""
    made = {"dqn": stable_baselines3.DQN, "qr-dqn": sb3_contrib.QRDQN}[algorithm]
    small = {"net_arch": [32, 32], **({"n_quantiles": QUANTILES} if algorithm == "qr-dqn" else {})}
    model = made("MlpPolicy", "CartPole-v1", batch_size=BATCH, device="cpu", policy_kwargs=small, **options)
    model._logger = stable_baselines3.common.logger.Logger(None, [])
    network = model.q_net.q_net if algorithm == "dqn" else model.quantile_net.quantile_net
    return model, dict(network.named_parameters())


def some_batch(seed: int) -> Batch:
    """Transitions of one and of three steps, of which a fifth has terminated."""
    random = np.random.default_rng(seed)
    live = random.random(BATCH) > 0.2
    discounts = np.where(live, np.where(random.random(BATCH) > 0.5, 0.98, 0.98**3), 0.0).astype(np.float32)
    return Batch(
        torch.from_numpy(random.standard_normal((BATCH, OBSERVATION), np.float32)),
        torch.from_numpy(random.integers(0, ACTIONS, BATCH)),
        torch.from_numpy(3.0 * random.standard_normal(BATCH, np.float32)),
        torch.from_numpy(discounts),
        torch.from_numpy(random.standard_normal((BATCH, OBSERVATION), np.float32)),
        torch.ones(BATCH),
        np.zeros(BATCH, np.float32),
        seed,
    )


def given_to(model: Any, batch: Batch) -> None:
    """Make the peer's replay memory draw this batch next."""
    samples = stable_baselines3.common.type_aliases.ReplayBufferSamples(
        batch.observations,
        batch.actions.unsqueeze(-1),
        batch.next_observations,
        (batch.discounts == 0).float().unsqueeze(-1),
        batch.returns.unsqueeze(-1),
        batch.discounts.unsqueeze(-1),
    )
    model.replay_buffer.sample = lambda *_, **__: samples


ADAM = {"algorithm__learning_rate": 1e-3, "algorithm__double": "false"}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "dqn": ("dqn", {}, {}),
    "dqn, clipped": ("dqn", {"algorithm__clip_gradients": 0.5}, {"max_grad_norm": 0.5}),
    "qr-dqn": ("qr-dqn", {}, {}),
    "qr-dqn, clipped": ("qr-dqn", {"algorithm__clip_gradients": 0.5}, {"max_grad_norm": 0.5}),
}


@pytest.mark.parametrize("case", CASES)
def test_updates_give_the_weights_of_the_peer(case: str) -> None:
    algorithm, options, peers = CASES[case]
    if algorithm == "qr-dqn":  # SB3-Contrib's epsilon depends on the batch size
        options = {**options, "algorithm__quantiles": QUANTILES, "algorithm__optimizer_epsilon": 0.01 / BATCH}
    ours, (model, parameters) = Ours(algorithm, **ADAM, **options), peer_of(algorithm, learning_rate=1e-3, **peers)
    before = {name: array.copy() for name, array in ours.arrays().items()}
    with torch.no_grad():
        for name, array in before.items():
            parameters[name].copy_(torch.from_numpy(array))
    target = model.q_net_target if algorithm == "dqn" else model.quantile_net_target
    target.load_state_dict((model.q_net if algorithm == "dqn" else model.quantile_net).state_dict())
    for number in range(UPDATES):
        batch = some_batch(number)
        ours.update(batch)
        given_to(model, batch)
        model.train(1, BATCH)
        for name, array in ours.arrays().items():
            assert float(np.abs(array - parameters[name].detach().numpy()).max()) <= CLOSE
    assert max(float(np.abs(array - before[name]).max()) for name, array in ours.arrays().items()) > 100 * CLOSE
