"""Weights that were trained before env.rules existed (commit 587aee2) keep their meaning.

`old_runs` has a checkpoint and the resolved config of a run for each rule that has changed, and what their policies
answered then (`expected.json`): outputs, the most likely action, and one that was sampled.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import hive
from hive.config import Config, load_config
from hive.envs import StepRow, configured_spec, configured_vector
from hive.errors import HiveError
from hive.networks import FlatParameters, aligned_block
from hive.policy.exporting import export
from hive.policy.loaded import Policy
from hive.records import checkpoint_at
from hive.training import Blueprint
from hive.training.run_start import write_first_state

OLD = Path(__file__).parent / "old_runs"
EXPECTED: dict[str, list[dict[str, Any]]] = json.loads((OLD / "expected.json").read_text())
NAMES = sorted(EXPECTED)
CLOSE = {"rtol": 1e-5, "atol": 1e-6}  # processors differ in the last bits


@pytest.fixture(autouse=True)
def _environments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `old_environments:Name` be found."""
    spec = importlib.util.spec_from_file_location("old_environments", OLD / "old_environments.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "old_environments", module)


def checkpoint(name: str) -> Path:
    return OLD / name.replace("_", "-") / "checkpoints" / "000016"


def resolved(name: str) -> Config:
    return load_config(OLD / name.replace("_", "-") / "resolved.toml")


def observations(name: str) -> list[Any]:
    """The observations that the answers were given to."""
    env: Any = gymnasium.make("Pendulum-v1")
    if name != "pendulum":
        env = getattr(sys.modules["old_environments"], name.title().replace("_", ""))()
    return [env.reset(seed=seed)[0] for seed in range(len(EXPECTED[name]))]


def check(policy: Policy, name: str) -> None:
    for observation, expected in zip(observations(name), EXPECTED[name], strict=True):
        np.testing.assert_allclose(policy.outputs(observation)[0][0], expected["outputs"], **CLOSE)
        np.testing.assert_allclose(policy(observation), expected["action"], **CLOSE)
        sampled = policy(observation, noise=np.random.default_rng(7))
        np.testing.assert_allclose(sampled, expected["sampled"], **CLOSE)


@pytest.mark.parametrize("name", NAMES)
def test_a_loaded_policy_acts_as_it_did(name: str) -> None:
    check(hive.load(str(checkpoint(name))), name)


@pytest.mark.parametrize("name", NAMES)
def test_an_exported_policy_acts_as_it_did(name: str, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="the extra `export` is not installed")
    done = export(str(checkpoint(name)), tmp_path / "policy.onnx")
    session = onnxruntime.InferenceSession(str(done.path))
    for observation, expected in zip(observations(name), EXPECTED[name], strict=True):
        whole = observation if isinstance(observation, dict) else {"observation": observation}
        given = {
            port.name: np.asarray([whole[port.name]], port.type[7:-1].replace("float", "float32"))
            for port in session.get_inputs()
        }
        np.testing.assert_allclose(session.run(["action"], given)[0][0], expected["action"], **CLOSE)


@pytest.mark.parametrize("name", sorted({*NAMES} - {"planes"}))  # whose checkpoint has no optimizer state
def test_a_resumed_run_goes_on_with_the_same_policy(name: str) -> None:
    config = resolved(name)
    assert config.env.rules == 1
    blueprint = Blueprint(config, checkpoint_at(str(checkpoint(name))))
    check(acting(blueprint), name)


@pytest.mark.parametrize("name", sorted({*NAMES} - {"words"}))
def test_a_new_run_begins_with_the_same_policy(name: str) -> None:
    config = fresh(name)
    assert config.env.rules == 2
    check(acting(Blueprint(config)), name)


def test_weights_without_statistics_name_the_keys_that_leave_them_out() -> None:
    sets = [f"run.init_from={json.dumps(str(checkpoint('goal')))}"]
    with pytest.raises(HiveError, match="is missing, this network has") as error:
        Blueprint(load_config(OLD / "goal" / "config.toml", sets))
    keys = "network.normalize_observations = false and network.normalize_rewards = false"
    assert error.value.hint == f"the network with these weights has {keys}"


def test_a_network_of_another_form_cannot_take_the_weights() -> None:
    with pytest.raises(HiveError, match="this network has"):
        Blueprint(fresh("words"))


@pytest.mark.parametrize("name", ["words", "goal"])
def test_evaluations_store_observations_in_the_earlier_form(name: str) -> None:
    config, policy = resolved(name), hive.load(str(checkpoint(name)))
    assert configured_spec(config.env).observation == policy.observation
    vector, rows = configured_vector(config.env, 2), StepRow.allocate(policy.observation, 2)
    vector.reset([0, 1], rows.observations)
    with torch.no_grad():
        outputs = policy.network(torch.from_numpy(rows.observations))[0]
    np.testing.assert_allclose(outputs, [one["outputs"] for one in EXPECTED[name][:2]], **CLOSE)
    vector.close()


def test_only_a_resolved_config_without_the_key_is_old(tmp_path: Path) -> None:
    old = OLD / "far" / "resolved.toml"
    copied = shutil.copy(old, tmp_path / "mine.toml")
    assert (load_config(old).env.rules, load_config(copied).env.rules) == (1, 2)
    assert load_config(old, ["env.rules=2"]).env.rules == 2


def fresh(name: str) -> Config:
    """A new config that begins with the weights of the old run."""
    place = OLD / name.replace("_", "-") / "config.toml"
    plain = ("network.normalize_observations=false", "network.normalize_rewards=false")
    return load_config(place, [f"run.init_from={json.dumps(str(checkpoint(name)))}", *plain])


def acting(blueprint: Blueprint) -> Policy:
    """The policy that collectors of a run begin with."""
    state = aligned_block(blueprint.state.bytes)
    write_first_state(blueprint, state, np.zeros(blueprint.optimizer_state_bytes, np.uint8))
    network = blueprint.network()
    FlatParameters(network).bind(state, read_only=True)
    return Policy(blueprint.environment.observation, blueprint.environment.action, network, {}, blueprint.distribution)
