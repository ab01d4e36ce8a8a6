"""A whole policy as one torch module with named inputs and outputs, from raw observations to the environment's action.

    inputs                                                    outputs
    observation, or each part by its name   as the            action, or each part `action.NAME`   as the environment
                                            environment                                            takes it
                                            returns it        logits, values, or mean, deviation   of each part
    action_mask          uint8 [B, actions]
    frames, or frames.NAME  [B, k - 1, ...]  ───────────────► next_frames, or next_frames.NAME
    recurrent_state      float32 [B, S]      ───────────────► next_recurrent_state

It computes what `hive.load`'s policy does without noise: the conversions around the network are repeated here with
torch's operations, and the network is a copy of the policy's. States are zeros at the beginning of an episode. All
arrays have the batch axis first. Box observations are float32 or uint8, with an origin float64 or int64, MultiBinary
float32, Discrete and MultiDiscrete int64 [B] and [B, k], counted as the environment does. `hive.policy.exporting`
writes the module to a file.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hive.envs import ActionSpec, Box, Composite, ObservationPart
from hive.envs.spaces.observation import ArraySpec
from hive.networks.act.bounded import ScaledActions
from hive.networks.act.distributions import ActionDistribution, GaussianColumns
from hive.networks.act.exploration import EpsilonGreedy, NoisyActions
from hive.networks.act.gsde import StateDependentGaussian
from hive.networks.act.product import ProductDistribution
from hive.networks.build.network import acting_alone
from hive.networks.rows.inputs import RECURRENT_STATE, state_width_of
from hive.networks.rows.packed import FLOAT_BYTES
from hive.policy.acting_state import ActingState
from hive.policy.loaded import Policy

INTEGERS = ("int8", "uint8", "int16", "int32", "int64")  # dtypes of actions that ONNX runtimes compute; others: int64
FLOATS = ("float16", "float32", "float64")

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Port:
    """An input or output [B, *shape] of a graph.

    role: "observation", "action_mask", "state", "action" or "distribution". path: keys that lead to a part from the
    environment's observation or action. follows: of an input that is a state, the output with its next value.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: str
    path: Path = ()
    follows: str = ""

    def described(self) -> dict[str, Any]:
        """Return it for JSON, without empty fields."""
        facts = {"name": self.name, "shape": list(self.shape), "dtype": self.dtype, "role": self.role}
        path = {"path": list(self.path)} if self.path else {}
        return facts | path | ({"next": self.follows} if self.follows else {})


@dataclass(frozen=True)
class ActionPart:
    """A part of an action that is not composite: its place in the environment's action, and how it is stored.

    columns: its elements in a stored action that is a row, None if the action has only this part. outputs: the columns
    of the network's outputs for `distribution`, None for all.
    """

    path: Path
    spec: ActionSpec
    distribution: ActionDistribution
    columns: slice | None = None
    outputs: slice | None = None

    def named(self, what: str) -> str:
        """Return `what`, with the path behind it: "logits.gripper"."""
        return ".".join(map(str, (what, *self.path)))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one action as the environment takes it."""
        shape: tuple[int, ...] | None = getattr(self.spec, "env_shape", None)
        return tuple(self.spec.shape) if shape is None else shape

    @property
    def dtype(self) -> str:
        """The environment's dtype, or the nearest one that ONNX has."""
        wanted: str = getattr(self.spec, "env_dtype", "int64")
        known, usual = (FLOATS, "float64") if isinstance(self.spec, Box) else (INTEGERS, "int64")
        return wanted if wanted in known else usual


def action_parts(action: ActionSpec, distribution: ActionDistribution) -> list[ActionPart]:
    """Return the parts of an action that are not composite, in stored order."""
    if not isinstance(action, Composite):
        return [ActionPart((), action, distribution)]
    each = distribution.parts if isinstance(distribution, ProductDistribution) else ()
    parts, column, output = [], 0, 0
    for (path, spec), own in zip(_simple(action, ()), each, strict=True):
        size, width = prod(spec.shape), own.width
        parts.append(ActionPart(path, spec, own, slice(column, column + size), slice(output, output + width)))
        column, output = column + size, output + width
    return parts


def distribution_outputs(distribution: ActionDistribution, outputs: Tensor) -> dict[str, Tensor]:
    """Return what a distribution reads in outputs [B, ...] of the network, by standard names.

    "logits" [B, n] of discrete actions, all choices side by side; "values" [B, n], the expected returns of Q-learning;
    "mean" and "deviation" [B, *shape] of a Gaussian, before it is squashed. Empty for a deterministic policy.
    """
    match distribution:
        case EpsilonGreedy():
            return {"values": distribution.action_values(outputs)}
        case NoisyActions():
            return {}
        case ScaledActions():
            inner = distribution_outputs(distribution.inner, outputs)
            reach = torch.tensor(distribution.reach).reshape(distribution.action_shape)
            return {"mean": distribution.unscaled(inner["mean"]), "deviation": reach * inner["deviation"]}
        case StateDependentGaussian():
            deviation = distribution.variance(outputs).sqrt().reshape(-1, *distribution.shape)
            return {"mean": distribution.mode(outputs), "deviation": deviation}
        case GaussianColumns():
            mean, log_std = outputs.chunk(2, -1)
            shape = distribution.shape
            return {"mean": mean.reshape(-1, *shape), "deviation": log_std.exp().reshape(-1, *shape)}
    return {"logits": outputs}


class PolicyGraph(nn.Module):
    """The policy as a module: called with a tensor for each of `inputs`, it returns one for each of `outputs`."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.network = acting_alone(copy.deepcopy(policy.network)).eval()  # a copy computes by torch
        self._spec = policy.observation
        self._parts = action_parts(policy.action, policy.distribution)
        self._distribution = policy.distribution
        state = ActingState(policy.observation, state_width_of(policy.network))
        taken: set[str] = set()
        self.observed = [_observed(one, taken) for one in self._spec.inputs]
        mask = self._spec.mask
        choices = () if mask is None else (sum(mask.choices),)
        self._masks = [] if mask is None else [Port(_free("action_mask", taken), choices, "uint8", "action_mask")]
        self._frames = [_frames(one, self._spec.stack, taken) for one in self._spec.inputs if self._spec.stack > 1]
        self._states = list(self._frames)
        if state.width:
            names = _free(RECURRENT_STATE, taken), _free(f"next_{RECURRENT_STATE}", taken)
            self._states.append(Port(names[0], (state.width,), "float32", "state", follows=names[1]))
        self.inputs = [*self.observed, *self._masks, *self._states]
        self.outputs = [*self._action_ports(taken), *(Port(p.follows, p.shape, p.dtype, "state") for p in self._states)]

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        tensors = iter(given)
        stored = [_stored(spec, next(tensors)) for spec in self._spec.inputs]
        mask = next(tensors) if self._masks else None
        after = []
        if self._frames:
            stored = [torch.cat([next(tensors), one.unsqueeze(1)], 1) for one in stored]
            after = [one[:, 1:] for one in stored]
        seen: Any = self._row(stored, mask) if self._spec.parts else stored[0]
        state = next(tensors, None)
        if state is None:
            outputs = self.network(seen)[0]
        else:
            outputs, *_, state = self.network({"observation": seen, RECURRENT_STATE: state})
            after.append(state)
        return (*self._results(outputs), *after)

    def example(self, batch: int) -> tuple[Tensor, ...]:
        """Return inputs for B environments: zeros, and a mask that allows all actions."""
        tensors = []
        for port in self.inputs:
            make = torch.ones if port.role == "action_mask" else torch.zeros
            tensors.append(make((batch, *port.shape), dtype=getattr(torch, port.dtype)))
        return tuple(tensors)

    def _results(self, outputs: Tensor) -> list[Tensor]:
        """Return the actions of all parts, then what their distributions read."""
        actions: list[Tensor] = []
        described: list[Tensor] = []
        chosen = self._distribution.mode(outputs)
        for part in self._parts:
            actions.append(_converted(part, chosen if part.columns is None else chosen[:, part.columns]))
            own = outputs if part.outputs is None else outputs[:, part.outputs]
            described += distribution_outputs(part.distribution, own).values()
        return actions + described

    def _action_ports(self, taken: set[str]) -> list[Port]:
        ports: list[Port] = []
        described: list[Port] = []
        for part in self._parts:
            ports.append(Port(_free(part.named("action"), taken), part.shape, part.dtype, "action", part.path))
            example = torch.zeros((1, *_output_shape(part.distribution)))
            for what, tensor in distribution_outputs(part.distribution, example).items():
                name, shape = _free(part.named(what), taken), tuple(tensor.shape[1:])
                described.append(Port(name, shape, "float32", "distribution", part.path))
        return ports + described

    def _row(self, stored: Sequence[Tensor], mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return numbers float32 [B, floats] and bytes uint8 [B, bytes], as a PackedNetwork takes them apart.

        Stacked: [B, k, floats] and [B, k, bytes], all with the newest mask. Bytes that nothing reads are zeros.
        """
        leading = 2 if self._frames else 1
        flat = [one.flatten(leading) if one.dim() > leading else one.unsqueeze(-1) for one in stored]
        like = flat[0][..., :1]
        parts = [*zip(self._spec.parts, flat, strict=True)]
        for unread in self._spec.hidden:
            zeros = (like * 0).to(getattr(torch, unread.dtype))
            parts.append((unread, zeros.expand(*like.shape[:-1], prod(unread.shape))))
        parts.sort(key=lambda pair: pair[0].offset)
        numbers = [own for spec, own in parts if spec.dtype == "float32"]
        whole = [own for spec, own in parts if spec.dtype == "uint8"]
        if mask is not None:
            allowed = (mask != 0).to(torch.uint8)
            whole.append(allowed.unsqueeze(1).expand(-1, self._spec.stack, -1) if self._frames else allowed)
        unused = (like * 0).to(torch.uint8)  # columns with the batch's size, where a row has its numbers
        first = [unused.expand(*unused.shape[:-1], FLOAT_BYTES * self._spec.floats)] if numbers else []
        joined = torch.cat([*first, *whole], -1) if whole else unused
        return torch.cat(numbers, -1) if numbers else like[..., :0].to(torch.float32), joined


def _simple(action: ActionSpec, path: Path) -> Iterator[tuple[Path, ActionSpec]]:
    """Yield (path, spec) of every part that is not composite, in stored order."""
    if not isinstance(action, Composite):
        yield path, action
        return
    keys: Sequence[str | int] = range(len(action.parts)) if action.names is None else action.names
    for key, part in zip(keys, action.parts, strict=True):
        yield from _simple(part, (*path, key))


def _output_shape(distribution: ActionDistribution) -> tuple[int, ...]:
    """Return the shape of the outputs for one observation, as far as `distribution_outputs` needs it."""
    support = getattr(distribution, "support", None)
    return (distribution.width,) if support is None else (distribution.width, max(len(support), 1))


def _free(name: str, taken: set[str]) -> str:
    """Return `name`, with underscores behind it if another input or output has it, and add it to `taken`."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _observed(spec: ArraySpec, taken: set[str]) -> Port:
    """Return the input for an observation or a part of it, as the environment returns it."""
    part = spec if isinstance(spec, ObservationPart) else None
    # ONNX has no input without a name: a part that is called "" gets that of a whole observation.
    name, path = _free((part.name if part else "") or "observation", taken), part.path if part else ()
    if spec.counts:
        shape = () if len(spec.counts) == 1 else (len(spec.counts),)
        return Port(name, shape, "int64", "observation", path)
    dtype = spec.dtype if not spec.origin else "float64" if np.dtype(spec.env_dtype).kind == "f" else "int64"
    return Port(name, spec.shape, dtype, "observation", path)


def _frames(spec: ArraySpec, stack: int, taken: set[str]) -> Port:
    """Return the input for the frames before the next observation, oldest first, as the network sees them."""
    name = f"frames.{spec.name}" if isinstance(spec, ObservationPart) else "frames"
    follows = _free(f"next_{name}", taken)
    return Port(_free(name, taken), (stack - 1, *spec.shape), spec.dtype, "state", follows=follows)


def _stored(spec: ArraySpec, given: Tensor) -> Tensor:
    """Return an observation, as the environment returns it, as hive stores it: integers become one-hot vectors, or
    numbers in bytes. An origin is subtracted in the environment's precision.
    """
    if spec.origin:
        base = np.asarray(spec.absolute(np.zeros(spec.shape, np.float32)))
        wide = np.float64 if base.dtype.kind == "f" else np.int64  # uint64 modulo 2^64: ONNX runtimes lack it
        return (given - torch.from_numpy(base.astype(wide))).to(torch.float32)
    if not spec.counts:
        return given
    if spec.numbered:
        counted = (*spec.shape[:-1], 1)
        numbers = given.reshape(given.shape[0], *counted) - torch.tensor(spec.firsts).reshape(counted)
        most = torch.tensor(spec.counts).reshape(counted) - 1
        numbers = torch.minimum(numbers.clamp(min=0), most)  # what the space does not hold has no row in the table
        shares = torch.tensor([1 << 8 * byte for byte in range(spec.shape[-1])])
        return (torch.div(numbers, shares, rounding_mode="floor") % 256).to(torch.uint8)
    element = [number for number, count in enumerate(spec.counts) for _ in range(count)]
    values = [first + i for first, count in zip(spec.firsts, spec.counts, strict=True) for i in range(count)]
    columns = given.unsqueeze(-1) if len(spec.counts) == 1 else given[:, torch.tensor(element)]
    return (columns == torch.tensor(values)).to(torch.float32)


def _converted(part: ActionPart, stored: Tensor) -> Tensor:
    """Return stored actions as the environment takes them, as `hive.envs.action_converter` does."""
    spec, dtype = part.spec, getattr(torch, part.dtype)
    if isinstance(spec, Box):
        wide = np.float64 if part.dtype == "float64" else np.float32
        low, high = (np.asarray(bound, part.dtype).astype(wide).reshape(spec.shape) for bound in (spec.low, spec.high))
        actions = stored.reshape(-1, *spec.shape).to(torch.float64 if wide is np.float64 else torch.float32)
        return torch.minimum(torch.maximum(actions, torch.from_numpy(low)), torch.from_numpy(high)).to(dtype)
    start = getattr(spec, "start", 0)
    shifted = stored.to(torch.int64) + torch.tensor(start) if np.any(start) else stored.to(torch.int64)
    return shifted.to(dtype).reshape(-1, *part.shape)
