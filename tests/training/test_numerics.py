"""Tests that the first value of a gradient's computation that is not finite is found, with its place."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from small_trainer import Arrays, allocate, collector_of, config_of, weights_of, worker_of

from hive.experience import Rollout
from hive.gradients import CAUSE, CAUSES, SAMPLES
from hive.training import Blueprint
from hive.training.gradient.numerics import NonFiniteOrigin

BAD = [math.nan, math.inf, -math.inf]


class Scene:
    """One worker and one round of two collectors; `look` computes its gradient."""

    def __init__(self, **values: Any) -> None:
        self.blueprint = Blueprint(config_of("small_environments:Drift", **values))
        self.worker = worker_of(self.blueprint)
        self.weights = weights_of(self.blueprint)
        self.share = [self._rollout(source) for source in range(2)]
        self.found: list[tuple[NonFiniteOrigin, NDArray[np.int64]]] = []
        self.worker.slot.on_not_finite = lambda finding, header: self.found.append((finding, header))

    def _rollout(self, source: int) -> Arrays:
        arrays = allocate(self.blueprint.rollout_layout)
        collector_of(self.blueprint, source).collect(arrays, sequence=3, version=0)
        return arrays

    def look(self) -> tuple[NonFiniteOrigin | None, Arrays]:
        out = allocate(self.blueprint.gradient_layout(2))
        self.worker.bind(self.weights)
        self.worker.compute(self.share, out, sequence=3, version=5)
        assert len(self.found) <= 1
        if self.found:
            finding, header = self.found[0]
            assert header is out["header"]
            assert CAUSES[int(header[CAUSE])] == finding.cause
            assert header[SAMPLES] > 0  # it counts as a gradient that was skipped, not as one of nothing
            return finding, out
        assert out["header"][CAUSE] == 0
        return None, out


def test_nothing_is_found_where_all_is_finite() -> None:
    finding, out = Scene().look()
    assert finding is None
    assert np.isfinite(out["gradient"]).all()


@pytest.mark.parametrize("value", BAD)
def test_an_observation(value: float) -> None:
    scene = Scene()
    scene.share[1]["observations"][4, 1, 2] = value
    finding, _ = scene.look()
    assert finding is not None
    assert finding.cause == "observation"
    assert finding.text == f"collector-1 gave the observation {value} (step 4, environment 1 of rollout 3)"


def test_the_state_of_a_recurrent_policy_is_made_of_observations() -> None:
    """One that came before this rollout: the collector is restarted, which begins with zeros."""
    scene = Scene(network__memory='"gru"', network__memory_size=4)
    scene.share[1]["state"][1, 2] = math.nan
    finding, _ = scene.look()
    assert finding is not None
    assert finding.cause == "observation"
    assert finding.text == "collector-1 acted in the state nan (environment 1 of rollout 3)"
    assert {"inputs", "rollout-1-3.state"} <= finding.arrays.keys()


@pytest.mark.parametrize("value", BAD)
def test_a_reward_comes_after_an_observation(value: float) -> None:
    scene = Scene()
    scene.share[0]["rewards"][7, 0] = value
    finding, _ = scene.look()
    assert finding is not None
    assert (finding.cause, finding.text) == (
        "reward",
        f"collector-0 gave the reward {value} (step 7, environment 0 of rollout 3)",
    )
    scene.found.clear()
    scene.share[0]["observations"][0, 0, 0] = value
    finding, _ = scene.look()
    assert finding is not None
    assert finding.cause == "observation"


def test_a_weight_is_named() -> None:
    scene = Scene()
    name, array = list(scene.blueprint.flat.arrays(scene.weights).items())[2]
    array.reshape(-1)[[1, 3]] = math.nan
    finding, _ = scene.look()
    assert finding is not None
    assert finding.cause == "weight"
    assert finding.text == f"the weight of `{name}` is not finite in 2 of {array.size} places (nan)"


def test_finite_rewards_whose_loss_is_infinite() -> None:
    scene = Scene()
    scene.share[0]["rewards"][:2] = 3e38
    finding, _ = scene.look()
    assert finding is not None
    assert (finding.cause, finding.text) == ("loss", "the loss is inf")


def test_a_gradient_of_a_finite_loss_is_named_by_its_parameter() -> None:
    scene = Scene(network__backend='"torch"')
    parameter = dict(scene.worker.actor.named_parameters())[name := scene.blueprint.flat.names[1]]
    parameter.register_hook(lambda gradient: torch.full_like(gradient, math.inf))
    finding, out = scene.look()
    assert finding is not None
    assert (finding.cause, finding.text) == (
        "gradient",
        f"the gradient of `{name}` is not finite in {parameter.numel()} of {parameter.numel()} places (inf)",
    )
    assert not np.isfinite(out["gradient"]).all()


def test_everything_that_made_it_can_be_kept() -> None:
    scene = Scene()
    scene.share[0]["rewards"][:] = math.nan
    finding, _ = scene.look()
    assert finding is not None
    views: dict[str, Any] = {f"rollout-{i}-3": Rollout(arrays) for i, arrays in enumerate(scene.share)}
    for name, view in views.items():
        for field in ("observations", "actions", "rewards", "valid", "terminated", "truncated", "final_index"):
            np.testing.assert_array_equal(finding.arrays[f"{name}.{field}"], getattr(view, field))
    for name, array in scene.blueprint.flat.arrays(scene.weights).items():
        np.testing.assert_array_equal(finding.arrays[f"weights.{name}"], array)
    assert finding.arrays["inputs"].shape[1:] == (3,)
