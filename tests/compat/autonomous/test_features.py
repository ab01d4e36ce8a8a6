"""Features that heads share: equal to joint backpropagation, in both styles, and no memory that grows."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hive.compat.autonomous import Approximation, FeatureNetwork, FixedTarget, QNetwork, VNetwork, reinforce_jointly
from hive.compat.autonomous.states import observation_of
from hive.errors import NetworkError

STATES = torch.linspace(-1, 1, 40).reshape(8, 5)
SCALES = (1.0, 0.5, 3.0)  # loss_scaling of the features, v and q


def filled(inputs: int, outputs: int, phase: float) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    with torch.no_grad():
        layer.weight.copy_(torch.sin(torch.arange(layer.weight.numel()) + phase).reshape(layer.weight.shape))
        layer.bias.fill_(0.1)
    return layer


def modules() -> tuple[nn.Module, nn.Module, nn.Module]:
    return nn.Sequential(filled(5, 6, 0.0), nn.Tanh()), filled(6, 1, 1.0), filled(6, 3, 2.0)


def sgd(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(module.parameters(), lr=0.1)


def family(scales: tuple[float, float, float] = SCALES, **settings: Any) -> tuple[FeatureNetwork, VNetwork, QNetwork]:
    trunk, value, action_values = modules()
    return (
        FeatureNetwork(trunk, sgd(trunk), loss_scaling=scales[0], **settings),
        VNetwork(value, sgd(value), loss_scaling=scales[1]),
        QNetwork(action_values, sgd(action_values), loss_scaling=scales[2]),
    )


def loss_of(values: Tensor) -> Tensor:
    return (values - 1.0).square().mean()


def by_hand(scales: tuple[float, float, float], updates: int) -> list[Tensor]:
    """Ordinary joint backpropagation; the trunk's scale multiplies its own gradient alone."""
    trunk, value, action_values = modules()
    optimizers = [sgd(module) for module in (trunk, value, action_values)]
    for _ in range(updates):
        features = trunk(STATES)
        total = scales[1] * loss_of(value(features).squeeze(-1)) + scales[2] * loss_of(action_values(features))
        total.backward()
        for parameter in trunk.parameters():
            assert parameter.grad is not None
            parameter.grad *= scales[0]
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return [p.detach() for module in (trunk, value, action_values) for p in module.parameters()]


def weights(*approximations: Approximation) -> list[Tensor]:
    return [parameter.detach() for a in approximations for parameter in a.model.parameters()]


def largest_difference(left: list[Tensor], right: list[Tensor]) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("scales", [(1.0, 1.0, 1.0), SCALES, (0.25, 0.5, 3.0)])
@pytest.mark.parametrize("features_last", [True, False])
def test_detached_leaves_equal_joint_backpropagation(scales: Any, features_last: bool) -> None:
    features, v, q = family(scales)
    for _ in range(5):
        shared = features(STATES)
        value_loss, q_loss = loss_of(v(shared)), loss_of(q(shared))
        if features_last:
            v.reinforce(value_loss)
            q.reinforce(q_loss)
        else:
            q.reinforce(q_loss)
            v.reinforce(value_loss)
        assert features.reinforce() is features
    assert largest_difference(weights(features, v, q), by_hand(scales, 5)) < 1e-6
    assert largest_difference(by_hand(scales, 5), by_hand((1.0, 1.0, 2.0), 5)) > 1e-3, "the scales matter"


@pytest.mark.parametrize("scales", [(1.0, 1.0, 1.0), (0.25, 0.5, 3.0)])
def test_shared_graphs_equal_joint_backpropagation(scales: Any) -> None:
    features, v, q = family(scales, style="shared")
    for _ in range(5):
        shared = features(STATES)
        features.reinforce(v.scaled(loss_of(v(shared))) + q.scaled(loss_of(q(shared))))
        v.step()
        q.step()
    assert largest_difference(weights(features, v, q), by_hand(scales, 5)) < 1e-6


def test_several_calls_of_several_shapes_are_one_backward_pass() -> None:
    features, v, _ = family((1.0, 1.0, 1.0), keep_gradients=True)
    whole, head, _ = modules()
    parts = [STATES[:3], STATES[3:]]
    for part in parts:
        torch.autograd.backward(head(whole(part)).sum())
    for part in parts:
        v.accumulate(v(features(part)).sum())
    grids = {"observation": torch.zeros(2, 2, 5), "mask": torch.ones(2, 2)}
    assert features(grids)["observation"].shape == (2, 2, 6)
    features.accumulate().step()
    for mine, theirs in zip(features.model.parameters(), whole.parameters(), strict=True):
        assert mine.grad is not None
        assert torch.allclose(mine.grad, theirs.grad, atol=1e-6)


def test_states_keep_their_mask_and_get_features() -> None:
    features, v, _ = family()
    states = {"observation": STATES, "mask": torch.zeros(8), "reward": 3}
    shared = features(states)
    assert shared["mask"] is states["mask"]
    assert shared["reward"] == 3
    assert shared["observation"].shape == (8, 6)
    assert not v(shared).any()
    assert torch.equal(shared["observation"].detach(), features.no_grad(STATES))
    assert torch.equal(features.eval(STATES), features.target(STATES))


def test_features_without_references_are_released() -> None:
    features, _, _ = family(cache_size=2)
    for _ in range(50):
        features(STATES)  # inference by the wrong door
    gc.collect()
    features(STATES)
    assert len(features._waiting) == 1


def test_features_in_the_graph_of_a_loss_wait_and_learn() -> None:
    features, v, _ = family()
    loss = loss_of(v(features(STATES)))  # only the graph refers to the leaf
    for _ in range(3):
        features(STATES)
    gc.collect()
    before = weights(features)[0].clone()
    v.reinforce(loss)
    del loss
    features(STATES)
    features.reinforce()
    assert not torch.equal(weights(features)[0], before)


def test_too_many_waiting_passes_raise_an_error_with_a_hint() -> None:
    features, v, _ = family(cache_size=3)
    held = [features(STATES) for _ in range(3)]
    with pytest.raises(NetworkError, match="3 forward passes of `feature` wait for reinforce") as refused:
        features(STATES)
    assert "no_grad()" in refused.value.hint
    v.reinforce(loss_of(v(held[1])))
    features.reinforce()
    assert features(STATES).requires_grad


def test_without_a_graph_nothing_waits() -> None:
    features, _, _ = family(cache_size=1)
    for answer in (features.no_grad, features.eval, features.target):
        for _ in range(3):
            assert not answer(STATES).requires_grad
    with torch.no_grad():
        held = [features(STATES) for _ in range(3)]
    assert not held[0].requires_grad
    frozen = FeatureNetwork(nn.Linear(5, 6).requires_grad_(False), cache_size=1)
    for _ in range(3):
        assert frozen(STATES).requires_grad, "a leaf, to which heads may backpropagate"


def test_no_gradient_from_a_head_is_an_error() -> None:
    features, _, _ = family()
    with pytest.raises(NetworkError, match="no gradient has reached `feature`"):
        features.reinforce()
    shared = features(STATES)
    with pytest.raises(NetworkError, match="no gradient has reached"):
        features.reinforce()
    shared.sum().backward()
    features.reinforce()


@pytest.mark.parametrize(("style", "cause"), [("detached", "its gradient comes from the heads"), ("shared", "no loss")])
def test_each_style_refuses_the_arguments_of_the_other(style: Any, cause: str) -> None:
    features, v, _ = family(style=style)
    loss = loss_of(v(features(STATES)))
    with pytest.raises(NetworkError, match=cause):
        features.reinforce(loss if style == "detached" else None)


def test_gradients_of_several_batches_make_one_step_on_their_mean() -> None:
    parts = [STATES[:2], STATES[2:]]
    features, v, _ = family((1.0, 1.0, 1.0))
    for part in parts:
        v.accumulate(loss_of(v(features(part))), weight=len(part))
        features.accumulate(weight=len(part))
    v.step()
    features.step()
    once, head, _ = family((1.0, 1.0, 1.0))
    head.reinforce(loss_of(head(once(STATES))))
    once.reinforce()
    assert largest_difference(weights(features, v), weights(once, head)) < 1e-6


FROZEN: dict[str, Any] = {
    "frozen": lambda **k: FeatureNetwork(modules()[0].requires_grad_(False), **k),
    "frozen, with an optimizer": lambda **k: FeatureNetwork(
        trunk := modules()[0].requires_grad_(False), sgd(trunk), **k
    ),
    "without parameters": lambda **k: FeatureNetwork(nn.Sequential(nn.ZeroPad1d((0, 1)), nn.Tanh()), device="cpu", **k),
}


@pytest.mark.parametrize("style", ["detached", "shared"])
@pytest.mark.parametrize("kind", FROZEN)
def test_where_there_is_nothing_to_learn_the_heads_learn(kind: str, style: Any) -> None:
    features = FROZEN[kind](style=style, loss_scaling=0.5)
    _, v, q = family((1.0, 1.0, 1.0))
    _, plain_v, plain_q = family((1.0, 1.0, 1.0))
    state = {name: tensor.clone() for name, tensor in features.model.state_dict().items()}
    for _ in range(3):
        shared = features(STATES)
        if style == "shared":
            features.reinforce(v.scaled(loss_of(v(shared))) + q.scaled(loss_of(q(shared))))
            v.step()
            q.step()
        else:
            v.reinforce(loss_of(v(shared)))
            q.reinforce(loss_of(q(shared)))
            assert features.reinforce() is features
        features.count_backward()
        assert features.step() is features
        shared = features(STATES)
        reinforce_jointly([(v, loss_of(v(shared))), (q, loss_of(q(shared)))], [features])
        for _ in range(2):
            plain_v.reinforce(loss_of(plain_v(features.no_grad(STATES))))
            plain_q.reinforce(loss_of(plain_q(features.no_grad(STATES))))
    assert largest_difference(weights(v, q), weights(plain_v, plain_q)) < 1e-6
    assert all(torch.equal(tensor, state[name]) for name, tensor in features.model.state_dict().items())
    assert (features.updates, features._waiting) == (0, [])


def test_a_gradient_passes_through_a_frozen_model_to_the_modules_below() -> None:
    below, _, _ = family((1.0, 1.0, 1.0))
    frozen = FeatureNetwork(filled(6, 6, 3.0).requires_grad_(False))
    v = VNetwork(head := filled(6, 1, 1.0), sgd(head))
    before = weights(below)[0].clone()
    loss = loss_of(v(frozen(below(STATES))))
    v.reinforce(loss)
    frozen.reinforce()
    below.reinforce()
    assert (v.updates, frozen.updates, below.updates) == (1, 0, 1)
    assert not torch.equal(weights(below)[0], before)


def test_a_model_that_is_no_longer_frozen_learns() -> None:
    trunk, head, _ = modules()
    features, v = FeatureNetwork(trunk.requires_grad_(False), sgd(trunk)), VNetwork(head, sgd(head))
    for expected in (0, 1):
        v.reinforce(loss_of(v(features(STATES))))
        features.reinforce()
        assert features.updates == expected
        trunk.requires_grad_(True)


def test_every_kth_reinforce_makes_the_step() -> None:
    features, v, _ = family(accumulate_steps=2)
    for expected in (0, 1, 1, 2):
        v.reinforce(loss_of(v(features(STATES))))
        features.reinforce()
        assert features.updates == expected


def test_a_single_state_is_states() -> None:
    features, v, _ = family()
    single = {"observation": STATES[0], "mask": torch.tensor(1.0)}
    assert v(features(single)).shape == ()


def test_its_settings_are_checked() -> None:
    with pytest.raises(NetworkError, match="style = 'joint'"):
        family(style="joint")
    with pytest.raises(NetworkError, match="cache_size = 0"):
        family(cache_size=0)
    with pytest.raises(NetworkError, match="the heads scale the gradient"):
        family(scaler=torch.amp.GradScaler("cpu"))
    assert isinstance(family(target=FixedTarget(2))[0].target_network, FixedTarget)


@pytest.mark.parametrize("model", [nn.Identity(), nn.Flatten(), nn.Sequential(nn.ReLU())])
@pytest.mark.parametrize("style", ["detached", "shared"])
def test_a_model_without_parameters_needs_no_device(model: nn.Module, style: Any) -> None:
    features, head = FeatureNetwork(model, style=style), nn.Linear(4, 1)
    values = VNetwork(head, torch.optim.SGD(head.parameters(), 0.1))
    before = head.weight.clone()
    values.reinforce(values(features(torch.ones(3, 4))).sum())
    if style == "detached":
        features.reinforce()
    assert not torch.equal(head.weight, before)
    assert features.updates == 0


@pytest.mark.parametrize("model", [nn.Linear(4, 4).requires_grad_(False), nn.Flatten()])
def test_a_loss_may_be_backpropagated_to_features_that_learn_nothing(model: nn.Module) -> None:
    features = FeatureNetwork(model)
    seen = observation_of(features(torch.ones(3, 4)))
    seen.sum().backward()
    assert seen.grad is not None
    assert features.reinforce() is features.step() is features
    assert features.updates == 0
    assert not observation_of(features.no_grad(torch.ones(3, 4))).requires_grad
    with torch.no_grad():
        assert not observation_of(features(torch.ones(3, 4))).requires_grad
