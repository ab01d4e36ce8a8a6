"""Networks of dense layers, computed by hive._native over the block that their parameters are bound to.

    dense = Dense.of(flat, networks)        None unless all of these networks are made of layers that it knows
    dense(observations)                     the columns of each network, with a graph where torch would record one
    dense.outputs(observations)             the outputs of the heads as NumPy arrays, without a graph
    dense.differentiate(slopes, gradient)   from the gradients of these outputs to a gradient block

torch's modules are the description of a network and the reference of its results: `compute_natively` gives those that
qualify a `dense` attribute, and without it they compute by torch. Known are linear layers, LayerNorm, and the
activations tanh, relu and silu, after layers without parameters. Results differ from torch's by rounding: sums have
another order, and tanh is accurate to 3.3e-7 (native/include/hive/dense.hpp).

A copy of a module (copy.deepcopy) computes by torch, because its parameters lie elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hive import _native
from hive.networks.build.embedders import Merger
from hive.networks.build.heads import Head
from hive.networks.rows.inputs import InputName
from hive.networks.weights.flat import FlatParameters, Floats

MOST_KEPT = 2  # passes kept at once: an actor's loss is differentiated through a critic that has its own

ACTIVATIONS: Mapping[type[nn.Module], str] = {nn.Tanh: "tanh", nn.ReLU: "relu", nn.SiLU: "silu"}


Networks: TypeAlias = Sequence[tuple[Sequence[nn.Module], Sequence[Head]]]


@dataclass(frozen=True, slots=True)
class Program:
    """A sequence of layers: those without parameters, which torch computes, and the rest for _native.DenseNetwork."""

    before: list[nn.Module]
    layers: list[dict[str, Any]]
    parameters: list[nn.Parameter]


@dataclass(slots=True)
class Kept:
    """The memory of one pass for its backward pass. `waits`: this has not been made. `number` counts passes."""

    network: _native.DenseNetwork
    number: int = 0
    waits: bool = False
    weights: Floats = field(default_factory=lambda: np.empty(0, np.float32))
    rows: Floats = field(default_factory=lambda: np.empty((0, 0), np.float32))

    def backward(self, slopes: Sequence[Floats | None], gradient: Floats | None, to_rows: Floats | None = None) -> None:
        """Make the backward pass from the gradients of the columns; see _native.DenseNetwork.backward."""
        self.waits = False
        self.network.backward(self.weights, self.rows, slopes, gradient, to_observations=to_rows)


class Dense:
    """The native passes of several networks with the same input, each a sequence of layers and heads.

    flat: binds their parameters. networks: the layers of each, the last linear, and its heads, whose columns lie side
    by side. programs: what `_program` returns for each.
    """

    def __init__(self, flat: FlatParameters, networks: Networks, programs: Sequence[Program]) -> None:
        self.flat = flat
        self._networks = networks
        self._before = programs[0].before
        self._layers = [program.layers for program in programs]
        self._kept = [self._room()]
        self.heads = [heads for _, heads in networks]
        self._widths = [sum(head.width for head in own) for own in self.heads]
        self._parameters = [program.parameters for program in programs]
        self._everything = [parameter for own in self._parameters for parameter in own]
        self._fields = {id(parameter): flat.field_of(parameter) for parameter in self._everything}
        self._inputs = int(self._layers[0][0]["inputs"])
        self._joined = _joined(self._before)
        self._passes = 0
        self._mask: NDArray[np.uint8] | None = None
        self._direct = all(head.is_direct for own in self.heads for head in own)

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        """Return None: the copy of a module computes by torch."""

    @classmethod
    def of(cls, flat: FlatParameters, networks: Networks) -> Dense | None:
        """Return the native form of these networks; None if it does not know all of their layers."""
        programs = [_program(flat, layers) for layers, _ in networks]
        known = [program for program in programs if program is not None]
        takes_features = any(head.takes_features for _, heads in networks for head in heads)
        return None if len(known) < len(networks) or takes_features else cls(flat, networks, known)

    def over(self, flat: FlatParameters) -> Dense | None:
        """Return the same for another FlatParameters of the same modules."""
        return self.of(flat, self._networks)

    def __call__(self, inputs: Any, count: int | None = None) -> tuple[Tensor, ...] | None:
        """Return the columns of the first `count` networks, float32 [N, width] each; None for inputs for torch."""
        rows = self.rows(inputs)
        if rows is None:
            return None
        count = count or len(self._widths)
        learns = torch.is_grad_enabled() and (rows.requires_grad or any(p.requires_grad for p in self._everything))
        if learns:
            parameters = [parameter for own in self._parameters[:count] for parameter in own]
            return tuple(_Pass.apply(self, count, rows, *parameters))  # type: ignore[no-untyped-call]
        return tuple(map(torch.from_numpy, self.columns(rows.detach().numpy(), count)))

    def act(self, rows: Floats) -> Floats | None:
        """Return the first output for rows float32 [N, inputs], without torch; None if torch has a part in it."""
        if self._before or not self._direct or rows.ndim != 2 or rows.dtype != np.float32:
            return None
        head = self.heads[0][0]
        (columns,) = self.columns(rows, 1)
        return head.numpy_output(columns if len(self.heads[0]) == 1 else columns[:, : head.width])

    def outputs(self, inputs: Any, count: int | None = None) -> tuple[Floats, ...] | None:
        """Return the outputs of all heads of the first `count` networks, float32 [N, ...] each.

        None if torch has a part in it: for inputs that are not rows of numbers, and heads with layers of their own.
        """
        rows = self.rows(inputs) if self._direct else None
        return (
            None if rows is None else self.of_columns(self.columns(rows.detach().numpy(), count or len(self._widths)))
        )

    def begin(self, inputs: Any) -> DensePass | None:
        """Begin a pass that is differentiated later; None where `outputs` is, and for frozen parameters."""
        rows = self.rows(inputs) if self._direct else None
        if rows is None or not all(parameter.requires_grad for parameter in self._everything):
            return None
        return DensePass(self, rows.detach().numpy(), len(self._widths))

    def of_columns(self, columns: Sequence[Floats]) -> tuple[Floats, ...]:
        """Return the outputs of all heads from the columns of their networks."""
        outputs: list[Floats] = []
        for block, heads in zip(columns, self.heads, strict=False):  # those of the first networks
            for head, part in zip(heads, _split(block, heads), strict=True):
                outputs.append(head.numpy_output(part))  # a comprehension is a frame, for every step
        return tuple(outputs)

    @property
    def mask(self) -> NDArray[np.uint8]:
        """uint8 [parameters of `flat`]: 1 for those of these networks and their heads."""
        if self._mask is None:
            own = {place.name for place in self._fields.values()}
            own |= {self.flat.field_of(p).name for heads in self.heads for head in heads for p in head.parameters()}
            self._mask = np.array([name in own for name in self.flat.names], np.uint8)
        return self._mask

    def keep(self, rows: Floats, count: int) -> tuple[Kept, list[Floats]]:
        """Return a pass whose intermediate results are kept for its `backward`, and the columns of `count` networks."""
        free = next((kept for kept in self._kept if not kept.waits), None)
        if free is None and len(self._kept) < MOST_KEPT:
            self._kept.append(free := self._room())
        kept = free or min(self._kept, key=lambda kept: kept.number)
        self._passes += 1
        kept.number, kept.waits, kept.weights, kept.rows = self._passes, True, self.flat.weights, rows
        return kept, self.columns(rows, count, kept)

    def _room(self) -> Kept:
        return Kept(_native.DenseNetwork(self._layers, self.flat.parameter_elements))

    def offsets(self, parameter: nn.Parameter) -> slice:
        """The elements of a parameter in a gradient block."""
        place = self._fields[id(parameter)]
        return slice(place.offset // 4, (place.offset + place.nbytes) // 4)

    def rows(self, inputs: Any) -> Tensor | None:
        """Return the input of the first linear layer, float32 [N, inputs]; None if torch should compute."""
        rows = inputs
        if not isinstance(inputs, Tensor | Mapping):
            return None
        if self._joined and isinstance(inputs, Mapping):
            rows = torch.cat([inputs[name] for name in self._joined], -1)
        else:
            for layer in self._before:
                rows = layer(rows)
        usual = isinstance(rows, Tensor) and rows.dtype == torch.float32 and rows.shape[1:] == (self._inputs,)
        return rows.contiguous() if usual and rows.device.type == "cpu" else None

    def columns_of(self, name: InputName) -> slice | None:
        """Return the columns of the rows that are the input `name` as it is; None if torch computes them of it."""
        return self._joined.get(name)

    def columns(self, rows: Floats, count: int, kept: Kept | None = None) -> list[Floats]:
        """Return the columns of the first `count` networks for rows float32 [N, inputs], in the memory of `kept`."""
        outputs = [np.empty((len(rows), width), np.float32) for width in self._widths[:count]]
        network = (kept or self._kept[0]).network
        network.forward(self.flat.weights, rows, outputs, keep=kept is not None)
        return outputs


class DensePass:
    """A pass of a Dense whose gradients are computed later. `outputs`: those of all heads, float32 [N, ...] each."""

    def __init__(self, dense: Dense, rows: Floats, count: int) -> None:
        self._dense, self._rows, self._count = dense, rows, count
        self._kept, self._columns = dense.keep(rows, count)
        self._number = self._kept.number
        self.outputs = dense.of_columns(self._columns)

    @property
    def mask(self) -> NDArray[np.uint8]:
        """uint8 [parameters of `flat`]: 1 for those that `differentiate` writes."""
        return self._dense.mask

    def differentiate(self, slopes: Sequence[Floats], gradient: Floats) -> None:
        """Write the gradient into `gradient`, float32 [flat.parameter_elements]; other elements of it stay as they are.

        slopes: the gradients of the outputs.
        """
        flat = self._dense.flat
        columns, of_heads = self._to_columns(slopes)
        for parameter, to_parameter in of_heads:
            place = flat.field_of(parameter)
            gradient[place.offset // 4 :][: len(to_parameter)] = to_parameter
        self._memory().backward(columns, gradient)

    def to_rows(self, slopes: Sequence[Floats]) -> Floats:
        """Return the gradient of the rows, float32 [N, inputs], from those of the outputs."""
        gradient = np.empty_like(self._rows)
        self._memory().backward(self._to_columns(slopes)[0], None, gradient)
        return gradient

    def _memory(self) -> Kept:
        if self._kept.number != self._number:  # it was needed for later passes
            self._kept, _ = self._dense.keep(self._rows, self._count)
            self._number = self._kept.number
        return self._kept

    def _to_columns(self, slopes: Sequence[Floats]) -> tuple[list[Floats], list[tuple[nn.Parameter, Floats]]]:
        """Return the gradients of each network's columns, and those of the heads' parameters."""
        left = list(slopes)
        columns: list[Floats] = []
        of_heads: list[tuple[nn.Parameter, Floats]] = []
        for each, heads in zip(self._columns, self._dense.heads, strict=False):
            own = []
            for head, given in zip(heads, _split(each, heads), strict=True):
                to_columns, to_parameters = head.numpy_slopes(left.pop(0), given)
                own.append(to_columns)
                of_heads += to_parameters
            columns.append(own[0] if len(own) == 1 else np.concatenate(own, 1))
        return columns, of_heads


class _Pass(torch.autograd.Function):
    """One pass as a node of torch's graph. Its arguments are a Dense, a number of networks, rows and parameters."""

    @staticmethod
    def forward(ctx: Any, dense: Dense, count: int, rows: Tensor, *parameters: nn.Parameter) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.dense, ctx.count, ctx.parameters = dense, count, parameters
        ctx.rows, ctx.weights = rows.detach().numpy(), dense.flat.weights
        ctx.kept, columns = dense.keep(ctx.rows, count)
        ctx.number = ctx.kept.number
        return tuple(map(torch.from_numpy, columns))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *slopes: Tensor | None) -> Any:
        dense: Dense = ctx.dense
        if ctx.kept.number != ctx.number:  # its memory was needed for later passes
            ctx.kept, _ = dense.keep(ctx.rows, ctx.count)
            ctx.number = ctx.kept.number
        needed = ctx.needs_input_grad
        gradient = np.empty(dense.flat.parameter_elements, np.float32) if any(needed[3:]) else None
        to_rows = np.empty_like(ctx.rows) if needed[2] else None
        given = [None if slope is None else slope.contiguous().numpy() for slope in slopes]
        ctx.kept.backward(given, gradient, to_rows)
        found: list[Tensor | None] = [None] * len(ctx.parameters)
        if gradient is not None:
            whole = torch.from_numpy(gradient)
            for index, parameter in enumerate(ctx.parameters):
                found[index] = whole[dense.offsets(parameter)].view(parameter.shape)
        return None, None, None if to_rows is None else torch.from_numpy(to_rows), *found


def _joined(before: Sequence[nn.Module]) -> Mapping[InputName, slice]:
    """Return the columns of inputs that these layers lay side by side, in order; empty if they do anything else."""
    if len(before) != 1 or type(before[0]) is not Merger or before[0].adds:
        return {}
    names, embedders, widths = before[0].names, before[0].embedders, before[0].widths
    if any(True for _ in chain.from_iterable(embedder.children() for embedder in embedders)):
        return {}
    ends = list(accumulate(widths))
    return {name: slice(end - width, end) for name, end, width in zip(names, ends, widths, strict=True)}


def _program(flat: FlatParameters, layers: Sequence[nn.Module]) -> Program | None:
    """Return the program of these layers; None if some are unknown."""
    rest = list(layers)
    before: list[nn.Module] = []
    while rest and not any(True for _ in rest[0].parameters()) and type(rest[0]) not in ACTIVATIONS:
        before.append(rest.pop(0))
    program: list[dict[str, Any]] = []
    parameters: list[nn.Parameter] = []
    for layer in rest:
        named = _added(layer, program)
        if named is None:
            return None
        for name, parameter in named.items():
            program[-1][name] = flat.field_of(parameter).offset // 4
            parameters.append(parameter)
    return Program(before, program, parameters) if program else None


def _added(layer: nn.Module, program: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Add a layer, or what it adds to the linear layer before it, and return its parameters by name; None: unknown."""
    if isinstance(layer, nn.Linear):
        if layer.bias is None or getattr(layer, "rescale", None) is not None:
            return None
        program.append({"inputs": layer.in_features, "outputs": layer.out_features, "activation": "none"})
        return {"weight": layer.weight, "bias": layer.bias}
    if not program:
        return None
    last = program[-1]
    if isinstance(layer, nn.LayerNorm):
        usual = layer.elementwise_affine and layer.bias is not None and len(layer.normalized_shape) == 1
        if not usual or "scale" in last:
            return None
        last["epsilon"] = layer.eps
        return {"scale": layer.weight, "shift": layer.bias}
    if type(layer) not in ACTIVATIONS or last["activation"] != "none":
        return None
    last["activation"] = ACTIVATIONS[type(layer)]
    return {}


def _split(columns: Floats, heads: Sequence[Head]) -> list[Floats]:
    if len(heads) == 1:
        return [columns]
    ends = np.cumsum([head.width for head in heads])[:-1]
    return [np.ascontiguousarray(own) for own in np.split(columns, ends, axis=1)]
