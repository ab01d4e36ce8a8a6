from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from hive.errors import RecordError
from hive.records.summary import Summary

SUMMARY = Summary(
    name="pong-1",
    scheme="a2c",
    state="finished",
    stop_reason="reached 500000 steps",
    seed=1,
    exact=True,
    env_steps=500_000,
    updates=976,
    episodes=2810,
    mean_return_100=471.5,
    started=1.7e9,
    wall_s=61.5,
    train_s=50.0,
    first_steps=50_000,
    weights_sha256="ab" * 32,
    channels={"rollouts": {"produced": 9, "consumed": 7, "dropped": {"run_ended": 2}, "in_flight": 0}},
    restarts={"collector-0": 1},
)


def test_it_comes_back(tmp_path: Path) -> None:
    SUMMARY.write(tmp_path / "summary.json")
    assert Summary.read(tmp_path / "summary.json") == SUMMARY
    value = json.loads((tmp_path / "summary.json").read_text())
    assert value["steps_per_s"] == 9_000, "the first steps were made before train_s began"
    assert value["channels"] == SUMMARY.channels
    assert set(value) == {field.name for field in dataclasses.fields(Summary)} | {"steps_per_s"}


def test_nothing_trained_has_no_rate_and_no_return(tmp_path: Path) -> None:
    empty = dataclasses.replace(
        SUMMARY, train_s=0.0, env_steps=0, first_steps=0, mean_return_100=None, error="it broke"
    )
    empty.write(tmp_path / "summary.json")
    assert Summary.read(tmp_path / "summary.json") == empty
    assert empty.steps_per_s is None
    assert json.loads((tmp_path / "summary.json").read_text())["steps_per_s"] is None


def test_a_return_that_is_not_finite_is_none(tmp_path: Path) -> None:
    dataclasses.replace(SUMMARY, mean_return_100=float("inf")).write(tmp_path / "summary.json")
    assert Summary.read(tmp_path / "summary.json").mean_return_100 is None


def test_damage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    SUMMARY.write(path)
    value = json.loads(path.read_text())
    path.write_text(json.dumps(value | {"restarts": {"collector-0": "many"}}))
    with pytest.raises(RecordError, match=r"summary\.json`: `restarts.collector-0` is not of type int"):
        Summary.read(path)
    path.write_text(path.read_text()[:50])
    with pytest.raises(RecordError, match=r"summary\.json` is not a JSON object"):
        Summary.read(path)


@pytest.mark.parametrize(
    ("key", "value", "cause"),
    [
        ("state", "running", "`state` is none of finished, stopped, failed"),
        ("best", {"mean_return": "x"}, "`best"),
        ("best", [], "`best` is not"),
        ("channels", {"c": {"produced": None}}, "`channels.c.produced` is not of type int"),
        ("warnings", [{"kind": "x"}], "`warnings.0.text` is missing"),
    ],
)
def test_hostile_values_are_named(tmp_path: Path, key: str, value: object, cause: str) -> None:
    path = tmp_path / "summary.json"
    SUMMARY.write(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(RecordError, match=re.escape(cause)):
        Summary.read(path)
