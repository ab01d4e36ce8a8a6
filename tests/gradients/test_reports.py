"""Reports and errors of an accumulator: `partial`, and the base classes and fields of the error."""

from __future__ import annotations

import pytest

from hive.errors import HiveError
from hive.gradients import GradientNotFinite, ReductionReport


@pytest.mark.parametrize(("rounds", "partial"), [(1, True), (3, True), (4, False)])
def test_partial_is_true_for_fewer_rounds(rounds: int, partial: bool) -> None:
    assert ReductionReport(rounds, 4, float(rounds), 1.0, True, "").partial is partial


def test_the_error_is_a_hive_error_and_a_runtime_error() -> None:
    error = GradientNotFinite("the gradient of `w` is not finite", "w", hint="check the loss")
    assert isinstance(error, HiveError)
    assert isinstance(error, RuntimeError)
    assert (error.parameter, error.permanent) == ("w", True)
    assert error.render() == "error: the gradient of `w` is not finite\n\nhint: check the loss"
