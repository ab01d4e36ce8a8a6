"""The page `all.approximation` of autonomous-learning-library: every documented name, and every known fault absent.

`PAGE` is the page as a literal: class -> its constructor's parameters with their defaults, and its methods. A method
may have more parameters here if they have defaults, so that every documented call is a call. The tests named after
DB-C items show the faults of the library that lie in classes of this page, and that they are not here.
"""

from __future__ import annotations

import inspect
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hive import approximation
from hive.approximation import (
    Approximation,
    Checkpointer,
    DummyWriter,
    FeatureNetwork,
    FixedTarget,
    Identity,
    PeriodicCheckpointer,
    PolyakTarget,
    QContinuous,
    QDist,
    QNetwork,
    TargetNetwork,
    TrivialTarget,
    VNetwork,
    load_checkpoint,
    reinforce_jointly,
)
from hive.errors import HiveError, NetworkError, NotFinite, RecordError
from hive.records import Files, newest_checkpoint

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
def test_every_class_is_there_with_its_base(name: str) -> None:
    base = PAGE[name][0]
    assert name in approximation.__all__
    assert issubclass(getattr(approximation, name), object if base == "object" else getattr(approximation, base))


@pytest.mark.parametrize("name", PAGE)
def test_every_constructor_has_the_documented_parameters_in_order(name: str) -> None:
    documented = PAGE[name][1]
    found = inspect.signature(getattr(approximation, name)).parameters
    by_position = [p for p in found.values() if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    assert [parameter.name for parameter in by_position] == list(documented)
    for parameter in by_position:
        default = documented[parameter.name]
        if default == WRITER:
            assert isinstance(parameter.default, DummyWriter)
        else:
            assert parameter.default == default, parameter.name
    more = [p for p in found.values() if p.kind is inspect.Parameter.KEYWORD_ONLY]
    assert all(parameter.default is not REQUIRED for parameter in more), "a documented call must be a call"


METHODS = [(name, method, expected) for name, (_, _, methods) in PAGE.items() for method, expected in methods.items()]


@pytest.mark.parametrize(("name", "method", "documented"), METHODS)
def test_every_method_can_be_called_as_documented(name: str, method: str, documented: str) -> None:
    found = list(inspect.signature(getattr(getattr(approximation, name), method)).parameters.values())[1:]
    if documented == "*inputs":
        assert [(p.name, p.kind) for p in found] == [("inputs", inspect.Parameter.VAR_POSITIONAL)]
        return
    names = documented.split()
    assert [p.name for p in found][: len(names)] == names
    assert all(p.default is not REQUIRED for p in found[len(names) :])


def test_writer_and_logger_both_name_the_writer() -> None:
    parameters = inspect.signature(Approximation).parameters
    assert {"writer", "logger"} <= set(parameters)


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


def test_features_are_shared_by_heads_as_the_page_says() -> None:
    """The page: various approximations backpropagate to the output, then reinforce() takes what accumulated."""
    trunk, value, action = line(2.0), line(3.0), line(5.0)
    features = FeatureNetwork(trunk, sgd(trunk, 1.0))
    v, q = VNetwork(value, sgd(value)), QNetwork(action, sgd(action))
    shared = features(ONE)
    v.reinforce(v(shared).sum())
    assert trunk.weight.grad is None, "the output is detached"
    q.reinforce(q(shared).sum())
    features.reinforce()
    assert float(trunk.weight.detach()) == 2.0 - (3.0 + 5.0)


def test_all_errors_are_hives() -> None:
    for call in (
        lambda: FixedTarget(0),
        lambda: PolyakTarget(2.0),
        lambda: PeriodicCheckpointer(0),
        lambda: Approximation(nn.ReLU()),
        lambda: Approximation(line()).step(),
        lambda: QDist(line(), None, 1, 1, -1, 1),
        lambda: FeatureNetwork(line()).reinforce(),
        lambda: QNetwork(line())(None),
    ):
        with pytest.raises(HiveError) as refused:
            call()
        assert not str(refused.value).endswith(".")


@pytest.mark.parametrize("kind", [TargetNetwork, Checkpointer])
def test_the_bases_are_for_classes_of_ones_own(kind: type) -> None:
    with pytest.raises(TypeError, match="abstract"):
        kind()


# --- the faults that are absent


def test_db_c1_eval_gives_every_module_its_own_mode_back() -> None:
    model = nn.Sequential(nn.BatchNorm1d(1), nn.Dropout())
    model[0].eval()
    a = Approximation(model)
    a.eval(torch.ones(2, 1))
    assert [model.training, model[0].training, model[1].training] == [True, False, True]
    with pytest.raises((RuntimeError, ValueError)):
        a.eval(torch.ones(2, 7))
    assert [model.training, model[0].training, model[1].training] == [True, False, True]


@pytest.mark.parametrize("target", [TrivialTarget(), FixedTarget(1), PolyakTarget(0.1)])
def test_db_c2_targets_answer_in_evaluation_mode(target: TargetNetwork) -> None:
    a = Approximation(nn.Sequential(nn.BatchNorm1d(1), nn.Dropout()), target=target)
    before = {name: value.clone() for name, value in a.model.state_dict().items()}
    ones = torch.ones(64, 1)
    assert torch.equal(a.target(ones), a.eval(ones))
    assert all(torch.equal(value, before[name]) for name, value in a.model.state_dict().items())


@pytest.mark.parametrize("clip_grad", [0, 1.0])
def test_db_c3_nan_does_not_pass_silently(clip_grad: float) -> None:
    model = line()
    a = Approximation(model, sgd(model), clip_grad=clip_grad)
    with pytest.raises(NotFinite, match="`weight`"):
        a.reinforce(a(ONE).sum() * math.nan)
    assert float(model.weight.detach()) == 1.0
    with pytest.raises(NetworkError, match="clip_grad = -1"):
        Approximation(model, clip_grad=-1)


def test_db_c4_a_step_without_an_optimizer_says_so() -> None:
    a = Approximation(line(), name="fixed")
    a(ONE).sum().backward()
    with pytest.raises(NetworkError, match="`fixed` has no optimizer"):
        a.step()
    assert a.zero_grad() is a


def test_db_c5_loss_scaling_acts_in_a_joint_backward_pass_or_is_refused() -> None:
    model = line()
    v = VNetwork(model, sgd(model, 1.0), loss_scaling=0.25)
    v(ONE).sum().backward()
    with pytest.raises(NetworkError, match=r"loss_scaling = 0.25 of `v` was not applied"):
        v.step()
    v.zero_grad()
    reinforce_jointly([(v, v(ONE).sum())])
    assert float(model.weight.detach()) == 0.75
    v.scaled(v(ONE).sum()).backward()
    v.step()
    assert float(model.weight.detach()) == 0.5


def test_db_c6_features_that_are_never_reinforced_cost_no_memory() -> None:
    model = nn.Linear(1, 3)
    features = FeatureNetwork(model, sgd(model), cache_size=4)
    for _ in range(100):
        features(ONE)
    held = [features(ONE) for _ in range(4)]
    with pytest.raises(NetworkError, match="4 forward passes"):
        features(ONE)
    del held
    with pytest.raises(NetworkError, match="no gradient has come"):
        features.reinforce()
    model = nn.Linear(1, 3)
    scaled = FeatureNetwork(model, sgd(model), loss_scaling=0.5, keep_gradients=True)
    scaled({"observation": torch.ones(2, 1), "mask": torch.ones(2)})["observation"].sum().backward()
    scaled(torch.ones(1, 1)).sum().backward()
    assert scaled.no_grad(ONE).requires_grad is False
    with pytest.raises(NetworkError, match="no gradient has come"):
        FeatureNetwork(model, sgd(model)).reinforce()


def test_db_c6_trunk_loss_scaling_and_outputs_of_other_shapes() -> None:
    class Wide(nn.Module):
        """As many features as the observation has columns."""

        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, rows: Tensor) -> Tensor:
            return self.scale * rows

    model = Wide()
    features = FeatureNetwork(model, sgd(model, 1.0), loss_scaling=0.5)
    for shape in ((2, 3), (4, 1)):
        features(torch.ones(shape)).sum().backward()
    features.reinforce()
    assert float(model.scale.detach()) == 1.0 - 0.5 * (6 + 4)


def test_db_c7_identity_takes_a_loss() -> None:
    identity = Identity("cpu", target=FixedTarget(1))
    loss = torch.ones((), requires_grad=True)
    assert identity.reinforce(loss) is identity
    assert identity.step(loss) is identity
    assert identity.step(loss=loss) is identity
    assert loss.grad is None
    assert torch.equal(identity.target(ONE), identity.eval(ONE))


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


@pytest.mark.parametrize(("v_min", "v_max", "n_atoms"), [(0.0, 10.0, 51), (-10.0, 10.0, 50), (-1.0, 4.0, 7)])
def test_db_c10_the_terminal_atom_is_the_value_0(v_min: float, v_max: float, n_atoms: int) -> None:
    q = QDist(nn.Linear(1, 2 * n_atoms), None, 2, n_atoms, v_min, v_max)
    terminal = q.no_grad({"observation": torch.ones(3, 1), "mask": torch.zeros(3)})
    assert torch.allclose(terminal.sum(-1), torch.ones(3, 2))
    assert torch.allclose((terminal * q.atoms).sum(-1), torch.zeros(3, 2), atol=1e-6)
    assert int((terminal[0, 0] > 0).sum()) <= 2
    with pytest.raises(NetworkError, match="not within the support"):
        QDist(nn.Linear(1, 2), None, 1, 2, 1.0, 2.0)


@pytest.mark.parametrize(("v_min", "v_max", "n_atoms"), [(-2, 2, 5), (-100, 100, 51), (-10, 10, 51)])
@pytest.mark.parametrize("shift", [0.0, 1.0, 1000.0, -1000.0, "half"])
def test_db_c11_projection_loses_no_mass(v_min: float, v_max: float, n_atoms: int, shift: Any) -> None:
    """The library keeps 0.00, 0.00 and 0.94 of these without a shift, and 0.00 of those shifted beyond an end."""
    q = QDist(nn.Linear(1, n_atoms), None, 1, n_atoms, v_min, v_max)
    uniform = torch.full((4, n_atoms), 1 / n_atoms)
    by = (v_max - v_min) / 2 if shift == "half" else shift
    projected = q.project(uniform, q.atoms.expand(4, -1) + by)
    assert projected.shape == uniform.shape
    assert float((projected.sum(-1) - 1).abs().max()) < 1e-6


def test_db_c12_atoms_are_saved_and_move() -> None:
    q = QDist(nn.Linear(1, 5), None, 1, 5, -2, 2)
    assert q.model.state_dict()["atoms"].tolist() == [-2, -1, 0, 1, 2]
    q.model.to("meta")
    assert q.atoms.device.type == "meta"
    assert q.model.terminal.device.type == "meta"


def test_db_c13_polyak_targets_have_the_statistics_of_the_network() -> None:
    model = nn.BatchNorm1d(1)
    a = Approximation(model, sgd(model), target=PolyakTarget(0.01))
    for _ in range(20):
        a.reinforce(a(torch.linspace(3, 7, 8).unsqueeze(1)).square().sum())
    network, target = model.state_dict(), a.target_network.state_dict()["model"]
    assert float(network["running_mean"]) > 4.0
    assert torch.equal(target["running_mean"], network["running_mean"])
    assert not torch.equal(target["weight"], network["weight"])


class OperationsThenDeath(Files):
    """Ends, as a killed process does, when checkpoint number 2 is about to be renamed."""

    renames = 0

    def rename(self, source: Path, target: Path) -> None:
        self.renames += 1
        if self.renames > 1:
            raise KeyboardInterrupt
        super().rename(source, target)


def test_db_c14_checkpoints_are_whole_are_data_and_hold_everything(tmp_path: Path) -> None:
    model = line()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    class Writer(DummyWriter):
        log_dir = str(tmp_path)

    saving = PeriodicCheckpointer(1, background=False, files=OperationsThenDeath())
    a = Approximation(model, optimizer, saving, name="q", writer=Writer(), target=FixedTarget(3))
    a.reinforce(a(ONE).sum())
    after_one = model.weight.detach().clone()
    with pytest.raises(KeyboardInterrupt):
        a.reinforce(a(ONE).sum())
    newest = newest_checkpoint(tmp_path / "q")
    assert newest is not None
    state = load_checkpoint(newest.path)
    assert newest.update == state["updates"] == 1
    assert torch.equal(state["model"]["weight"], after_one)
    assert set(state) == {"updates", "model", "optimizer", "target"}
    a.load_state_dict(state)
    assert (a.updates, int(optimizer.state_dict()["state"][0]["step"])) == (1, 1)
    assert not [path for path in newest.path.iterdir() if path.suffix in (".pt", ".pkl")]
    pickled = tmp_path / "old.pt"
    torch.save(model, pickled)
    with pytest.raises(RecordError, match="a checkpoint is a folder"):
        load_checkpoint(pickled)


def test_db_c14_two_of_one_name_are_told(tmp_path: Path) -> None:
    class Writer(DummyWriter):
        log_dir = str(tmp_path)

    model = line()
    made = [
        Approximation(model, sgd(model), PeriodicCheckpointer(1, background=False), name="q", writer=Writer())
        for _ in range(2)
    ]
    with pytest.raises(RecordError, match="another approximation writes its checkpoints"):
        made[0].reinforce(made[0](ONE).sum())
