"""C51's log probabilities, targets and loss, and QR-DQN's targets, against torch in float64: values and gradients."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from hive import _native
from hive.algorithms.losses import CategoricalQLoss
from hive.networks.act.projection import categorical_support, project_categorical
from hive.networks.build.value_heads import expected_return
from hive.networks.rows.packed import FORBIDDEN

Floats = NDArray[np.float32]
ROWS, ACTIONS, ATOMS, SEEDS = st.integers(1, 40), st.integers(1, 5), st.integers(2, 60), st.integers(0, 1000)


def close(found: Any, expected: Tensor, scale: float = 1.0) -> None:
    np.testing.assert_allclose(found, expected.detach().numpy(), rtol=1e-6, atol=1e-6 * scale)


def logs_of(generator: np.random.Generator, *shape: int) -> Floats:
    return torch.from_numpy(2.0 * generator.standard_normal(shape)).log_softmax(-1).float().numpy()


def normal(generator: np.random.Generator, *shape: int) -> Floats:
    return generator.standard_normal(shape).astype(np.float32)


@given(ROWS, ACTIONS, ATOMS, SEEDS, st.booleans())
def test_log_softmax_is_that_of_torch(rows: int, actions: int, atoms: int, seed: int, in_place: bool) -> None:
    generator = np.random.default_rng(seed)
    columns = 3.0 * normal(generator, rows, actions, atoms)
    slopes = normal(generator, rows, actions, atoms)
    slopes[0, 0] = 0.0
    reference = torch.from_numpy(columns).double().requires_grad_()
    expected = reference.log_softmax(-1)
    (expected * torch.from_numpy(slopes).double()).sum().backward()
    outputs = columns if in_place else np.empty_like(columns)
    _native.log_softmax(columns, outputs)
    close(outputs, expected)
    assert reference.grad is not None
    to_columns = slopes if in_place else np.empty_like(slopes)
    _native.log_softmax_back(outputs, slopes, to_columns)
    close(to_columns, reference.grad, scale=float(atoms))  # the sum of so many slopes, times a rounded probability


@given(ROWS, ACTIONS, ATOMS, SEEDS, st.booleans())
def test_targets_of_categories_are_those_of_torch(rows: int, actions: int, atoms: int, seed: int, double: bool) -> None:
    generator = np.random.default_rng(seed)
    support = categorical_support(-2.0, 3.0, atoms)
    outputs = logs_of(generator, rows, actions, atoms)
    outputs[0, : actions // 2] = FORBIDDEN
    chooses = logs_of(generator, rows, actions, atoms) if double else outputs
    returns, discounts = normal(generator, rows), generator.random(rows, np.float32)
    discounts[-1] = 0.0
    targets = np.empty((rows, atoms), np.float32)
    assert _native.categorical_targets(support.numpy(), chooses, outputs, returns, discounts, targets) == -1
    best = expected_return(torch.from_numpy(chooses).double(), support.double()).argmax(-1)
    chances = torch.from_numpy(outputs).double().exp()[torch.arange(rows), best]
    moved = torch.from_numpy(returns[:, None] + discounts[:, None] * support.numpy())
    close(targets, project_categorical(moved, chances, support))


@given(ROWS, ACTIONS, ATOMS, SEEDS, st.booleans())
def test_targets_of_quantiles_are_those_of_torch(rows: int, actions: int, atoms: int, seed: int, double: bool) -> None:
    generator = np.random.default_rng(seed)
    outputs = normal(generator, rows, actions, atoms)
    chooses = normal(generator, rows, actions, atoms) if double else outputs
    returns, discounts = normal(generator, rows), generator.random(rows, np.float32)
    targets = np.empty((rows, atoms), np.float32)
    _native.quantile_targets(chooses, outputs, returns, discounts, targets)
    best = expected_return(torch.from_numpy(chooses).double(), None).argmax(-1)
    expected = torch.from_numpy(outputs).double()[torch.arange(rows), best]
    close(targets, torch.from_numpy(returns)[:, None] + torch.from_numpy(discounts)[:, None] * expected, scale=4.0)


@given(ROWS, ACTIONS, ATOMS, SEEDS, st.booleans())
def test_the_loss_of_categories_is_that_of_torch(
    rows: int, actions: int, atoms: int, seed: int, weighted: bool
) -> None:
    generator = np.random.default_rng(seed)
    support = categorical_support(-2.0, 3.0, atoms)
    outputs, taken = logs_of(generator, rows, actions, atoms), generator.integers(0, actions, rows)
    targets = np.exp(logs_of(generator, rows, atoms))
    targets[0, :-1], targets[0, -1] = 0.0, 1.0
    importance = generator.random(rows, np.float32) if weighted else None
    errors, slopes = np.empty(rows, np.float32), np.empty_like(outputs)
    found = _native.categorical_loss(support.numpy(), outputs, taken, targets, importance, errors, slopes)
    reference, wanted = torch.from_numpy(outputs).double().requires_grad_(), np.empty(rows)
    value = CategoricalQLoss(
        torch.empty(0),
        torch.from_numpy(taken),
        torch.from_numpy(targets).double(),
        support.double(),
        None if importance is None else torch.from_numpy(importance).double(),
        wanted,  # type: ignore[arg-type]
    )(reference)
    value.total.backward()
    assert reference.grad is not None
    close(found, torch.tensor([value.total.item(), *value.statistics[1:]]), scale=5.0)
    close(errors, torch.from_numpy(wanted), scale=5.0)
    close(slopes, reference.grad, scale=1.0 / rows)


def test_bytes_never_change() -> None:
    """Every instruction set, C library and version must compute these: runs are repeated by them."""
    columns, rows = np.empty(97 * 3 * 51, np.float32), np.empty(2 * 97, np.float32)
    _native.philox_normals(1, 1, columns)
    _native.philox_normals(1, 2, rows)
    columns, taken = columns.reshape(97, 3, 51), np.arange(97) % 3
    support = categorical_support(-5.0, 5.0, 51).numpy()
    outputs, slopes, targets = np.empty_like(columns), np.empty_like(columns), np.empty((97, 51), np.float32)
    errors = np.empty(97, np.float32)
    _native.log_softmax(columns, outputs)
    _native.categorical_targets(support, outputs, outputs, rows[:97], rows[97:], targets)
    _native.categorical_loss(support, outputs, taken, targets, None, errors, slopes)
    _native.log_softmax_back(outputs, slopes, slopes)
    digest = hashlib.sha256(b"".join(array.tobytes() for array in (outputs, targets, errors, slopes))).hexdigest()
    assert digest == "1e599f135fa01550993023e398197da36249d6fa3a73f050302b4fa3c9c3a162"


def test_nan_is_the_largest_value_and_passes_on() -> None:
    outputs = np.zeros((2, 3, 2), np.float32)
    outputs[0, 1] = np.nan
    rows, targets = np.ones(2, np.float32), np.empty((2, 2), np.float32)
    _native.quantile_targets(outputs, outputs, rows, rows, targets)
    np.testing.assert_array_equal(targets, [[np.nan, np.nan], [1.0, 1.0]])


def test_returns_that_are_not_finite_are_found() -> None:
    outputs, rows, targets = np.zeros((3, 2, 4), np.float32), np.ones(3, np.float32), np.empty((3, 4), np.float32)
    rows[1] = np.inf
    support = np.arange(4, dtype=np.float32)
    assert _native.categorical_targets(support, outputs, outputs, rows, np.ones(3, np.float32), targets) == 1


def test_other_shapes_are_refused() -> None:
    outputs, rows, table = np.zeros((3, 2, 4), np.float32), np.ones(3, np.float32), np.empty((3, 4), np.float32)
    with pytest.raises(ValueError, match="elements of support: 3, expected 4"):
        _native.categorical_targets(rows, outputs, outputs, rows, rows.copy(), table)
    with pytest.raises(ValueError, match="columns of targets: 3, expected 4"):
        _native.quantile_targets(outputs, outputs, rows, rows, np.empty((3, 3), np.float32))
    support = np.arange(4, dtype=np.float32)
    with pytest.raises(ValueError, match="the action of row 2 does not exist"):
        _native.categorical_loss(support, outputs, np.array([0, 1, 2]), table, None, None, np.empty_like(outputs))
