"""Any environment: every element of every part of an observation reaches every network, in its declared scale.

Spaces are random: nested up to three deep, with names that hive uses itself, of all dtypes, bounds and starts. Each
example draws a space, an algorithm and an option of the network or the environment.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import HealthCheck, Phase, assume, given, settings
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import hive
from hive.algorithms.making import heads_of_algorithm, make_algorithm
from hive.config import AgentConfig, Config, load_config
from hive.envs import ActionSpec, EnvironmentSpec, ObservationSpec
from hive.envs.spaces.actions import action_spec
from hive.envs.spaces.meaning import configured_meaning
from hive.envs.spaces.observation import ArraySpec, observation_spec
from hive.envs.spaces.origins import with_found_origins
from hive.envs.vectors.checks import store
from hive.networks import FlatParameters, Spaces, aligned_block
from hive.networks.build.agents import AgentNetwork
from hive.networks.build.configured import configured_distribution, network_parameters
from hive.networks.build.convolutions import Convolution, ImageInput
from hive.networks.build.embedders import InputEmbedderParameters, VectorInput, embedder_layers, unseen
from hive.networks.build.network import build_network, compute_natively
from hive.networks.rows.inputs import RECURRENT_STATE, state_width_of
from hive.networks.rows.normalization import NormalizedNetwork
from hive.policy.descriptions import describe_policy, specs_in
from hive.policy.given_observations import GivenObservations
from hive.policy.loaded import load
from hive.records import write_checkpoint

EXAMPLES, ALL_EXAMPLES = 50, 1000
EXPORTED = 20  # examples per exported one
MOST_ELEMENTS = 400  # maximum elements of an observation
SEEDS = (0, 1, 2)  # of initial weights: with one, a unit of relu may be off for all that is tried

NAMES = st.one_of(
    st.sampled_from(["observation", "action", "recurrent_state", "episode_starts", "action_mask", "achieved_goal"]),
    st.sampled_from(["value", "policy", "next", "frames", "a.b", "a", "b", "0", "größe", "状態", "x y", "x/y", "_"]),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=4),
)
SHAPES = st.one_of(
    st.lists(st.integers(1, 4), max_size=2).map(tuple),
    st.tuples(*[st.integers(1, 6)] * 3),
    st.just((36, 37)),
    st.lists(st.integers(1, 2), min_size=4, max_size=4).map(tuple),
)
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


@st.composite
def integer_boxes(draw: st.DrawFn) -> spaces.Box:
    dtype, shape = np.dtype(draw(st.sampled_from(INTEGERS))), draw(SHAPES)
    limits = np.iinfo(dtype)
    bounds = st.sampled_from(
        [(0, 1), (0, 2), (0, 7), (1, 5), (0, 255 if limits.max >= 255 else 100), "limits", "mixed"]
    )
    chosen = draw(bounds)
    if chosen == "limits":
        return spaces.Box(limits.min, limits.max, shape, dtype.type)
    if chosen == "mixed":
        highs = np.arange(prod(shape)).reshape(shape) % 5 + 1
        return spaces.Box(np.zeros(shape, dtype), highs.astype(dtype), dtype=dtype.type)
    return spaces.Box(*chosen, shape, dtype.type)


@st.composite
def float_boxes(draw: st.DrawFn) -> spaces.Box:
    low, high = draw(st.sampled_from([(-1.0, 1.0), (0.0, 1.0), (-np.inf, np.inf), (0.0, np.inf), (-3.0, 200.0)]))
    return spaces.Box(low, high, draw(SHAPES), draw(st.sampled_from([np.float32, np.float64])))


LEAVES = st.one_of(
    integer_boxes(),
    float_boxes(),
    st.builds(spaces.Discrete, st.sampled_from([1, 2, 5, 1024, 1025, 70_000]), start=st.integers(-3, 3)),
    st.builds(spaces.MultiDiscrete, st.lists(st.integers(1, 4), min_size=1, max_size=3)),
    st.just(spaces.MultiDiscrete([3, 2000], start=[1, -5])),
    st.builds(spaces.MultiBinary, st.sampled_from([1, 3, (2, 2)])),
)
OBSERVATIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.dictionaries(NAMES, inner, min_size=1, max_size=3).map(spaces.Dict),
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple),
    ),
    max_leaves=4,
)
ONE_ACTION = spaces.Discrete(3)
BOXES = (spaces.Box(-1, 1, (2,)), spaces.Box(0, 1000, (1,)), spaces.Box(100, 200, (2, 1)))
ACTIONS: dict[str, tuple[spaces.Space[Any], ...]] = {
    "ppo": (ONE_ACTION, *BOXES, spaces.MultiDiscrete([2, 3]), spaces.Tuple([ONE_ACTION, BOXES[1]])),
    "a2c": (ONE_ACTION, spaces.Box(-np.inf, np.inf, (1,)), spaces.Box(0, np.inf, (1,))),
    "impala": (ONE_ACTION, BOXES[2]),
    "nstep-q": (ONE_ACTION,),
    "dqn": (ONE_ACTION,),
    "sac": BOXES,
    "td3": BOXES,
}
OPTIONS: dict[str, tuple[str, ...]] = {
    "plain": (),
    "frames": ("env.frame_stack=2",),
    "lstm": ("network.memory=lstm", "network.memory_size=4"),
    "normalised": ("network.normalize_observations=true",),
    "novelty": ("network.novelty_weight=0.5",),
    "shared layers": ("network.separate_networks=false",),
    "layer norm": ("network.layer_norm=true",),
    "unscaled": ("env.scale_observations=false", "env.scale_actions=false"),
    "no images": ("env.images=none",),
    "channels first": ("env.images=first",),
}
ON_POLICY = ("lstm", "novelty", "shared layers")  # options that the others do not have


@st.composite
def cases(draw: st.DrawFn) -> tuple[spaces.Space[Any], spaces.Space[Any], str, str]:
    scheme = draw(st.sampled_from(sorted(ACTIONS)))
    fitting = [option for option in OPTIONS if scheme in ("ppo", "a2c", "impala") or option not in ON_POLICY]
    small = OBSERVATIONS.filter(lambda space: elements_of(space) <= MOST_ELEMENTS)
    return draw(small), draw(st.sampled_from(ACTIONS[scheme])), scheme, draw(st.sampled_from(fitting))


def elements_of(space: spaces.Space[Any]) -> int:
    spec = observation_spec("drawn", space)
    return sum(len(one.counts) or prod(one.shape) for one in spec.inputs)


class Trainee:
    """The networks of one example."""

    def __init__(self, case: tuple[spaces.Space[Any], spaces.Space[Any], str, str]) -> None:
        self.space, action, scheme, option = case
        sets = [f"run.scheme={scheme}", "network.middleware=[8]", "network.activation=tanh", *OPTIONS[option]]
        self.config: Config = load_config("run.toml", [*sets, "env.id=drawn"], text="")
        described = EnvironmentSpec("drawn", observation_spec("drawn", self.space), action_spec("drawn", action))
        self.environment = configured_meaning(described, self.config.env)
        self.observation: ObservationSpec = self.environment.observation
        self.action: ActionSpec = self.environment.action
        squashed = isinstance(self.config.algorithm, AgentConfig)
        self.distribution = configured_distribution(self.config.network, self.action, squashed=squashed)
        algorithm = make_algorithm(self.config.algorithm, self.distribution, 1, 64)
        self.distribution = algorithm.distribution
        self.heads = heads_of_algorithm(algorithm)
        self.parameters = network_parameters(self.config.network, 1e-3, self.heads)

    def network(self, seed: int) -> nn.Module:
        only = Spaces({"observation": self.observation}, self.action)
        network = build_network(self.parameters, only, torch.Generator().manual_seed(seed))
        compute_natively(network, FlatParameters(network), "auto")
        return network.eval()

    def small(self, one: ArraySpec) -> bool:
        """Whether the numbers of a part must be small: units saturate, and a normaliser without statistics clips."""
        return not one.low or (one.dtype == "float32" and bool(self.config.network.normalize_observations))

    def outputs(self, network: nn.Module, rows: Tensor) -> list[Tensor]:
        """Return what every network says of observations [N, ...]: outputs float32 [N, ...]."""
        given: Any = rows
        if width := state_width_of(network):
            given = {"observation": rows, RECURRENT_STATE: torch.zeros(len(rows), width)}
        with torch.no_grad():
            found = [*network(given)]
            agent, seen = network, rows
            if isinstance(network, NormalizedNetwork):
                agent, seen = network.network, rows if network.normalizer is None else network.normalizer(rows)
            if isinstance(agent, AgentNetwork):
                boxes = agent.critic.takes_actions
                actions = torch.full((len(rows), *self.action.shape), 0.3) if boxes else None
                found += [*agent.critic(seen, actions)]
            if isinstance(network, NormalizedNetwork) and network.novelty is not None:
                newest = rows[:, -1] if self.observation.stack > 1 else rows
                found.append(network.novelty(newest))
        return found

    def stored(self, observations: list[Any]) -> np.ndarray[Any, Any]:
        rows = np.zeros((len(observations), *self.observation.shape), self.observation.dtype)
        assert store(self.observation, observations, rows), "a sample of the space is refused"
        return rows


def changed(trainee: Trainee, row: np.ndarray[Any, Any]) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yield (element, row) for each element of an observation: the row with another value of this element."""
    spec = trainee.observation
    for one in spec.inputs:
        path = getattr(one, "path", None)
        for index in seen_elements(one):
            other = np.array(row)
            part = other if path is None else one.view(other)  # type: ignore[attr-defined]
            change(one, part, index, small=trainee.small(one))
            yield f"{getattr(one, 'name', '')}{list(index)}", other


def seen_elements(one: ArraySpec) -> list[tuple[int, ...]]:
    """Return the indices of elements, without rows and columns that strides drop, and without constants."""
    if one.counts:
        return [(number,) for number, count in enumerate(one.counts) if count > 1]
    whole = np.arange(prod(one.shape)).reshape(one.shape)
    if one.channels != "none":
        rows, columns = unseen(one)
        first = 1 if one.channels == "first" else 0
        whole = whole.take(range(one.shape[first] - rows), first).take(range(one.shape[first + 1] - columns), first + 1)
    return [tuple(map(int, np.unravel_index(place, one.shape))) for place in whole.ravel()]


def change(one: ArraySpec, part: np.ndarray[Any, Any], index: tuple[int, ...], *, small: bool) -> None:
    """Give an element of a stored part another value that its space may have. small: one that is next to 0."""
    if not one.counts:
        lowest = one.low[0] if len(one.low) == 1 else 0.0
        first = max(lowest, 0.0) if small else lowest
        part[index] = first if part[index] != first else first + 1
        return
    (number,) = index
    if one.numbered:
        digits = part.reshape(len(one.counts), -1)[number]
        digits[0] = 1 if digits[0] == 0 else digits[0] - 1
        return
    begin = sum(one.counts[:number])
    own = part[begin : begin + one.counts[number]]
    own[:] = np.roll(own, 1)


def check(case: tuple[spaces.Space[Any], spaces.Space[Any], str, str], folder: Path, *, exported: bool) -> None:
    trainee = Trainee(case)
    assume(trainee.observation.floats or not trainee.config.network.normalize_observations)  # refused, by a sentence
    trainee.space.seed(3)
    sample = trainee.stored([trainee.space.sample() for _ in range(trainee.observation.stack)])
    for one in trainee.observation.inputs:
        if trainee.small(one) and not one.counts:
            part = one.view(sample) if trainee.observation.parts else sample  # type: ignore[attr-defined]
            least = max(-3, *one.low) if one.low else 0 if one.dtype == "uint8" else -3
            np.clip(part, least, max(3, least + 1), out=part)
    names, rows = zip(*[("", sample[-1]), *changed(trainee, sample[-1])], strict=True)
    batch = np.array(rows)
    if trainee.observation.stack > 1:
        batch = np.concatenate([np.repeat(sample[None, :-1], len(batch), 0), batch[:, None]], 1)
    left: dict[int, set[str]] = {}
    for seed in SEEDS:
        network = trainee.network(seed)
        for number, output in enumerate(trainee.outputs(network, torch.from_numpy(batch))):
            assert torch.isfinite(output).all()
            same = [bool((one == output[0]).all()) for one in output[1:]]
            blind = {name for name, alike in zip(names[1:], same, strict=True) if alike}
            left[number] = left[number] & blind if seed else blind
    assert not any(left.values()), f"output -> elements that do not change it: {left}"
    check_ranges(trainee, batch[:, -1] if trainee.observation.stack > 1 else batch)
    if exported:
        check_exported(trainee, folder)


def check_ranges(trainee: Trainee, rows: np.ndarray[Any, Any]) -> None:
    """The first layer of an embedder gives numbers from 0 to 1 where the space declares bounds of integers."""
    for one in trainee.observation.inputs:
        if not one.low or one.counts:
            continue
        part = torch.from_numpy(one.view(rows) if trainee.observation.parts else rows)  # type: ignore[attr-defined]
        layers, _ = embedder_layers(one, InputEmbedderParameters())
        assert isinstance(layers[0], VectorInput | ImageInput)
        scaled = layers[0](part)
        if isinstance(layers[1:2][0] if layers[1:] else None, Convolution):
            scaled = scaled * layers[1].scale
        assert scaled.min() >= 0
        assert scaled.max() <= 1 + 1e-6


def check_exported(trainee: Trainee, folder: Path) -> None:
    """The policy loads, acts within its action space, and its exported graph agrees (`export` compares them)."""
    flat = FlatParameters(trainee.network(0))
    block = aligned_block(flat.block_bytes)
    flat.initialize_into(block)
    spec, network = trainee.observation, trainee.config.network
    described = describe_policy(spec, trainee.action, network, trainee.heads, trainee.distribution)
    place = write_checkpoint(folder, 1, tensors=flat.arrays(block), parts={}, state={"policy": described})
    policy = load(str(place))
    assert (policy.observation, policy.observation.inputs) == (spec, spec.inputs)
    assert [(one.low, one.high, one.channels) for one in policy.observation.inputs] == [
        (one.low, one.high, one.channels) for one in spec.inputs
    ]
    policy(trainee.space.sample(), policy.initial_state())
    target = folder / "policy.onnx"
    hive.export(place, target)
    target.unlink()


def run(examples: int, folder: Path) -> None:
    number = iter(range(1 << 30))

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],  # a smaller example takes minutes to find
        suppress_health_check=list(HealthCheck),
    )
    @given(cases(), st.integers(1, EXPORTED))
    def each(case: tuple[spaces.Space[Any], spaces.Space[Any], str, str], turn: int) -> None:
        place = folder / str(next(number))
        place.mkdir()
        check(case, place, exported=turn == EXPORTED)

    each()


def test_every_element_reaches_every_network(tmp_path: Path) -> None:
    run(EXAMPLES, tmp_path)


@pytest.mark.full(reason="1,000 random spaces, always the same ones, take a minute", rotates=True)
def test_every_element_reaches_every_network_in_many_more_spaces(tmp_path: Path) -> None:
    run(ALL_EXAMPLES, tmp_path)


UNITS: dict[str, tuple[tuple[float, float], ...]] = {
    "uint8": ((0, 1), (0, 9), (0, 255)),
    "int8": ((-1, 1), (-100, 100), (-128, 127)),
    "uint16": ((0, 9), (0, 65_535)),
    "int16": ((-1, 1), (-1000, 1000), (-(2**15), 2**15 - 1)),
    "uint32": ((0, 65_535), (0, 65_536), (2**31, 2**31 + 9), (0, 2**32 - 1)),
    "int32": ((-5, 5), (2**30, 2**30 + 9), (-(2**31), 2**31 - 1)),
    "uint64": ((0, 9), (2**63, 2**63 + 9), (0, 2**64 - 1)),
    "int64": ((0, 9), (-(2**60), 9 - 2**60), (-(2**31), 2**31 - 1), (-(2**63), 2**63 - 1)),
    "float32": ((-1, 9), (-np.inf, np.inf)),
    "float64": ((-1, 9), (1.7e9, 1.7e9 + 9), (-np.inf, np.inf), (0, 1.7e9)),
}
"""dtype -> bounds of a Box."""
LARGE = 2**40  # a number of which float32 does not hold the ones
LEARNERS = {
    "ddpg": BOXES[0],
    "pqn": ONE_ACTION,
    "qr-dqn": ONE_ACTION,
    **{name: each[0] for name, each in ACTIONS.items()},
}


class LinearInputs(TorchFunctionMode):
    """Keeps the inputs [N, elements] of linear layers of observations, alone or behind the two of an action."""

    def __init__(self, elements: int) -> None:
        super().__init__()
        self.elements, self.found = elements, list[Tensor]()

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.nn.functional.linear and args[0].shape[1] in (self.elements, self.elements + 2):
            self.found.append(args[0][:, -self.elements :])
        return function(*args, **(kwargs or {}))


def seen_by_networks(trainee: Trainee, rows: np.ndarray[Any, Any]) -> list[Tensor]:
    """Return the observations [N, elements] that the first linear layers of all networks get."""
    only = Spaces({"observation": trainee.observation}, trainee.action)
    network = build_network(trainee.parameters, only, torch.Generator().manual_seed(0))
    with LinearInputs(prod(trainee.observation.shape)) as seen:
        trainee.outputs(network, torch.from_numpy(rows))
    return seen.found


def in_units(dtype: str, low: float, high: float, values: list[int]) -> list[float]:
    """Return what a network must see of these values: from 0 to 1 between bounds that declare a scale."""
    is_whole = dtype[0] != "f"
    is_limit = is_whole and dtype != "uint8" and (low, high) == (np.iinfo(dtype).min, np.iinfo(dtype).max)
    if is_whole and high - low < 65_536 and not is_limit:
        return [(value - int(low)) / int(high - low) for value in values]
    return [float(value - values[0] if abs(values[0]) > 2**24 else value) for value in values]


@pytest.mark.rotates
@pytest.mark.parametrize("scheme", sorted(LEARNERS))
def test_every_network_sees_numbers_of_every_dtype_in_their_unit(scheme: str) -> None:
    every = [(dtype, *bounds) for dtype, ranges in UNITS.items() for bounds in ranges]
    for dtype, low, high in every:
        wide = high - low > 2 * LARGE and dtype != "float32"
        for base in (max(int(low), 0) if low > -np.inf and high - low < 1e6 else 1, *[LARGE] * wide):
            values = [base, base + 1, min(base + 5, int(min(high, 2.0**64)))]
            given = np.array([[value, base] for value in values], dtype)
            case = spaces.Box(low, high, (2,), np.dtype(dtype).type), LEARNERS[scheme], scheme, "plain"
            trainee = Trainee(case)
            trainee.parameters = replace(trainee.parameters, normalize_observations=False)
            spec = trainee.observation = with_found_origins(trainee.observation, list(given))
            described = describe_policy(spec, trainee.action, trainee.config.network, trainee.heads)
            loaded, _, _ = specs_in(json.loads(json.dumps(described)))
            collected, acted_on = trainee.stored(list(given)), GivenObservations(loaded)(given, None)[0]
            assert (collected == acted_on).all()
            networks = seen_by_networks(trainee, collected)
            assert networks
            for seen in networks:
                expected = in_units(dtype, low, high, values)
                np.testing.assert_allclose(seen[:, 0], expected, rtol=1e-6, err_msg=f"{dtype} {low} to {high}")
