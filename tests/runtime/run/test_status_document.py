"""The status document: every value that a view reads is checked, and the first wrong one is named."""

from __future__ import annotations

import math
from typing import Any

import pytest

from hive.runtime.run.status_document import misfit_of

ACTOR: dict[str, Any] = {
    "name": "a-0",
    "pid": 7,
    "state": "running",
    "restarts": 0,
    "activity": "step",
    "since_s": 0.5,
    "busy": 1.0,
    "wait_in": 0.0,
    "wait_out": None,
    "version": 3,
    "lag": None,
    "counters": {"mean": math.nan},
}
ACCOUNT = {"produced": 1, "consumed": 1, "dropped": {}, "in_flight": 0}
STATUS: dict[str, Any] = {
    "run": "cart-1",
    "pid": 7,
    "started": 1.7e9,
    "steps": 100,
    "state": "running",
    "actors": [ACTOR],
    "helpers": [],
    "channels": {"out": ACCOUNT},
    "results": {"mean_return_100": math.inf},
    "unknown": [[]],
}


def test_a_valid_document() -> None:
    assert misfit_of(STATUS) == ""
    starting = {"state": "starting", "actors": [], "helpers": [], "channels": {}}
    assert misfit_of(STATUS | starting) == ""


@pytest.mark.parametrize(
    ("wrong", "cause"),
    [
        ({"pid": -1}, "`status.pid` is not"),
        ({"pid": 1 << 31}, "`status.pid` is not"),
        ({"started": 1e308}, "`status.started` is not"),
        ({"steps": True}, "`status.steps` is not of type int"),
        ({"steps": math.nan}, "`status.steps` is not of type int"),
        ({"actors": {}}, "`status.actors` is not of type list"),
        ({"actors": [ACTOR, None]}, "`status.actors.1` is not a map"),
        ({"actors": [ACTOR | {"since_s": math.nan}]}, "`status.actors.0.since_s` is not of type float"),
        ({"actors": [{**ACTOR, "counters": {"x": "1"}}]}, "`status.actors.0.counters.x` is not"),
        ({"actors": [{key: ACTOR[key] for key in ACTOR if key != "lag"}]}, "`status.actors.0.lag` is missing"),
        ({"channels": {"out": ACCOUNT | {"dropped": {"late": None}}}}, "`status.channels.out.dropped.late` is not"),
        ({"results": {"updates": math.inf}}, "`status.results.updates` is not of type float"),
        ({"warnings": [{"kind": "x"}]}, "`status.warnings.0.text` is missing"),
        ({"helpers": [{"name": b"x", "pid": 1, "state": ""}]}, "`status.helpers.0.name` is not of type str"),
    ],
)
def test_the_first_wrong_value_is_named(wrong: dict[str, Any], cause: str) -> None:
    assert misfit_of(STATUS | wrong).startswith(cause)


@pytest.mark.parametrize("document", [None, [], 1, {}])
def test_a_document_is_a_map_with_the_required_keys(document: object) -> None:
    assert misfit_of(document).startswith("`status")
