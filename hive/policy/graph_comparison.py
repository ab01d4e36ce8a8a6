"""Compares an exported policy with hive's: both get the same random observations and carry their own states.

Outputs of the distributions and box actions must agree within TOLERANCE of their largest size. Discrete actions must be
equal, except where the two best logits or values are closer than that, because rounding decides there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from hive.envs import Box, choices_of
from hive.envs.spaces.observation import ArraySpec
from hive.errors import NetworkError
from hive.networks.rows.normalization import NormalizedNetwork
from hive.networks.rows.packed import FLOAT_BYTES
from hive.policy.graph import ActionPart, PolicyGraph, action_parts, distribution_outputs
from hive.policy.loaded import Policy

OBSERVATIONS = 1_000  # number of observations in each comparison
ENVIRONMENTS = 40  # observations at once; the other axis is time, so that states are used
TOLERANCE = 1e-4  # float32 sums in another order differ by 1e-7 to 1e-5 in deep networks, wrong graphs by far more

Arrays: TypeAlias = Mapping[str, NDArray[Any]]


def compare_graph(policy: Policy, graph: PolicyGraph, run: Callable[[Arrays], Arrays]) -> float:
    """Return the largest difference between the policy and `run`, a function from inputs to outputs by name.

    Differences are relative to the largest size of their array where that is above 1. Raises NetworkError if one is
    larger than TOLERANCE.
    """
    random = np.random.default_rng(0)
    scales = _scales(policy)
    state = policy.initial_state(ENVIRONMENTS)
    states: dict[str, NDArray[Any]] = {
        port.name: np.zeros((ENVIRONMENTS, *port.shape), port.dtype) for port in graph.inputs if port.role == "state"
    }
    largest = 0.0
    for _ in range(OBSERVATIONS // ENVIRONMENTS):
        given = {
            port.name: _observations(random, spec, *scales[number])
            for number, (port, spec) in enumerate(zip(graph.observed, policy.observation.inputs, strict=True))
        }
        given |= {port.name: _masks(random, policy) for port in graph.inputs if port.role == "action_mask"}
        outputs, state = policy.outputs(_as_given(policy, graph, given), state)
        found = run({**given, **states})
        for port in graph.outputs:
            expected = (ENVIRONMENTS, *port.shape)
            if found[port.name].shape != expected:
                raise _differs(port.name, f"the shape {list(found[port.name].shape)}, expected {list(expected)}")
        states = {port.name: found[port.follows] for port in graph.inputs if port.role == "state"}
        largest = max(largest, _difference(policy, graph, outputs, found))
    return largest


def _difference(policy: Policy, graph: PolicyGraph, outputs: NDArray[np.float32], found: Arrays) -> float:
    """Return the largest difference of one step. outputs: those of hive's network. Raises NetworkError."""
    actions, largest = policy.most_likely(outputs), 0.0
    names: dict[str, list[str]] = {role: [] for role in ("action", "distribution", "state")}
    for port in graph.outputs:
        names[port.role].append(port.name)
    described = iter(names["distribution"])
    for part, name in zip(action_parts(policy.action, policy.distribution), names["action"], strict=True):
        own = torch.from_numpy(outputs if part.outputs is None else outputs[:, part.outputs])
        read = {what: tensor.numpy() for what, tensor in distribution_outputs(part.distribution, own).items()}
        for array in read.values():
            largest = max(largest, _distance(label := next(described), array, found[label]))
        expected = actions
        for key in part.path:
            expected = expected[key]
        if isinstance(part.spec, Box):
            largest = max(largest, _distance(name, expected, found[name]))
        else:
            _check_choices(name, part, next(iter(read.values())), expected, found[name])
    return largest


def _distance(name: str, expected: NDArray[Any], found: NDArray[Any]) -> float:
    """Return the largest difference, relative to the largest finite size. Raises NetworkError above TOLERANCE."""
    allowed = np.abs(expected) < 1e7  # not the outputs of forbidden actions, which are -1e8 in both
    size = max(1.0, float(np.abs(expected[allowed]).max(initial=0.0)))
    off = np.abs(found.astype(np.float64) - expected) / np.where(allowed, size, np.maximum(np.abs(expected), 1.0))
    largest = float(off.max(initial=0.0))
    if not largest <= TOLERANCE:  # also for NaN
        raise _differs(name, f"a difference of {largest:.2g}, where {TOLERANCE:g} is allowed")
    return largest


def _check_choices(
    name: str, part: ActionPart, scores: NDArray[Any], expected: NDArray[Any], found: NDArray[Any]
) -> None:
    """Raise NetworkError if discrete actions differ where the best of `scores`, logits or values [B, n], is clear."""
    sizes = choices_of(part.spec) or ()
    groups = np.split(scores, np.cumsum(sizes)[:-1], axis=1)
    gap = TOLERANCE * max(1.0, float(np.abs(scores[np.abs(scores) < 1e7]).max(initial=0.0)))
    best = [np.sort(group, axis=1)[:, -2:] for group in groups]
    clear = np.stack(
        [two[:, -1] - two[:, 0] > gap if two.shape[1] == 2 else np.ones(len(two), bool) for two in best], 1
    )
    other = expected.reshape(len(scores), -1) != found.reshape(len(scores), -1)
    if (other & clear).any():
        raise _differs(name, f"{int((other & clear).sum())} other actions in {len(scores)}")


def _differs(name: str, what: str) -> NetworkError:
    return NetworkError(
        f"the exported graph does not compute what the policy does: `{name}` has {what}",
        hint="a module of your own may depend on values or on the number of observations: compute with tensors "
        "only; a .safetensors file holds the weights of any policy",
    )


def _scales(policy: Policy) -> list[tuple[Any, Any]]:
    """Return mean and deviation of each observed array: those of the normalizer, as far as there is one."""
    network, spec = policy.network, policy.observation
    normalizer = network.normalizer if isinstance(network, NormalizedNetwork) else None
    if normalizer is None:
        return [(0.0, 1.0)] * len(spec.inputs)
    mean, deviation = normalizer.shift.numpy(), 1.0 / normalizer.scale.numpy()
    if not spec.parts:
        return [(mean, deviation)]
    scales: list[tuple[Any, Any]] = []
    for one in spec.parts:
        first = one.offset // FLOAT_BYTES
        size = prod(one.shape) if one.dtype == "float32" else 0
        own = slice(first, first + size)
        scales.append((mean[own].reshape(one.shape), deviation[own].reshape(one.shape)) if size else (0.0, 1.0))
    return scales


def _observations(random: np.random.Generator, spec: ArraySpec, mean: Any, deviation: Any) -> NDArray[Any]:
    """Return random observations as the environment returns them, [ENVIRONMENTS, ...]."""
    if spec.counts:
        highs = [first + count for first, count in zip(spec.firsts, spec.counts, strict=True)]
        drawn = random.integers(spec.firsts, highs, (ENVIRONMENTS, len(highs)))
        return drawn[:, 0] if len(highs) == 1 else drawn
    if spec.dtype == "uint8":
        return random.integers(0, 256, (ENVIRONMENTS, *spec.shape), np.uint8)
    if spec.env_dtype == "bool":
        return random.integers(0, 2, (ENVIRONMENTS, *spec.shape)).astype(np.float32)
    drawn = mean + deviation * random.standard_normal((ENVIRONMENTS, *spec.shape))
    if spec.origin:
        found = spec.absolute(np.asarray(drawn, np.float32))
        return found.astype(np.float64 if found.dtype.kind == "f" else np.int64)
    if spec.env_dtype and np.dtype(spec.env_dtype).kind in "iu":
        limits = np.iinfo(spec.env_dtype)
        drawn = np.clip(np.rint(drawn), limits.min, limits.max)
    return np.asarray(drawn, np.float32)


def _masks(random: np.random.Generator, policy: Policy) -> NDArray[np.uint8]:
    """Return random masks, uint8 [ENVIRONMENTS, actions], that allow at least one action of each choice."""
    assert policy.observation.mask is not None
    groups = []
    for count in policy.observation.mask.choices:
        group = random.integers(0, 2, (ENVIRONMENTS, count), np.uint8)
        group[np.arange(ENVIRONMENTS), random.integers(0, count, ENVIRONMENTS)] = 1
        groups.append(group)
    return np.concatenate(groups, 1)


def _as_given(policy: Policy, graph: PolicyGraph, given: Arrays) -> Any:
    """Return a batch of observations in the environment's dictionaries and tuples, with the masks."""
    if not policy.observation.parts:
        return given[graph.observed[0].name]
    leaves = [(port.path, given[port.name]) for port in graph.observed]
    if policy.observation.mask is not None:
        leaves += [(policy.observation.mask.path, given[p.name]) for p in graph.inputs if p.role == "action_mask"]
    return _nested(leaves)


def _nested(leaves: Sequence[tuple[tuple[str | int, ...], NDArray[Any]]]) -> Any:
    """Return dictionaries, and tuples where keys are numbers, that have these arrays at these paths."""
    if leaves[0][0] == ():
        return leaves[0][1]
    branches: dict[Any, list[tuple[tuple[str | int, ...], NDArray[Any]]]] = {}
    for path, array in leaves:
        branches.setdefault(path[0], []).append((path[1:], array))
    if all(isinstance(key, int) for key in branches):
        return tuple(_nested(branches[key]) for key in sorted(branches))
    return {key: _nested(inner) for key, inner in branches.items()}
