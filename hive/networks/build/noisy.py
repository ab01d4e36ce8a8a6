"""Linear layers with noise in their weights, whose deviations are trained: NoisyNet (Fortunato et al. 2018).

    y = (mean + deviation * f(e_out) f(e_in)^T) x + bias mean + bias deviation * f(e_out),   f(e) = sign(e) sqrt|e|

e_in and e_out are N(0, 1), one number for each input and output (factorised noise, equations 10 and 11). They are drawn
from torch's generator at each forward pass in training mode, and are the same for all rows of it. In evaluation mode
the weights are their means. There is no state but the parameters.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

__all__ = ["NoisyLinear", "acting", "with_noise"]


class NoisyLinear(nn.Module):
    """The linear layer `mean` with noise in its weights and biases.

    deviation: the initial deviation of a weight, times the square root of the number of inputs; the paper has 0.5.
    """

    def __init__(self, mean: nn.Linear, deviation: float) -> None:
        super().__init__()
        self.mean = mean
        initial = deviation / math.sqrt(mean.in_features)
        self.weight_deviation = nn.Parameter(torch.full((mean.out_features, mean.in_features), initial))
        self.bias_deviation = nn.Parameter(torch.full((mean.out_features,), initial))

    def forward(self, input: Tensor) -> Tensor:
        output: Tensor = self.mean(input)
        if not self.training:
            return output
        like = self.mean.weight
        drawn = torch.randn(self.mean.in_features + self.mean.out_features, dtype=like.dtype, device=like.device)
        noise = drawn.sign() * drawn.abs().sqrt()
        inputs, outputs = noise.split_with_sizes((self.mean.in_features, self.mean.out_features))
        return output + outputs * linear(input * inputs, self.weight_deviation, self.bias_deviation)


def with_noise(module: nn.Module, deviation: float) -> nn.Module:
    """Replaces every linear layer in `module` by a NoisyLinear with its weights as means, and returns the result."""
    if isinstance(module, nn.Linear):
        return NoisyLinear(module, deviation)
    for name, child in module.named_children():
        setattr(module, name, with_noise(child, deviation))
    return module


def acting(module: nn.Module) -> nn.Module:
    """Puts `module` into evaluation mode, except for the noise of NoisyLinear layers, and returns it.

    This is the mode of collectors and of target networks: dropout is off, and the noise explores.
    """
    module.eval()
    for child in module.modules():
        if isinstance(child, NoisyLinear):
            child.training = True
    return module
