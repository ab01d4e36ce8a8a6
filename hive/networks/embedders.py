"""Input embedders: the layers that turn one named input into a vector, chosen by the input's shape.

    [H, W, C] or [C, H, W], uint8 [H, W]   image: convolutions, then a dense layer
    anything else                          vector: flattened, then the configured dense layers

The channel axis is the smaller one of first and last; if they are equal, the last. uint8 inputs are scaled by 1/255,
images by the weights of their first convolution (hive.networks.convolutions); float inputs are not scaled. Images of at
least 36 x 36 get the convolutions of Mnih et al. 2015 ("Nature" DQN), smaller ones two layers of 3 x 3. A float32
vector without dense layers needs no layer at all.
"""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor, nn

from hive.errors import NetworkError
from hive.networks.convolutions import Convolution, FeatureLayer, Features, ImageInput, dtype_of_precision
from hive.networks.inputs import ACTION_INPUT
from hive.networks.layers import HIDDEN_GAIN, activation_layer, dense_layers, hidden_layer
from hive.networks.middleware import Merger
from hive.networks.parameters import InputEmbedderParameters, NetworkParameters
from hive.networks.spaces import BoxAction, DiscreteAction, InputArray, InputSpec, Spaces

__all__ = [
    "VectorInput",
    "embedded_inputs",
    "embedder_layers",
    "hidden_gain",
    "is_image",
    "network_inputs",
]

Stack = tuple[tuple[tuple[int, int, int, int], ...], tuple[int, ...]]

# (filters, kernel, stride, padding) of each convolution, and the widths of the dense layers after them.
NATURE: Stack = ((32, 8, 4, 0), (64, 4, 2, 0), (64, 3, 1, 0)), (512,)  # Mnih et al. 2015
SMALL: Stack = ((32, 3, 1, 1), (64, 3, 2, 1)), (128,)

# The convolutions of NATURE reduce 36 x 36 to 1 x 1, so smaller images do not fit.
SMALLEST_NATURE_IMAGE = 36


class VectorInput(nn.Module):
    """Flattens an input [N, ...] of any dtype to float32 [N, elements], multiplied by `scale`."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, observations: Tensor) -> Tensor:
        vectors = observations.reshape(observations.shape[0], -1)  # `len` would be a constant in an export
        return vectors.to(torch.float32) if self.scale == 1.0 else vectors * self.scale


def is_image(spec: InputSpec) -> bool:
    """Whether an input of this `spec` is embedded by convolutions."""
    return len(spec.shape) == 3 or (len(spec.shape) == 2 and spec.dtype == "uint8")


def embedder_layers(
    spec: InputSpec,
    parameters: InputEmbedderParameters,
    gain: float | None = HIDDEN_GAIN,
    precision: str = "float32",
) -> tuple[list[nn.Module], int]:
    """Returns the layers that embed an input of this `spec` as float32 [N, width], and `width`.

    gain: that of `layers.hidden_layer`. precision: that of NetworkParameters, for images.
    """
    shape = tuple(spec.shape)
    scale = 1.0 / 255.0 if spec.dtype == "uint8" else 1.0
    if is_image(spec):
        return _image_layers(ImageInput(shape, dtype_of_precision(precision)), scale, parameters, gain)
    first: list[nn.Module] = [] if len(shape) == 1 and scale == 1.0 else [VectorInput(scale)]
    dense, width = dense_layers(
        prod(shape), parameters.widths or (), parameters.activation, gain, layer_norm=parameters.layer_norm
    )
    return first + dense, width


def embedded_inputs(parameters: NetworkParameters, spaces: Spaces) -> tuple[list[nn.Module], int]:
    """Returns the embedders of all inputs and, if there are several, their merger; and the width of their output."""
    available = network_inputs(parameters, spaces)
    chosen = parameters.input_embedders_parameters or {name: InputEmbedderParameters() for name in available}
    unknown = sorted(chosen.keys() - available.keys())
    if unknown:
        raise NetworkError(f"no input `{unknown[0]}` for an embedder", hint=f"inputs: {', '.join(sorted(available))}")
    names = sorted(chosen)
    gain = hidden_gain(parameters)
    embedders = [embedder_layers(available[name], chosen[name], gain, parameters.precision) for name in names]
    if len(available) == 1:
        return embedders[0]
    sequences = [nn.Sequential(*layers) for layers, _ in embedders]
    merger = Merger(names, sequences, [width for _, width in embedders], parameters.embedding_merger_type)
    return [merger], merger.width


def hidden_gain(parameters: NetworkParameters) -> float | None:
    """Returns the gain of orthogonal layers; None if their weights have torch's initial values."""
    return parameters.hidden_gain if parameters.initialization == "orthogonal" else None


def network_inputs(parameters: NetworkParameters, spaces: Spaces) -> dict[str, InputSpec]:
    """Returns all inputs of a network: the observations and, if an embedder is named `action`, the action.

    A box action is float32 of its shape, a discrete one is one-hot, float32 [n].
    """
    inputs = dict(spaces.observations)
    if ACTION_INPUT in parameters.input_embedders_parameters and ACTION_INPUT not in inputs:
        if isinstance(spaces.action, DiscreteAction):
            inputs[ACTION_INPUT] = InputArray((int(spaces.action.n),), "float32")
        elif isinstance(spaces.action, BoxAction):
            inputs[ACTION_INPUT] = InputArray(tuple(spaces.action.shape), "float32")
    return inputs


def _image_layers(
    image: ImageInput, scale: float, parameters: InputEmbedderParameters, gain: float | None
) -> tuple[list[nn.Module], int]:
    channels, height, width = image.channels, image.height, image.width
    convolutions, widths = NATURE if min(height, width) >= SMALLEST_NATURE_IMAGE else SMALL
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
