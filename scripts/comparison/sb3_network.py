"""The networks of Stable-Baselines3 with the layers that hive has in the same task.

    image ─ conv 3 x 3, 32 ─ conv 3 x 3, 64, stride 2 ─ dense 128 ─┐
    vector or one-hot number ──────────────────────────────────────┴ dense layers ─ heads

All activations of images are ReLU; the dense layers after them have tanh. Images of bytes are divided by 255, and parts
of a dictionary are in the order of their names.
"""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3.common.preprocessing import get_flattened_obs_dim
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

FEATURES = 128  # width of the dense layer after the convolutions


class ChannelsFirst(nn.Module):
    """[N, H, W, C] to [N, C, H, W]."""

    def forward(self, images: Tensor) -> Tensor:
        return images.permute(0, 3, 1, 2)


class Image(nn.Sequential):
    """The layers of an image [N, H, W, C] or [N, C, H, W] of small sides; the channel axis is the smaller one."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        channels_last = shape[2] <= shape[0]
        channels, *sides = (shape[2], *shape[:2]) if channels_last else shape
        reduced = [(side + 1) // 2 for side in sides]
        super().__init__(
            *([ChannelsFirst()] if channels_last else []),
            nn.Conv2d(channels, 32, 3, 1, 1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, 2, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(64 * reduced[0] * reduced[1], FEATURES),
            nn.ReLU(),
        )


class Features(BaseFeaturesExtractor):  # type: ignore[misc,unused-ignore]  # untyped where it is not installed
    """Embeds an image, or each part of a dictionary, and joins the parts."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        parts = dict(space.spaces) if isinstance(space, spaces.Dict) else {"": space}
        images = {name: part for name, part in parts.items() if len(part.shape or ()) == 3}
        vectors = [part for name, part in parts.items() if name not in images]
        super().__init__(space, FEATURES * len(images) + sum(map(get_flattened_obs_dim, vectors)))
        self.names = sorted(parts)
        self.layers = nn.ModuleDict({name or "image": Image(tuple(part.shape or ())) for name, part in images.items()})

    def forward(self, observations: Any) -> Tensor:
        if self.names == [""]:
            found: Tensor = self.layers["image"](observations)
            return found
        parts = [(name, observations[name]) for name in self.names]
        return torch.cat([self.layers[name](one) if name in self.layers else one.flatten(1) for name, one in parts], 1)


def policy_of(settings: dict[str, Any], space: spaces.Space[Any]) -> tuple[str, dict[str, Any]]:
    """Return the name of the policy and its arguments."""
    widths = list(settings["layers"])
    options: dict[str, Any] = {"net_arch": {"pi": widths, "vf": widths}}
    if settings["memory"]:
        return "MlpLstmPolicy", options | {"lstm_hidden_size": settings["memory"]}
    if isinstance(space, spaces.Dict) or len(space.shape or ()) == 3:
        options |= {"features_extractor_class": Features, "share_features_extractor": settings["shared"]}
    return "MultiInputPolicy" if isinstance(space, spaces.Dict) else "MlpPolicy", options
