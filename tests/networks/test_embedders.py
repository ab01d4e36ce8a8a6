"""Which layers embed which input."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from hive.declared import ABSENT, FIRST, LAST
from hive.envs.spaces.observation import ObservationSpec
from hive.networks import InputEmbedderParameters
from hive.networks.build.convolutions import Convolution, ImageInput
from hive.networks.build.embedders import VectorInput, embedder_layers


def embed(
    shape: tuple[int, ...], dtype: str, parameters: InputEmbedderParameters | None = None
) -> tuple[list[nn.Module], Tensor]:
    layers, width = embedder_layers(ObservationSpec(shape, dtype), parameters or InputEmbedderParameters())
    output = nn.Sequential(*layers)(torch.ones((2, *shape), dtype=getattr(torch, dtype)))
    assert output.shape == (2, width)
    assert output.dtype == torch.float32
    return layers, output


def test_a_vector_needs_no_layer() -> None:
    layers, output = embed((4,), "float32")
    assert layers == []
    assert output.tolist() == [[1.0] * 4] * 2


@pytest.mark.parametrize("shape", [(), (2, 3), (2, 2, 2, 2)])
def test_other_shapes_are_flattened(shape: tuple[int, ...]) -> None:
    layers, output = embed(shape, "float32")
    assert [type(layer) for layer in layers] == [VectorInput]
    assert (output == 1.0).all()


def test_bytes_are_scaled() -> None:
    _, output = embed((128,), "uint8")
    torch.testing.assert_close(output, torch.full((2, 128), 1 / 255))


def test_dense_layers_on_request() -> None:
    layers, output = embed((4,), "float32", InputEmbedderParameters(widths=(7,), activation="tanh"))
    assert [type(layer) for layer in layers] == [nn.Linear, nn.Tanh]
    assert output.shape == (2, 7)


@pytest.mark.parametrize("shape", [(4, 84, 84), (84, 84, 4), (36, 36, 3), (84, 84)])
def test_large_images_get_the_convolutions_of_nature(shape: tuple[int, ...]) -> None:
    layers, output = embed(shape, "uint8")
    kernels = [layer.kernel_size for layer in layers if isinstance(layer, nn.Conv2d)]
    assert kernels == [(8, 8), (4, 4), (3, 3)]
    assert output.shape == (2, 512)


@pytest.mark.parametrize("shape", [(10, 10, 4), (10, 10, 10), (3, 35, 50), (7, 7, 3), (1, 1, 1)])
def test_small_images_get_small_kernels(shape: tuple[int, ...]) -> None:
    layers, output = embed(shape, "uint8")
    assert [layer.kernel_size for layer in layers if isinstance(layer, nn.Conv2d)] == [(3, 3), (3, 3)]
    assert output.shape == (2, 128)


def test_images_may_be_floats_and_have_dense_layers_of_their_own() -> None:
    layers, output = embed((5, 5, 3), "float32", InputEmbedderParameters(widths=(9, 8)))
    assert isinstance(layers[0], ImageInput)
    assert [layer.scale for layer in layers if isinstance(layer, Convolution)] == [1.0, 1.0]
    assert output.shape == (2, 8)


def test_channels_are_found_and_moved_to_the_front() -> None:
    last, first, gray = ImageInput((6, 5, 3), LAST), ImageInput((3, 6, 5), FIRST), ImageInput((6, 5), ABSENT)
    for image, channels in ((last, 3), (first, 3), (gray, 1)):
        assert (image.channels, image.height, image.width) == (channels, 6, 5)
    pixels = torch.arange(90.0).reshape(1, 3, 6, 5)
    assert torch.equal(first(pixels), pixels)
    assert torch.equal(last(pixels.permute(0, 2, 3, 1)), pixels)
    assert torch.equal(gray(pixels[:, 0]), pixels[:, :1])
