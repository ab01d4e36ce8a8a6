"""The layers between embedders and heads: the merger of several embeddings, and dense layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from hive.errors import NetworkError
from hive.networks.inputs import InputName, dotted
from hive.networks.layers import HIDDEN_GAIN, dense_layers
from hive.networks.parameters import EmbeddingMergerType, MiddlewareParameters

__all__ = ["Merger", "middleware_layers"]


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
            sizes = ", ".join(f"`{dotted(name)}` {width}" for name, width in zip(names, widths, strict=True))
            raise NetworkError(
                f"embeddings of different widths cannot be added: {sizes}",
                hint="end every embedder in the same width, or merge by EmbeddingMergerType.Concat",
            )
        self.names = tuple(names)
        self.embedders = nn.ModuleList(embedders)
        self.adds = merger_type is EmbeddingMergerType.Sum
        self.width = widths[0] if self.adds else sum(widths)

    def forward(self, observations: Mapping[InputName, Tensor]) -> Tensor:
        embeddings = [embedder(observations[name]) for name, embedder in zip(self.names, self.embedders, strict=True)]
        return torch.stack(embeddings).sum(0) if self.adds else torch.cat(embeddings, -1)


def middleware_layers(
    parameters: MiddlewareParameters, width: int, gain: float | None = HIDDEN_GAIN
) -> tuple[list[nn.Module], int]:
    """Returns the dense layers for embeddings float32 [N, width], and the width of their output.

    gain: that of `layers.hidden_layer`.
    """
    return dense_layers(width, parameters.widths, parameters.activation, gain, layer_norm=parameters.layer_norm)
