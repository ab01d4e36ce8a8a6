"""The wording of errors, pinned in one place: a page for each family in tests/cli/wording.

    python -m pytest tests/cli/test_wording.py --write     writes the pages; read the difference in a review

Elsewhere a test asks for the type of an error, for the thing that it names and that a way out is given.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hive.gpus import gpus_here

if TYPE_CHECKING:
    from conftest import Place

PAGES = Path(__file__).parent / "wording"
CARTPOLE = 'env.id = "CartPole-v1"\n'
ENV = "import gymnasium as gym, numpy as np\nfrom gymnasium import spaces\n\n\nclass Env(gym.Env):\n"
SPACES = "    observation_space = spaces.Box(-1, 1, (2,))\n    action_space = spaces.Discrete(2)\n"
RESET = "    def reset(self, seed=None, options=None):\n        return np.zeros(2, np.float32), {}\n"
RAISES = "    def __init__(self):\n        raise ValueError('no map')\n"
STEP = "    def step(self, action):\n        return np.zeros(2, np.float32), 0.0, False, False, {}\n"


VERSION = r"\b\d+\.\d+\.\d+\+\w+"  # of torch


@dataclass(frozen=True)
class Case:
    """A command, given in a folder with these files."""

    words: str
    files: Mapping[str, str] = field(default_factory=dict)


def config(text: str) -> Case:
    return Case("config run.toml", {"run.toml": text})


def environment(name: str, *parts: str, cls: str = "Env") -> Case:
    return Case(f"check --env {name}.py:{cls}", {f"{name}.py": ENV + "".join(parts)})  # a module is imported once


def topology(name: str, text: str) -> Case:
    run = f'run.topology = "{name}.py:main"\nenv.id = "CartPole-v1"\n'
    return Case("up run.toml --inline", {"run.toml": run, f"{name}.py": text})


FAMILIES: dict[str, dict[str, Case]] = {
    "config": {
        "no environment": config('run.scheme = "ppo"\n'),
        "an unknown environment": config('env.id = "CartPoll-v1"\n'),
        "an unknown key": config(f"{CARTPOLE}run.step = 5\n"),
        "a key of another trainer": config(f"{CARTPOLE}algorithm.n_steps = 5\n"),
        "an unknown table": config(f"{CARTPOLE}[trainer]\nsteps = 5\n"),
        "another type": config(f'{CARTPOLE}run.steps = "many"\n'),
        "out of range": config(f"{CARTPOLE}algorithm.discount = 1.5\n"),
        "an unknown choice": config(f'{CARTPOLE}run.scheme = "ppoo"\n'),
        "no TOML": config("env.id = CartPole-v1\n"),
        "twice": config(f'{CARTPOLE}env.id = "CartPole-v1"\n'),
        "two problems": config('env.id = "CartPole-v1"\nevaluation.best_by = "return"\nrun.seed = -1\n'),
        "a key without effect": config(
            'env.id = "CartPole-v1"\nrun.scheme = "dqn"\nalgorithm.importance_exponent = 0.5\n'
        ),
        "no file": Case("config nowhere.toml"),
        "a seed that is no range": Case("up run.toml --seeds 5..1", {"run.toml": 'env.id = "CartPole-v1"\n'}),
    },
    "environment": {
        "no such class": environment("other", SPACES, RESET, STEP, cls="Other"),
        "no such file": Case("check --env nowhere.py:Env"),
        "no spaces": environment("spaceless", RESET, STEP),
        "a constructor that raises": environment("raising", SPACES, RAISES, RESET, STEP),
        "a reset of one value": environment("old_reset", SPACES, RESET.replace(", {}\n", "\n"), STEP),
        "a step of four values": environment("old_step", SPACES, RESET, STEP.replace("False, False", "False")),
        "an observation of another shape": environment("wide", SPACES, RESET.replace("zeros(2", "zeros(3"), STEP),
        "a reward that is no number": environment("nan", SPACES, RESET, STEP.replace("0.0,", "float('nan'),")),
        "a space that nobody can train": environment(
            "text",
            SPACES.replace("spaces.Box(-1, 1, (2,))", "spaces.Text(5)"),
            RESET,
            STEP,
        ),
    },
    "topology": {
        "a function that raises": topology(
            "raising_topology", "def main(config, directory):\n    raise KeyError('mine')\n"
        ),
        "no such function": topology("nameless", "def other(config, directory):\n    pass\n"),
        "another value": topology("five", "def main(config, directory):\n    return 5\n"),
    },
    "run": {
        "no such run": Case("logs cartpole-7"),
        "nothing to resume": Case("resume cartpole-7"),
        "an unknown command": Case("upp run.toml"),
        "an unknown option": Case("ls --everything"),
        "nothing to compare": Case("compare cartpole-1"),
        "no checkpoint": Case("eval never"),
        "no run to end": Case("down"),
    },
    "device": {
        "no GPU": Case("up run.toml --inline", {"run.toml": 'env.id = "CartPole-v1"\ngradients.device = "cuda"\n'}),
    },
    "hosts": {
        "no join file": Case("join nowhere.join"),
        "a damaged join file": Case("join a.join", {"a.join": "{}\n"}),
    },
}


def answer(place: Place, case: Case) -> str:
    """Return what a command prints to people who made a mistake, without what differs from machine to machine."""
    for name, text in case.files.items():
        (place.folder / name).write_text(text)
    done = place.hive(*case.words.split())
    text = re.sub(rf"(/private)?{re.escape(str(place.folder))}", "FOLDER", done.err)
    return f"exit {done.code}\n{re.sub(VERSION, 'VERSION', text)}".strip()


def page(place: Place, family: str) -> str:
    parts = [f"# Errors: {family}\n"]
    for name, case in FAMILIES[family].items():
        files = "".join(f"# {file}\n{text}" for file, text in case.files.items())
        parts.append(f"## {name}\n\n```\n{files}$ hive {case.words}\n```\n\n```\n{answer(place, case)}\n```\n")
    return "\n".join(parts)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_wording_of_errors(place: Place, family: str, request: pytest.FixtureRequest) -> None:
    if family == "device" and gpus_here():
        pytest.skip("this machine has a GPU")
    if family == "run":
        place.never_begun("never")
    found, file = page(place, family), PAGES / f"{family}.md"
    if request.config.getoption("--write"):
        file.write_text(found)
    known = file.read_text() if file.exists() else ""
    changed = "\n".join(difflib.unified_diff(known.splitlines(), found.splitlines(), "page", "now", lineterm="", n=0))
    assert not changed, f"the wording has changed; `pytest tests/cli/test_wording.py --write` takes it over\n{changed}"
