"""The page `all.approximation` of autonomous-learning-library: every documented name, parameter and default.

`PAGE` is the page as a literal: class -> its constructor's parameters with their defaults, and its methods. A method
may have more parameters here if they have defaults, so that every documented call is a call. What the classes do, and
that known faults of the library are absent (DB-C items), is tested in tests/compat/autonomous; the tests below exist
nowhere else.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hive.compat import autonomous as approximation
from hive.compat.autonomous import (
    Approximation,
    Checkpointer,
    DummyWriter,
    FixedTarget,
    Identity,
    PeriodicCheckpointer,
    QContinuous,
    QNetwork,
    TargetNetwork,
    load_checkpoint,
)
from hive.records import newest_checkpoint

REQUIRED = inspect.Parameter.empty
WRITER = "a DummyWriter"

BASE = {
    "model": REQUIRED,
    "optimizer": None,
    "checkpointer": None,
    "clip_grad": 0,
    "device": None,
    "loss_scaling": 1,
    "name": "approximation",
    "scheduler": None,
    "target": None,
    "writer": WRITER,
}
ANY = "kwargs"

# class: (base, constructor, {method: its parameters})
PAGE: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {
    "Approximation": (
        "object",
        BASE,
        {
            "eval": "*inputs",
            "no_grad": "*inputs",
            "reinforce": "loss",
            "step": "",
            "target": "*inputs",
            "zero_grad": "",
        },
    ),
    "DummyCheckpointer": ("Checkpointer", {}, {"init": "*inputs"}),
    "FeatureNetwork": (
        "Approximation",
        {"model": REQUIRED, "optimizer": None, "name": "feature", ANY: REQUIRED},
        {"reinforce": ""},
    ),
    "FixedTarget": ("TargetNetwork", {"update_frequency": REQUIRED}, {"init": "model", "update": ""}),
    "Identity": (
        "Approximation",
        {"device": REQUIRED, "name": "identity", ANY: REQUIRED},
        {"reinforce": "", "step": ""},
    ),
    "PeriodicCheckpointer": ("Checkpointer", {"frequency": REQUIRED}, {"init": "model filename"}),
    "PolyakTarget": ("TargetNetwork", {"rate": REQUIRED}, {"init": "model", "update": ""}),
    "QContinuous": (
        "Approximation",
        {"model": REQUIRED, "optimizer": REQUIRED, "name": "q", ANY: REQUIRED},
        {},
    ),
    "QDist": (
        "Approximation",
        {
            "model": REQUIRED,
            "optimizer": REQUIRED,
            "n_actions": REQUIRED,
            "n_atoms": REQUIRED,
            "v_min": REQUIRED,
            "v_max": REQUIRED,
            "name": "q_dist",
            ANY: REQUIRED,
        },
        {"project": "dist support"},
    ),
    "QNetwork": ("Approximation", {"model": REQUIRED, "optimizer": None, "name": "q", ANY: REQUIRED}, {}),
    "TrivialTarget": ("TargetNetwork", {}, {"init": "model", "update": ""}),
    "VNetwork": ("Approximation", {"model": REQUIRED, "optimizer": REQUIRED, "name": "v", ANY: REQUIRED}, {}),
}


# --- names, signatures, defaults


@pytest.mark.parametrize("name", PAGE)
def test_the_class_is_as_documented(name: str) -> None:
    base, constructor, methods = PAGE[name]
    cls = getattr(approximation, name)
    assert name in approximation.__all__
    assert issubclass(cls, object if base == "object" else getattr(approximation, base))
    found = list(inspect.signature(cls).parameters.values())
    by_position = [p for p in found if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    assert [parameter.name for parameter in by_position] == list(constructor)
    for parameter in by_position:
        default = constructor[parameter.name]
        same = isinstance(parameter.default, DummyWriter) if default == WRITER else parameter.default == default
        assert same, parameter.name
    more = [p for p in found if p.kind is inspect.Parameter.KEYWORD_ONLY]
    assert all(parameter.default is not REQUIRED for parameter in more), "a documented call must be a call"
    for method, documented in methods.items():
        parameters = list(inspect.signature(getattr(cls, method)).parameters.values())[1:]
        if documented == "*inputs":
            assert [(p.name, p.kind) for p in parameters] == [("inputs", inspect.Parameter.VAR_POSITIONAL)], method
            continue
        names = documented.split()
        assert [p.name for p in parameters][: len(names)] == names, method
        assert all(p.default is not REQUIRED for p in parameters[len(names) :]), method


# --- what the page says of them


def line(weight: float = 1.0) -> nn.Linear:
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(weight)
    return model


def sgd(model: nn.Module, rate: float = 0.5) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=rate)


ONE = torch.ones(1, 1)


def test_the_methods_that_change_return_the_object_itself() -> None:
    model = line()
    a = Approximation(model, sgd(model))
    assert a.reinforce(a(ONE).sum()) is a
    a(ONE).sum().backward()
    assert a.step() is a
    assert a.zero_grad() is a
    identity = Identity("cpu")
    assert identity.reinforce() is identity.step() is identity


def test_a_user_of_the_page_trains_with_all_of_it(tmp_path: Path) -> None:
    class Writer(DummyWriter):
        log_dir = str(tmp_path)

        def __init__(self) -> None:
            self.losses: list[float] = []
            self.rates: list[float] = []

        def add_loss(self, name: str, value: Tensor | float) -> None:
            self.losses.append(float(value))

        def add_schedule(self, name: str, value: float) -> None:
            self.rates.append(value)

    model, writer, saving = line(0.0), Writer(), PeriodicCheckpointer(10)
    optimizer = sgd(model, 0.2)
    a = Approximation(
        model,
        optimizer,
        saving,
        clip_grad=1.0,
        device="cpu",
        loss_scaling=2.0,
        name="line",
        scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.5),
        target=FixedTarget(4),
        writer=writer,
    )
    inputs = torch.linspace(-1, 1, 8).unsqueeze(1)
    for _ in range(20):
        a.reinforce((a(inputs) - 0.3 * inputs).square().mean())
    saving.wait()
    assert float(model.weight.detach()) == pytest.approx(0.3, abs=0.05)
    assert len(writer.losses) == 20
    assert writer.losses[-1] < writer.losses[0] / 10
    assert writer.rates[::5] == [0.2, 0.1, 0.05, 0.025]
    assert torch.equal(a.target(ONE), a.no_grad(ONE)), "20 is a multiple of 4"
    newest = newest_checkpoint(tmp_path / "line")
    assert newest is not None
    assert torch.equal(load_checkpoint(newest.path)["model"]["weight"], model.weight.detach())


@pytest.mark.parametrize("kind", [TargetNetwork, Checkpointer])
def test_the_bases_are_for_classes_of_ones_own(kind: type) -> None:
    with pytest.raises(TypeError, match="abstract"):
        kind()


# --- the faults that are absent


def test_db_c8_lists_of_actions_go_where_the_model_is_now() -> None:
    q = QNetwork(nn.Linear(1, 3))
    q.model.to("meta")
    assert q(torch.ones(2, 1, device="meta"), [0, 2]).device.type == "meta"
    assert q.device.type == "meta"


def test_db_c9_continuous_values_of_images_and_of_single_states() -> None:
    q = QContinuous(nn.Linear(3 * 4 * 4 + 2, 1), None)
    image = torch.zeros(5, 3, 4, 4, dtype=torch.uint8)
    assert q(image, torch.ones(5, 2)).shape == (5,)
    single = {"observation": image[0], "mask": torch.tensor(1.0)}
    assert q(single, torch.ones(2)).shape == ()
