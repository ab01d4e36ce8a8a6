"""Several heads on shared features, learned by one backward pass.

    reinforce_jointly([(v, value_loss), (policy, policy_loss)], [features])

is

    (v.scaled(value_loss) + policy.scaled(policy_loss)).backward()
    v.step(); policy.step(); features.step()

with each one's `loss_scaling` and `accumulate_steps` honoured. Features may be of either style, or an Identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hive.approximation.approximation import Approximation
from hive.approximation.stepping import refuse_weight
from hive.errors import NetworkError

__all__ = ["accumulate_jointly", "reinforce_jointly"]

Losses = Sequence[tuple[Approximation, Tensor]]


def accumulate_jointly(losses: Losses, features: Sequence[Approximation] = (), weight: float = 1.0) -> None:
    """One backward pass of all losses, each scaled by its head, times `weight`; no step.

    losses: heads with their losses, scalars; a head may have several. Raises NetworkError as `accumulate`, and for a
    head with a GradScaler: the scales of several have no sum.
    """
    _refuse_unpaired(losses, features)
    refuse_weight(weight)
    for head, _ in losses:
        if head.scaler is not None:
            raise NetworkError(f"`{head.name}` has a GradScaler, which a joint backward pass cannot honour")
    total = torch.stack([head.scaled(loss) for head, loss in losses]).sum()
    torch.autograd.backward(total if weight == 1.0 else weight * total)
    for approximation in (*_heads(losses), *features):
        approximation.count_backward(weight)


def reinforce_jointly(losses: Losses, features: Sequence[Approximation] = ()) -> None:
    """`accumulate_jointly`, then a step of each head, in order, and of each of the features."""
    _refuse_unpaired(losses, features)
    for approximation in (*_heads(losses), *features):
        approximation.refuse_untrainable()
    accumulate_jointly(losses, features)
    for head in _heads(losses):
        head.step_if_due(*[loss for owner, loss in losses if owner is head])
    for approximation in features:
        approximation.step_if_due()


def _refuse_unpaired(losses: Any, features: Any) -> None:
    if not losses:
        raise NetworkError("there are no losses to learn from")
    for pair in losses:
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], Approximation):
            raise NetworkError("what is learned from is a list of pairs, each a head and its loss")
    if not isinstance(features, list | tuple):
        raise NetworkError("features are given as a list", hint="reinforce_jointly(losses, [features])")


def _heads(losses: Losses) -> list[Approximation]:
    return list(dict.fromkeys(head for head, _ in losses))
