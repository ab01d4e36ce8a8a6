"""C51's distributions: against exact arithmetic, at the ends of episodes, and as part of a state."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hive.compat.autonomous import PolyakTarget, QDist
from hive.errors import NetworkError


class Constant(nn.Module):
    """The same logits for every row."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits.clone())

    def forward(self, rows: Tensor) -> Tensor:
        return self.logits.flatten().expand(len(rows), -1)


def q_dist(n_actions: int = 2, n_atoms: int = 5, v_min: float = -2, v_max: float = 2, **settings: Any) -> QDist:
    return QDist(Constant(torch.zeros(n_actions, n_atoms)), None, n_actions, n_atoms, v_min, v_max, **settings)


UNIT = 2**149  # every float32 is a whole multiple of 1 / UNIT


def units(values: list[float]) -> list[int]:
    """The values as exact integers, in units of 1 / UNIT."""
    return [numerator * (UNIT // denominator) for numerator, denominator in (v.as_integer_ratio() for v in values)]


def exact_projection(atoms: list[float], places: list[float], masses: list[float]) -> list[float]:
    """Equation 7 of Bellemare et al. 2017 without rounding: an atom's mass goes to its two neighbours.

    Everything is a fraction over the distance of the ends and UNIT, that is: whole numbers; rounded once, at the end.
    """
    low, *_, high = units(atoms)
    spacing = high - low
    result = [0] * (len(atoms) + 1)
    for place, mass in zip(units(places), units(masses), strict=True):
        index, rest = divmod((min(max(place, low), high) - low) * (len(atoms) - 1), spacing)
        result[index] += mass * (spacing - rest)
        result[index + 1] += mass * rest
    assert result.pop() == 0, "the last atom has no right neighbour, and needs none"
    return [part / (spacing * UNIT) for part in result]


def test_ten_thousand_random_supports_against_fractions() -> None:
    """A fifth of them hit atoms exactly, and some lie beyond the ends wholly."""
    generator = torch.Generator().manual_seed(51)

    def between(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(shape, generator=generator)

    worst_mass = worst = 0.0
    rows = 20
    for _ in range(500):
        n_atoms = int(torch.randint(2, 12, (), generator=generator))
        q = q_dist(1, n_atoms, float(between(-20, 0)), float(between(0.1, 20)))
        masses = between(0, 1, rows, n_atoms)
        masses /= masses.sum(-1, keepdim=True)
        support = between(-15, 15, rows, 1) + between(0, 1, rows, 1) * q.atoms
        support[: rows // 5] = q.atoms.roll(1)
        projected = q.project(masses, support)
        for row in range(rows):
            expected = exact_projection(q.atoms.tolist(), support[row].tolist(), masses[row].tolist())
            worst_mass = max(worst_mass, abs(1 - float(projected[row].double().sum())))
            found = projected[row].tolist()
            worst = max(worst, *(abs(e - f) for e, f in zip(expected, found, strict=True)))
    assert worst_mass < 1e-6
    assert worst < 1e-6


@pytest.mark.parametrize(("v_min", "v_max", "n_atoms"), [(-2, 2, 5), (-100, 100, 51), (-10, 10, 51), (0, 1, 2)])
def test_a_distribution_on_the_support_stays_as_it_is(v_min: float, v_max: float, n_atoms: int) -> None:
    q = q_dist(1, n_atoms, v_min, v_max)
    uniform = torch.full((1, n_atoms), 1 / n_atoms)
    assert torch.allclose(q.project(uniform, q.atoms.unsqueeze(0)), uniform, atol=1e-6)


@pytest.mark.parametrize(("shift", "end"), [(1000.0, -1), (-1000.0, 0), (torch.inf, -1)])
def test_mass_beyond_an_end_moves_to_that_end(shift: float, end: int) -> None:
    q = q_dist(1, 51, -10, 10)
    uniform = torch.full((3, 51), 1 / 51)
    if shift == torch.inf:
        with pytest.raises(NetworkError, match="not finite"):
            q.project(uniform, q.atoms.expand(3, -1) + shift)
        return
    projected = q.project(uniform, q.atoms.expand(3, -1) + shift)
    assert projected[:, end].tolist() == pytest.approx([1.0] * 3, abs=1e-6)


def test_the_mean_is_kept_inside_the_support() -> None:
    q = q_dist(1, 51, -10, 10)
    generator = torch.Generator().manual_seed(1)
    masses = torch.rand((64, 51), generator=generator).softmax(-1)
    support = 0.9 * q.atoms + torch.rand((64, 1), generator=generator) - 0.5
    before, after = (masses * support).sum(-1), (q.project(masses, support) * q.atoms).sum(-1)
    assert torch.allclose(before, after, atol=1e-5)


def test_probabilities_of_all_actions_or_of_those_given() -> None:
    logits = torch.arange(10.0).reshape(2, 5).sin()
    q = QDist(Constant(logits), None, 2, 5, -2, 2)
    states = torch.zeros(3, 4)
    everything = q(states)
    assert everything.shape == (3, 2, 5)
    assert torch.allclose(everything[1], logits.softmax(-1))
    for actions in (torch.tensor([1, 0, 1]), [1, 0, 1], [torch.tensor([1, 0]), torch.tensor([1])]):
        assert torch.equal(q(states, actions), everything[[0, 1, 2], [1, 0, 1]])
    grid = {"observation": torch.zeros(2, 3, 4), "mask": torch.ones(2, 3)}
    assert q(grid).shape == (2, 3, 2, 5)
    assert q(grid, torch.zeros(2, 3, dtype=torch.int64)).shape == (2, 3, 5)


@pytest.mark.parametrize(
    ("v_min", "v_max", "n_atoms", "expected"),
    [
        (-2, 2, 5, {2: 1.0}),
        (-2, 2, 4, {1: 0.5, 2: 0.5}),
        (0, 10, 11, {0: 1.0}),
        (-10, 0, 11, {10: 1.0}),
        (-1, 3, 4, {0: 0.25, 1: 0.75}),
    ],
)
def test_after_the_end_the_return_is_exactly_0(
    v_min: float, v_max: float, n_atoms: int, expected: dict[int, float]
) -> None:
    q = q_dist(2, n_atoms, v_min, v_max)
    found = q({"observation": torch.zeros(2, 1), "mask": torch.tensor([0.0, 1.0])})
    for row in found[0]:
        assert {i: p for i, p in enumerate(row.tolist()) if p > 1e-6} == pytest.approx(expected)
        assert float((row * q.atoms).sum().detach()) == pytest.approx(0.0, abs=1e-6)
    assert torch.allclose(found[1], torch.full((2, n_atoms), 1 / n_atoms))


def test_the_support_is_part_of_the_state_and_moves_with_the_model() -> None:
    q = q_dist(target=PolyakTarget(0.5))
    assert set(q.model.state_dict()) == {"model.logits", "atoms", "terminal"}
    other = q_dist(v_min=-8, v_max=8)
    other.load_state_dict(q_dist().state_dict())
    assert other.atoms.tolist() == [-2, -1, 0, 1, 2]
    q.model.to("meta")
    assert q.atoms.device.type == "meta"


@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        ({"v_min": 1, "v_max": 2}, r"value 0 is not within the support from 1 to 2"),
        ({"v_min": -2, "v_max": -1}, r"value 0 is not within the support"),
        ({"v_min": 2, "v_max": -2}, "invalid support of 5 atoms from 2 to -2"),
        ({"n_atoms": 1}, "invalid support of 1 atoms"),
        ({"n_actions": 0}, "n_actions = 0"),
    ],
)
def test_a_support_that_cannot_be_is_refused(settings: dict[str, Any], cause: str) -> None:
    with pytest.raises(NetworkError, match=cause):
        q_dist(**settings)


def test_logits_that_do_not_fit_are_refused() -> None:
    q = QDist(Constant(torch.zeros(2, 4)), None, 2, 5, -2, 2)
    with pytest.raises(NetworkError, match=r"returns \[3, 8\] for states \[3\]") as refused:
        q(torch.zeros(3, 1))
    assert "[N, 2 * 5]" in refused.value.hint


def test_the_name_is_the_pages() -> None:
    assert q_dist().name == "q_dist"
    assert (q_dist().n_actions, q_dist().n_atoms) == (2, 5)
