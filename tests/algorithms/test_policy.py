"""Policies from checkpoints: the actions of the network that trained, from JSON and bytes, and nothing executed."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.typing import NDArray

import hive
from hive.config import NetworkConfig
from hive.envs import ActionSpec, Box, Discrete, MultiDiscrete, ObservationSpec
from hive.envs.spaces.observation import observation_spec
from hive.envs.vectors.checks import store
from hive.errors import MemoryShort, RecordError, UsageError
from hive.networks import (
    CategoricalQHeadParameters,
    DuelingQHeadParameters,
    EpsilonGreedy,
    FlatParameters,
    HeadParameters,
    QuantileQHeadParameters,
    Spaces,
    aligned_block,
    distribution_for,
)
from hive.networks.act.exploration import epsilon_greedy
from hive.networks.build.configured import network_parameters
from hive.networks.weights.wrapper import BoundNetwork
from hive.policy.descriptions import describe_policy
from hive.records import RunDirectory, write_checkpoint

SEEN = ObservationSpec((3,), "float32")
ACTIONS: dict[str, ActionSpec] = {
    "discrete": Discrete(4, start=10),
    "multi-discrete": MultiDiscrete((2, 3), (10, 20)),
    "box": Box((2,), (-0.01, -math.inf), (0.01, math.inf)),
}
NETWORK = NetworkConfig(middleware=(8,))


HEADS = ("policy", "value")  # default heads of a description


def trained(
    observation: ObservationSpec,
    action: ActionSpec,
    network: NetworkConfig = NETWORK,
    heads: Sequence[str | HeadParameters] = HEADS,
) -> torch.nn.Module:
    generator = torch.Generator().manual_seed(7)
    parameters, spaces = network_parameters(network, heads=heads), Spaces({"observation": observation}, action)
    module = BoundNetwork(parameters, spaces, generator).module
    for layer in module.modules():
        if isinstance(layer, torch.nn.LayerNorm):
            torch.nn.init.normal_(layer.weight)
    return module


def saved(
    root: Path,
    observation: ObservationSpec = SEEN,
    action: ActionSpec = ACTIONS["discrete"],
    network: NetworkConfig = NETWORK,
    heads: Sequence[str | HeadParameters] = HEADS,
    **changed: Any,
) -> tuple[Path, torch.nn.Module]:
    """A checkpoint as the recorder writes it, and the network whose weights it holds."""
    module = trained(observation, action, network, heads)
    flat = FlatParameters(module)
    block = aligned_block(flat.block_bytes)
    flat.initialize_into(block)
    state = {"policy": describe_policy(observation, action, network), "env_steps": 64, "updates": 5, "mean_return": 1.5}
    return write_checkpoint(root, 7, tensors=flat.arrays(block), parts={}, state=state | changed), module


def rows(count: int) -> NDArray[np.float32]:
    return np.random.default_rng(3).standard_normal((count, 3), np.float32)


@pytest.mark.parametrize("kind", ACTIONS)
def test_it_acts_as_the_network_that_trained(tmp_path: Path, kind: str) -> None:
    action = ACTIONS[kind]
    place, module = saved(tmp_path, action=action)
    policy = hive.load(str(place))
    batch = rows(50)
    with torch.no_grad():
        outputs = module(torch.from_numpy(batch))[0]
    distribution = distribution_for(action)
    expected = distribution.mode(outputs).numpy()
    drawn = distribution.sample_numpy(outputs.numpy(), distribution.draw_noise(np.random.default_rng(1), 50))
    if isinstance(action, Discrete):
        expected, drawn = expected + 10, drawn + 10
    if isinstance(action, MultiDiscrete):
        expected, drawn = (actions + np.array([10, 20]) for actions in (expected, drawn))
    if isinstance(action, Box):
        expected, drawn = (np.clip(a, np.float32(action.low), np.float32(action.high)) for a in (expected, drawn))
        assert {-0.01, 0.01} <= {round(float(a), 4) for a in drawn[:, 0]}  # some would have been beyond
    np.testing.assert_array_equal(policy(batch), expected)
    np.testing.assert_array_equal(policy(batch, noise=np.random.default_rng(1)), drawn)
    assert (drawn != expected).any()
    for one, action_of_one in zip(batch, expected, strict=True):
        np.testing.assert_allclose(policy(one), action_of_one, rtol=1e-5)  # a sum of one row, in another order
        assert np.shape(policy(one)) == action.shape


def test_settings_of_torch_in_the_host_process_change_no_action(tmp_path: Path) -> None:
    place, _ = saved(tmp_path)
    before = hive.load(str(place))
    expected = before(rows(50)), *before.outputs(rows(50))
    try:
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
        torch.set_grad_enabled(False)
        for policy in (before, hive.load(str(place))):
            outputs, state = policy.outputs(rows(50))
            np.testing.assert_array_equal(policy(rows(50)), expected[0])
            np.testing.assert_array_equal(outputs, expected[1])
            assert (outputs.dtype, state) == (np.float32, expected[2])
        assert (torch.get_default_dtype(), torch.get_default_device().type) == (torch.float64, "meta")
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)
        torch.set_grad_enabled(True)


def test_squashed_actions_are_within_the_bounds(tmp_path: Path) -> None:
    box, network = Box((2,), (-3.0, 0.0), (1.0, 0.5)), NetworkConfig(middleware=(8,), action_distribution="squashed")
    place, module = saved(tmp_path, action=box, network=network)
    policy, batch = hive.load(str(place)), 100.0 * rows(50)
    with torch.no_grad():
        outputs = module(torch.from_numpy(batch))[0]
    expected = distribution_for(box, "squashed").mode(outputs)
    np.testing.assert_array_equal(policy(batch), expected)
    drawn = policy(batch, noise=np.random.default_rng(1))
    assert ((drawn > box.low) & (drawn < box.high)).all(), "clipped actions would be at the bounds"


def test_one_of_action_values_acts_epsilon_greedily(tmp_path: Path) -> None:
    """The best action, and with `noise` also another one, by the epsilon that its training ended with."""
    exploration = EpsilonGreedy(4, 1.0, 0.25, 10)
    description = describe_policy(SEEN, ACTIONS["discrete"], NETWORK, ("q",), exploration)
    assert (description["heads"], description["epsilon"]) == (["q"], 0.25)
    place, module = saved(tmp_path, heads=("q",), policy=json.loads(json.dumps(description)))
    policy, batch = hive.load(str(place)), rows(400)
    with torch.no_grad():
        (values,) = module(torch.from_numpy(batch))
    best = values.argmax(1).numpy() + 10
    np.testing.assert_array_equal(policy(batch), best)
    drawn = policy(batch, noise=np.random.default_rng(1))
    noise = exploration.draw_noise(np.random.default_rng(1), 400)
    np.testing.assert_array_equal(drawn, exploration.sample_numpy(values.numpy(), noise) + 10)
    assert 0.1 < (drawn != best).mean() < 0.3  # 0.25 * 3 / 4


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (
            CategoricalQHeadParameters(atoms=5, v_min=-2.0, v_max=3.0, gain=2.0),
            lambda logs: logs.exp() @ torch.linspace(-2.0, 3.0, 5),
        ),
        (QuantileQHeadParameters(atoms=3), lambda quantiles: quantiles.mean(-1)),
    ],
    ids=["categories", "quantiles"],
)
def test_one_of_return_distributions_compares_expected_returns(
    tmp_path: Path, head: HeadParameters, expected: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    exploration = epsilon_greedy(head, 4, 1.0, 0.25, 10)
    description = describe_policy(SEEN, ACTIONS["discrete"], NETWORK, (head,), exploration)
    place, module = saved(tmp_path, heads=(head,), policy=json.loads(json.dumps(description)))
    policy, batch = hive.load(str(place)), rows(400)
    with torch.no_grad():
        (outputs,) = module(torch.from_numpy(batch))
    best = expected(outputs).argmax(1).numpy() + 10
    assert len(set(best)) > 1
    np.testing.assert_array_equal(policy(batch), best)
    drawn = policy(batch, noise=np.random.default_rng(1))
    assert 0.1 < (drawn != best).mean() < 0.3  # 0.25 * 3 / 4


@pytest.mark.parametrize(
    "head",
    [
        {"name": "categorical_q", "atoms": 1},
        {"name": "categorical_q", "atoms": "5"},
        {"name": "quantile_q", "quantiles": 5},
        {"name": "quantiles"},
        {"atoms": 5},
    ],
    ids=str,
)
def test_a_head_that_does_not_exist_so_is_refused(tmp_path: Path, head: dict[str, Any]) -> None:
    exploration = EpsilonGreedy(4, 1.0, 0.25, 10)
    description = describe_policy(SEEN, ACTIONS["discrete"], NETWORK, ("q",), exploration) | {"heads": [head]}
    place, _ = saved(tmp_path, heads=("q",), policy=description)
    with pytest.raises(RecordError, match="describes no policy"):
        hive.load(str(place))


@pytest.mark.parametrize("memory", ["lstm", "gru"])
def test_a_recurrent_policy_takes_and_returns_its_state(tmp_path: Path, memory: str) -> None:
    network = NetworkConfig(middleware=(8,), memory=memory, memory_size=5, policy_gain=3.0)
    place, module = saved(tmp_path, network=network)
    policy, distribution = hive.load(str(place)), distribution_for(ACTIONS["discrete"])
    state, one = policy.initial_state(4), policy.initial_state()
    own = torch.zeros(4, 2 * 2 * 5 if memory == "lstm" else 2 * 5)
    assert (state.shape, one.shape, state.dtype) == (tuple(own.shape), own.shape[1:], np.float32)
    seen = []
    for batch in rows(20).reshape(5, 4, 3):
        with torch.no_grad():
            outputs, _, own = module({"observation": torch.from_numpy(batch), "recurrent_state": own})
        actions, state = policy(batch, state)
        action, one = policy(batch[0], one)
        np.testing.assert_array_equal(actions, distribution.mode(outputs).numpy() + 10)
        np.testing.assert_array_equal(state, own.numpy())
        np.testing.assert_allclose(one, own[0].numpy(), rtol=1e-4, atol=1e-6)
        assert action == actions[0]
        seen += actions.tolist()
    assert len(set(seen)) > 1
    drawn, after = policy(batch, state, noise=np.random.default_rng(1))
    assert (drawn.shape, after.shape) == ((4,), state.shape)
    assert not np.shares_memory(after, policy(batch, state)[1])


def test_a_state_that_does_not_fit(tmp_path: Path) -> None:
    place, _ = saved(tmp_path, network=NetworkConfig(middleware=(8,), memory="gru", memory_size=5))
    policy = hive.load(str(place))
    with pytest.raises(ValueError, match="this policy remembers: call `action, state = policy"):
        policy(rows(4))
    with pytest.raises(ValueError, match=r"got a state of shape \[10\], expected \[4, 10\]"):
        policy(rows(4), policy.initial_state())
    (tmp_path / "plain").mkdir()
    plain = hive.load(str(saved(tmp_path / "plain")[0]))
    assert plain.initial_state() is None
    assert plain.initial_state(3) is None
    with pytest.raises(ValueError, match="has no memory, so it takes no state"):
        plain(rows(4), np.zeros((4, 10), np.float32))
    assert plain(rows(4), None).shape == (4,)


def test_noise_in_the_weights_is_left_out(tmp_path: Path) -> None:
    noisy = NetworkConfig(middleware=(8,), noisy_deviation=0.5)
    description = describe_policy(SEEN, ACTIONS["discrete"], noisy, ("q",), EpsilonGreedy(4, 0.0, 0.0))
    place, module = saved(tmp_path, network=noisy, heads=("q",), policy=json.loads(json.dumps(description)))
    policy, batch = hive.load(str(place)), rows(50)
    with torch.no_grad():
        means = module.eval()(torch.from_numpy(batch))[0].argmax(1).numpy() + 10
    np.testing.assert_array_equal(policy(batch), means)
    np.testing.assert_array_equal(policy(batch, noise=np.random.default_rng(1)), means)  # epsilon is 0


def test_layer_norm_is_part_of_the_network(tmp_path: Path) -> None:
    network = NetworkConfig(middleware=(8,), layer_norm=True)
    description = describe_policy(SEEN, ACTIONS["discrete"], network)
    place, module = saved(tmp_path, network=network, policy=json.loads(json.dumps(description)))
    with torch.no_grad():
        expected = module(torch.from_numpy(rows(50)))[0]
    policy = hive.load(str(place))
    torch.testing.assert_close(policy.network(torch.from_numpy(rows(50)))[0], expected)
    older = {name: value for name, value in description["network"].items() if name != "layer_norm"}
    (tmp_path / "older").mkdir()
    plain, _ = saved(tmp_path / "older", policy=description | {"network": older})
    assert not any(isinstance(layer, torch.nn.LayerNorm) for layer in hive.load(str(plain)).network.modules())


def test_a_policy_reports_the_progress_of_its_run(tmp_path: Path) -> None:
    policy = hive.load(str(saved(tmp_path)[0]))
    assert (policy.updates, policy.env_steps, policy.mean_return) == (5, 64, 1.5)
    assert (policy.observation, policy.action) == (SEEN, ACTIONS["discrete"])
    assert not policy.network.training


def test_of_a_run_the_newest_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIVE_HOME", str(tmp_path))
    run = RunDirectory.create(tmp_path, "cart")
    saved(run.checkpoints)
    for place in ("cart-1", str(run.path)):
        assert hive.load(place).updates == 5
    with pytest.raises(UsageError, match="no run"):
        hive.load("card-1")


@pytest.mark.parametrize("shape", [(), (4,), (2, 4), (1, 1, 3)])
def test_observations_of_another_shape(tmp_path: Path, shape: tuple[int, ...]) -> None:
    policy = hive.load(str(saved(tmp_path)[0]))
    text = re.escape(f"got observations of shape {list(shape)}, expected [3] or a batch of these")
    with pytest.raises(ValueError, match=text):
        policy(np.zeros(shape, np.float32))


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_an_empty_batch_gives_no_actions(tmp_path: Path, memory: str) -> None:
    network = NetworkConfig(middleware=(8,), memory=memory, memory_size=4)
    policy = hive.load(str(saved(tmp_path, network=network, action=ACTIONS["box"])[0]))
    none, state = np.zeros((0, 3), np.float32), policy.initial_state(0)
    for noise in (None, np.random.default_rng(0)):
        actions = policy(none, state, noise=noise)
        if memory != "none":
            actions, after = actions
            assert after.shape == state.shape
        assert actions.shape == (0, 2)


def test_lists_and_other_dtypes_are_taken(tmp_path: Path) -> None:
    policy = hive.load(str(saved(tmp_path)[0]))
    one = rows(1)[0]
    assert policy(one.tolist()) == policy(one.astype(np.float64)) == policy(one)


def test_a_number_stands_for_its_one_hot(tmp_path: Path) -> None:
    policy = hive.load(str(saved(tmp_path, observation=ObservationSpec((3,), "float32", (3,), (5,)))[0]))
    one_hot = np.eye(3, dtype=np.float32)
    for value in (5, 6, 7):
        assert policy(value) == policy(np.int64(value)) == policy(one_hot[value - 5])
    np.testing.assert_array_equal(policy(np.array([7, 5])), policy(one_hot[[2, 0]]))


@pytest.mark.parametrize(
    ("space", "observations"),
    [
        (spaces.Discrete(3), np.array([0, 2, 1])),  # as many observations as the space has values
        (spaces.Discrete(1, start=4), np.array([4, 4])),
        (spaces.MultiDiscrete([1, 1]), np.array([[0, 0], [0, 0]])),
        (spaces.MultiDiscrete([3, 2]), np.array([[0, 1], [2, 0]])),
        (spaces.MultiDiscrete([[2, 3], [4, 1]]), np.array([[[0, 1], [2, 0]], [[1, 2], [3, 0]], [[1, 0], [0, 0]]])),
    ],
    ids=str,
)
@pytest.mark.parametrize("part", [False, True], ids=["alone", "as a part"])
def test_a_batch_of_integers_acts_as_each_of_them(
    tmp_path: Path, space: Any, observations: NDArray[np.int64], part: bool
) -> None:
    seen = spaces.Dict({"a": space, "b": spaces.MultiDiscrete([3])}) if part else space
    place, module = saved(tmp_path, observation_spec("", seen))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(3.0)
    policy = hive.load(str(place))
    batch: Any = {"a": observations, "b": np.arange(len(observations))[:, None] % 3} if part else observations
    each = [{"a": a, "b": np.array([n % 3])} if part else a for n, a in enumerate(observations)]
    np.testing.assert_array_equal(policy(batch), [policy(one) for one in each])
    assert policy.outputs(batch)[0].shape == (len(observations), 4)
    first: Any = {"a": observations[:1], "b": batch["b"][:1]} if part else observations[:1]
    np.testing.assert_array_equal(policy(first), policy(batch)[:1])
    stored = np.zeros((len(observations), *policy.observation.shape), policy.observation.dtype)
    assert store(policy.observation, each, stored)
    if not part:
        np.testing.assert_array_equal(policy.outputs(stored)[0], policy.outputs(batch)[0])


def test_a_batch_of_single_integers_in_arrays(tmp_path: Path) -> None:
    policy = hive.load(str(saved(tmp_path, observation_spec("", spaces.MultiDiscrete([3])))[0]))
    np.testing.assert_array_equal(policy(np.array([[2], [0]])), policy(np.array([2, 0])))


def test_pictures_stay_bytes(tmp_path: Path) -> None:
    picture = ObservationSpec((36, 36, 1), "uint8")
    place, module = saved(tmp_path, observation=picture)
    seen = np.random.default_rng(0).integers(0, 255, (2, *picture.shape), np.uint8)
    with torch.no_grad():
        expected = module(torch.from_numpy(seen))[0].argmax(1).numpy() + 10
    np.testing.assert_array_equal(hive.load(str(place))(seen), expected)


def test_a_processor_without_bfloat16_plays_in_float32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hive.networks.build.convolutions.has_bfloat16_instructions", lambda: True)
    network = dataclasses.replace(NETWORK, precision="bfloat16")
    picture = ObservationSpec((36, 36, 1), "uint8")
    place, _ = saved(tmp_path, observation=picture, network=network)
    for where in ("hive.networks.build.convolutions", "hive.policy.loaded"):
        monkeypatch.setattr(f"{where}.has_bfloat16_instructions", lambda: False)
    dtypes = {getattr(layer, "compute_dtype", None) for layer in hive.load(str(place)).network.modules()}
    assert dtypes == {None, torch.float32}


# --- what is refused


OWN = NetworkConfig(module="small_policy:Own")


def test_user_defined_code_requires_own_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small_policy.py").write_text(
        "import torch\n"
        "class Own(torch.nn.Module):\n"
        "    def __init__(self, spaces):\n"
        "        super().__init__()\n"
        "        self.layer = torch.nn.Linear(3, 5)\n"
        "    def forward(self, x):\n"
        "        y = self.layer(x)\n"
        "        return y[:, :4], y[:, 4]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    place, module = saved(tmp_path, network=OWN)
    monkeypatch.delitem(sys.modules, "small_policy")
    with pytest.raises(RecordError, match=r"uses `small_policy:Own`, which would be imported") as caught:
        hive.load(str(place))
    assert "own_code=True" in caught.value.hint
    assert "small_policy" not in sys.modules
    with torch.no_grad():
        expected = module(torch.from_numpy(rows(5)))[0].argmax(1).numpy() + 10
    np.testing.assert_array_equal(hive.load(str(place), own_code=True)(rows(5)), expected)


def test_a_custom_head_of_an_algorithm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a custom algorithm gives it, in the parameters of its heads."""
    (tmp_path / "small_heads.py").write_text(
        "from hive.networks import PolicyHead\n"
        "class Cold(PolicyHead):\n"
        "    def forward(self, columns):\n"
        "        return -super().forward(columns)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    from small_heads import Cold  # type: ignore[import-not-found]

    heads = (HeadParameters("policy", cls=Cold), HeadParameters("value"))
    description = json.loads(json.dumps(describe_policy(SEEN, ACTIONS["discrete"], NETWORK, heads)))
    place, module = saved(tmp_path, heads=heads, policy=description)
    with pytest.raises(RecordError, match="uses `small_heads:Cold`, which would be imported"):
        hive.load(str(place))
    with torch.no_grad():
        expected = module(torch.from_numpy(rows(5)))[0].argmax(1).numpy() + 10
    np.testing.assert_array_equal(hive.load(str(place), own_code=True)(rows(5)), expected)
    for number, (widths, kind) in enumerate([([1 << 20] * 2, MemoryShort), ([1] * 1000, RecordError)]):
        description["network"]["middleware"] = widths  # hive cannot size what its class does, but the rest
        giant, _ = saved(tmp_path / str(number), heads=heads, policy=description)
        with pytest.raises(kind):
            hive.load(str(giant), own_code=True)


def test_a_dueling_head_has_the_width_of_its_layers(tmp_path: Path) -> None:
    """Of any of its parameters, the description has what differs from the defaults."""
    heads = (DuelingQHeadParameters(hidden=7),)
    description = json.loads(json.dumps(describe_policy(SEEN, ACTIONS["discrete"], NETWORK, heads, EpsilonGreedy(4))))
    place, module = saved(tmp_path, heads=heads, policy=description)
    with torch.no_grad():
        expected = module(torch.from_numpy(rows(5)))[0].argmax(1).numpy() + 10
    np.testing.assert_array_equal(hive.load(str(place))(rows(5)), expected)


GOOD = describe_policy(SEEN, ACTIONS["discrete"], NETWORK)
BROKEN = {
    "none": None,
    "an old checkpoint": {},
    "no network": {"observation": GOOD["observation"], "action": GOOD["action"]},
    "an unknown action": GOOD | {"action": {"kind": "dict"}},
    "an action that lacks its number": GOOD | {"action": {"kind": "discrete"}},
    "bounds of another shape": GOOD | {"action": {"kind": "box", "shape": [2], "low": [0.0], "high": [1.0, 1.0, 1.0]}},
    "elements of another shape": GOOD | {"action": {"kind": "multi-discrete", "nvec": [2, 2], "env_shape": [3]}},
    "a composite action with too few names": GOOD
    | {"action": {"kind": "composite", "names": ["a"], "parts": [GOOD["action"]] * 2}},
    "an action with more": GOOD | {"action": {"kind": "discrete", "n": 2, "m": 1}},
    "an unknown dtype": GOOD | {"observation": GOOD["observation"] | {"dtype": "object"}},
    "a shape that is none": GOOD | {"observation": GOOD["observation"] | {"shape": ["three"]}},
    "heads that are none": GOOD | {"heads": 3},
    "an unknown head": GOOD | {"heads": ["policy", "banana"]},
    "an epsilon that is no probability": GOOD | {"heads": ["q"], "epsilon": 1.5},
    "an epsilon of other actions": describe_policy(SEEN, ACTIONS["box"], NETWORK) | {"epsilon": 0.1},
    "an unknown key": GOOD | {"network": GOOD["network"] | {"depth": 9}},
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_description_that_is_none(tmp_path: Path, case: str) -> None:
    place, _ = saved(tmp_path, policy=BROKEN[case])
    with pytest.raises(RecordError, match=r"state\.json of .*000007 describes no policy: "):
        hive.load(str(place))


def test_weights_that_do_not_fit_their_description(tmp_path: Path) -> None:
    other = describe_policy(SEEN, ACTIONS["discrete"], NetworkConfig(middleware=(9,)))
    place, _ = saved(tmp_path, policy=other)
    with pytest.raises(RecordError, match=r"000007 is float32\[8.*\], this network has float32\[9"):
        hive.load(str(place))


def test_a_checkpoint_that_is_damaged(tmp_path: Path) -> None:
    place, _ = saved(tmp_path)
    weights = place / "weights.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(RecordError, match=r"weights\.safetensors"):
        hive.load(str(place))


# --- what it needs


@pytest.mark.parametrize("kind", ACTIONS)
def test_descriptions_are_json(kind: str) -> None:
    described = describe_policy(SEEN, ACTIONS[kind], NETWORK)
    assert json.loads(json.dumps(described, allow_nan=False)) == described


def test_it_loads_nothing_that_trains(tmp_path: Path) -> None:
    """Neither environments nor sockets, and no process is started."""
    program = (
        "import sys, hive\n"
        f"policy = hive.load({str(saved(tmp_path)[0])!r})\n"
        "print(policy([0.0, 0.0, 0.0]))\n"
        "heavy = ('gymnasium', 'zmq', 'hive.training', 'hive.schemes', 'hive.runtime.supervise.supervisor')\n"
        "loaded = [n for n in heavy if n in sys.modules]\n"
        "assert not loaded, loaded\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) in range(10, 14)
