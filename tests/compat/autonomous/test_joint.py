"""One backward pass for several heads and their features."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hive.compat.autonomous import (
    FeatureNetwork,
    FixedTarget,
    Identity,
    OptimizerReceiver,
    VNetwork,
    accumulate_jointly,
    jointly,
    reinforce_jointly,
)
from hive.errors import NetworkError
from hive.learning import Approximation as RunApproximation
from hive.learning import NativePart
from hive.learning.loss import LossValue

STATES = torch.linspace(-1, 1, 12).reshape(4, 3)
SCALES = (0.5, 2.0, 0.25)  # loss_scaling of the features and of two heads


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
    with pytest.raises(NetworkError, match="no gradient has reached"):
        reinforce_jointly([(head, head(torch.ones(2, 4)).sum())], [features])
    assert all(parameter.grad is None for parameter in head.model.parameters())


def test_invalid_arguments_of_a_joint_update_are_refused() -> None:
    with pytest.raises(NetworkError, match="no losses"):
        reinforce_jointly([])
    _, head, _ = family("shared")
    loss = head(torch.ones(2, 4)).sum()
    for pairs, features, cause in (
        ([head], [], "a list of pairs"),
        ([(loss, head)], [], "a list of pairs"),
        ([(head, loss)], head, "features must be a list"),
        ([(head, None)], [], "has no loss to learn from"),
    ):
        with pytest.raises(NetworkError, match=cause):
            reinforce_jointly(pairs, features)  # type: ignore[arg-type]
    head.scaler = torch.amp.GradScaler("cpu")
    with pytest.raises(NetworkError, match="`first` has a GradScaler"):
        accumulate_jointly([(head, torch.ones((), requires_grad=True))])


# --- jointly: networks of their own, each with its loss


class Recording(torch.optim.SGD):
    """Writes the name of its parameter's owner whenever it steps, with the gradients that are there then."""

    def __init__(self, name: str, module: nn.Linear, events: list[Any], rate: float = 0.5) -> None:
        super().__init__(module.parameters(), lr=rate)
        self.name, self.events = name, events
        self.group: list[nn.Linear] = []

    def step(self, closure: Any = None) -> None:
        self.events.append((self.name, [layer.weight.grad is not None for layer in self.group]))
        super().step()


def pair(**settings: Any) -> tuple[VNetwork, VNetwork, list[Any]]:
    modules, events = [layer(3, 1, 1.0), layer(3, 1, 2.0)], []
    optimizers = [Recording(name, module, events) for name, module in zip("ab", modules, strict=True)]
    for optimizer in optimizers:
        optimizer.group = modules
    made = [VNetwork(m, o, o.name, **settings) for m, o in zip(modules, optimizers, strict=True)]
    return made[0], made[1], events


def test_each_loss_reaches_only_its_approximation() -> None:
    """As in DDPG, whose actor's loss is the critic's value of its actions."""
    critic, actor, _ = pair()
    alone, same, _ = pair()
    critic_loss = critic(STATES).square().mean()
    jointly((critic, critic_loss), (actor, (actor(STATES) * critic(STATES)).mean()))
    alone.reinforce(alone(STATES).square().mean())
    assert torch.equal(weights(critic), weights(alone))
    same.reinforce((same(STATES) * pair()[0](STATES).detach()).mean())
    assert torch.allclose(weights(actor), weights(same), atol=1e-7)
    assert all(p.grad is None for a in (critic, actor) for p in a.model.parameters())


def test_all_backward_passes_come_before_all_steps() -> None:
    critic, actor, events = pair()
    made = jointly((critic, critic(STATES).mean()), (actor, (actor(STATES) * critic(STATES)).mean()))
    assert events == [("a", [True, True]), ("b", [False, True])], "a has cleared its gradient after its step"
    assert made == (critic, actor)


def test_two_losses_of_one_approximation_are_one_step_on_their_sum() -> None:
    one, _, events = pair()
    both, _, _ = pair()
    jointly((one, one(STATES).mean()), (one, one(STATES).square().mean()))
    both.reinforce(both(STATES).mean() + both(STATES).square().mean())
    assert torch.allclose(weights(one), weights(both), atol=1e-7)
    assert (one.updates, len(events)) == (1, 1)


def test_jointly_honours_scaling_steps_and_writers() -> None:
    first, second, _ = pair(accumulate_steps=2, loss_scaling=0.5)
    plain, other, _ = pair(accumulate_steps=2)
    for expected in (0, 1):
        jointly((first, first(STATES).mean()), (second, second(STATES).mean()))
        assert (first.updates, second.updates) == (expected, expected)
        jointly((plain, 0.5 * plain(STATES).mean()), (other, 0.5 * other(STATES).mean()))
    assert torch.equal(weights(first, second), weights(plain, other))


def test_a_joint_loss_of_no_samples_changes_nothing() -> None:
    first, second, events = pair()
    before = weights(first, second)
    assert jointly((first, first(STATES).mean()), (second, second(STATES).mean()), samples=0) == (first, second)
    assert reinforce_jointly([(first, first(STATES).mean())], samples=0) == (first,)
    assert events == []
    assert torch.equal(weights(first, second), before)


def typed(head: VNetwork) -> Any:
    class Squares:
        inputs = STATES

        def __call__(self, outputs: Tensor) -> LossValue:
            return LossValue(outputs.square().mean(), (float(len(outputs)),))

    return Squares()


def test_typed_losses_make_the_forward_pass_themselves() -> None:
    first, second, _ = pair()
    plain, other, _ = pair()
    jointly((first, typed(first)), (second, typed(second)))
    jointly((plain, plain(STATES).square().mean()), (other, other(STATES).square().mean()))
    assert torch.equal(weights(first, second), weights(plain, other))
    assert first.statistics == (4.0,)


@pytest.mark.parametrize("call", [jointly, lambda *parts: reinforce_jointly(list(parts))], ids=["each", "shared"])
def test_approximations_that_cannot_learn_jointly_are_refused_before_any_backward_pass(call: Any) -> None:
    first, second, events = pair()
    shared = VNetwork(first.model.model, torch.optim.SGD(first.model.parameters(), lr=0.1), "shared")
    fixed = VNetwork(layer(3, 1, 3.0), None, "fixed")
    frozen = VNetwork(layer(3, 1, 3.0).requires_grad_(False), second.optimizer, "frozen")
    cases = [(fixed, "`fixed` has no optimizer, so it cannot learn")]
    if call is jointly:
        cases += [(shared, "`a` and `shared` share parameters"), (frozen, "`frozen` has no parameter that can learn")]
    for other, cause in cases:
        loss = other(STATES).mean() if other is not frozen else torch.ones((), requires_grad=True)
        with pytest.raises(NetworkError, match=cause):
            call((first, first(STATES).mean()), (other, loss))
        assert all(p.grad is None for a in (first, other) for p in a.model.parameters())
    assert events == []


def test_a_joint_update_without_losses_is_refused() -> None:
    with pytest.raises(NetworkError, match="no losses"):
        jointly()


# --- algorithms of a run in a script


def test_gradients_of_an_algorithm_step_an_optimizer_and_its_target() -> None:
    model = layer(3, 1, 1.0)
    target = FixedTarget(2)
    receiver = OptimizerReceiver(torch.optim.SGD(model.parameters(), lr=0.1), target)
    q = RunApproximation(model, receiver, "q", target)
    same = VNetwork(again := layer(3, 1, 1.0), torch.optim.SGD(again.parameters(), lr=0.1), target=FixedTarget(2))
    for _ in range(3):
        q.reinforce(q(STATES).square().mean(), samples=4)
        q.reinforce(samples=0)
        same.reinforce(same(STATES).square().mean())
        assert torch.equal(weights(q), weights(same))
        assert torch.equal(q.target(STATES).squeeze(-1), same.target(STATES))
    assert receiver.updates == 3


def test_the_weights_of_a_run_have_no_optimizer() -> None:
    receiver = OptimizerReceiver(torch.optim.SGD(layer(3, 1, 1.0).parameters(), lr=0.1))
    part: Any = NativePart(0.0, (), None, ())  # type: ignore[arg-type]
    with pytest.raises(NetworkError, match="belong to a run"):
        receiver.reinforce([part], 4, ())
