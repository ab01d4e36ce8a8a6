"""One round of PPO on a device, taken apart: what each part of the gradient worker's and the learner's work takes.

Parts are timed with the device idle at both ends, one after the other, so they do not overlap as they may in a run.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from hive.algorithms.batches.rows import acted_inputs, evaluated, input_rows, picked, row_counts
from hive.config import load_config
from hive.experience import Rollout
from hive.networks import aligned_block
from hive.networks.weights.device import prepare_device
from hive.training import Blueprint, GWorker
from hive.training.gradient.devices import pin
from hive.training.run_start import write_first_state

REPEATS = 5


def profiled(keys: Sequence[str], collectors: int) -> dict[str, Any]:
    """Return milliseconds of each part of a round of a config of these keys, with rollouts of random numbers."""
    config = load_config("gpu.toml", keys, text="")
    blueprint = Blueprint(config)
    device = blueprint.device or torch.device("cpu")
    prepare_device(device, deterministic=True)
    rollouts = [_random(blueprint, source) for source in range(collectors)]
    views = [Rollout(arrays) for arrays in rollouts]
    worker, learner = GWorker.of_run(blueprint, 0), blueprint.learner()
    states = [aligned_block(blueprint.state.bytes) for _ in range(2)]
    optimizer_states = [aligned_block(blueprint.optimizer_state_bytes) for _ in range(2)]
    write_first_state(blueprint, states[0], optimizer_states[0])
    layout = blueprint.gradient_layout(collectors)
    slot = layout.views(aligned_block(layout.bytes))
    model: Any = worker.algo.model  # type: ignore[attr-defined]
    took: dict[str, float] = {}
    pinned = [arrays["observations"] for arrays in rollouts]
    pin(config, blueprint.device, *pinned, *states, slot["gradient"])  # as the actor does

    def timed(name: str, work: Callable[[], Any], repeats: int = REPEATS) -> Any:
        found, result = [], None
        for _ in range(repeats):
            _wait(device)
            begun = time.perf_counter()
            result = work()
            _wait(device)
            found.append(time.perf_counter() - begun)
        took[name] = round(1e3 * statistics.median(found), 3)
        return result

    timed("weights to the device", lambda: worker.bind(states[0]))
    rows = timed("observations to the device", lambda: input_rows(views, model.device))
    timed("values of all observations", lambda: evaluated(lambda some: model.no_grad(some)[1:2], views, rows))
    seen = acted_inputs(rows, row_counts(views))
    numbers = torch.from_numpy(np.random.default_rng(0).permutation(len(seen))[: len(seen) // 4])
    batch = timed("rows of a minibatch", lambda: picked(seen, numbers))
    timed("forward pass of a minibatch", lambda: model(batch))
    per_round = worker.algo.gradients_per_round

    def gradients() -> None:
        for number in range(per_round):
            worker.compute(rollouts, slot, sequence=number, version=0)

    timed("all gradients of a round", gradients, 3)
    blocks = states[0], optimizer_states[0], states[1], optimizer_states[1]
    timed("optimizer step", lambda: learner.turn([slot], *blocks))
    total = took["all gradients of a round"] + per_round * (took["optimizer step"] + took["weights to the device"])
    samples = sum(view.samples for view in views)
    return {
        "device": str(device),
        "parameters": blueprint.flat.count,
        "samples": samples,
        "minibatch": len(numbers),
        "ms": took,
        "round_ms": round(total, 1),
        "learner_steps_per_s": round(1e3 * samples / total),
    }


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _random(blueprint: Blueprint, source: int) -> dict[str, Any]:
    layout = blueprint.rollout_layout
    arrays = layout.views(aligned_block(layout.bytes))  # what is not written takes no memory
    random = np.random.default_rng(source)
    arrays["observations"][:] = random.integers(0, 256, arrays["observations"].shape, np.uint8)
    arrays["actions"][:] = random.integers(0, 6, arrays["actions"].shape)
    arrays["log_probs"][:] = -np.log(6.0)
    arrays["rewards"][:] = random.random(arrays["rewards"].shape, np.float32)
    arrays["valid"][:] = 1
    arrays["final_index"][:] = -1
    for name in ("terminated", "truncated", "episode_lengths", "episode_returns"):
        arrays[name][:] = 0
    Rollout.write_header(arrays, 0, len(arrays["rewards"]), 0, source, 0)
    return dict(arrays)
