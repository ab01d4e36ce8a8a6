"""An Approximation of a run: it passes losses to its receiver and makes no steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hive.approximation import (
    ActorCritic,
    Approximation,
    FeatureNetwork,
    FixedTarget,
    GradientReceiver,
    Identity,
    Part,
    PolyakTarget,
    QNetwork,
    VNetwork,
    accumulate_jointly,
    jointly,
    reinforce_jointly,
)
from hive.errors import NetworkError
from hive.losses import QLoss

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


def test_reinforce_hands_over_the_scaled_loss_with_its_inputs_samples_and_statistics() -> None:
    receiver, model = Received(), line()
    a = Approximation(model, receiver, loss_scaling=0.5, name="q")
    outputs = a(ONES)
    assert receiver.watched == [outputs]
    assert a.reinforce(outputs.mean(), samples=4, statistics=(7.0, 8.0)) is a
    assert receiver.rows == [([1.0], 4, (7.0, 8.0))]
    (part,) = receiver.parts
    assert part.inputs == (ONES,)
    assert part.parameters is None
    assert gradient(model) == 0.5
    assert (a.updates, a.report, model.weight.item()) == (0, None, 2.0), "the learner makes the update"


def test_answers_without_a_graph_are_not_watched() -> None:
    receiver = Received()
    a = Approximation(line(), receiver)
    for ask in (a.no_grad, a.eval, a.target):
        assert not ask(ONES).requires_grad
    assert receiver.watched == []


def test_a_typed_loss_brings_its_statistics_and_inputs() -> None:
    receiver, model = Received(), nn.Linear(1, 2, bias=False)
    q = QNetwork(model, receiver)
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


STEPS: dict[str, Callable[[Approximation], Any]] = {
    "step": lambda a: a.step(),
    "accumulate": lambda a: a.accumulate(a(ONES).mean()),
    "accumulate_jointly": lambda a: accumulate_jointly([(a, a(ONES).mean())]),
}


@pytest.mark.parametrize("call", STEPS.values(), ids=STEPS.keys())
def test_calls_that_need_an_optimizer_are_refused(call: Callable[[Approximation], Any]) -> None:
    receiver, model = Received(), line()
    with pytest.raises(NetworkError, match="`q` cannot make a step in a run") as error:
        call(Approximation(model, receiver, name="q"))
    assert "reinforce(loss, samples=n)" in error.value.hint
    assert gradient(model) is None
    assert receiver.rows == []


def test_zero_grad_clears_the_gradient_of_the_network() -> None:
    model = line()
    a = Approximation(model, Received())
    a.reinforce(a(ONES).mean(), samples=4)
    a.zero_grad()
    assert gradient(model) is None


SETTINGS: dict[str, dict[str, Any]] = {
    "clip_grad": {"clip_grad": 0.5},
    "accumulate_steps": {"accumulate_steps": 2},
    "scaler": {"scaler": torch.amp.GradScaler("cpu")},
    "target": {"target": FixedTarget(3)},
}


@pytest.mark.parametrize(("name", "settings"), SETTINGS.items(), ids=SETTINGS.keys())
def test_settings_of_a_step_are_refused_in_a_run(name: str, settings: dict[str, Any]) -> None:
    with pytest.raises(NetworkError, match=f"stepped by the learner of a run, so its {name} would have no effect"):
        QNetwork(line(), Received(), **settings)
    model = line()
    QNetwork(model, torch.optim.SGD(model.parameters()), **settings)


def test_a_scheduler_is_refused_too() -> None:
    model = line()
    scheduler = torch.optim.lr_scheduler.ExponentialLR(torch.optim.SGD(model.parameters()), 0.5)
    with pytest.raises(NetworkError, match="its scheduler would have no effect"):
        Approximation(model, Received(), scheduler=scheduler)


def test_several_networks_are_one_gradient_of_a_run() -> None:
    receiver, first, second = Received(), line(1.0), line(3.0)
    one, two = Approximation(first, receiver, name="one"), QNetwork(second, receiver)
    loss = QLoss(ONES, torch.zeros(4, dtype=torch.int64), torch.zeros(4))
    made = jointly((one, one(ONES).mean() * two(ONES).detach().mean()), (two, loss), samples=4)
    assert made == (one, two)
    ((losses, samples, statistics),) = receiver.rows
    assert (losses, samples) == ([3.0, 9.0], 4)
    assert statistics == two.statistics, "those of the typed loss"
    assert gradient(first) == 3.0
    assert gradient(second) == 6.0


def test_heads_on_shared_features_are_one_gradient_of_a_run() -> None:
    receiver, trunk, head = Received(), line(2.0), line(3.0)
    features = FeatureNetwork(trunk, receiver, style="shared", target=None)
    v = VNetwork(head, receiver)
    made = reinforce_jointly([(v, v(features(ONES)).mean())], [features, Identity("cpu")], samples=4, statistics=[1.0])
    assert made[:2] == (v, features)
    ((losses, samples, statistics),) = receiver.rows
    assert (losses, samples, statistics) == ([6.0], 4, (1.0,))
    assert (gradient(trunk), gradient(head)) == (3.0, 2.0)


def test_detached_features_cannot_be_part_of_a_run() -> None:
    with pytest.raises(NetworkError, match="`feature` cannot wait for the gradients of heads in a run"):
        FeatureNetwork(line(), Received())


def test_an_actor_critic_gives_a_policy_and_values() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.policy, self.value = nn.Linear(3, 2), nn.Linear(3, 1)

        def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
            return self.policy(observations), self.value(observations).squeeze(-1)

    model = Both()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    made = ActorCritic(model, optimizer, target=PolyakTarget(0.5))
    assert made.name == "actor_critic"
    observations = torch.eye(3)
    logits, values = made(observations)
    assert (logits.shape, values.shape) == ((3, 2), (3,))
    before = made.target(observations)
    made.reinforce(logits.square().mean() + values.square().mean())
    after = made.no_grad(observations)
    for old, new, target in zip(before, after, made.target(observations), strict=True):
        assert not torch.equal(old, new)
        torch.testing.assert_close(target, 0.5 * (old + new))
