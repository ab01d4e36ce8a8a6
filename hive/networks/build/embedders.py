"""Embedders, the layers that turn one named input into a vector; their merger, and the dense layers after it.

What an input declares chooses its embedder:

    image                           convolutions, then a dense layer
    numbers of many values, bytes   a row of an embedding table for each, then the configured dense layers
    anything else                   vector: flattened, then the configured dense layers

`hive.declared` says which arrays are images, where their channels are, and how numbers are scaled: vectors before the
first layer, images by the weights of their first convolution (hive.networks.build.convolutions). Images of at least 36
x 36 get the convolutions of Mnih et al. 2015 ("Nature" DQN), smaller ones two layers of 3 x 3. A float32 vector without
bounds and dense layers needs no layer at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import prod

import torch
from torch import Tensor, nn

from hive.declared import NO_IMAGE, NUMBER_BYTES, Bounds
from hive.errors import NetworkError
from hive.networks.build.convolutions import (
    Convolution,
    FeatureLayer,
    Features,
    ImageInput,
    scaled,
    scaling,
)
from hive.networks.build.layers import HIDDEN_GAIN, activation_layer, dense_layers, hidden_layer
from hive.networks.build.parameters import (
    EmbeddingMergerType,
    InputEmbedderParameters,
    MiddlewareParameters,
    NetworkParameters,
)
from hive.networks.build.spaces import (
    BoxAction,
    DiscreteAction,
    InputArray,
    InputSpec,
    Spaces,
    bounds_of,
    channels_at,
    counts_of,
)
from hive.networks.rows.inputs import ACTION_INPUT, InputName, dotted_name, input_order

Stack = tuple[tuple[tuple[int, int, int, int], ...], tuple[int, ...]]

# (filters, kernel, stride, padding) of each convolution, and the widths of the dense layers after them.
NATURE: Stack = ((32, 8, 4, 0), (64, 4, 2, 0), (64, 3, 1, 0)), (512,)  # Mnih et al. 2015
SMALL: Stack = ((32, 3, 1, 1), (64, 3, 2, 1)), (128,)

# The convolutions of NATURE reduce 36 x 36 to 1 x 1, so smaller images do not fit.
SMALLEST_NATURE_IMAGE = 36

TABLE_WIDTHS = 8, 32  # least and most elements of a table's vectors


class VectorInput(nn.Module):
    """Flattens an input [N, ...] of any dtype to float32 [N, elements], in the scale of `bounds` (hive.declared)."""

    def __init__(self, bounds: Bounds, elements: int) -> None:
        super().__init__()
        self.scaling = scaling(bounds, (elements,))

    def forward(self, observations: Tensor) -> Tensor:
        vectors = observations.reshape(observations.shape[0], -1)  # `len` would be a constant in an export
        if self.scaling is None or self.scaling == 1.0:
            return vectors.to(torch.float32)
        if isinstance(self.scaling, float):
            return vectors.to(torch.float32) * self.scaling
        return scaled(vectors, self.scaling)


class NumberTable(nn.Module):
    """Looks numbers up in a table of vectors: uint8 [N, ..., elements, 4] -> float32 [N, vectors of all, flat].

    counts: number of values of each element, which has rows of its own. The lowest byte of a number is the first.
    """

    def __init__(self, counts: Sequence[int]) -> None:
        super().__init__()
        self.table = nn.Embedding(sum(counts), table_width(counts))
        self._elements = len(counts)
        self._first = torch.tensor([0, *accumulate(counts[:-1])])
        self._bytes = torch.tensor([1 << 8 * byte for byte in range(NUMBER_BYTES)])

    def forward(self, observations: Tensor) -> Tensor:
        rows = observations.shape[0]
        given = observations.reshape(rows, -1, self._elements, NUMBER_BYTES).to(torch.int64)
        numbers = (given * self._bytes).sum(-1) + self._first
        vectors: Tensor = self.table(numbers)
        return vectors.reshape(rows, -1)


def table_width(counts: Sequence[int]) -> int:
    """Return the elements of a table's vectors: the fourth root of the number of values, within 8 to 32."""
    least, most = TABLE_WIDTHS
    return min(max(math.ceil(math.sqrt(math.sqrt(max(counts)))), least), most)


def is_image(spec: InputSpec) -> bool:
    """Whether an input of this `spec` is embedded by convolutions."""
    return channels_at(spec) != NO_IMAGE


def unseen(spec: InputSpec) -> tuple[int, int]:
    """Return how many of the last rows and columns of an image its convolutions never reach, because of strides."""
    image = ImageInput(tuple(spec.shape), channels_at(spec))
    convolutions, _ = _stack(image)
    return _unseen_of(image.height, convolutions), _unseen_of(image.width, convolutions)


def embedder_layers(
    spec: InputSpec,
    parameters: InputEmbedderParameters,
    gain: float | None = HIDDEN_GAIN,
    precision: str = "float32",
    *,
    normalized: bool = False,
) -> tuple[list[nn.Module], int]:
    """Return the layers that embed an input of this `spec` as float32 [N, width], and `width`.

    gain: that of `layers.hidden_layer`. precision: that of NetworkParameters, for images. normalized: whether a layer
    before these normalizes numbers, which replaces their declared scale.
    """
    shape, bounds = tuple(spec.shape), bounds_of(spec)
    if normalized and spec.dtype == "float32":
        bounds = ((), ())
    if is_image(spec):
        image = ImageInput(shape, channels_at(spec), bounds, getattr(torch, precision))
        return _image_layers(image, parameters, gain)
    first: list[nn.Module] = [VectorInput(bounds, prod(shape))]
    width = prod(shape)
    if counts := counts_of(spec):
        first = [NumberTable(counts)]
        width = table_width(counts) * (width // NUMBER_BYTES)
    elif len(shape) == 1 and spec.dtype == "float32" and not bounds[0]:
        first = []
    dense, width = dense_layers(
        width, parameters.widths or (), parameters.activation, gain, layer_norm=parameters.layer_norm
    )
    return first + dense, width


def embedded_inputs(
    parameters: NetworkParameters, spaces: Spaces, *, normalized: bool | None = None
) -> tuple[list[nn.Module], int]:
    """Return the embedders of all inputs and, if there are several, their merger; and the width of their output.

    normalized: as for `embedder_layers`; None: as the parameters say.
    """
    available = network_inputs(parameters, spaces)
    chosen = parameters.input_embedders_parameters or {name: InputEmbedderParameters() for name in available}
    unknown = sorted(map(dotted_name, chosen.keys() - available.keys()))
    if unknown:
        known = ", ".join(sorted(map(dotted_name, available)))
        raise NetworkError(f"no input `{unknown[0]}` for an embedder", hint=f"inputs: {known}")
    names = sorted(chosen, key=input_order)
    gain = hidden_gain(parameters)
    already = parameters.normalize_observations if normalized is None else normalized
    embedders = [
        embedder_layers(available[name], chosen[name], gain, parameters.precision, normalized=already) for name in names
    ]
    if len(available) == 1:
        return embedders[0]
    sequences = [nn.Sequential(*layers) for layers, _ in embedders]
    merger = Merger(names, sequences, [width for _, width in embedders], parameters.embedding_merger_type)
    return [merger], merger.width


def hidden_gain(parameters: NetworkParameters) -> float | None:
    """Return the gain of orthogonal layers; None if their weights have torch's initial values."""
    return parameters.hidden_gain if parameters.initialization == "orthogonal" else None


def network_inputs(parameters: NetworkParameters, spaces: Spaces) -> dict[InputName, InputSpec]:
    """Return all inputs of a network: the observations and, if an embedder is named `action`, the action.

    A box action is float32 of its shape, a discrete one is one-hot, float32 [n].
    """
    inputs: dict[InputName, InputSpec] = dict(spaces.observations)
    if ACTION_INPUT in parameters.input_embedders_parameters and ACTION_INPUT not in inputs:
        if isinstance(spaces.action, DiscreteAction):
            inputs[ACTION_INPUT] = InputArray((int(spaces.action.n),), "float32")
        elif isinstance(spaces.action, BoxAction):
            inputs[ACTION_INPUT] = InputArray(tuple(spaces.action.shape), "float32", channels=NO_IMAGE)
    return inputs


def _stack(image: ImageInput) -> Stack:
    return NATURE if min(image.height, image.width) >= SMALLEST_NATURE_IMAGE else SMALL


def _image_layers(
    image: ImageInput, parameters: InputEmbedderParameters, gain: float | None
) -> tuple[list[nn.Module], int]:
    channels, height, width, scale = image.channels, image.height, image.width, image.scale
    convolutions, widths = _stack(image)
    layers: list[nn.Module] = [image]
    for filters, kernel, stride, padding in convolutions:
        convolution = Convolution(channels, filters, kernel, stride, padding, scale=scale, dtype=image.dtype)
        layers.append(hidden_layer(convolution, gain))
        layers.append(activation_layer(parameters.activation))
        channels, scale = filters, 1.0
        height, width = ((side + 2 * padding - kernel) // stride + 1 for side in (height, width))
    dense_widths = widths if parameters.widths is None else parameters.widths
    first = FeatureLayer if dense_widths and image.dtype is torch.bfloat16 else nn.Linear
    layers.append(Features(torch.float32 if first is nn.Linear else image.dtype))
    norm, features = parameters.layer_norm, channels * height * width
    dense, width = dense_layers(features, dense_widths, parameters.activation, gain, layer_norm=norm, first=first)
    return layers + dense, width


def _unseen_of(side: int, convolutions: Sequence[tuple[int, int, int, int]]) -> int:
    """Return how many of the last positions of one side have no path to an output."""
    sides = [side]
    for _, kernel, stride, padding in convolutions:
        sides.append((sides[-1] + 2 * padding - kernel) // stride + 1)
    reached = sides.pop()
    for (_, kernel, stride, padding), before in zip(reversed(convolutions), reversed(sides), strict=True):
        reached = min((reached - 1) * stride + kernel - padding, before)
    return side - reached


class Merger(nn.Module):
    """Embeds each of several named inputs and merges the embeddings, in the order of `names`.

    Takes a mapping from names to tensors [N, ...]; returns float32 [N, width]. Raises NetworkError for a sum of
    embeddings of different widths.
    """

    def __init__(
        self,
        names: Sequence[InputName],
        embedders: Sequence[nn.Module],
        widths: Sequence[int],
        merger_type: EmbeddingMergerType,
    ) -> None:
        super().__init__()
        if merger_type is EmbeddingMergerType.Sum and len(set(widths)) > 1:
            sizes = ", ".join(f"`{dotted_name(name)}` {width}" for name, width in zip(names, widths, strict=True))
            raise NetworkError(
                f"embeddings of different widths cannot be added: {sizes}",
                hint="end every embedder in the same width, or merge by EmbeddingMergerType.Concat",
            )
        self.names = tuple(names)
        self.embedders = nn.ModuleList(embedders)
        self.adds = merger_type is EmbeddingMergerType.Sum
        self.widths = tuple(widths)
        self.width = widths[0] if self.adds else sum(widths)

    def forward(self, observations: Mapping[InputName, Tensor]) -> Tensor:
        embeddings = [embedder(observations[name]) for name, embedder in zip(self.names, self.embedders, strict=True)]
        return torch.stack(embeddings).sum(0) if self.adds else torch.cat(embeddings, -1)


def middleware_layers(
    parameters: MiddlewareParameters, width: int, gain: float | None = HIDDEN_GAIN
) -> tuple[list[nn.Module], int]:
    """Return the dense layers for embeddings float32 [N, width], and the width of their output.

    gain: that of `layers.hidden_layer`.
    """
    return dense_layers(width, parameters.widths, parameters.activation, gain, layer_norm=parameters.layer_norm)
