"""One backward pass for several heads and their features."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hive.approximation import FeatureNetwork, Identity, VNetwork, accumulate_jointly, reinforce_jointly
from hive.errors import NetworkError

STATES = torch.linspace(-1, 1, 12).reshape(4, 3)
SCALES = (0.5, 2.0, 0.25)  # of the features, and of two heads


def layer(inputs: int, outputs: int, phase: float) -> nn.Linear:
    made = nn.Linear(inputs, outputs)
    with torch.no_grad():
        made.weight.copy_(torch.cos(torch.arange(made.weight.numel()) + phase).reshape(made.weight.shape))
        made.bias.zero_()
    return made


def family(style: Any, **settings: Any) -> tuple[FeatureNetwork, VNetwork, VNetwork]:
    trunk, first, second = layer(3, 4, 0.0), layer(4, 1, 1.0), layer(4, 1, 2.0)
    sgd = [torch.optim.SGD(module.parameters(), lr=0.1) for module in (trunk, first, second)]
    return (
        FeatureNetwork(trunk, sgd[0], style=style, loss_scaling=SCALES[0], **settings),
        VNetwork(first, sgd[1], "first", loss_scaling=SCALES[1], **settings),
        VNetwork(second, sgd[2], "second", loss_scaling=SCALES[2], **settings),
    )


def losses(features: FeatureNetwork, first: VNetwork, second: VNetwork, states: Tensor) -> list[tuple[Any, Tensor]]:
    shared = features(states)
    return [(first, first(shared).square().mean()), (second, (second(shared) - 1).square().mean())]


def weights(*approximations: Any) -> Tensor:
    return torch.cat([p.detach().flatten() for a in approximations for p in a.model.parameters()])


@pytest.mark.parametrize("style", ["detached", "shared"])
def test_both_styles_take_the_same_step_with_all_scales(style: Any) -> None:
    parts = family(style)
    for _ in range(3):
        reinforce_jointly(losses(*parts, STATES), [parts[0]])
    separate = family("detached")
    for _ in range(3):
        for head, loss in losses(*separate, STATES):
            head.reinforce(loss)
        separate[0].reinforce()
    assert torch.allclose(weights(*parts), weights(*separate), atol=1e-6)
    assert [part.updates for part in parts] == [3, 3, 3]


@pytest.mark.parametrize("style", ["detached", "shared"])
def test_weighted_batches_make_one_step_on_their_mean(style: Any) -> None:
    parts, once = family(style), family(style)
    for batch in (STATES[:1], STATES[1:]):
        accumulate_jointly(losses(*parts, batch), [parts[0]], weight=len(batch))
    for part in parts:
        part.step()
    reinforce_jointly(losses(*once, STATES), [once[0]])
    assert torch.allclose(weights(*parts), weights(*once), atol=1e-6)


def test_every_kth_call_makes_the_steps() -> None:
    parts = family("shared", accumulate_steps=2)
    for expected in (0, 1, 1):
        reinforce_jointly(losses(*parts, STATES), [parts[0]])
        assert [part.updates for part in parts] == [expected] * 3


def test_a_head_may_have_several_losses_and_steps_once() -> None:
    _, head, _ = family("shared")
    values = head(layer(3, 4, 0.0)(STATES).detach())
    reinforce_jointly([(head, values.mean()), (head, values.square().mean())], [Identity("cpu")])
    assert head.updates == 1


def test_features_that_cannot_get_a_gradient_leave_none_in_the_heads() -> None:
    features, head, _ = family("detached")
    with pytest.raises(NetworkError, match="no gradient has come"):
        reinforce_jointly([(head, head(torch.ones(2, 4)).sum())], [features])
    assert all(parameter.grad is None for parameter in head.model.parameters())


def test_what_cannot_be_joined_is_refused() -> None:
    with pytest.raises(NetworkError, match="no losses"):
        reinforce_jointly([])
    _, head, _ = family("shared")
    loss = head(torch.ones(2, 4)).sum()
    for pairs, features, cause in (
        ([head], [], "a list of pairs"),
        ([(loss, head)], [], "a list of pairs"),
        ([(head, loss)], head, "features are given as a list"),
        ([(head, None)], [], "is given a loss None"),
    ):
        with pytest.raises(NetworkError, match=cause):
            reinforce_jointly(pairs, features)  # type: ignore[arg-type]
    head.scaler = torch.amp.GradScaler("cpu")
    with pytest.raises(NetworkError, match="`first` has a GradScaler"):
        accumulate_jointly([(head, torch.ones((), requires_grad=True))])
