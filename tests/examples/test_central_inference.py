"""Central inference: one forward pass answers several, and the trainer learns as it does with collectors."""

from __future__ import annotations

import central_inference
from short_runs import CARTPOLE, short_run

LEARNED = 45.0  # an untrained policy has a mean return of about 20
SHORT = "collection.communication='synchronous'", "collection.workers=2", "collection.envs=4", "run.steps=8_000"


def test_it_learns() -> None:
    summary, _ = short_run(central_inference.topology, CARTPOLE, *SHORT)
    assert summary.stop_reason == "8,000 steps"
    assert summary.mean_return_100 is not None
    assert summary.mean_return_100 >= LEARNED
    assert "actions" not in summary.channels  # calls, not a channel
    assert summary.channels["rollouts"]["consumed"] == 2 * summary.updates


def test_the_same_seed_gives_the_same_weights_in_one_process() -> None:
    short = (*SHORT[:-1], "run.steps=600")
    first, second = (short_run(central_inference.topology, CARTPOLE, *short)[0] for _ in range(2))
    assert first.weights_sha256 == second.weights_sha256
