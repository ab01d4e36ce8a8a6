"""An actor-critic in a plain script: it learns with shared features and without, and resumes from its checkpoints."""

from __future__ import annotations

from pathlib import Path

import actor_critic
import numpy as np
import pytest

from hive.compat.autonomous import Approximation, FeatureNetwork, Identity
from hive.records import read_jsonl


def agent(folder: Path, *, shared: bool = True, saved_every: int = 100) -> actor_critic.Agent:
    return actor_critic.Agent(folder, seed=0, shared=shared, saved_every=saved_every)


LEARNED = 80.0  # four times what chance gives; seeds 0 to 2 reach 153 to 340


@pytest.mark.rotates
@pytest.mark.parametrize("shared", [pytest.param(True, marks=pytest.mark.full(reason="three seconds")), False])
def test_a_short_form_learns(shared: bool, tmp_path: Path) -> None:
    made = agent(tmp_path, shared=shared)
    assert isinstance(made.features, FeatureNetwork if shared else Identity)
    returns = actor_critic.train(made, 250, seed=0)
    assert np.mean(returns[:20]) < LEARNED
    assert np.mean(returns[-50:]) >= LEARNED


def test_losses_and_checkpoints_lie_in_its_folder(tmp_path: Path) -> None:
    made = agent(tmp_path, saved_every=10)
    actor_critic.train(made, 20, seed=0)
    rows = list(read_jsonl(tmp_path / "metrics.jsonl"))
    assert {name for row in rows for name in row if name.startswith("loss/")} == {"loss/v", "loss/policy"}
    assert sum("loss/v" in row for row in rows) == 20
    for name in ("feature", "v", "policy"):
        assert [path.name for path in sorted((tmp_path / name).iterdir())] == ["000020"]


def test_a_second_call_resumes_from_the_newest_checkpoint(tmp_path: Path) -> None:
    first = agent(tmp_path, saved_every=10)
    actor_critic.train(first, 10, seed=0)
    second = agent(tmp_path, saved_every=10)
    actor_critic.train(second, 0, seed=0)
    for one, two in ((first.v, second.v), (first.policy, second.policy), (first.features, second.features)):
        assert two.updates == 10
        for old, new in zip(states(one), states(two), strict=True):
            assert np.array_equal(old, new)


def states(part: Approximation) -> list[np.ndarray]:
    """Return the weights of the network and of its target."""
    kept = part.state_dict()
    return [value.numpy() for name in ("model", "target") for value in kept[name].values() if hasattr(value, "numpy")]
