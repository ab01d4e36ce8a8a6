"""Projection onto a support: mass and mean do not change, even for exact hits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hive.errors import NetworkError
from hive.networks.act.projection import categorical_support, point_mass, project_categorical

SUPPORTS = [(-2.0, 2.0, 5), (-100.0, 100.0, 51), (-10.0, 10.0, 51), (0.0, 200.0, 50), (3.0, 4.0, 2)]


def distribution(atoms: int, rows: int = 32) -> Tensor:
    generator = torch.Generator().manual_seed(atoms)
    return (4 * torch.randn(rows, atoms, generator=generator)).softmax(-1)


def reference(atoms: list[float], mass: list[float], support: list[float]) -> list[float]:
    """Every pair of an atom and a place, by the definition: weight max(0, 1 - distance / spacing)."""
    spacing = support[1] - support[0]
    result = [0.0] * len(support)
    for atom, share in zip(atoms, mass, strict=True):
        inside = min(max(atom, support[0]), support[-1])
        for place, value in enumerate(support):
            result[place] += share * max(0.0, 1.0 - abs(inside - value) / spacing)
    return result


def test_a_support_hits_its_ends_and_its_middle() -> None:
    support = categorical_support(-10.0, 10.0, 51)
    assert (support[0], support[25], support[50]) == (-10.0, 0.0, 10.0)
    assert support.dtype == torch.float32


@pytest.mark.parametrize("bounds", SUPPORTS)
def test_projection_onto_the_same_support_changes_nothing(bounds: tuple[float, float, int]) -> None:
    support = categorical_support(*bounds)
    mass = distribution(bounds[2])
    torch.testing.assert_close(project_categorical(support, mass, support), mass, atol=2e-6, rtol=0)


@pytest.mark.parametrize("bounds", SUPPORTS)
@pytest.mark.parametrize("shift", [0.0, 0.37, 1.0, -1.0, 1000.0, -1000.0])
def test_mass_is_kept_and_so_is_the_mean_inside(bounds: tuple[float, float, int], shift: float) -> None:
    support = categorical_support(*bounds)
    mass = distribution(bounds[2])
    atoms = 0.9 * support + shift
    projected = project_categorical(atoms, mass, support)
    torch.testing.assert_close(projected.sum(-1), torch.ones(32), atol=1e-6, rtol=0)
    assert (projected >= 0).all()
    mean = (atoms.clamp(support[0], support[-1]) * mass).sum(-1)
    torch.testing.assert_close((projected * support).sum(-1), mean, atol=1e-5 * float(support.abs().max()), rtol=0)


def test_it_is_the_definition() -> None:
    atoms, mass, support = [-3.0, -1.0, 0.25, 0.5, 7.0], [0.1, 0.2, 0.3, 0.15, 0.25], [-1.0, -0.5, 0.0, 0.5, 1.0]
    found = project_categorical(torch.tensor(atoms), torch.tensor(mass), torch.tensor(support))
    torch.testing.assert_close(found, torch.tensor(reference(atoms, mass, support)), atol=1e-7, rtol=0)


def test_other_numbers_of_atoms_and_leading_axes_broadcast() -> None:
    support = categorical_support(-1.0, 1.0, 3)
    atoms = torch.tensor([[[0.5], [-0.5]]])  # [1, 2, 1]
    assert project_categorical(atoms, torch.ones(4, 1, 1), support).shape == (4, 2, 3)
    assert project_categorical(atoms, torch.ones(1), support).tolist() == [[[0, 0.5, 0.5], [0.5, 0.5, 0]]]


def test_gradients_flow_to_the_probabilities() -> None:
    mass = torch.full((3,), 1 / 3, requires_grad=True)
    support = categorical_support(-1.0, 1.0, 3)
    (project_categorical(support + 0.5, mass, support) * torch.tensor([0.0, 1.0, 2.0])).sum().backward()
    assert mass.grad is not None
    torch.testing.assert_close(mass.grad, torch.tensor([0.5, 1.5, 2.0]))


def test_the_end_of_an_episode_is_worth_zero_on_any_support() -> None:
    """Without an atom at 0, the mass lies beside it; a support without 0 has no such distribution."""
    for bounds in ((-10.0, 10.0, 51), (0.0, 200.0, 50), (-10.0, 10.0, 50), (-1.0, 200.0, 51)):
        support = categorical_support(*bounds)
        terminal = point_mass(torch.zeros(4), support)
        torch.testing.assert_close(terminal.sum(-1), torch.ones(4))
        torch.testing.assert_close((terminal * support).sum(-1), torch.zeros(4), atol=1e-6, rtol=0)
    with pytest.raises(NetworkError, match="the value 0 is not within the support from 1 to 2") as error:
        point_mass(torch.zeros(4), categorical_support(1.0, 2.0, 3))
    assert "v_min <= 0 <= v_max" in error.value.hint
    with pytest.raises(NetworkError, match="the value nan is not within"):
        point_mass(torch.tensor([0.0, float("nan")]), categorical_support(-1.0, 1.0, 3))


@pytest.mark.parametrize(
    ("atoms", "mass", "support", "message"),
    [
        (torch.zeros(2), torch.ones(3), torch.arange(3.0), "do not fit"),
        (torch.zeros(2, 3), torch.ones(4, 3), torch.arange(3.0), "do not fit"),
        (torch.tensor(0.0), torch.tensor(1.0), torch.arange(3.0), "do not fit"),
        (torch.tensor([0.0, float("nan")]), torch.ones(2), torch.arange(3.0), "not finite"),
        (torch.zeros(1), torch.ones(1), torch.tensor([0.0, 1.0, 3.0]), "not increasing and equally spaced"),
        (torch.zeros(1), torch.ones(1), torch.tensor([1.0, 0.0]), "not increasing and equally spaced"),
        (torch.zeros(1), torch.ones(1), torch.zeros(1), "at least two atoms"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(atoms: Tensor, mass: Tensor, support: Tensor, message: str) -> None:
    with pytest.raises(NetworkError, match=message):
        project_categorical(atoms, mass, support)


@pytest.mark.parametrize("bounds", [(0.0, 1.0, 1), (1.0, 1.0, 3), (2.0, 1.0, 3), (0.0, float("inf"), 3)])
def test_supports_that_are_none_are_refused(bounds: tuple[float, float, int]) -> None:
    with pytest.raises(NetworkError, match="invalid support of"):
        categorical_support(*bounds)
