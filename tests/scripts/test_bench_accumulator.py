"""`bench accumulator`: all ways give the same mean, the checks compare medians."""

from __future__ import annotations

import pytest
import torch
from benchmarks import accumulator
from benchmarks.accumulator import SIZES, Case, checks_of, measure_case

CASE = Case("25 M", 4)


def timings(plain: float, torch_ms: float, rlpack: float) -> dict[str, list[float]]:
    """Return measurements in which hive takes 10 ms for either task, nearly all of it in its pass."""
    return {
        "reduce/hive": [10.0] * 3,
        "reduce/hive's pass": [9.9] * 3,
        "reduce/plain C": [plain, plain, 99.0],
        "reduce/foreach_add": [torch_ms + 5.0] * 3,
        "reduce/flat add": [torch_ms] * 3,
        "reduce/stack.sum": [torch_ms + 9.0] * 3,
        "whole/hive": [10.0] * 3,
        "whole/RLPack's scheme": [rlpack] * 3,
    }


@pytest.mark.parametrize(
    ("measured", "passed"),
    [((8.5, 13.1, 51.0), [True, True, True]), ((8.3, 12.9, 49.0), [False, False, False])],
)
def test_checks_compare_medians_with_the_promises(measured: tuple[float, float, float], passed: list[bool]) -> None:
    checks = checks_of(CASE, timings(*measured))
    assert [check.passed for check in checks] == passed
    assert checks[0].promise == "25 M, K = 4: hive's pass >= 0.85 x plain C"
    assert checks[1].promise == "25 M, K = 4: hive >= 1.3 x flat add"


def test_small_models_are_not_to_be_slower() -> None:
    assert checks_of(Case("0.3 M", 2), timings(9.0, 10.1, 60.0))[1].passed
    assert not checks_of(Case("0.3 M", 2), timings(9.0, 9.9, 60.0))[1].passed


def test_every_way_runs_and_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES, "0.3 M", [(3, 5), (7,)])
    monkeypatch.setattr(accumulator, "CALL_ELEMENTS", 1.0)
    threads = torch.get_num_threads()
    try:
        found = measure_case(Case("0.3 M", 2), 2)
    finally:
        torch.set_num_threads(threads)
    assert all(len(values) == 2 and min(values) > 0 for values in found.values())
    assert {name.partition("/")[0] for name in found} == {"reduce", "whole"}
