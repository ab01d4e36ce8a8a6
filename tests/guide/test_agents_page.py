"""The page of the guide on several agents: its configs train as written."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

import hive
from hive.records import RunDirectory

PAGE = (Path(__file__).parents[2] / "examples" / "guide" / "agents.md").read_text()
SHARED, TWO, FIXED = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
BOTS, _ = re.findall(r"```py\n(.*?)```", PAGE, re.DOTALL)
MOST_LINES = 20
FEW = ["run.steps=1", "collection.envs=2"]

pytestmark = pytest.mark.skipif(importlib.util.find_spec("mpe2") is None, reason="needs the extra multi")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HIVE_HOME", str(tmp_path / "runs"))


def train(name: str, text: str) -> RunDirectory:
    assert len(text.splitlines()) <= MOST_LINES
    Path(f"{name}.toml").write_text(text)
    summary = hive.train(f"{name}.toml", sets=FEW, inline=True, quiet=True)
    assert summary.state == "finished"
    return RunDirectory.open(summary.directory)


def test_one_policy_learns_for_all() -> None:
    run = train("shared", SHARED)
    assert not run.policies.exists()


def test_two_policies_learn_and_a_third_run_has_fixed_ones() -> None:
    run = train("two", TWO)
    assert [folder.name for folder in run.policies.iterdir()] == ["others"]
    Path("bots.py").write_text(BOTS)
    head = TWO.partition("[policies]")[0].replace('"two"', '"fixed"')
    assert not train("fixed", head + FIXED).policies.exists()
