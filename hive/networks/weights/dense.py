"""Networks of dense layers, computed by hive._native over the block that their parameters are bound to.

    dense = Dense.of(flat, networks)        None unless all of these networks are made of layers that it knows
    dense(observations)                     the columns of each network, with a graph where torch would record one
    dense.outputs(observations)             the outputs of the heads as NumPy arrays, without a graph
    dense.differentiate(slopes, gradient)   from the gradients of these outputs to a gradient block

torch's modules are the description of a network and the reference of its results: `compute_natively` gives those that
qualify a `dense` attribute, and without it they compute by torch. Layers of a subclass, with hooks, or that are used
twice compute what only torch knows. Known are linear layers, also with noise, LayerNorm,
the activations tanh, relu and silu, after layers without parameters, and the streams of a dueling head. Results differ
from torch's by rounding: sums have another order, and tanh is accurate to 3.3e-7 (native/include/hive/dense.hpp).

A copy of a module (copy.deepcopy) computes by torch, because its parameters lie elsewhere.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hive import _native
from hive.networks.build.embedders import Merger
from hive.networks.build.heads import Head, OutputLayer
from hive.networks.build.layers import NoisyLinear
from hive.networks.build.value_heads import TwoStreams
from hive.networks.rows.inputs import InputName
from hive.networks.rows.packed import FORBIDDEN, MaskColumns
from hive.networks.weights.derived import Derivation, DerivedPlaces, Places
from hive.networks.weights.flat import FlatParameters, Floats

Forbidden: TypeAlias = NDArray[np.bool_] | None
"""The actions that masks forbid, bool [N, actions]: outputs of theirs are FORBIDDEN. None: all are allowed."""

MOST_KEPT = 2  # passes kept at once: an actor's loss is differentiated through a critic that has its own

LINEAR: tuple[type[nn.Module], ...] = (nn.Linear, OutputLayer, NoisyLinear)
ACTIVATIONS: Mapping[type[nn.Module], str] = {nn.Tanh: "tanh", nn.ReLU: "relu", nn.SiLU: "silu"}


Networks: TypeAlias = Sequence[tuple[Sequence[nn.Module], Sequence[Head]]]


@dataclass(frozen=True, slots=True)
class Program:
    """A sequence of layers: those without parameters, which torch computes, and the rest for _native.DenseNetwork."""

    before: list[nn.Module]
    layers: list[dict[str, Any]]
    parameters: list[nn.Parameter]
    joins: bool  # whether the last layer joins the streams of its only head
    noisy: int  # layers with noise, among the parameters' ones


@dataclass(slots=True)
class Kept:
    """The memory of one pass for its backward pass. `waits`: this has not been made. `number` counts passes."""

    network: _native.DenseNetwork
    derivation: Derivation | None = None
    number: int = 0
    waits: bool = False
    weights: Floats = field(default_factory=lambda: np.empty(0, np.float32))
    rows: Floats = field(default_factory=lambda: np.empty((0, 0), np.float32))
    factors: Floats | None = None  # the noise of the pass, for derived weights

    def backward(self, slopes: Sequence[Floats | None], gradient: Floats | None, to_rows: Floats | None = None) -> None:
        """Make the backward pass from the gradients of the columns; see _native.DenseNetwork.backward."""
        self.waits = False
        if self.derivation is None or self.factors is None or gradient is None:
            self.network.backward(self.weights, self.rows, slopes, gradient, to_observations=to_rows)
            return
        to_derived = self.derivation.slopes()
        self.network.backward(self.weights, self.rows, slopes, to_derived, to_observations=to_rows)
        self.derivation.spread(self.factors, to_derived, gradient)


class Dense:
    """The native passes of several networks with the same input, each a sequence of layers and heads.

    flat: binds their parameters. networks: the layers of each, the last linear, and its heads, whose columns lie side
    by side. programs: what `_program` returns for each.
    """

    def __init__(
        self, flat: FlatParameters, networks: Networks, programs: Sequence[Program], derivation: Derivation | None
    ) -> None:
        self.flat = flat
        self._derivation = derivation
        self._derived = np.empty(0, np.float32) if derivation is None else derivation.block()
        self._noisy = list(accumulate(program.noisy for program in programs))
        self._joins = any(program.joins for program in programs)
        self._networks = networks
        self.before = programs[0].before
        """The layers before the first linear one, which torch computes."""
        self._layers = [program.layers for program in programs]
        self._kept = [self._room()]
        self.heads = [heads for _, heads in networks]
        self.masked: Container[int] = ()
        self._widths = [int(program.layers[-1]["outputs"]) for program in programs]
        self._parameters = [program.parameters for program in programs]
        self._everything = [parameter for own in self._parameters for parameter in own]
        self._fields = {id(parameter): flat.field_of(parameter) for parameter in self._everything}
        self._inputs = int(self._layers[0][0]["inputs"])
        self._columns_of = _columns_of(self.before)
        merged = self.before[0].names if self._columns_of and isinstance(self.before[0], Merger) else ()
        self._joined = merged if len(merged) == len(self._columns_of) else ()  # inputs that are laid side by side
        self._passes = 0
        self._mask: NDArray[np.uint8] | None = None
        streams = [
            program.joins or not any(isinstance(head, TwoStreams) for head in own)
            for program, own in zip(programs, self.heads, strict=True)
        ]
        self._direct = all(streams) and all(head.is_direct for own in self.heads for head in own)

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        """Return None: the copy of a module computes by torch."""

    @classmethod
    def of(cls, flat: FlatParameters, networks: Networks, masked: Container[int] = (0,)) -> Dense | None:
        """Return the native form of these networks; None if it does not know all of their layers.

        masked: the networks whose first output action masks apply to: the policy's, or every critic's.
        """
        places = DerivedPlaces(flat) if _derives(networks) else Places(flat)
        programs = [_program(places, layers, heads) for layers, heads in networks]
        known = [program for program in programs if program is not None]
        own = [id(parameter) for program in known for parameter in program.parameters]
        is_shared = len(set(own)) < len(own)
        if len(known) < len(networks) or is_shared or any(head.takes_features for _, all in networks for head in all):
            return None
        made = cls(flat, networks, known, places.derivation() if isinstance(places, DerivedPlaces) else None)
        made.masked = masked
        return made

    def over(self, flat: FlatParameters) -> Dense | None:
        """Return the same for another FlatParameters of the same modules."""
        return self.of(flat, self._networks, self.masked)

    def __call__(self, inputs: Any, count: int | None = None) -> tuple[Tensor, ...] | None:
        """Return the columns of the first `count` networks, float32 [N, width] each; None for inputs for torch."""
        rows = None if self._joins else self.rows(inputs)  # torch joins streams from their own columns
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
        if self.before or not self._direct or rows.ndim != 2 or rows.dtype != np.float32:
            return None
        head = self.heads[0][0]
        (columns,) = self.columns(rows, 1)
        return head.numpy_output(columns if len(self.heads[0]) == 1 else columns[:, : head.width])

    def acting(
        self, sampler: Mapping[str, Any], unpacking: _native.Unpacking, mask: MaskColumns | None
    ) -> _native.Acting | None:
        """Return native actions of the first output, for rows of observations; None if torch has a part in it.

        sampler: see `_native.Acting`. mask: that of the actions in such a row.
        """
        head = self.heads[0][0]
        plain = self._direct and head.as_columns and not head.softmax
        if not plain or self._derivation is not None or unpacking.inputs != self._inputs:
            return None
        place, elements = self._place_of(head), self.flat.parameter_elements
        whole = self.reads_inputs and unpacking.row_bytes == 4 * self._inputs
        columns = None if mask is None else (mask.offset, mask.actions)
        return _native.Acting(self._layers[0], elements, place, sampler, None if whole else unpacking, columns)

    def _place_of(self, head: Head) -> dict[str, Any]:
        """Return which columns and parameters make the output of a head that is `as_columns`."""
        place = -1 if head.appended is None else self.flat.field_of(head.appended).offset // 4
        return {"width": head.width, "deviations": place, "clamps": head.clamps}

    def outputs(self, inputs: Any, forbidden: Forbidden = None) -> tuple[Floats, ...] | None:
        """Return the outputs of all heads, float32 [N, ...] each.

        None if torch has a part in it: for inputs that are not rows of numbers, and heads with layers of their own.
        """
        rows = self.rows(inputs) if self._direct else None
        if rows is None:
            return None
        return self.of_columns(self.columns(rows.detach().numpy(), len(self._widths)), forbidden)

    def begin(self, inputs: Any, forbidden: Forbidden = None) -> DensePass | None:
        """Begin a pass that is differentiated later; None where `outputs` is, and for frozen parameters."""
        rows = self.rows(inputs) if self._direct else None
        if rows is None or not all(parameter.requires_grad for parameter in self._everything):
            return None
        return DensePass(self, rows.detach().numpy(), len(self._widths), forbidden)

    def of_columns(self, columns: Sequence[Floats], forbidden: Forbidden = None) -> tuple[Floats, ...]:
        """Return the outputs of all heads from the columns of their networks."""
        outputs: list[Floats] = []
        for number, (block, heads) in enumerate(zip(columns, self.heads, strict=False)):  # those of the first networks
            for head, part in zip(heads, _split(block, heads), strict=True):
                output = head.numpy_output(part)  # a comprehension is a frame, for every step
                if forbidden is not None and head is heads[0] and number in self.masked:
                    output = filled(output, forbidden, FORBIDDEN)
                outputs.append(output)
        return tuple(outputs)

    def described(
        self,
        rows: str,
        outputs: Sequence[str],
        slopes: Sequence[str] | None = None,
        *,
        of_target: bool = False,
        name: str = "network",
        mask: Mapping[str, Any] | None = None,
    ) -> tuple[str, dict[str, Any]] | None:
        """Return this pass as a step of a `_native.Program`, of the first networks that have these outputs.

        rows, outputs, slopes: names of registers. slopes: those of the outputs that a backward pass follows for; None:
        none follows. name: that by which a backward pass names this one. of_target: compute with the target's weights.
        mask: the register with the action masks (of), their offset in its rows, and their actions; None: all allowed.
        None if torch has a part in the pass.
        """
        heads: list[list[dict[str, Any]]] = []
        registers = iter(zip(outputs, [None] * len(outputs) if slopes is None else slopes, strict=True))
        for own, columns in zip(self.heads, self._widths, strict=True):
            if sum(map(len, heads)) == len(outputs):
                break
            heads.append([])
            for head, (output, to_output) in zip(own, registers, strict=False):
                if not (self._direct and head.as_columns):
                    return None
                place = self._place_of(head)
                if len(own) == 1:
                    place["width"] = columns  # not that of a head with two streams
                masks = mask is not None and head is own[0] and len(heads) - 1 in self.masked
                place |= {"softmax": head.softmax, "output": output, "slopes": to_output, "masked": masks}
                heads[-1].append(place)
            if len(heads[-1]) != len(own):
                return None
        if slopes is not None and not all(parameter.requires_grad for parameter in self._everything):
            return None
        derivation, noisy = self._derivation, self._noisy[len(heads) - 1]
        network = {
            "layers": self._layers,
            "parameters": self.flat.parameter_elements,
            "derived": None if derivation is None else derivation.described(noisy, all_draw=of_target),
            "heads": heads,
            "mask": mask,
        }
        return "forward", {**network, "name": name, "input": rows, "target": of_target, "keep": slopes is not None}

    @property
    def reads_inputs(self) -> bool:
        """Whether the first linear layer reads the numbers of an input as they are."""
        return all(type(layer) in (nn.Flatten, nn.Identity) for layer in self.before)

    @property
    def mask(self) -> NDArray[np.uint8]:
        """uint8 [parameters of `flat`]: 1 for those of these networks and their heads."""
        if self._mask is None:
            own = {place.name for place in self._fields.values()}
            own |= {self.flat.field_of(p).name for heads in self.heads for head in heads for p in head.parameters()}
            self._mask = np.array([name in own for name in self.flat.names], np.uint8)
        return self._mask

    def keep(self, rows: Floats, count: int, factors: Floats | None = None) -> tuple[Kept, list[Floats]]:
        """Return a pass whose intermediate results are kept for its `backward`, and the columns of `count` networks.

        factors: the noise of the pass; None: it is drawn, if the weights have any.
        """
        free = next((kept for kept in self._kept if not kept.waits), None)
        if free is None and len(self._kept) < MOST_KEPT:
            self._kept.append(free := self._room())
        kept = free or min(self._kept, key=lambda kept: kept.number)
        self._passes += 1
        kept.number, kept.waits, kept.rows = self._passes, True, rows
        if self._derivation is None:
            kept.weights = self.flat.weights
        else:
            kept.factors = self._derivation.factors(self._noisy[count - 1]) if factors is None else factors
            self._derivation.derive(self.flat.weights, kept.factors, kept.weights)
        return kept, self._columns(kept.network, kept.weights, rows, count, keep=True)

    def _room(self) -> Kept:
        derivation = self._derivation
        if derivation is None:
            return Kept(_native.DenseNetwork(self._layers, self.flat.parameter_elements))
        network = _native.DenseNetwork(self._layers, derivation.size)
        return Kept(network, derivation, weights=derivation.block())

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
            for layer in self.before:
                rows = layer(rows)
        usual = isinstance(rows, Tensor) and rows.dtype == torch.float32 and rows.shape[1:] == (self._inputs,)
        return rows.contiguous() if usual and rows.device.type == "cpu" else None

    def columns_of(self, name: InputName) -> slice | None:
        """Return the columns of the rows that are the input `name` as it is; None if torch computes them of it."""
        return self._columns_of.get(name)

    def columns(self, rows: Floats, count: int) -> list[Floats]:
        """Return the columns of the first `count` networks for rows float32 [N, inputs]."""
        weights = self.flat.weights
        if self._derivation is not None:
            self._derivation.derive(weights, self._derivation.factors(self._noisy[count - 1]), self._derived)
            weights = self._derived
        return self._columns(self._kept[0].network, weights, rows, count, keep=False)

    def _columns(
        self, network: _native.DenseNetwork, weights: Floats, rows: Floats, count: int, *, keep: bool
    ) -> list[Floats]:
        outputs = [np.empty((len(rows), width), np.float32) for width in self._widths[:count]]
        network.forward(weights, rows, outputs, keep=keep)
        return outputs


class DensePass:
    """A pass of a Dense whose gradients are computed later. `outputs`: those of all heads, float32 [N, ...] each."""

    def __init__(self, dense: Dense, rows: Floats, count: int, forbidden: Forbidden = None) -> None:
        self._dense, self._rows, self._count, self._forbidden = dense, rows, count, forbidden
        self._kept, self._columns = dense.keep(rows, count)
        self._number, self._factors = self._kept.number, self._kept.factors
        self.outputs = dense.of_columns(self._columns, forbidden)

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
            self._kept, _ = self._dense.keep(self._rows, self._count, self._factors)
            self._number = self._kept.number
        return self._kept

    def _to_columns(self, slopes: Sequence[Floats]) -> tuple[list[Floats], list[tuple[nn.Parameter, Floats]]]:
        """Return the gradients of each network's columns, and those of the heads' parameters."""
        left = list(slopes)
        columns: list[Floats] = []
        of_heads: list[tuple[nn.Parameter, Floats]] = []
        for number, (each, heads) in enumerate(zip(self._columns, self._dense.heads, strict=False)):
            own = []
            for head, given in zip(heads, _split(each, heads), strict=True):
                to_output = left.pop(0)
                if self._forbidden is not None and head is heads[0] and number in self._dense.masked:
                    to_output = filled(to_output, self._forbidden, 0.0)
                to_columns, to_parameters = head.numpy_slopes(to_output, given)
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
        ctx.save_for_backward(rows)  # torch refuses to give it back if it was changed meanwhile
        ctx.kept, columns = dense.keep(ctx.rows, count)
        ctx.number, ctx.factors = ctx.kept.number, ctx.kept.factors
        return tuple(map(torch.from_numpy, columns))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *slopes: Tensor | None) -> Any:
        dense: Dense = ctx.dense
        _ = ctx.saved_tensors
        if ctx.kept.number != ctx.number:  # its memory was needed for later passes
            ctx.kept, _ = dense.keep(ctx.rows, ctx.count, ctx.factors)
            ctx.number = ctx.kept.number
        needed = ctx.needs_input_grad
        # The native pass leaves out the networks without a slope: a loss may read only some of the outputs.
        make = np.empty if all(slope is not None for slope in slopes) else np.zeros
        gradient = make(dense.flat.parameter_elements, np.float32) if any(needed[3:]) else None
        to_rows = np.empty_like(ctx.rows) if needed[2] else None
        given = [None if slope is None else slope.contiguous().numpy() for slope in slopes]
        ctx.kept.backward(given, gradient, to_rows)
        found: list[Tensor | None] = [None] * len(ctx.parameters)
        if gradient is not None:
            whole = torch.from_numpy(gradient)
            for index, parameter in enumerate(ctx.parameters):
                found[index] = whole[dense.offsets(parameter)].view(parameter.shape)
        return None, None, None if to_rows is None else torch.from_numpy(to_rows), *found


def _columns_of(before: Sequence[nn.Module]) -> Mapping[InputName, slice]:
    """Return the columns of the inputs that these layers lay side by side as they are; empty without any."""
    if len(before) != 1 or type(before[0]) is not Merger or before[0].adds:
        return {}
    ends = list(accumulate(before[0].widths))
    places = zip(before[0].names, before[0].embedders, ends, before[0].widths, strict=True)
    return {
        name: slice(end - width, end)
        for name, embedder, end, width in places
        if not any(True for _ in embedder.children())
    }


def _derives(networks: Networks) -> bool:
    """Return whether some of the networks' layers have weights that are derived from others."""
    return any(isinstance(layer, NoisyLinear) or _joinable(heads) for layers, heads in networks for layer in layers)


def _joinable(heads: Sequence[Head]) -> bool:
    """Return whether the only head has two streams that a last layer can join."""
    return len(heads) == 1 and isinstance(heads[0], TwoStreams) and heads[0].is_direct


def _program(places: Places, layers: Sequence[nn.Module], heads: Sequence[Head]) -> Program | None:
    """Return the program of these layers and of the streams of a head; None if some are unknown."""
    rest = list(layers)
    before: list[nn.Module] = []
    while rest and not any(True for _ in rest[0].parameters()) and type(rest[0]) not in ACTIVATIONS:
        before.append(rest.pop(0))
    program: list[dict[str, Any]] = []
    parameters: list[nn.Parameter] = []
    for layer in rest:
        if not _added(layer, program, places):
            return None
        parameters += layer.parameters()
    if not program:
        return None
    if joins := _joinable(heads):
        head = cast(TwoStreams, heads[0])
        cast(DerivedPlaces, places).join(head, program)
        parameters += head.parameters()
        rest.append(head)
    noisy = sum(isinstance(layer, NoisyLinear) for each in rest for layer in each.modules())
    return Program(before, program, parameters, joins, noisy)


def _added(layer: nn.Module, program: list[dict[str, Any]], places: Places) -> bool:
    """Add a layer, or what it adds to the linear layer before it; return whether it is known."""
    if any(one._forward_hooks or one._forward_pre_hooks for one in layer.modules()):
        return False
    if type(layer) in LINEAR:
        known = cast(nn.Linear | NoisyLinear, layer)
        plain = known.mean if isinstance(known, NoisyLinear) else known
        if type(plain) not in LINEAR or plain.bias is None or getattr(plain, "rescale", None) is not None:
            return False
        shape = {"inputs": plain.in_features, "outputs": plain.out_features}
        program.append({**shape, "activation": "none", **places.linear(known)})
        return True
    if not program:
        return False
    last = program[-1]
    if type(layer) is nn.LayerNorm:
        usual = layer.elementwise_affine and layer.bias is not None and len(layer.normalized_shape) == 1
        if not usual or "scale" in last or last["activation"] != "none":
            return False
        last.update(epsilon=layer.eps, scale=places.of(layer.weight), shift=places.of(layer.bias))
        return True
    if type(layer) not in ACTIVATIONS or last["activation"] != "none":
        return False
    last["activation"] = ACTIVATIONS[type(layer)]
    return True


def filled(values: Floats, forbidden: NDArray[np.bool_], number: float) -> Floats:
    """Return values [N, actions] or [N, actions, atoms] with this number in place of those of forbidden actions."""
    where = forbidden if values.ndim == 2 else forbidden[..., None]
    return np.where(where, np.float32(number), values)


def _split(columns: Floats, heads: Sequence[Head]) -> list[Floats]:
    if len(heads) == 1:
        return [columns]
    ends = np.cumsum([head.width for head in heads])[:-1]
    return [np.ascontiguousarray(own) for own in np.split(columns, ends, axis=1)]
