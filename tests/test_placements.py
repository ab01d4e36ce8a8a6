"""Which placements are tried, and which is chosen."""

from __future__ import annotations

import pytest

from hive.config import Config, load_config
from hive.tuning import (
    TORCH_PARAMETERS,
    WHOLESALE_PARAMETERS,
    Placement,
    Trial,
    choose,
    fastest,
    placements,
    variants,
)

BOTH = ("collection.workers", "gradients.workers")
DEFAULT, TWO, ONE = Placement(1, 0, 16), Placement(2, 0, 8), Placement(0, 0, 16)


def config(*sets: str) -> Config:
    """A config of PPO with a round of lag, unless `sets` name another scheme."""
    given = any(one.startswith("run.scheme=") for one in sets)
    usual = ["collection.rollout=32", *["collection.communication=pipelined"] * (not given)]
    return load_config("run.toml", [*usual, *sets], text='[env]\nid = "CartPole-v1"\n')


def test_at_most_four_are_tried_and_the_total_number_of_environments_stays() -> None:
    for sets in ((), ("run.scheme=a3c",), ("run.scheme=apex",), ("collection.envs=6",)):
        found = placements(given := config(*sets), BOTH, 4)
        total = given.collectors * given.collection.envs
        assert {placement.collectors * placement.envs for placement in found} == {total}
        assert 1 < len(found) == len(set(found)) <= 4
    assert placements(config(), BOTH, 2) == [DEFAULT, ONE, Placement(0, 2, 8), Placement(16, 0, 1)]


@pytest.mark.parametrize(
    ("sets", "automatic", "numbers"),
    [
        (["collection.workers=4"], "gradients.workers", [(4, 0), (4, 2)]),
        (["collection.workers=0"], "gradients.workers", [(0, 0)]),
        (["collection.workers=2", "gradients.workers=2"], "collection.workers", [(2, 2), (0, 2), (16, 2)]),
    ],
)
def test_only_keys_that_are_automatic_change(sets: list[str], automatic: str, numbers: list[tuple[int, int]]) -> None:
    found = placements(config(*sets), (automatic,), 2)
    assert [(one.collection_workers, one.gradient_workers) for one in found] == numbers


def test_shares_and_batches_are_equal() -> None:
    assert all(one.collectors % max(one.gradient_workers, 1) == 0 for one in placements(config(), BOTH, 3))
    odd = config("run.scheme=dqn", "algorithm.batch_size=33", "collection.envs=4")
    assert {one.gradient_workers for one in placements(odd, BOTH, 2)} == {0}
    sequences = config("run.scheme=ppo", "network.memory=lstm", "algorithm.minibatches=8")
    assert all(
        max(one.collectors // max(one.gradient_workers, 1), 1) * one.envs >= 8 for one in placements(sequences, BOTH, 4)
    )


def test_large_networks_are_also_computed_otherwise() -> None:
    shared = Placement(0, 2, 8)
    assert variants(config(), shared, TORCH_PARAMETERS - 1, lossy=True) == []
    assert variants(config("network.backend=torch"), shared, TORCH_PARAMETERS, lossy=True) == []
    (torch,) = variants(config(), shared, TORCH_PARAMETERS, lossy=True)
    assert torch == Placement(0, 2, 8, backend="torch")
    lossless, lossy = (variants(config(), shared, WHOLESALE_PARAMETERS, lossy=lossy) for lossy in (False, True))
    assert lossless == [torch, Placement(0, 2, 8, decentralized=True)]
    assert lossy == [*lossless, Placement(0, 2, 8, compression="bf16")]
    assert variants(config(), DEFAULT, WHOLESALE_PARAMETERS, lossy=True) == [Placement(1, 0, 16, backend="torch")]


def test_the_default_stays_unless_another_placement_is_clearly_faster() -> None:
    assert fastest([Trial(DEFAULT, 100.0), Trial(TWO, 109.0)]) == DEFAULT
    assert fastest([Trial(DEFAULT, 100.0), Trial(TWO, 120.0), Trial(ONE, 115.0)]) == TWO
    assert fastest([Trial(DEFAULT, 100.0), Trial(TWO, 0.0, "it failed")]) == DEFAULT
    assert fastest([Trial(DEFAULT, 0.0, "it failed"), Trial(TWO, 1.0)]) == TWO


def test_the_choice_sets_the_automatic_keys_and_tells_why() -> None:
    given = config("collection.workers=auto")
    kept = choose(given, [Trial(DEFAULT, 100.0), Trial(TWO, 80.0), Trial(ONE, 0.0, "too slow")])
    assert kept.values == {"collection.workers": 1}
    assert "The default stays" in kept.reasons
    assert "No rate for one process for all parts, 16 environments: too slow." in kept.reasons
    chosen = choose(given, [Trial(DEFAULT, 100.0), Trial(TWO, 180.0)])
    assert chosen.sets == ["collection.workers=2", "collection.envs=8"]
    for part in ("2 collectors x 8 environments", "180", "Weights differ", "lag of pipelined"):
        assert part in chosen.reasons


def test_the_same_numbers_in_another_process_leave_the_weights_as_they_are() -> None:
    reasons = choose(config(), [Trial(DEFAULT, 100.0), Trial(ONE, 150.0)]).reasons
    assert "Weights stay those of the default placement, bit for bit" in reasons
