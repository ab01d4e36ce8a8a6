"""Policies of runs with network.critic_parts act, are evaluated and exported without these parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_trainer import Trainer, config_of, weights_of

import hive
from hive.config import Config
from hive.envs import StepRow, configured_spec, configured_vector
from hive.envs.spaces.fitted import fitted_spec, fitted_vector
from hive.errors import ConfigError, UsageError
from hive.policy.graph import PolicyGraph
from hive.policy.loaded import Policy
from hive.records import write_checkpoint
from hive.training import Blueprint, Evaluator, evaluate

ID = "small_environments:Privileged"
ALONE = "{privileged=false}"
NEAR = {"near": np.array([0.25], np.float32)}
FAR = {"rest": np.array([7.0, -7.0], np.float32), "byte": np.array([9], np.uint8)}


def config(**values: Any) -> Config:
    hidden = {"network__critic_parts": '["far"]', "network__separate_networks": "true"}
    return config_of(ID, **(hidden | values))


def saved(root: Path, made: Config) -> Policy:
    blueprint = Blueprint(made)
    state = {"policy": blueprint.policy()}
    tensors = blueprint.flat.arrays(weights_of(blueprint))
    return hive.load(str(write_checkpoint(root, 7, tensors=tensors, parts={}, state=state)))


@pytest.mark.parametrize("normalize", ["false", "true"])
def test_a_loaded_policy_needs_no_hidden_parts_and_reads_none(tmp_path: Path, normalize: str) -> None:
    policy = saved(tmp_path, config(network__normalize_observations=normalize))
    assert [part.name for part in policy.observation.parts] == ["near"]
    outputs = [policy.outputs(given)[0] for given in (NEAR, NEAR | {"far": FAR}, NEAR | {"far": {}})]
    assert np.array_equal(outputs[0], outputs[1])
    assert np.array_equal(outputs[0], outputs[2])
    batch = {"near": np.full((3, 1), 0.25, np.float32)}
    assert policy(batch).shape == (3,)
    for wrong, text in (({"far": FAR}, "without its part `near`"), (NEAR | {"odd": 1}, "with the part `odd`")):
        with pytest.raises(ValueError, match=text):
            policy(wrong)


@pytest.mark.parametrize("stack", [1, 3])
def test_an_exported_policy_has_no_such_input(tmp_path: Path, stack: int) -> None:
    policy = saved(tmp_path, config(env__frame_stack=stack, network__normalize_observations="true"))
    graph = PolicyGraph(policy)
    assert [port.name for port in graph.inputs] == (["near", "frames.near"] if stack > 1 else ["near"])
    rows = graph.example(4)
    outputs = dict(zip([port.name for port in graph.outputs], graph(*rows), strict=True))
    expected, _ = policy.outputs({"near": np.zeros((4, 1), np.float32)}, policy.initial_state(4))
    np.testing.assert_allclose(outputs["logits"].detach().numpy(), expected, atol=1e-6)


def test_it_plays_the_same_episodes_with_and_without_them(tmp_path: Path) -> None:
    policy = saved(tmp_path, config())
    played = [evaluate(policy, config(env__options=options), episodes=8) for options in ("{}", ALONE)]
    assert played[0].mean_return == played[1].mean_return
    (tmp_path / "plain").mkdir()
    plain = saved(tmp_path / "plain", config(network__critic_parts="[]"))
    with pytest.raises(UsageError, match="differ in parts"):
        evaluate(plain, config(env__options=ALONE), episodes=2)


def test_evaluations_of_a_run_may_take_place_without_them() -> None:
    blueprint = Blueprint(config(evaluation__env=f"{{options={ALONE}}}", evaluation__every="{updates=1}"))
    evaluator = Evaluator.of_run(blueprint)
    evaluator.bind(weights_of(blueprint))
    assert evaluator.play.table.count == 10
    with pytest.raises(ConfigError, match="differ in parts"):
        Blueprint(config(evaluation__env=f"{{options={ALONE}}}", network__critic_parts='["far.byte"]'))


def test_rows_of_an_environment_without_them_have_zeros_there() -> None:
    whole = configured_spec(config().env).observation
    mine = whole.without(["far"])
    short = config(env__options=ALONE).env
    found = configured_spec(short).observation
    assert fitted_spec(mine, found) is mine
    assert fitted_spec(mine, whole) is mine
    assert fitted_spec(whole, found) is found
    vector, plain = fitted_vector(configured_vector(short, 2), mine), configured_vector(config().env, 2)
    assert fitted_vector(plain, mine) is plain
    rows = [StepRow.allocate(mine, 2), StepRow.allocate(mine, 2)]
    near, far = mine.parts[0], mine.hidden
    for one, row in zip((vector, plain), rows, strict=True):
        one.reset([1, 2], row.observations)
    for _ in range(30):
        assert np.array_equal(near.view(rows[0].observations), near.view(rows[1].observations))
        assert not any(part.view(rows[0].observations).any() for part in far)
        for one, row in zip((vector, plain), rows, strict=True):
            row.finals.count = 0
            one.step(np.zeros(2, np.int64), row)
    assert any(part.view(rows[1].observations).any() for part in far)


@pytest.mark.parametrize("more", [{}, {"network__memory": '"gru"', "network__memory_size": 4}])
def test_a_privileged_critic_learns_the_same_natively_and_by_torch(more: dict[str, Any]) -> None:
    results = []
    for backend in ("auto", "torch"):
        trainer = Trainer(config(network__backend=f'"{backend}"', network__normalize_observations="true", **more))
        trainer.train(3)
        results.append(trainer.weights[trainer.turns % 2][: trainer.blueprint.flat.parameter_bytes].view(np.float32))
    np.testing.assert_allclose(results[0], results[1], atol=1e-6)


@pytest.mark.parametrize("backend", ["auto", "torch"])
@pytest.mark.parametrize("patterns", [["branches.0.trunk.0.*"], ["branches.?.trunk.2.weight", "*.bias"]])
def test_frozen_parameters_of_a_run_keep_their_bits_and_count_in_no_norm(backend: str, patterns: list[str]) -> None:
    """With weight decay: the norm is that of the gradient's slot, which has zeros for them."""
    decayed = {"algorithm__optimizer": '"adamw"', "algorithm__weight_decay": 0.1, "algorithm__clip_gradients": 0.01}
    frozen = str(patterns).replace("'", '"')
    trainer = Trainer(
        config_of(
            "small_environments:Drift",
            network__separate_networks="true",
            network__backend=f'"{backend}"',
            network__frozen=frozen,
            **{"network__middleware": [8, 8], **decayed},
        )
    )
    flat = trainer.blueprint.flat
    start = {name: array.copy() for name, array in flat.arrays(trainer.weights[0]).items()}
    ranges = flat.frozen()
    trainer.train(3)
    assert not any(trainer.gradient["gradient"][elements].any() for elements in ranges)
    now = flat.arrays(trainer.weights[trainer.turns % 2])
    kept = {name for name in now if now[name].tobytes() == start[name].tobytes()}
    assert len(kept) == len(ranges)
    assert not any(moment[elements].any() for moment in trainer.optimizer_state["moments"] for elements in ranges)
