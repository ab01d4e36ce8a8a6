"""An Approximation of a run: it passes losses to its receiver and makes no steps."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hive.algorithms.losses.q_learning import QLoss
from hive.compat.coach import NetworkWrapper
from hive.envs.spaces.actions import Discrete
from hive.envs.spaces.observation import ObservationSpec
from hive.errors import NetworkError
from hive.learning import ActorCritic, Approximation, GradientReceiver, Part, SharedTarget, SingleOutput, jointly
from hive.learning.approximation import evaluating
from hive.learning.loss import LossValue
from hive.networks import HeadParameters, NetworkParameters, Spaces

ONES = torch.ones(4, 1)


class Received:
    """A receiver that records its calls, in place of a gradient worker's slot.

    Makes the backward passes at once, as a slot does; `rows` are (losses, samples, statistics).
    """

    def __init__(self) -> None:
        self.rows: list[tuple[list[float], int | None, tuple[float, ...]]] = []
        self.parts: list[Part] = []
        self.watched: list[Any] = []

    def watch(self, outputs: Any) -> Any:
        self.watched.append(outputs)
        return outputs

    def reinforce(self, parts: Sequence[Part], samples: int | None, statistics: Sequence[float]) -> None:
        self.parts = list(parts)
        self.rows.append(([float(part.loss.detach()) for part in parts], samples, tuple(statistics)))
        for part in parts:
            inputs = None if part.parameters is None else list(part.parameters)
            torch.autograd.backward(part.loss, inputs=inputs)


def line(weight: float = 2.0) -> nn.Linear:
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(weight)
    return model


def gradient(model: nn.Module) -> Tensor | None:
    (parameter,) = model.parameters()
    return parameter.grad


def test_a_receiver_is_taken_for_one() -> None:
    assert isinstance(Received(), GradientReceiver)
    assert not isinstance(torch.optim.SGD(line().parameters()), GradientReceiver)


def test_reinforce_hands_over_the_loss_with_its_inputs_samples_and_statistics() -> None:
    receiver, model = Received(), line()
    a = Approximation(model, receiver, name="q")
    outputs = a(ONES)
    assert receiver.watched == [outputs]
    assert a.reinforce(outputs.mean(), samples=4, statistics=(7.0, 8.0)) is a
    assert receiver.rows == [([2.0], 4, (7.0, 8.0))]
    (part,) = receiver.parts
    assert part.inputs == (ONES,)
    assert part.parameters is None
    assert gradient(model) == 1.0
    assert model.weight.item() == 2.0, "the learner makes the update"


def test_answers_without_a_graph_are_not_watched() -> None:
    receiver = Received()
    a = Approximation(line(), receiver)
    for ask in (a.no_grad, a.eval, a.target):
        assert not ask(ONES).requires_grad
    assert receiver.watched == []


def test_a_typed_loss_brings_its_statistics_and_inputs() -> None:
    receiver, model = Received(), nn.Linear(1, 2, bias=False)
    q = Approximation(model, receiver)
    loss = QLoss(ONES, torch.tensor([0, 1, 0, 1]), torch.zeros(4))
    q.reinforce(loss, samples=4)
    ((values, samples, statistics),) = receiver.rows
    assert samples == 4
    assert statistics == q.statistics
    assert len(statistics) == 4
    assert statistics[0] == pytest.approx(values[0])
    assert receiver.parts[0].inputs == (ONES,)


def test_a_gradient_of_no_samples_is_a_gradient_of_the_run() -> None:
    receiver, model = Received(), line()
    Approximation(model, receiver).reinforce(None, samples=0)
    jointly((Approximation(model, receiver), model(ONES).mean()), samples=0)
    assert receiver.rows == [([], 0, ())] * 2
    assert gradient(model) is None


def test_a_run_without_a_loss_is_refused() -> None:
    receiver = Received()
    with pytest.raises(NetworkError, match="`q` has no loss to learn from"):
        Approximation(line(), receiver, name="q").reinforce(samples=4)
    assert receiver.rows == []


def test_several_networks_are_one_gradient_of_a_run() -> None:
    receiver, first, second = Received(), line(1.0), line(3.0)
    one, two = Approximation(first, receiver, name="one"), Approximation(second, receiver)
    loss = QLoss(ONES, torch.zeros(4, dtype=torch.int64), torch.zeros(4))
    made = jointly((one, one(ONES).mean() * two(ONES).detach().mean()), (two, loss), samples=4)
    assert made == (one, two)
    ((losses, samples, statistics),) = receiver.rows
    assert (losses, samples) == ([3.0, 9.0], 4)
    assert statistics == two.statistics, "those of the typed loss"
    assert gradient(first) == 3.0
    assert gradient(second) == 6.0


def test_an_approximation_without_a_receiver_cannot_learn() -> None:
    a, model = Approximation(line(), name="q"), line()
    for call in (lambda: a.reinforce(a(ONES).mean(), samples=4), lambda: jointly((a, a(ONES).mean()), samples=4)):
        with pytest.raises(NetworkError, match="`q` has no optimizer, so it cannot learn"):
            call()
    assert a.reinforce(samples=0) is a
    with pytest.raises(NetworkError, match="`q` is given a SGD") as error:
        Approximation(model, torch.optim.SGD(model.parameters()), "q")  # type: ignore[arg-type]
    assert "OptimizerReceiver" in error.value.hint


NO_LOSSES = {
    "a number": (2.0, "is given a loss 2.0"),
    "several": (torch.ones(2, requires_grad=True), r"a loss of shape \[2\]"),
    "a constant": (torch.ones(()), "a loss that depends on no parameter"),
}


@pytest.mark.parametrize(("loss", "cause"), NO_LOSSES.values(), ids=NO_LOSSES)
def test_anything_but_a_scalar_with_a_graph_is_refused(loss: Any, cause: str) -> None:
    receiver = Received()
    with pytest.raises(NetworkError, match=cause):
        Approximation(line(), receiver).reinforce(loss, samples=4)
    assert receiver.rows == []


def test_approximations_that_cannot_learn_jointly_are_refused() -> None:
    receiver, model = Received(), line()
    a, other = Approximation(model, receiver, "a"), Approximation(line(), Received(), "other")
    shared, frozen = Approximation(model, receiver, "shared"), Approximation(line().requires_grad_(False), receiver)
    for one, cause in (
        (other, "belong to a run and some do not"),
        (shared, "`a` and `shared` share parameters"),
        (frozen, "has no parameter that can learn"),
    ):
        with pytest.raises(NetworkError, match=cause):
            jointly((a, a(ONES).mean()), (one, torch.ones((), requires_grad=True)), samples=4)
    with pytest.raises(NetworkError, match="no losses"):
        jointly()
    assert receiver.rows == []


class Both(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.policy, self.value = nn.Linear(3, 2), nn.Linear(3, 1)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        return self.policy(observations), self.value(observations).squeeze(-1)


def test_a_forward_pass_may_be_made_before_its_loss() -> None:
    """An algorithm computes targets from its values."""
    receiver, model = Received(), Both()
    made = ActorCritic(model, receiver)
    assert made.name == "actor_critic"
    forward = made.begin(torch.eye(3), native=True)
    policy, values = forward.outputs
    assert (policy.shape, values.shape) == ((3, 2), (3,))

    class Squares:
        inputs = torch.eye(3)

        def __call__(self, outputs: tuple[Tensor, Tensor]) -> LossValue:
            return LossValue(outputs[1].square().mean(), (1.5,))

    made.reinforce(Squares(), samples=3, forward=forward)
    assert receiver.rows == [([pytest.approx(float((values**2).mean()))], 3, (1.5,))]
    assert model.value.weight.grad is not None


# --- evaluation mode


def frozen_part() -> nn.Sequential:
    network = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout())
    network[1].eval()
    return network


def test_all_evaluate_inside_and_each_has_its_mode_again_outside() -> None:
    network = frozen_part()
    with evaluating(network):
        assert not any(child.training for child in network.modules())
    assert [child.training for child in network.modules()] == [True, True, False, True]


def test_a_block_that_raises_gives_the_modes_back() -> None:
    network = frozen_part()
    with pytest.raises(ZeroDivisionError), evaluating(network):
        raise ZeroDivisionError
    assert [child.training for child in network.modules()] == [True, True, False, True]


def test_a_single_output_is_the_first_of_several_and_a_tensor_as_it_is() -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x + 1, x + 2

    rows = torch.arange(6.0).reshape(3, 2)
    assert torch.equal(SingleOutput(Two())(rows), rows + 1)
    assert torch.equal(SingleOutput(nn.Identity())(rows), rows)


SPACES = Spaces({"observation": ObservationSpec((3,), "float32")}, Discrete(2))


# --- target networks


def pair_of_networks() -> tuple[nn.Module, nn.Module]:
    """Two networks that return a tuple of outputs, as those of hive.networks do."""
    copies = NetworkWrapper(NetworkParameters(heads_parameters=[HeadParameters("q")]), True, False, "main", SPACES)
    assert copies.target_network is not None
    copies.target_network.set_weights([weight + 1 for weight in copies.target_network.get_weights()])
    return copies.online_network.module, copies.target_network.module


def test_a_shared_target_uses_the_weights_of_the_target_network() -> None:
    online, following = pair_of_networks()
    q = Approximation(SingleOutput(online), target=SharedTarget(online, following))
    states = torch.ones(2, 3)
    (expected,) = following(states)
    answer = q.target(states)
    assert torch.equal(answer, expected.detach())
    assert not answer.requires_grad
    assert not torch.equal(answer[0], q.no_grad(states)[0])
    with torch.no_grad():
        for parameter in following.parameters():
            parameter.zero_()
    assert not q.target(states).any(), "it reads the network in place, where others write"


def test_a_shared_target_evaluates_and_changes_nothing() -> None:
    online, following = nn.Dropout(0.5), nn.Dropout(0.5)
    target = SharedTarget(online, following)
    target.init(online)
    assert torch.equal(target(torch.ones(64)), torch.ones(64))
    target.update()
    assert target.state_dict() == {}
    assert online.training


def test_approximations_of_parts_of_a_network_have_the_parts_of_the_target() -> None:
    online, following = (nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)) for _ in range(2))
    target = SharedTarget(online, following)
    first = Approximation(nn.Sequential(online[0], nn.Tanh()), target=copy.copy(target))
    second = Approximation(online[1], target=copy.copy(target))
    states = torch.ones(3, 2)
    assert torch.equal(first.target(states), following[0](states).tanh())
    assert torch.equal(second.target(states), following[1](states))
    assert not torch.equal(second.target(states), second(states))


def test_a_model_without_the_online_network_is_refused() -> None:
    online, following = pair_of_networks()
    with pytest.raises(NetworkError, match="the model contains no part of the online network of this target"):
        Approximation(nn.Linear(1, 1), target=SharedTarget(online, following))
    with pytest.raises(NetworkError, match="has no network yet"):
        SharedTarget(online, following)(torch.ones(1, 1))
