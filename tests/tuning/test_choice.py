"""Which placements are possible, which of them run, and which is chosen."""

from __future__ import annotations

from made_up_costs import BOTH, config, costs

from hive.tuning import (
    WHOLESALE_PARAMETERS,
    CostLine,
    Placement,
    Trial,
    choose,
    fastest,
    finalists,
    placements,
    predictions,
    unconfirmed,
)

DEFAULT, TWO, ONE = Placement(1, 0, 16), Placement(2, 0, 8), Placement(0, 0, 16)


def test_the_total_number_of_environments_stays() -> None:
    for sets in ((), ("run.scheme=a3c",), ("run.scheme=apex",), ("collection.envs=6",)):
        found = placements(given := config(*sets), BOTH, 4)
        total = given.collectors * given.collection.envs
        assert {placement.collectors * placement.envs for placement in found} == {total}
        assert len(found) == len(set(found)) > 1


def test_only_keys_that_are_automatic_change() -> None:
    found = placements(config("collection.workers=2"), ("gradients.workers",), 2)
    assert {(one.collection_workers, one.envs) for one in found} == {(2, 16)}
    assert {one.gradient_workers for one in found} == {0, 1, 2}


def test_shares_and_batches_are_equal() -> None:
    assert all(one.collectors % max(one.gradient_workers, 1) == 0 for one in placements(config(), BOTH, 3))
    odd = config("run.scheme=dqn", "algorithm.batch_size=33", "collection.envs=4")
    assert {one.gradient_workers for one in placements(odd, BOTH, 2)} == {0, 1}
    sequences = config("run.scheme=ppo", "network.memory=lstm", "algorithm.minibatches=8")
    assert all(
        max(one.collectors // max(one.gradient_workers, 1), 1) * one.envs >= 8 for one in placements(sequences, BOTH, 4)
    )


def test_gradients_travel_otherwise_only_beyond_the_limit() -> None:
    for parameters, expected in ((WHOLESALE_PARAMETERS - 1, 0), (WHOLESALE_PARAMETERS, 1)):
        made = costs(gradient=CostLine(0.0, 1.0), update=CostLine(1e-3, 0.0), parameters=parameters)
        rates = predictions(config(), made, BOTH, 2)
        tried = finalists(config(), made, rates, lossy=True)
        assert tried[0] == DEFAULT
        assert sum(one.decentralized for one in tried) == expected
        assert sum(one.compression == "bf16" for one in tried) == expected
        assert all(one.compression == "none" for one in finalists(config(), made, rates, lossy=False))
        reasons = choose(config(), made, rates, [], 2).reasons
        assert ("Compression and decentralized updates are not considered" in reasons) == (not expected)


def test_nothing_runs_where_the_default_is_far_ahead() -> None:
    cheap = costs(gradient=CostLine(10e-3, 0.0), environment=CostLine(10e-3, 0.0))
    rates = predictions(config(), cheap, ("gradients.workers",), 1)
    rates = [rates[0], *(rate for rate in rates[1:] if rate.steps_per_s < rates[0].steps_per_s / 2)]
    assert finalists(config(), cheap, rates, lossy=True) == [DEFAULT]


def test_the_default_stays_unless_another_placement_is_clearly_faster() -> None:
    assert fastest([Trial(DEFAULT, 100.0), Trial(TWO, 104.0)]) == DEFAULT
    assert fastest([Trial(DEFAULT, 100.0), Trial(TWO, 120.0)]) == TWO
    assert unconfirmed([Trial(DEFAULT, 100.0), Trial(TWO, 120.0)]) == [TWO, DEFAULT]
    assert unconfirmed([Trial(DEFAULT, 100.0), Trial(TWO, 210.0)]) == []
    again = [Trial(DEFAULT, 100.0), Trial(TWO, 120.0), Trial(ONE, 115.0), Trial(TWO, 90.0), Trial(DEFAULT, 100.0)]
    assert fastest(again) == ONE
    assert unconfirmed(again) == [ONE]
    assert unconfirmed([*again, Trial(ONE, 95.0)]) == []
    assert fastest([*again, Trial(ONE, 90.0)]) == DEFAULT
    assert fastest([Trial(DEFAULT, 100.0), Trial(TWO, 0.0, "it failed")]) == DEFAULT


def test_the_choice_sets_the_automatic_keys_and_tells_why() -> None:
    given = config("collection.workers=auto")
    made = costs(environment=CostLine(0.0, 2e-3), busy=0.0)
    rates = predictions(given, made, given.automatic, 2)
    kept = choose(given, made, rates, [Trial(DEFAULT, 100.0), Trial(TWO, 80.0)], 2)
    assert kept.values == {"collection.workers": 1}
    assert "The default stays" in kept.reasons
    chosen = choose(given, made, rates, [Trial(DEFAULT, 100.0), Trial(TWO, 180.0)], 2)
    assert chosen.sets == ["collection.workers=2", "collection.envs=8"]
    for part in ("100% is waiting", "2 collectors x 8 environments", "180", "Weights differ", "lag of pipelined"):
        assert part in chosen.reasons


def test_lag_is_mentioned_where_it_makes_a_synchronous_run_faster() -> None:
    given, balanced = config("collection.communication=synchronous"), costs(environment=CostLine(0.0, 1e-6))
    for made, mentioned in ((balanced, True), (costs(environment=CostLine(0.0, 1e-4)), False)):
        rates = predictions(given, made, (), 2)
        assert ("would collect while it trains" in choose(given, made, rates, [], 2).reasons) == mentioned
    assert "would collect" not in choose(config(), balanced, predictions(config(), balanced, (), 2), [], 2).reasons


def test_the_same_numbers_in_another_process_leave_the_weights_as_they_are() -> None:
    made = costs()
    rates = predictions(config(), made, BOTH, 1)
    together = Placement(0, 0, 16)
    reasons = choose(config(), made, rates, [Trial(DEFAULT, 100.0), Trial(together, 150.0)], 1).reasons
    assert "Weights stay those of the default placement, bit for bit" in reasons
