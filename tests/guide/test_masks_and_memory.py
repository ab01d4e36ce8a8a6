"""The pages of the guide on environments: every config trains, and the script that loads the policies runs."""

from __future__ import annotations

import importlib.util
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import hive
from hive.records import RunDirectory

GUIDE = Path(__file__).parents[2] / "examples" / "guide"
PAGE = (GUIDE / "masks-and-memory.md").read_text()
PROGRAM = re.findall(r"^```python\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE)[0]
SCRIPT = re.findall(r"`play.py`[^`]*```py\n(.*?)```", PAGE, re.DOTALL)[0]
BOTH = PAGE + (GUIDE / "packages.md").read_text()
CONFIGS = dict(re.findall(r"`(\w+)\.toml`[^`]*(?:`[^`]+`[^`]*)*?```toml\n(.*?)```", BOTH, re.DOTALL))
PACKAGES = {"snake": "gymnasium_snake_game", "minigrid": "minigrid"}
"""Config -> the module that it needs, which hive does not install."""

OWN = [name for name in CONFIGS if name not in PACKAGES]
MOST_LINES = 20
FEW = ["run.steps=1", "collection.rollout=4", "algorithm.epochs=1"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Write the files of the page into an empty folder, and start there."""
    (tmp_path / "doors.py").write_text(PROGRAM)
    for name, text in CONFIGS.items():
        (tmp_path / f"{name}.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "doors", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("HIVE_HOME", str(tmp_path / "runs"))
    yield tmp_path
    sys.modules.pop("doors", None)


def train(name: str) -> None:
    summary = hive.train(f"{name}.toml", sets=FEW, inline=True, quiet=True)
    assert (summary.state, RunDirectory.open(summary.directory).config_file.read_text()) == (
        "finished",
        CONFIGS[name],
    )


def test_the_configs_are_short() -> None:
    assert {*CONFIGS} == {"doors", "masked", "memory", *PACKAGES}
    assert all(len(text.splitlines()) <= MOST_LINES for text in CONFIGS.values())


def test_the_policies_of_its_environment_are_loaded_and_play(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in OWN:
        train(name)
    (folder / "play.py").write_text(SCRIPT)
    capsys.readouterr()
    runpy.run_path("play.py")
    assert re.fullmatch(r"[0-3] [0-3]\n[01]\.0\n", capsys.readouterr().out)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", PACKAGES)
def test_a_config_for_another_package_trains(name: str) -> None:
    if importlib.util.find_spec(PACKAGES[name]) is None:
        pytest.skip(f"needs the package of `{PACKAGES[name]}`")
    train(name)
