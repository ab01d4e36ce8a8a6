"""All combinations of modes in library mode, and the errors of the invalid ones."""

from __future__ import annotations

from itertools import product

import pytest

from hive.compat.pytorchrl.collection import check_device
from hive.compat.pytorchrl.collector_thread import COMMUNICATIONS, EXECUTIONS, check_modes
from hive.errors import TopologyError

LEGAL = {
    ("Central", "synchronous", 0, 1.0),
    ("Central", "asynchronous", 0, 1.0),
    ("Parallel", "synchronous", 3, 1.0),
    ("Parallel", "synchronous", 3, 0.5),
    ("Parallel", "asynchronous", 3, 1.0),
}


@pytest.mark.parametrize("modes", list(product(EXECUTIONS, COMMUNICATIONS, (0, 3), (1.0, 0.5))), ids=str)
def test_the_matrix(modes: tuple[str, str, int, float]) -> None:
    if modes in LEGAL:
        check_modes(*modes)
    else:
        with pytest.raises(TopologyError, match="col_") as caught:
            check_modes(*modes)
        assert caught.value.hint


@pytest.mark.parametrize(
    ("modes", "message", "hint"),
    [
        (("central", "synchronous", 0), "col_execution is 'central': expected Central or Parallel", "`Central`"),
        (("Central", "sync", 0), "col_communication is 'sync': expected", "`synchronous`"),
        (("Central", "pipelined", 0), "col_communication is 'pipelined'", "[collection] of a config"),
        (("Parallel", "synchronous", 2, 0.0), "col_fraction_workers is 0.0: expected a number in (0, 1]", ""),
        (("Parallel", "synchronous", 2, 1.0, 0), "broadcast_interval is 0", ""),
    ],
)
def test_the_wrong_mode_is_named(modes: tuple[str, str, int], message: str, hint: str) -> None:
    with pytest.raises(TopologyError) as caught:
        check_modes(*modes)
    assert message in str(caught.value)
    assert hint in caught.value.hint


def test_devices() -> None:
    check_device(None)
    check_device("cpu")
    with pytest.raises(TopologyError, match="`cuda:0`"):
        check_device("cuda:0")
