"""Updates from the gradients of four workers, in two ways with equal results: Coach's and RLPack's.

    Coach     each worker is a thread with a NetworkWrapper; the global network makes one step from all gradients
    RLPack    a plain loop: a GradAccumulator takes the gradient of each batch, and torch's Adam steps on the mean

The network learns the height of a wave from points of the plane. Each worker has separate batches.

    python examples/workers.py      both end with an error of 0.02, and their weights differ by less than 1e-4: 5 s
"""

from __future__ import annotations

import sys
import threading

import numpy as np
import torch
from gymnasium.spaces import Discrete
from torch import nn

from hive import ObservationSpec, action_spec
from hive.compat.coach import (
    Architecture,
    HeadParameters,
    NetworkParameters,
    NetworkWrapper,
    Spaces,
    TorchArchitecture,
    WorkerGroup,
)
from hive.compat.rlpack import GradAccumulator

WORKERS, BATCH = 4, 32
ACTION = action_spec("wave", Discrete(2))  # required, but no action is taken here
SPACES = Spaces({"observation": ObservationSpec((2,), "float32")}, ACTION)
PARAMETERS = NetworkParameters(heads_parameters=[HeadParameters("value")], learning_rate=3e-3, optimizer_epsilon=1e-8)


def batch(worker: int, update: int, size: int = BATCH) -> tuple[np.ndarray, np.ndarray]:
    """Return points [size, 2] and heights [size], both float32; the same numbers give the same batch."""
    points = np.random.default_rng((worker, update)).uniform(-1.0, 1.0, (size, 2)).astype(np.float32)
    return points, np.sin(3.0 * points[:, 0]) * points[:, 1]


def by_threads(updates: int) -> TorchArchitecture:
    """Return the global network after this many joint updates of all workers."""
    group: WorkerGroup[TorchArchitecture] = WorkerGroup(WORKERS)
    wrappers = [NetworkWrapper(PARAMETERS, False, True, "wave", SPACES, group=group, worker=w) for w in range(WORKERS)]

    def work(wrapper: NetworkWrapper) -> None:
        torch.set_num_threads(1)
        for update in range(updates):
            points, heights = batch(wrapper.worker, update)
            wrapper.train_and_sync_networks({"observation": points}, heights)  # waits for all gradients

    threads = [threading.Thread(target=work, args=[wrapper]) for wrapper in wrappers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wrappers[0].update_online_network()
    return wrappers[0].online_network


def by_a_loop(updates: int) -> TorchArchitecture:
    """Return the network that one thread trains on the mean of the same gradients."""
    network = TorchArchitecture(PARAMETERS, SPACES, "wave")
    adam = torch.optim.Adam(network.module.parameters(), lr=PARAMETERS.learning_rate, betas=(0.9, 0.99))
    accumulator = GradAccumulator(None, bootstrap_rounds=WORKERS)
    for update in range(updates):
        for worker in range(WORKERS):
            points, heights = (torch.from_numpy(array) for array in batch(worker, update))
            adam.zero_grad()
            nn.functional.mse_loss(network.module(points)[0], heights).backward()
            accumulator.accumulate(network.module.named_parameters())
        accumulator.mean_reduce(into=network.module)
        accumulator.clear()
        adam.step()
    return network


def error(network: Architecture) -> float:
    """Return the root mean squared error on points that no worker trains on."""
    points, heights = batch(WORKERS, 0, 1000)
    return float(np.sqrt(np.mean((network.predict({"observation": points}) - heights) ** 2)))


def distance(one: Architecture, two: Architecture) -> float:
    """Return the largest absolute difference between weights."""
    pairs = zip(one.get_weights(), two.get_weights(), strict=True)
    return max(float(abs(first - second).max()) for first, second in pairs)


if __name__ == "__main__":
    torch.set_num_threads(1)
    coach, rlpack = by_threads(500), by_a_loop(500)
    sys.stdout.write(
        f"errors {error(coach):.3f} and {error(rlpack):.3f}, largest difference {distance(coach, rlpack):.0e}\n"
    )
