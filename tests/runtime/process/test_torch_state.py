"""Settings of torch stay with the code that makes them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from hive.runtime.process.user_code import torch_state
from hive.runtime.process.user_code.torch_state import (
    NumpyState,
    TorchState,
    environment_torch,
    environments_begin_with,
    environments_differ,
    hive_torch,
)


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(torch_state, "_environments", None)
    monkeypatch.setattr(torch_state, "_numpy", None)
    before = TorchState.now()
    assert before is not None
    yield
    before.restore()


def change() -> TorchState | None:
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.set_num_threads(torch.get_num_threads() + 1)
    torch.set_grad_enabled(False)
    return TorchState.now()


def test_code_of_an_environment_keeps_what_it_has_set() -> None:
    hives = TorchState.now()
    with environment_torch():
        changed = change()
    assert changed != hives
    assert TorchState.now() == hives
    assert environments_differ()
    with environment_torch():
        assert TorchState.now() == changed
    assert TorchState.now() == hives


def test_environments_begin_with_what_the_script_has_set() -> None:
    hives, hives_numpy = TorchState.now(), NumpyState.now()
    scripts = NumpyState({**hives_numpy.errors, "over": "raise"}, {**hives_numpy.printing, "precision": 2})
    with environment_torch():  # an import, for example
        environments_begin_with(scripts, dtype="float64")
    assert (TorchState.now(), NumpyState.now()) == (hives, hives_numpy)
    with environment_torch():
        assert (torch.empty(0).dtype, NumpyState.now()) == (torch.float64, scripts)
    assert (TorchState.now(), NumpyState.now()) == (hives, hives_numpy)
    assert environments_differ()


def test_an_environment_that_sets_nothing_costs_nothing() -> None:
    with environment_torch():
        pass
    assert not environments_differ()


def test_hive_computes_with_its_own_settings() -> None:
    callers = change()
    assert callers is not None
    with hive_torch():
        new = torch.ones(1, requires_grad=True)
        assert (new.dtype, new.device.type, torch.is_grad_enabled()) == (torch.float32, "cpu", True)
        torch.set_num_threads(1)
    assert torch.get_num_threads() == 1
    torch.set_num_threads(callers.threads)
    assert TorchState.now() == callers
    with hive_torch(whole_run=True):
        torch.set_num_threads(1)
    assert TorchState.now() == callers
