"""An update from the loss to the checkpoint: the stages and their order, errors, and restored states."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hive.compat.autonomous import (
    Approximation,
    Checkpointer,
    DummyCheckpointer,
    FixedTarget,
    PeriodicCheckpointer,
    PolyakTarget,
    TargetNetwork,
    TrivialTarget,
    accumulate_jointly,
    reinforce_jointly,
)
from hive.compat.autonomous.stepping import STAGES
from hive.errors import NetworkError, NotFinite
from hive.networks import FlatParameters


class Kept:
    """A writer that records its calls."""

    def __init__(self, log_dir: str = "runs") -> None:
        self.log_dir = log_dir
        self.rows: list[tuple[str, str, float]] = []

    def add_loss(self, name: str, value: Tensor | float) -> None:
        self.rows.append(("loss", name, float(value)))

    def add_schedule(self, name: str, value: float) -> None:
        self.rows.append(("schedule", name, float(value)))


def line(weight: float = 0.0) -> nn.Linear:
    """y = weight * x."""
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(weight)
    return model


def approximation(weight: float = 0.0, rate: float = 0.5, **settings: Any) -> Approximation:
    """With x = 1 the gradient of `loss(a, g)` is g, and a step changes the weight by -rate * g."""
    model = line(weight)
    return Approximation(model, torch.optim.SGD(model.parameters(), lr=rate), **settings)


def loss(a: Approximation, gradient: float = 1.0) -> Tensor:
    return (a(torch.ones(1, 1)) * gradient).sum()


def weight_of(a: Approximation) -> float:
    return float(a.model.weight.detach())  # type: ignore[union-attr]


def test_reinforce_is_a_step_down_the_loss() -> None:
    a = approximation()
    assert a.reinforce(loss(a, 2.0)) is a
    assert weight_of(a) == -1.0
    assert a.model.weight.grad is None  # type: ignore[union-attr]
    assert a.updates == 1


def test_step_takes_a_backward_pass_that_was_made() -> None:
    a = approximation()
    loss(a, 2.0).backward()
    loss(a, 1.0).backward()
    assert a.step() is a
    assert weight_of(a) == -1.5


def test_zero_grad_clears() -> None:
    a = approximation()
    loss(a, 2.0).backward()
    assert a.zero_grad() is a
    a.reinforce(loss(a, 1.0))
    assert weight_of(a) == -0.5


def test_answers_with_and_without_a_graph() -> None:
    a = approximation(3.0)
    x = torch.ones(1, 1)
    assert a(x).requires_grad
    for answer in (a.no_grad(x), a.eval(x), a.target(x)):
        assert float(answer) == 3.0
        assert not answer.requires_grad


def test_no_grad_keeps_the_mode_and_eval_evaluates() -> None:
    a = Approximation(nn.Dropout(0.5), device="cpu")
    ones = torch.ones(64)
    assert not torch.equal(a.no_grad(ones), ones)
    assert torch.equal(a.eval(ones), ones)
    assert a.model.training


def test_the_order_of_a_step_is_the_one_documented() -> None:
    """Every stage appends its observations to one list."""
    events: list[str] = []
    model = line()

    class Optimizer(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            events.append(f"optimizer {float(model.weight.grad):g}")  # type: ignore[arg-type]
            super().step()

        def zero_grad(self, set_to_none: bool = True) -> None:
            events.append("zero_grad")
            super().zero_grad(set_to_none)

    class Target(TargetNetwork):
        def init(self, model: nn.Module) -> None: ...

        def __call__(self, *inputs: Any) -> None: ...

        def update(self) -> None:
            events.append(f"target lr {optimizer.param_groups[0]['lr']:g}")

    class Saving(Checkpointer):
        def init(self, model: nn.Module, filename: str) -> None: ...

        def __call__(self) -> None:
            events.append("checkpoint")

    optimizer = Optimizer(model.parameters(), lr=0.5)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    writer = Kept()
    a = Approximation(model, optimizer, Saving(), 1.0, scheduler=scheduler, target=Target(), writer=writer, name="q")
    a.accumulate(loss(a, 3.0), weight=2.0)
    a.step()
    assert events == ["optimizer 1", "zero_grad", "target lr 0.25", "checkpoint"]
    assert writer.rows == [("schedule", "q/lr", 0.5)]
    assert a.report is not None
    assert a.report.stages == STAGES
    assert a.report.norm == 3.0
    assert a.report.clipped_norm == pytest.approx(1.0, abs=1e-5)
    assert (a.report.update, a.report.learning_rate, a.report.skipped) == (1, 0.5, False)


def test_stages_can_be_switched_off() -> None:
    a = approximation(non_finite="accept", keep_gradients=True)
    a.reinforce(loss(a, 2.0))
    assert a.report is not None
    assert a.report.stages == ("optimizer",)
    assert a.report.norm is None
    assert float(a.model.weight.grad) == 2.0  # type: ignore[arg-type]
    plain = approximation()
    plain.reinforce(loss(plain))
    assert plain.report is not None
    assert plain.report.stages == ("check", "optimizer", "zero_grad")


def test_losses_are_logged_as_given() -> None:
    writer = Kept()
    a = approximation(2.0, loss_scaling=0.5, writer=writer, checkpointer=DummyCheckpointer(), name="q")
    a.reinforce(loss(a, 3.0))
    a.scaled(loss(a)).backward()
    a.step(torch.tensor(7.0))
    assert writer.rows == [("loss", "q", 6.0), ("loss", "q", 7.0)]


def test_loss_scaling_multiplies_the_gradient() -> None:
    a = approximation(loss_scaling=0.5)
    a.reinforce(loss(a, 2.0))
    assert weight_of(a) == -0.5


def test_clipping_bounds_the_norm_of_the_gradient() -> None:
    a = approximation(clip_grad=1.0)
    a.reinforce(loss(a, 100.0))
    assert weight_of(a) == pytest.approx(-0.5, abs=1e-5)
    a.reinforce(loss(a, -0.5))
    assert weight_of(a) == pytest.approx(-0.25, abs=1e-5)
    assert a.report is not None
    assert a.report.norm == a.report.clipped_norm == 0.5


@pytest.mark.parametrize("weights", [(1.0, 1.0), (1.0, 3.0)])
def test_accumulated_gradients_make_one_step_on_their_weighted_mean(weights: tuple[float, float]) -> None:
    a = approximation()
    a.accumulate(loss(a, 2.0), weights[0]).accumulate(loss(a, 4.0), weights[1])
    assert a.updates == 0
    a.step()
    mean = (2.0 * weights[0] + 4.0 * weights[1]) / sum(weights)
    assert weight_of(a) == pytest.approx(-0.5 * mean)
    assert a.updates == 1


def test_every_kth_reinforce_makes_the_step_on_the_mean() -> None:
    writer = Kept()
    a = approximation(accumulate_steps=3, writer=writer, checkpointer=DummyCheckpointer())
    seen = []
    for gradient in (1.0, 2.0, 6.0, 3.0, 3.0, 3.0, 9.0):
        a.reinforce(loss(a, gradient))
        seen.append(weight_of(a))
    assert seen == [0.0, 0.0, -1.5, -1.5, -1.5, -3.0, -3.0]
    assert a.updates == 2
    assert len(writer.rows) == 7


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("clip", [0.0, 1.0])
def test_a_gradient_that_is_not_finite_changes_nothing_and_is_named(bad: float, clip: float) -> None:
    target = PolyakTarget(0.5)
    a = approximation(1.0, clip_grad=clip, target=target, name="q")
    with pytest.raises(NotFinite, match="gradient of `weight` in `q`"):
        a.reinforce(loss(a, bad))
    assert (weight_of(a), a.updates) == (1.0, 0)
    assert a.model.weight.grad is None  # type: ignore[union-attr]
    a.reinforce(loss(a, 1.0))
    assert weight_of(a) == pytest.approx(0.5, abs=1e-5)


def test_a_gradient_that_is_not_finite_can_be_skipped_or_let_through() -> None:
    a = approximation(1.0, non_finite="skip")
    assert a.reinforce(loss(a, math.nan)) is a
    assert a.report is not None
    assert a.report.skipped
    assert a.report.not_finite == "weight"
    assert a.report.stages == ("check", "zero_grad")
    assert (weight_of(a), a.updates) == (1.0, 0)
    accepting = approximation(1.0, non_finite="accept")
    accepting.reinforce(loss(accepting, math.nan))
    assert math.isnan(weight_of(accepting))


def test_a_grad_scaler_is_unscaled_before_clipping_and_skips_an_overflow() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    a = approximation(1.0, clip_grad=10.0, scaler=scaler)
    a.reinforce(loss(a, 1.0))
    assert weight_of(a) == 0.5
    assert a.report is not None
    assert a.report.norm == 1.0
    assert a.report.stages == ("unscale", "check", "clip", "optimizer", "zero_grad")
    a.reinforce(loss(a, 3e38))
    assert a.report.skipped
    assert weight_of(a) == 0.5
    assert scaler.get_scale() == 512.0
    a.reinforce(loss(a, 1.0))
    assert weight_of(a) == 0.0


def test_all_parameters_of_the_optimizer_are_clipped() -> None:
    """The gradient is the one that the step applies, also where the optimizer holds more than the model."""
    model, stranger = line(), nn.Parameter(torch.zeros(1))
    a = Approximation(model, torch.optim.SGD([*model.parameters(), stranger], lr=1.0), clip_grad=1.0)
    a.reinforce(3.0 * loss(a) + 4.0 * stranger.sum())
    assert weight_of(a) == pytest.approx(-0.6, abs=1e-5)
    assert float(stranger.detach()) == pytest.approx(-0.8, abs=1e-5)


def test_without_an_optimizer_it_can_be_called_but_not_trained() -> None:
    a = Approximation(line(2.0), name="fixed")
    assert float(a.eval(torch.ones(1, 1))) == 2.0
    loss(a).backward()
    with pytest.raises(NetworkError, match="`fixed` has no optimizer"):
        a.step()
    a.zero_grad()
    assert a.model.weight.grad is None  # type: ignore[union-attr]


@pytest.mark.parametrize("steps", [1, 2])
def test_without_an_optimizer_it_is_refused_before_it_leaves_a_gradient(steps: int) -> None:
    a, b = Approximation(line(2.0), name="fixed", accumulate_steps=steps), approximation()
    for call in (
        lambda: a.reinforce(loss(a)),
        lambda: reinforce_jointly([(b, loss(b)), (a, loss(a))]),
        lambda: reinforce_jointly([(b, loss(b))], [a]),
    ):
        with pytest.raises(NetworkError, match="`fixed` has no optimizer, so it cannot learn"):
            call()
        assert a.model.weight.grad is None  # type: ignore[union-attr]
        assert b.model.weight.grad is None  # type: ignore[union-attr]
    a.accumulate(loss(a))
    assert a.model.weight.grad is not None, "for a program that takes the gradient itself"  # type: ignore[union-attr]


@pytest.mark.parametrize("weight", [0.0, -1.0, math.nan, math.inf])
def test_a_weight_that_is_refused_leaves_no_gradient(weight: float) -> None:
    a = approximation()
    for call in (lambda: a.accumulate(loss(a), weight), lambda: accumulate_jointly([(a, loss(a))], weight=weight)):
        with pytest.raises(NetworkError, match="weight of a loss must be positive"):
            call()
        assert a.model.weight.grad is None  # type: ignore[union-attr]


def test_a_scaling_that_would_do_nothing_is_refused() -> None:
    a = approximation(loss_scaling=0.5)
    loss(a).backward()
    with pytest.raises(NetworkError, match=r"loss_scaling = 0.5 of `approximation` was not applied"):
        a.step()
    a.zero_grad()
    total = a.scaled(loss(a, 2.0))
    a.zero_grad()  # the order that most programs have
    total.backward()
    a.step()
    assert weight_of(a) == -0.5
    loss(a).backward()
    with pytest.raises(NetworkError, match="was not applied"):
        a.step()


@pytest.mark.parametrize(
    ("call", "cause"),
    [
        (lambda a: a.step(), "no gradient has reached `approximation`"),
        (lambda a: a.reinforce(), "no loss to learn from"),
        (lambda a: a.reinforce(1.0), "is given a loss 1.0"),
        (lambda a: a.reinforce(torch.tensor(1.0)), "depends on no parameter"),
        (lambda a: a.reinforce(a(torch.ones(2, 1))), r"of shape \[2, 1\]"),
        (lambda a: a.accumulate(loss(a), 0.0), "weight of a loss must be positive and finite, got 0.0"),
        (lambda a: a.accumulate(loss(a), math.nan), "weight of a loss must be positive and finite, got nan"),
    ],
)
def test_invalid_losses_are_refused(call: Any, cause: str) -> None:
    a = approximation()
    with pytest.raises(NetworkError, match=cause):
        call(a)
    assert weight_of(a) == 0.0


@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        ({"writer": Kept(), "logger": Kept()}, "a writer and a logger"),
        ({"clip_grad": -1.0}, "clip_grad = -1.0"),
        ({"clip_grad": math.nan}, "clip_grad = nan"),
        ({"clip_grad": None}, "clip_grad = None is not a finite number >= 0"),
        ({"loss_scaling": math.nan}, "loss_scaling = nan is not a finite number"),
        ({"keep_gradients": "no"}, "keep_gradients = 'no' is not True or False"),
        ({"target": "polyak"}, "target_network = 'polyak' is not an object with `init`"),
        ({"optimizer": 3}, "optimizer = 3 is not an object with `param_groups` or None"),
        ({"scheduler": 0.1}, "scheduler = 0.1 is not"),
        ({"model": lambda x: x}, r"model = .* is not a Module"),
        ({"name": None}, "name = None is not a name"),
        ({"accumulate_steps": 0}, "accumulate_steps = 0"),
        ({"accumulate_steps": 1.5}, "accumulate_steps = 1.5"),
        ({"non_finite": "ignore"}, "non_finite = 'ignore'"),
        ({"device": "meta"}, "is on cpu, but device is meta"),
        ({"optimizer": torch.optim.LBFGS(line().parameters())}, "LBFGS"),
        ({"model": nn.ReLU()}, "has no parameters"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any], cause: str) -> None:
    with pytest.raises(NetworkError, match=cause):
        Approximation(**{"model": line(), **settings})


def test_a_scheduler_that_wants_a_metric_is_refused() -> None:
    model = line()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    with pytest.raises(NetworkError, match="ReduceLROnPlateau"):
        Approximation(model, optimizer, scheduler=plateau)  # type: ignore[arg-type]


def test_writer_and_logger_are_the_same_thing() -> None:
    for name in ("writer", "logger"):
        kept = Kept()
        a = approximation(**{name: kept}, checkpointer=DummyCheckpointer())
        a.reinforce(loss(a))
        assert len(kept.rows) == 1


def test_the_device_is_where_the_model_is_now() -> None:
    a = approximation()
    assert a.device == torch.device("cpu")
    a.model.to("meta")
    assert a.device == torch.device("meta")
    assert Approximation(nn.ReLU(), device="cpu").device == torch.device("cpu")
    assert Approximation(nn.BatchNorm1d(1, affine=False)).device == torch.device("cpu")


def test_with_a_writer_checkpoints_are_saved_every_200_updates(tmp_path: Path) -> None:
    a = approximation(writer=Kept(str(tmp_path)), name="q")
    assert isinstance(a.checkpointer, PeriodicCheckpointer)
    assert a.checkpointer.frequency == 200
    assert a.checkpointer.folder == tmp_path / "q"
    assert isinstance(approximation().checkpointer, DummyCheckpointer)
    assert isinstance(approximation().target_network, TrivialTarget)


def trainee(folder: Path, scale: float = 0.0) -> Approximation:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.copy_(torch.linspace(-1, 1 + scale, parameter.numel()).reshape(parameter.shape) + number)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    return Approximation(
        model,
        optimizer,
        PeriodicCheckpointer(5, background=False),
        scheduler=torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 7]),
        target=FixedTarget(4),
        writer=Kept(str(folder)),
        name="trainee",
    )


def train(a: Approximation, updates: range) -> None:
    for update in updates:
        inputs = torch.linspace(-1, 1, 8).reshape(4, 2) * (update + 1)
        a.reinforce((a(inputs) - a.target(inputs) - 1.0).square().mean())


def test_ten_updates_are_five_a_checkpoint_and_five(tmp_path: Path) -> None:
    straight, first = trainee(tmp_path / "a"), trainee(tmp_path / "b")
    train(straight, range(10))
    train(first, range(5))
    second = trainee(tmp_path / "b", scale=1.0)
    assert isinstance(second.checkpointer, PeriodicCheckpointer)
    assert second.checkpointer.restore() == 5
    train(second, range(5, 10))
    assert second.updates == 10
    for name, value in straight.model.state_dict().items():
        assert torch.equal(value, second.model.state_dict()[name]), name
    inputs = torch.ones(2, 2)
    assert torch.equal(straight.target(inputs), second.target(inputs))
    assert straight.optimizer is not None
    assert second.optimizer is not None
    assert straight.optimizer.param_groups[0]["lr"] == second.optimizer.param_groups[0]["lr"]


def test_a_state_that_does_not_fit_changes_nothing(tmp_path: Path) -> None:
    a = trainee(tmp_path)
    before = {name: value.clone() for name, value in a.model.state_dict().items()}
    state = trainee(tmp_path, scale=1.0).state_dict()
    with pytest.raises(NetworkError, match="has no scheduler"):
        a.load_state_dict({name: part for name, part in state.items() if name != "scheduler"})
    for part, broken in (
        ("model", {**state["model"], "2.bias": torch.zeros(7)}),
        ("optimizer", {"state": {}, "param_groups": []}),
        ("target", {"model": {}}),
    ):
        with pytest.raises(NetworkError, match=f"the {part} of `trainee` does not fit"):
            a.load_state_dict({**state, part: broken})
        for name, value in a.model.state_dict().items():
            assert torch.equal(value, before[name]), name
    for updates in ("ten", -1, math.nan):
        with pytest.raises(NetworkError, match=r"updates = .* is not a whole number"):
            a.load_state_dict({**state, "updates": updates})
        assert torch.equal(a.model.state_dict()["2.bias"], before["2.bias"])


def test_parameters_in_a_flat_block_are_parameters() -> None:
    """hive's own networks keep their weights in one block; an ordinary optimizer steps on it in place."""
    model = line(1.0)
    flat = FlatParameters(model)
    a = Approximation(model, torch.optim.SGD(model.parameters(), lr=0.5), target=PolyakTarget(0.5))
    a.reinforce(loss(a, 1.0))
    assert float(flat.arrays(flat.block)["weight"].item()) == 0.5
    assert float(a.target(torch.ones(1, 1))) == 0.75


def test_a_fixed_call_has_a_graph_of_its_inputs_alone() -> None:
    model = nn.Linear(2, 1)
    approximation = Approximation(model, torch.optim.SGD(model.parameters(), lr=1.0))
    rows = torch.ones(3, 2, requires_grad=True)
    approximation.fixed(rows).sum().backward()
    assert rows.grad is not None
    torch.testing.assert_close(rows.grad, model.weight.detach().expand(3, 2))
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
