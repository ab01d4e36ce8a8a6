"""The page has the words and numbers of the terminal monitor."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest
from canned_runs import COLLECTING, KILLED, STEPPED, T, lively, snapshot

from hive.monitor import Extras
from hive.monitor.drawing import plain
from hive.monitor.overview import overview
from hive.records.documents import json_text
from hive.records.standings import PolicyStanding
from hive.web.page import page_document

if TYPE_CHECKING:
    from hive.monitor.snapshot import Snapshot


def texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.values() for text in texts(item)]
    if isinstance(value, list):
        return [text for item in value for text in texts(item)]
    return [value] if isinstance(value, str) else []


def test_the_words_are_those_of_the_overview() -> None:
    shown: Snapshot = lively()
    page = page_document(shown)
    screen = plain(overview(shown, 140))
    assert page["bound_by"] == shown.bound_by
    assert page["bound_by"] in screen
    for text in (page["elapsed"], page["steps"], page["goal"], page["left"], page["done_text"]):
        assert text in screen
    for row in page["rates"][1:]:
        assert all(cell in screen for cell in row)
    for group in page["groups"]:
        assert group["texts"]["busy"] in screen
        assert group["name"] in screen
        for channel in group["channels"]:
            assert channel["held"] in screen
            assert channel["rate"] in screen
    assert json.loads(json_text(page)) == page


def test_groups_channels_and_boards() -> None:
    groups = {group["name"]: group for group in page_document(snapshot())["groups"]}
    assert groups["collectors"]["count"] == 2
    assert groups["collectors"]["shares"]["busy"] == pytest.approx(0.92)
    (channel,) = groups["collectors"]["channels"]
    assert channel["occupancy"] == pytest.approx(4 / 6)
    assert (channel["held"], channel["targets"]) == ("4/6", ["gradient-workers"])
    assert [board["version"] for board in groups["learner"]["boards"]] == ["v40", "v41"]


def test_trouble_names_who_is_stuck_in_what_since_when() -> None:
    assert page_document(snapshot())["trouble"] == []
    changes = {"collector-1": {"activity": "env", "since_s": 12.0}, "collector-0": {"state": "failed"}}
    trouble = page_document(snapshot(changes=changes))["trouble"]
    assert [(row["actor"], row["what"], row["since"]) for row in trouble] == [
        ("collector-0", "failed", ""),
        ("collector-1", "in `env`", "12 s"),
    ]
    assert page_document(snapshot(changes=changes, state="finished"))["trouble"] == []


def test_a_run_that_starts_and_one_with_a_replay_memory() -> None:
    page = page_document(snapshot(state="starting"))
    assert page["bound_by"] == "nothing yet"
    counters = {"replay/steps": 1000.0, "replay/fill": 0.5, "replay/draws_per_step": 4.0, "replay/age_steps": 300.0}
    more = {"env_steps": 1, "updates": 1, "episodes": 1, "mean_return_100": 1.0, "replay/priority_share": 1.0}
    facts = dict(page_document(snapshot(collectors=[COLLECTING], results=counters | more))["facts"])
    assert facts["replay memory"] == "1000 (50%)"
    assert facts["drawn"] == "×4"


def test_several_policies() -> None:
    policies = PolicyStanding("cross", ["a"], "ppo", 1, 0.25), PolicyStanding("circle", ["b"], "dqn", 1, None)
    returns = {"circle": ((64.0, -1.0), (128.0, 0.5))}
    page = page_document(dataclasses.replace(snapshot(), policies=policies, policy_returns=returns))
    assert page["facts"][:2] == [["return of cross", "0.25"], ["return of circle", "–"]]
    assert page["policies"] == [
        {"name": "cross", "steps": [], "values": []},
        {"name": "circle", "steps": [64.0, 128.0], "values": [-1.0, 0.5]},
    ]


def test_environments_that_processes_step() -> None:
    page = page_document(snapshot(Extras(t=T, environments=STEPPED)))
    rows = {row["name"]: row["environments"] for row in page["actors"]}
    shown = rows["collector-1"]
    assert rows["learner-0"] is None
    assert shown["text"] == "2/3 envs · 3 failures · median 0.1 ms · worst 4 ms"
    assert [shown[name] for name in ("running", "failures", "median", "worst")] == ["2/3", 3, "0.1 ms", "4 ms"]
    assert shown["rows"][1] == ["4", "starting", "204", "2", "2", "9000", "0.1 ms", "4 ms", KILLED]
    assert len(shown["heading"]) == len(shown["rows"][1])
    assert shown["troubled"] == [False, True, False]
    assert page["trouble"] == [
        {"actor": "collector-1", "what": "env 4 is being restarted", "since": "", "more": KILLED}
    ]
