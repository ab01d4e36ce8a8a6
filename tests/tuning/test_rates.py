"""What placement is predicted to be the fastest follows from made-up costs by arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_costs import BOTH, config, costs

from hive.tuning import CostLine, Costs, Placement, Rate, predict, predictions


def best(made: Costs, cores: int, *sets: str) -> Rate:
    """The fastest placement with the fewest processes."""
    return max(
        predictions(config(*sets), made, BOTH, cores),
        key=lambda rate: (round(rate.steps_per_s), -rate.placement.processes),
    )


def test_environments_that_work_get_a_collector_for_each_core() -> None:
    slow = costs(environment=CostLine(0.0, 1e-3))
    assert best(slow, 4).placement.collectors == 4
    assert best(slow, 2).placement.collectors == 2
    assert best(slow, 2).limit in ("cores", "collect")


def test_environments_that_sleep_get_a_collector_each() -> None:
    found = best(costs(environment=CostLine(0.0, 2e-3), busy=0.0), 2)
    assert found.placement == Placement(16, 0, 1)
    default = predict(config(), costs(environment=CostLine(0.0, 2e-3), busy=0.0), Placement(1, 0, 16), 2)
    assert found.steps_per_s == pytest.approx(16 * default.steps_per_s, rel=0.1)


def test_cheap_parts_that_take_turns_share_one_process() -> None:
    turns = ("collection.communication=synchronous", "collection.envs=1", "collection.rollout=5")
    assert best(costs(), 2, *turns).placement == Placement(0, 0, 1)
    assert best(costs(), 1).placement == Placement(0, 0, 16)  # pipelined, but one core has to do all of it


def test_gradients_that_dominate_are_divided_among_the_cores() -> None:
    found = best(costs(gradient=CostLine(0.0, 1.0), update=CostLine(1e-3, 0.0)), 4)
    assert found.placement.gradient_workers == 4
    assert found.limit in ("train", "cores")


def test_an_overlap_that_hides_one_part_lasts_as_long_as_the_other() -> None:
    made = costs(environment=CostLine(0.0, 50e-6))
    apart, together = (
        predict(config(), made, placement, 2) for placement in (Placement(1, 0, 16), Placement(0, 0, 16))
    )
    assert 512 / apart.steps_per_s == pytest.approx(max(apart.collect, apart.train))
    assert 512 / together.steps_per_s == pytest.approx(together.collect + together.train)


def test_helpers_of_a_synchronous_run_share_its_environments() -> None:
    slow, turns = (
        costs(environment=CostLine(0.0, 100e-6)),
        ("collection.communication=synchronous", "env.vector=python"),
    )
    placement = Placement(1, 0, 16)
    alone, shared = (predict(config(*turns), slow, placement, cores).collect for cores in (1, 4))
    assert 3 < alone / shared < 4
    assert (
        predict(config(*turns), costs(), placement, 4).collect == predict(config(*turns), costs(), placement, 1).collect
    )
    compiled = config("collection.communication=synchronous")
    assert predict(compiled, slow, placement, 4).collect == predict(compiled, slow, placement, 1).collect


def test_asynchronous_gradients_are_made_of_single_rollouts() -> None:
    """Each of four rollouts has its own update, so fixed costs count four times."""
    fixed = costs(gradient=CostLine(1e-3, 0.0), update=CostLine(1e-3, 0.0))
    impala = config("run.scheme=impala")
    one, four = (predict(impala, fixed, Placement(n, 0, 16 // n), 8) for n in (1, 4))
    assert four.train == pytest.approx(4 * one.train, rel=0.05)


def test_torch_computes_where_it_is_clearly_faster() -> None:
    huge = costs(gradient=CostLine(0.0, 1.0), torch_gradient=0.5, torch_policy=10e-6)
    assert best(huge, 2).placement.backend == "torch"
    assert best(huge, 2, "network.backend=native").placement.backend == "native"
    assert (
        best(costs(gradient=CostLine(0.0, 1.0), torch_gradient=0.95, torch_policy=10e-6), 2).placement.backend == "auto"
    )


seconds = st.floats(1e-6, 1e-1)


@given(
    st.builds(CostLine, seconds, seconds),
    st.floats(0, 1),
    st.builds(CostLine, seconds, seconds),
    st.builds(CostLine, seconds, seconds),
)
def test_more_cores_are_never_slower_and_no_rate_exceeds_the_work(
    environment: CostLine, busy: float, gradient: CostLine, update: CostLine
) -> None:
    made = costs(environment=environment, busy=busy, gradient=gradient, update=update)
    for placement in (Placement(1, 0, 16), Placement(0, 0, 16), Placement(4, 2, 4), Placement(0, 2, 8)):
        few, many = (predict(config(), made, placement, cores) for cores in (1, 4))
        assert few.steps_per_s <= many.steps_per_s * (1 + 1e-9)
        assert 512 / few.steps_per_s >= few.cores * (1 - 1e-9)


@given(seconds, seconds)
def test_a_line_has_no_negative_part(quick: float, slow: float) -> None:
    line = CostLine.through((8, quick), (16, slow))
    assert line.at(16) == pytest.approx(slow)
    assert line.fixed >= 0
    assert line.each >= 0
