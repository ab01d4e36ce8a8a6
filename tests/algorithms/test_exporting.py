"""Exported policies act as `hive.load`'s, in onnxruntime alone; what cannot be exported leaves no file."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import torch
from gymnasium import spaces
from torch import Tensor, nn

import hive
from hive.config import NetworkConfig
from hive.envs import ActionSpec, Box, Composite, Discrete, MultiBinary, MultiDiscrete, ObservationSpec
from hive.envs.spaces.masked_space import MaskedSpace
from hive.envs.spaces.observation import observation_spec
from hive.envs.spaces.origins import with_found_origins
from hive.errors import NetworkError, RecordError, UsageError
from hive.networks import (
    CategoricalQHeadParameters,
    EpsilonGreedy,
    FlatParameters,
    HeadParameters,
    QuantileQHeadParameters,
    Spaces,
    aligned_block,
)
from hive.networks.act.distributions import ActionDistribution
from hive.networks.act.exploration import NoisyActions, epsilon_greedy
from hive.networks.build.configured import network_parameters
from hive.networks.weights.wrapper import BoundNetwork
from hive.policy.descriptions import describe_policy
from hive.policy.exporting import Exported
from hive.policy.loaded import load
from hive.records import write_checkpoint

onnx = pytest.importorskip("onnx", reason="the extra `export` is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="the extra `export` is not installed")

SMALL = NetworkConfig(middleware=(8,))
VECTOR = ObservationSpec((3,), "float32")
FOUR = Discrete(4, start=10)
BOX = Box((2,), (-3.0, 0.0), (1.0, 0.5))
HEADS: Sequence[str | HeadParameters] = ("policy", "value")
PARTS = spaces.Dict(
    {
        "arm": spaces.Dict({"joints": spaces.Box(-1, 1, (2,)), "grip": spaces.Discrete(3, start=5)}),
        "camera": spaces.Box(0, 255, (6, 6, 1), np.uint8),
        "action": spaces.MultiDiscrete([2, 3]),
        "pair": spaces.Tuple([spaces.Box(-1, 1, ()), spaces.MultiBinary(2)]),
    }
)
ODD = spaces.Dict(
    {
        name: spaces.Box(-1, 1, (2,))
        for name in (
            "0",
            "7.1",
            "action",
            "a b/ü",
            "input.1",
            "onnx::Flatten_0",
            "network.trunk.0.weight",
            "hive::input_0",
        )
    }
)
TIMES = spaces.Dict(
    {
        "id": spaces.Box(-(2**62), 2**62, (2,), np.int64),
        "now": spaces.Box(-np.inf, np.inf, (), np.float64),
        "x": spaces.Box(-1, 1, (2,)),
    }
)
BOTH = Composite(
    (Composite((Box((2,), (-1.0, -1.0), (1.0, 1.0), "float64"), MultiBinary((1, 2)))), Discrete(3)), ("arm", "turn")
)
CASES: dict[str, dict[str, Any]] = {
    "an MLP": {},
    "frames of pixels": {"observation": ObservationSpec((36, 36), "uint8", stack=4)},
    "frames with channels last": {"observation": ObservationSpec((7, 7, 2), "uint8", stack=2)},
    "normalised": {"network": {"normalize_observations": True, "layer_norm": True}},
    "masked": {
        "observation": observation_spec(
            "", MaskedSpace({"seen": spaces.Box(-1, 1, (3,)), "allowed": spaces.MultiBinary(4)}, ("allowed",), (4,))
        )
    },
    "an LSTM": {"network": {"memory": "lstm", "memory_size": 8}},
    "a GRU that sees frames": {
        "observation": ObservationSpec((3,), "float32", stack=2),
        "network": {"memory": "gru", "memory_size": 8, "separate_networks": False},
    },
    "integers": {"observation": observation_spec("", spaces.Discrete(5, start=-1))},
    "several integers": {"observation": observation_spec("", spaces.MultiDiscrete([2, 4, 3]))},
    "an integer of many values": {"observation": observation_spec("", spaces.Discrete(5000, start=3))},
    "integers of many values": {
        "observation": observation_spec("", spaces.Tuple([spaces.MultiDiscrete([3, 2000]), spaces.Box(-1, 1, (2,))]))
    },
    "numbers with an origin": {
        "observation": with_found_origins(
            observation_spec("", TIMES),
            [{"id": np.array([2**60 + n, 5]), "now": np.array(1.7e9 + n), "x": np.zeros(2)} for n in range(2)],
        )
    },
    "a tuple": {"observation": observation_spec("", spaces.Tuple([spaces.Box(-1, 1, (2,)), spaces.Discrete(3)]))},
    "parts with names of the graph's own": {"observation": observation_spec("", ODD)},
    "parts, normalised, several actions": {
        "observation": observation_spec("", PARTS),
        "action": BOTH,
        "network": {"normalize_observations": True},
    },
    "a part without a name": {
        "observation": observation_spec("", spaces.Dict({"": spaces.Box(-1, 1, (2,)), "a": spaces.Discrete(3)})),
    },
    "frames of parts": {"observation": "stacked parts", "action": MultiDiscrete((2, 3), (1, 0), (2, 1), "int32")},
    "clipped": {"action": Box((2,), (-0.01, -np.inf), (0.01, np.inf))},
    "squashed": {"action": BOX, "network": {"action_distribution": "squashed", "action_deviation": "output"}},
    "gSDE": {"action": BOX, "network": {"action_distribution": "gsde"}},
    "SAC, normalised": {
        "action": BOX,
        "heads": ("squashed_policy", "critic", "critic", "temperature"),
        "network": {"normalize_observations": True, "normalize_rewards": True},
    },
    "TD3": {
        "action": BOX,
        "heads": ("deterministic_policy", "critic", "critic"),
        "distribution": NoisyActions((2,), BOX.low, BOX.high),
    },
    "dueling, with noise": {
        "heads": ("dueling_q",),
        "network": {"noisy_deviation": 0.5},
        "distribution": EpsilonGreedy(4),
    },
    "C51": {"heads": (CategoricalQHeadParameters(atoms=5, v_min=-2.0, v_max=3.0),)},
    "C51, dueling": {"heads": (CategoricalQHeadParameters(atoms=5, v_min=-2.0, v_max=3.0, dueling=6),)},
    "QR-DQN": {"heads": (QuantileQHeadParameters(atoms=5),)},
}


def saved(
    root: Path,
    observation: ObservationSpec | str = VECTOR,
    action: ActionSpec = FOUR,
    network: Mapping[str, Any] = {},
    heads: Sequence[str | HeadParameters] = HEADS,
    distribution: ActionDistribution | None = None,
) -> Path:
    """A checkpoint with large random weights, so that actions differ."""
    if isinstance(observation, str):
        masked = MaskedSpace({**PARTS.spaces, "mask": spaces.MultiBinary(5)}, ("mask",), (2, 3))
        observation = ObservationSpec(**{**vars(observation_spec("", masked)), "stack": 3})
    if isinstance(heads[0], HeadParameters):
        distribution = epsilon_greedy(heads[0], 4, 0.1, 0.1)
    config = NetworkConfig(**{"middleware": (8,), **network})
    seen = Spaces({"observation": observation}, action)
    module = BoundNetwork(network_parameters(config, heads=heads), seen, torch.Generator().manual_seed(7)).module
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in module.parameters():
            inputs = max(1, parameter[0].numel()) if parameter.dim() else 1
            parameter.add_(torch.randn(parameter.shape, generator=generator) / (2 * inputs**0.5))
        if config.normalize_observations:
            module.normalizer.shift.add_(3.0)
            module.normalizer.scale.mul_(0.2)
    flat = FlatParameters(module)
    block = aligned_block(flat.block_bytes)
    flat.initialize_into(block)
    described = describe_policy(observation, action, config, heads, distribution)
    state = {"policy": described, "env_steps": 64, "updates": 7, "mean_return": 1.5}
    return write_checkpoint(root, 7, tensors=flat.arrays(block), parts={}, state=state)


@pytest.mark.rotates
@pytest.mark.parametrize("case", CASES)
def test_onnxruntime_acts_as_hive_on_1000_observations(tmp_path: Path, case: str) -> None:
    place = saved(tmp_path, **CASES[case])
    done = hive.export(place, tmp_path / "policy.onnx")
    assert (done.compared, done.path.stat().st_size) == (1_000, done.bytes)
    assert done.difference is not None
    assert done.difference < 1e-5
    names = [port.name for port in (*done.inputs, *done.outputs)]
    assert len(set(names)) == len(names)


def session_of(done: Exported) -> Any:
    return onnxruntime.InferenceSession(str(done.path))


def test_one_environment_step_by_step(tmp_path: Path) -> None:
    """Independently of the comparison that `export` makes: a batch of 1, states, and equal outputs."""
    place = saved(tmp_path, ObservationSpec((3,), "float32", stack=2), network={"memory": "lstm", "memory_size": 4})
    policy, done = load(str(place)), hive.export(place, tmp_path / "policy.onnx")
    session, random = session_of(done), np.random.default_rng(2)
    state = policy.initial_state()
    frames, memory = np.zeros((1, 1, 3), np.float32), np.zeros((1, 16), np.float32)
    chosen = set()
    for _ in range(50):
        observation = 3 * random.standard_normal(3, np.float32)
        action, state = policy(observation, state)
        given = {"observation": observation[None], "frames": frames, "recurrent_state": memory}
        found, frames, memory = session.run(["action", "next_frames", "next_recurrent_state"], given)
        assert found == [action]
        np.testing.assert_allclose(memory[0], state[1], atol=1e-5)
        np.testing.assert_array_equal(frames[0], state[0])
        chosen.add(int(action))
    assert len(chosen) > 1
    assert chosen <= {10, 11, 12, 13}


def test_a_mask_forbids_actions(tmp_path: Path) -> None:
    session = session_of(hive.export(saved(tmp_path, **CASES["masked"]), tmp_path / "policy.onnx"))
    seen = np.random.default_rng(0).standard_normal((4, 3), np.float32)
    action, logits = session.run(["action", "logits"], {"seen": seen, "action_mask": np.eye(4, dtype=np.uint8)})
    np.testing.assert_array_equal(action, [10, 11, 12, 13])
    np.testing.assert_array_equal(logits == -1e8, np.eye(4) == 0)


def test_names_types_and_metadata(tmp_path: Path) -> None:
    case = CASES["parts, normalised, several actions"]
    done = hive.export(saved(tmp_path, **case), tmp_path / "policy.onnx")
    session = session_of(done)
    inputs = {one.name: (one.type, one.shape) for one in session.get_inputs()}
    assert inputs == {
        "action": ("tensor(int64)", ["batch", 2]),
        "arm.grip": ("tensor(int64)", ["batch"]),
        "arm.joints": ("tensor(float)", ["batch", 2]),
        "camera": ("tensor(uint8)", ["batch", 6, 6, 1]),
        "pair.0": ("tensor(float)", ["batch"]),
        "pair.1": ("tensor(float)", ["batch", 2]),
    }
    outputs = {one.name: (one.type, one.shape) for one in session.get_outputs()}
    assert outputs == {
        "action.arm.0": ("tensor(double)", ["batch", 2]),
        "action.arm.1": ("tensor(int8)", ["batch", 1, 2]),
        "action.turn": ("tensor(int64)", ["batch"]),
        "mean.arm.0": ("tensor(float)", ["batch", 2]),
        "deviation.arm.0": ("tensor(float)", ["batch", 2]),
        "logits.arm.1": ("tensor(float)", ["batch", 4]),
        "logits.turn": ("tensor(float)", ["batch", 3]),
    }
    facts = session.get_modelmeta().custom_metadata_map
    assert (facts["hive_version"], facts["update"], facts["env_steps"]) == (hive.__version__, "7", "64")
    assert json.loads(facts["action"])["kind"] == "composite"
    assert [one["name"] for one in json.loads(facts["outputs"])] == list(outputs)
    (joints,) = (one for one in json.loads(facts["inputs"]) if one["name"] == "arm.joints")
    assert joints == {
        "name": "arm.joints",
        "shape": [2],
        "dtype": "float32",
        "role": "observation",
        "path": ["arm", "joints"],
    }


@pytest.mark.parametrize("suffix", [".onnx", ".safetensors"])
def test_the_same_checkpoint_gives_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    place = saved(tmp_path)
    done = [hive.export(place, tmp_path / f"{name}{suffix}") for name in "ab"]
    assert done[0].path.read_bytes() == done[1].path.read_bytes()


def test_weights_and_the_description_of_their_network(tmp_path: Path) -> None:
    place = saved(tmp_path, **CASES["normalised"])
    done = hive.export(place, tmp_path / "policy.safetensors")
    with safetensors.safe_open(str(done.path), framework="np") as file:
        facts = json.loads(file.metadata()["hive"])
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a mapping
    assert facts["policy"] == json.loads((place / "state.json").read_text())["policy"]
    assert (facts["update"], facts["hive_version"]) == (7, hive.__version__)
    own = load(str(place)).network.state_dict()
    assert weights.keys() == own.keys()
    assert all(np.array_equal(weights[name], tensor.numpy()) for name, tensor in own.items())


# --- what cannot be exported


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("policy.pt", "has no suffix of a format"),
        ("policy", "has no suffix of a format"),
        ("there.onnx", "already exists"),
        ("missing/policy.onnx", "is not a folder"),
        ("there.onnx/policy.onnx", "is not a folder"),
    ],
)
def test_a_path_that_cannot_be_written(tmp_path: Path, name: str, cause: str) -> None:
    (tmp_path / "there.onnx").write_text("mine")
    with pytest.raises(UsageError, match=cause):
        hive.export(tmp_path / "no run", tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["there.onnx"]
    assert (tmp_path / "there.onnx").read_text() == "mine"


def test_a_run_without_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    with pytest.raises(RecordError, match="holds no complete checkpoint"):
        hive.export(tmp_path / "run", tmp_path / "policy.onnx")


def test_missing_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = saved(tmp_path)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    done = hive.export(place, tmp_path / "policy.onnx")
    assert (done.compared, done.difference) == (0, None)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UsageError, match="needs the package onnx") as error:
        hive.export(place, tmp_path / "other.onnx")
    assert error.value.hint.startswith("pip install 'hive-trainer[export]'")


class Custom(nn.Module):
    """A user-defined network, which computes with tensors only."""

    def __init__(self, spaces: Spaces) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 5)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        columns = self.layer(observations)
        return columns[:, :4], columns[:, 4]


class AsksForValues(Custom):
    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward(observations if observations.sum() > 0 else -observations)


class KnowsTwoRows(Custom):
    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        logits, value = super().forward(observations)
        return (logits.view(2, 4) if logits.numel() == 8 else logits), value


class Raises(Custom):
    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        if torch.onnx.is_in_onnx_export():
            raise RuntimeError("not this one\nmore")
        return super().forward(observations)


class DrawsNumbers(Custom):
    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        logits, value = super().forward(observations)
        return logits + torch.rand_like(logits), value


@pytest.mark.parametrize(
    ("module", "cause"),
    [
        (AsksForValues, r"cannot be written as ONNX: its result depends on values in Python \(test_exporting.py"),
        (KnowsTwoRows, "cannot be written as ONNX: .*depends on values in Python"),
        (Raises, "cannot be written as ONNX: RuntimeError: not this one\nhint"),
        (DrawsNumbers, "does not compute what the policy does: `logits` has a difference of"),
    ],
)
def test_a_network_that_cannot_be_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: type[nn.Module], cause: str
) -> None:
    monkeypatch.setitem(sys.modules, "own_networks", sys.modules[__name__])
    place = saved(tmp_path, network={"module": f"own_networks:{module.__name__}"})
    with pytest.raises(RecordError, match="would be imported and called"):
        hive.export(place, tmp_path / "policy.onnx")
    with pytest.raises(NetworkError, match=cause) as error:
        hive.export(place, tmp_path / "policy.onnx", own_code=True)
    assert ".safetensors file holds the weights" in error.value.hint
    assert not list(tmp_path.glob("*.onnx"))
    assert hive.export(place, tmp_path / "policy.safetensors", own_code=True).bytes


class Attends(nn.Module):
    """An extractor in which the elements of an observation attend to each other, by torch's layer."""

    def __init__(self, spaces: Spaces, width: int = 4) -> None:
        super().__init__()
        self.inputs = nn.Linear(1, width)
        self.layer = nn.TransformerEncoderLayer(width, 2, 8, batch_first=True)

    def forward(self, observations: Tensor) -> Tensor:
        found: Tensor = self.layer(self.inputs(observations.unsqueeze(-1)))
        return found[:, 0]


def test_attention_of_a_user_is_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch computes it by an operation of its own where nothing learns, which ONNX does not have."""
    monkeypatch.setitem(sys.modules, "own_networks", sys.modules[__name__])
    place = saved(tmp_path, network={"extractor": "own_networks:Attends", "extractor_options": {"width": 8}})
    done = hive.export(place, tmp_path / "policy.onnx", own_code=True)
    assert done.compared == 1000
    assert torch.backends.mha.get_fastpath_enabled()


def test_a_network_of_a_user_is_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "own_networks", sys.modules[__name__])
    place = saved(tmp_path, network={"module": "own_networks:Custom"})
    assert hive.export(place, tmp_path / "policy.onnx", own_code=True).compared
