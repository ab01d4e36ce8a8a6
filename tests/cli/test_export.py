"""`hive export`: what it prints, for people and for programs, and which checkpoint it takes."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from hive.records import RunDirectory

if TYPE_CHECKING:
    from conftest import Place

pytest.importorskip("onnx", reason="the extra `export` is not installed")
pytest.importorskip("onnxruntime", reason="the extra `export` is not installed")


@pytest.fixture
def run(place: Place) -> RunDirectory:
    return place.trained((1000, 2000), best=1500)


def test_the_whole_policy(place: Place, run: RunDirectory) -> None:
    done = place.hive("export")
    assert (done.code, done.err) == (0, "")
    first, *ports, last = done.out.splitlines()
    assert re.fullmatch(
        r"cartpole-1\.onnx: the policy of cartpole-1 after 2,000 updates, 64,000 steps \(\d+\.\d kB\)", first
    )
    assert ports == [
        "inputs   observation float32 [batch, 4]",
        "outputs  action int64 [batch] · logits float32 [batch, 2]",
    ]
    assert last.startswith("equal to hive on 1,000 random observations: the largest difference is ")
    again = place.hive("export")
    assert (again.code, again.out) == (2, "")
    assert again.err == "error: `cartpole-1.onnx` already exists\n\nhint: choose another name, or remove it\n"


@pytest.mark.parametrize(("which", "update"), [("latest", 2000), ("best", 1500), ("1000", 1000)])
def test_which_checkpoint(place: Place, run: RunDirectory, which: str, update: int) -> None:
    done = place.hive("export", "cartpole", "--which", which, "-o", "p.safetensors", "--json")
    assert (done.code, done.err) == (0, "")
    facts = json.loads(done.out)
    assert (facts["path"], facts["facts"]["update"], facts["facts"]["run"]) == ("p.safetensors", update, "cartpole-1")
    assert facts["facts"]["env_id"] == "CartPole-v1"


def test_for_programs(place: Place, run: RunDirectory) -> None:
    facts = json.loads(place.hive("export", "--json").out)
    assert facts["inputs"] == [{"name": "observation", "shape": [4], "dtype": "float32", "role": "observation"}]
    assert [port["name"] for port in facts["outputs"]] == ["action", "logits"]
    assert facts["compared"] == 1_000


def test_mistakes(place: Place) -> None:
    place.ended()
    assert "cartpole-1 has no checkpoint" in place.hive("export").err
    assert "a file holds one policy" in place.hive("export", "--which", "all").err
    assert "has no suffix of a format" in place.hive("export", "-o", "policy.pt").err
    assert place.hive("export", "nothing").code == 2
