"""A small network, random rollouts, and a receiver that records every gradient, for the tests of algorithms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hive.algorithms import Algorithm, Moments
from hive.config import NetworkConfig
from hive.envs import Box, Discrete, MultiDiscrete, ObservationSpec
from hive.experience import FINALS, LENGTH, VERSION, Rollout, rollout_layout
from hive.gradients import PLAIN, gradient_layout
from hive.learning import Part
from hive.networks import FlatParameters, Spaces, aligned_block, build_network, distribution_for
from hive.networks.build.configured import network_parameters
from hive.networks.weights.state import StateLayout
from hive.networks.weights.wrapper import NetworkWrapper
from hive.training import GWorker
from hive.training.gradient.threads import ONE_THREAD

Arrays = dict[str, NDArray[Any]]

SIZE = 3  # elements of an observation
SPECS: dict[str, Any] = {
    "discrete": Discrete(4),
    "multi-discrete": MultiDiscrete((3, 2)),
    "box": Box((2,), (-1.0, -1.0), (1.0, 1.0)),
}
KINDS = tuple(SPECS)

SHARES: dict[str, list[dict[str, int]]] = {
    "one": [{"seed": 1}],
    "one partial": [{"seed": 2, "length": 4}],
    "three, unequal": [{"seed": 3}, {"seed": 4, "length": 2}, {"seed": 5, "steps": 11, "envs": 2}],
}
"""Shares of a round: the arguments of `random_arrays` for each rollout."""


# --- networks


class Plain(nn.Module):
    """Shared features, a policy and a value."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body, self.policy, self.value = nn.Linear(SIZE, 8), nn.Linear(8, width), nn.Linear(8, 1)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        features = torch.tanh(self.body(observations))
        return self.policy(features), self.value(features).squeeze(-1)


class PlainOfARun(Plain):
    """The same for the actions of a run, as [network] module names it."""

    def __init__(self, spaces: Spaces) -> None:
        super().__init__(distribution_for(spaces.action).width)


class ActionValues(nn.Module):
    """One value for each of four actions, as a tuple of outputs."""

    def __init__(self, spaces: Spaces | None = None) -> None:
        super().__init__()
        self.body, self.q = nn.Linear(SIZE, 8), nn.Linear(8, 4)

    def forward(self, observations: Tensor) -> tuple[Tensor]:
        return (self.q(torch.tanh(self.body(observations))),)


class Apart(nn.Module):
    """A policy and a value that share no layer."""

    def __init__(self, spaces: Spaces | None = None) -> None:
        super().__init__()
        self.actor, self.critic = nn.Linear(SIZE, 4), nn.Linear(SIZE, 1)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        return self.actor(observations), self.critic(observations).squeeze(-1)


class Reads(nn.Module):
    """The value of an observation is its first number; the policy is one and the same for all observations."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(4))

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        return self.logits.expand(len(observations), 4), observations[:, 0]


def network_for(kind: str, seed: int = 3) -> Plain:
    torch.manual_seed(seed)
    return Plain(distribution_for(SPECS[kind]).width)


def values_for(seed: int) -> ActionValues:
    torch.manual_seed(seed)
    return ActionValues()


# --- rollouts


def random_arrays(
    kind: str, seed: int, steps: int = 7, envs: int = 3, length: int | None = None, drift: float = 0.3, version: int = 0
) -> Arrays:
    """Episodes end both ways, some steps are not valid; entries that must not be read are NaN or out of range.

    The log probabilities of the acting policy differ from those of `network_for(kind)` by `drift` on average.
    """
    spec, generator = SPECS[kind], np.random.default_rng(seed)
    length = steps if length is None else length
    layout = rollout_layout(steps, envs, ((SIZE,), "float32"), (spec.shape, spec.dtype), steps * envs)
    arrays: Arrays = layout.views(np.full(layout.bytes, 0xFF, np.uint8))  # NaN, -1, true
    shape = length, envs
    valid, ends = generator.random(shape) > 0.15, generator.integers(0, 5, shape)
    cut = np.argwhere(valid & (ends == 2))
    arrays["header"][[VERSION, LENGTH, FINALS]] = version, length, len(cut)
    arrays["valid"][:length] = valid
    arrays["terminated"][:length], arrays["truncated"][:length] = valid & (ends == 1), valid & (ends == 2)
    for number, (t, b) in enumerate(cut):
        arrays["final_index"][t, b] = number
    arrays["final_observations"][: len(cut)] = generator.normal(size=(len(cut), SIZE))
    arrays["observations"][: length + 1] = generator.normal(size=(length + 1, envs, SIZE))
    arrays["rewards"][:length] = np.where(valid, generator.normal(size=shape), np.nan)
    arrays["episode_lengths"][:length] = arrays["terminated"][:length]
    arrays["episode_returns"][:length] = generator.normal(size=shape)
    if kind == "box":
        arrays["actions"][:length] = generator.normal(size=(*shape, 2))
    else:
        choices = spec.nvec if kind == "multi-discrete" else spec.n
        arrays["actions"][:length] = generator.integers(choices, size=(*shape, *spec.shape))
    with torch.no_grad():
        policy = network_for(kind)(torch.from_numpy(arrays["observations"][:length]))[0]
        own = distribution_for(spec).log_prob(policy, torch.from_numpy(arrays["actions"][:length])).numpy()
    arrays["log_probs"][:length] = np.where(valid, own + generator.normal(0.0, 1.0, shape) * drift, np.nan)
    return arrays


def random_rollout(kind: str, seed: int, **options: Any) -> Rollout:
    return Rollout(random_arrays(kind, seed, **options))


def share_of(kind: str, share: str) -> list[Rollout]:
    """The rollouts of one of SHARES, which together have everything that a rollout can have."""
    rollouts = [random_rollout(kind, **options) for options in SHARES[share]]
    assert all(r.terminated.any() and r.truncated.any() and not r.valid.all() for r in rollouts if r.length > 2)
    return rollouts


def one_environment(rewards: list[float], observations: list[float], **masks: list[int]) -> Arrays:
    """One environment whose observation is its number; a truncated episode's last one is 100. Action 0, always."""
    steps = len(rewards)
    layout = rollout_layout(steps, 1, ((SIZE,), "float32"), ((), "int64"), 2)
    arrays: Arrays = layout.views(np.zeros(layout.bytes, np.uint8))
    arrays["header"][LENGTH] = steps
    arrays["observations"][:, 0, 0] = observations
    arrays["rewards"][:, 0], arrays["valid"][:], arrays["final_index"][:] = rewards, 1, -1
    arrays["log_probs"][:] = math.log(0.25)
    for name, mask in masks.items():
        arrays[name][:, 0] = mask
    for number, t in enumerate(np.flatnonzero(arrays["truncated"])):
        arrays["final_index"][t], arrays["final_observations"][number, 0] = number, 100.0
        arrays["header"][FINALS] = number + 1
    return arrays


# --- gradients


@dataclass(frozen=True)
class Gradient:
    """One call of `reinforce`: loss and gradient in the order of the network's parameters, both of the mean."""

    loss: float
    gradient: NDArray[np.float64]
    inputs: Any
    samples: int
    statistics: tuple[float, ...]


class Recorder:
    """A GradientReceiver that keeps every gradient of `network` and applies none."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self.made: list[Gradient] = []

    def watch(self, outputs: Any) -> Any:
        return outputs

    def reinforce(self, parts: Sequence[Part], samples: int | None, statistics: Sequence[float]) -> None:
        assert samples is not None
        assert len(parts) == (samples > 0)
        loss, gradient, inputs = 0.0, np.zeros(0), None
        for part in parts:
            loss, gradient = part.loss.item(), gradient_of(part.loss, self.network)
            (inputs,) = part.inputs
        self.made.append(Gradient(loss, gradient, inputs, samples, tuple(statistics)))


def gradients_of(
    algorithm: Algorithm,
    network: nn.Module,
    rollouts: Sequence[Rollout],
    noise: np.random.Generator | None = None,
    answer: Callable[[Moments], tuple[float, float]] | None = None,
    after: Callable[[int], None] = lambda made: None,
    **connected: Any,
) -> list[Gradient]:
    """The gradients of one share of a round, one for each yield; `answer` answers Moments.

    after: called after each gradient with the number of gradients so far. connected: what `connect` takes besides.
    """
    recorder = Recorder(network)
    algorithm.connect(network, recorder, **connected)
    generator = algorithm.gradients(rollouts, noise)
    reply, yields = None, 0
    while True:
        try:
            item = generator.send(reply)
        except StopIteration:
            assert len(recorder.made) == yields
            return recorder.made
        reply = None
        if isinstance(item, Moments):
            assert answer is not None
            assert not recorder.made  # it takes the place of the first gradient
            reply = answer(item)
        else:
            yields += 1
            assert len(recorder.made) == yields
            after(yields)


def gradient_of(total: Tensor, network: nn.Module) -> NDArray[np.float64]:
    """The gradient of a loss as one row."""
    gradients = torch.autograd.grad(total, list(network.parameters()), allow_unused=True)
    parts = zip(gradients, network.parameters(), strict=True)
    rows = [np.zeros(p.shape) if g is None else g.numpy().astype(np.float64) for g, p in parts]
    return np.concatenate([row.ravel() for row in rows])


def distance(one: Any, other: NDArray[Any]) -> float:
    """Relative to the size of the second."""
    return float(np.linalg.norm(np.asarray(one, np.float64) - other) / np.linalg.norm(other))


# --- gradient workers


def wrapper_for(network: nn.Module, *, kind: str = "discrete", has_target: bool = False) -> NetworkWrapper:
    """The networks of a process of a run, of the class of `network`, which is one of this module; without a block."""
    of_a_run = PlainOfARun if isinstance(network, Plain) else type(network)
    heads = ("q",) if isinstance(network, ActionValues) else ("policy", "value")
    parameters = network_parameters(NetworkConfig(module=f"small_algorithms:{of_a_run.__name__}"), heads=heads)
    spaces = Spaces({"observation": ObservationSpec((SIZE,), "float32")}, SPECS[kind])
    state = StateLayout(FlatParameters(build_network(parameters, spaces, torch.Generator())), has_target=has_target)
    return NetworkWrapper(parameters, spaces, state, torch.Generator().manual_seed(0))


def worker_for(algorithm: Algorithm, network: nn.Module, *, source: int = 0, **options: Any) -> GWorker:
    """A gradient worker with the weights of `network`, and of the same for its target; options: of `wrapper_for`."""
    wrapper = wrapper_for(network, **options)
    config = SimpleNamespace(run=SimpleNamespace(seed=5))
    blueprint: Any = SimpleNamespace(
        threads=ONE_THREAD,
        config=config,
        environment=SimpleNamespace(observation=None),
        codec=PLAIN,
        device=None,
        wrapper=lambda device: wrapper,
        rounds=math.inf,
        round_steps=0,
        resume=None,
        has_lag=False,
    )
    worker = GWorker(blueprint, source, algorithm=algorithm)
    bind(worker, network, network if wrapper.state.has_target else None)
    return worker


def bind(worker: GWorker, network: nn.Module, target: nn.Module | None = None) -> None:
    """Makes these the weights, and the target network's, of the next gradient."""
    layout = worker.networks.state
    block = aligned_block(layout.bytes)
    FlatParameters(network).initialize_into(layout.weights(block))
    if target is not None:
        FlatParameters(target).initialize_into(layout.target(block))
    worker.bind(block)


def slot_of(worker: GWorker) -> Arrays:
    """A gradient slot that still holds an earlier gradient."""
    statistics, parameters = len(worker.algo.statistics), len(worker.flat.parameters)
    layout = gradient_layout(worker.flat.parameter_elements, parameters, statistics, 200)
    block = aligned_block(layout.bytes)
    block[:] = 0xA5
    return layout.views(block)


def computed(worker: GWorker, share: Sequence[Arrays], sequence: int = 0, **options: Any) -> Arrays:
    """The slot of gradient `sequence`."""
    out = slot_of(worker)
    worker.compute(share, out, sequence=sequence, version=40 + sequence, **options)
    return out


def gradient_in(worker: GWorker, out: Arrays) -> NDArray[np.float64]:
    """The gradient in a slot as one row."""
    arrays = worker.flat.gradient_arrays(out["gradient"])
    return np.concatenate([array.astype(np.float64).ravel() for array in arrays])


def reference_fit(values: Tensor, targets: Tensor) -> list[float]:
    """Return the explained variance of the targets, at least -1, and their root mean square, in float64."""
    errors, variance = targets - values.detach(), targets.var(correction=0)
    explained = max(1 - (errors.var(correction=0) / variance).item(), -1.0) if variance else math.nan
    return [explained, targets.square().mean().sqrt().item()]
