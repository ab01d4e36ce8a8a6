"""Every config of README and of the guide is accepted, whole ones give a topology, and every command is understood."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import gymnasium
import pytest
from pages import BLOCKS, ROOT, TEXTS, Block

from hive.cli import parser
from hive.config import load_config
from hive.schemes import build

ANY_ENVIRONMENT = 'env.id="CartPole-v1"'
CONFIGS = [block for block in BLOCKS if block.language == "toml"]
SHELL = [(block.place, line) for block in BLOCKS if block.language == "sh" for line in block.text.splitlines()]
SHOWN = [(block.place, line[2:]) for block in BLOCKS for line in block.text.splitlines() if line.startswith("$ ")]
COMMANDS = [(place, line) for place, line in SHELL + SHOWN if line.startswith("hive ")]
DEVELOPMENT = {"docs", "peers", "release", "test"}  # extras for work on hive itself
places = {"ids": lambda block: block.place}


def extras() -> set[str]:
    return set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])


@pytest.mark.parametrize("block", CONFIGS, **places)
def test_a_config_is_accepted(block: Block, tmp_path: Path) -> None:
    """A part of a config is one of CartPole's. A config whose code is on the page is trained by another test."""
    environment = tomllib.loads(block.text).get("env", {}).get("id", "")
    config = load_config(block.place, [] if environment else [ANY_ENVIRONMENT], text=block.text)
    has_data = getattr(config.algorithm, "replay_from", "")  # a file of the reader
    if environment in gymnasium.registry and ":" not in config.algorithm.name and not has_data:
        assert build(config, tmp_path).plan().actors


@pytest.mark.parametrize(("place", "line"), COMMANDS)
def test_a_command_is_understood(place: str, line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    assert parser().parse_args(words).command == words[0]


@pytest.mark.parametrize(("place", "line"), [item for item in SHELL if item not in COMMANDS])
def test_another_command_names_what_exists(place: str, line: str) -> None:
    assert all(extra in extras() for extra in re.findall(r"(?:hive-trainer|\.)\[(\w+)\]", line))
    assert all((ROOT / file).exists() for file in re.findall(r"(?:examples|scripts|tests)/[\w/.]+\b", line))
    assert not line.startswith("scripts/") or (ROOT / line.split()[0]).exists()


def test_readme_has_its_two_commands() -> None:
    lines = [line for place, line in SHELL if place.startswith("README.md")]
    assert "pip install . && hive up examples/cartpole.toml" in lines
    assert "pip install '.[test]' && pytest" in lines


def test_the_page_on_installing_lists_every_extra() -> None:
    table = TEXTS["examples/guide/install.md"].partition("\n## Extras\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == extras() - DEVELOPMENT
