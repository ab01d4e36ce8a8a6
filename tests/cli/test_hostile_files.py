"""No command believes a file: every value in a run directory may be of any type, and any text may hold controls."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Place

HOSTILE = "\x1b[2J\x9b\n\r\u202e\ud800"
VALUES: tuple[Any, ...] = (None, True, -1, 1e308, 10**30, float("nan"), "1e400", HOSTILE, [HOSTILE], {"a": HOSTILE})
VIEWS = (("ls",), ("ps", "cart-1"), ("monitor", "--once", "cart-1"), ("history", "cart-1"))
METRICS = {"t": 1.0, "steps": 1, "updates": 1, "seconds": 1.0, "episodes": 1.0, "return/mean_100": 1.0}
EVENT = {"t": 1.0, "kind": "warning", "warning": "w", "steps": 1, "cause": "c", "text": "t", "actor": "learner-0"}


def text_of(document: dict[str, Any]) -> str:
    return json.dumps(document).replace('"1e400"', "1e400") + "\n"


def see(place: Place) -> None:
    """Give every view, which must end without a traceback or a control character."""
    for words in VIEWS:
        done = place.hive(*words)
        assert done.code in (0, 1, 2)
        assert all(line.isprintable() for line in (done.out + done.err).split("\n"))


@pytest.mark.parametrize("value", VALUES, ids=ascii)
def test_views_of_a_summary_with_a_hostile_value(place: Place, value: Any) -> None:
    directory = place.ended("cart")
    assert place.hive("ps", "cart-1").code == 0
    whole = json.loads(directory.summary_file.read_text())
    for key in ("state", "env_steps", "mean_return_100", "started", "wall_s"):
        directory.summary_file.write_text(text_of(whole | {key: value}))
        see(place)
    for nested in ({"channels": {"c": {"produced": value}}}, {"warnings": [{"kind": value}]}):
        directory.summary_file.write_text(text_of(whole | nested))
        see(place)


@pytest.mark.parametrize("value", VALUES, ids=ascii)
def test_views_of_lines_with_a_hostile_value(place: Place, value: Any) -> None:
    directory = place.lost("cart")
    for key in METRICS:
        directory.metrics_file.write_text(text_of(METRICS) + text_of(METRICS | {key: value}))
        see(place)
    for key in EVENT:
        directory.events_file.write_text(text_of(EVENT | {key: value}))
        see(place)
