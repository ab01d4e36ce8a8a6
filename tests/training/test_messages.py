"""Messages of the trainer: they travel as they are, and nothing else is let in."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hive.errors import WireError
from hive.runtime.wire.messages import decode, encode, type_set
from hive.training import Gradient, Metrics, OptimizerState, RolloutReady, Weights

ALL = type_set([RolloutReady, Gradient, Weights, OptimizerState, Metrics])
METRICS = Metrics(3, 4096, 1.5, {"return/mean_100": 20.5, "episodes": 7.0})


def test_metrics_travel() -> None:
    assert decode(encode(METRICS), ALL) == METRICS


def test_metrics_take_the_numbers_of_numpy_and_keep_nan() -> None:
    sent = Metrics(np.int64(3), 4096, np.float64(1.5), {"return/mean_100": np.float64("nan")})  # type: ignore[arg-type]
    came = decode(encode(sent), ALL)
    assert isinstance(came, Metrics)
    assert (came.updates, came.seconds) == (3, 1.5)
    assert math.isnan(came.values["return/mean_100"])


@pytest.mark.parametrize("values", [{"a": "b"}, {"a": None}, {"a": [1.0]}])
def test_metrics_are_numbers(values: dict[str, float]) -> None:
    with pytest.raises(TypeError, match=r"Metrics\.values"):
        encode(Metrics(1, 2, 3.0, values))


def test_messages_in_shared_memory_have_no_fields() -> None:
    for kind in (RolloutReady, Gradient, Weights, OptimizerState):
        assert decode(encode(kind()), ALL) == kind()


def test_a_socket_carries_its_types_only() -> None:
    with pytest.raises(WireError, match="Metrics"):
        decode(encode(METRICS), type_set([Weights]))


def test_the_names_on_the_wire_differ() -> None:
    assert sorted(ALL) == ["Gradient", "Metrics", "OptimizerState", "RolloutReady", "Weights"]
