"""Every example config loads and gives a valid topology, and Pendulum and Catch are learned. (cartpole.toml trains in
tests/live.)"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from hive.config import SCHEMES, load_config
from hive.envs import include_folder
from hive.records import RunDirectory
from hive.schemes import build
from hive.testing import run_inline

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.toml"))

HALF_WAY = -600.0  # Pendulum's untrained policy has a mean of -1200 over 100 episodes, the example stops at -250
LIMIT_S = 300.0  # time limit of a run that takes some six seconds on an idle machine


@pytest.fixture(autouse=True)
def _root(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environments of examples are found as they are by `hive up` in the folder that holds examples/."""
    monkeypatch.syspath_prepend(ROOT)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_can_be_planned(path: Path, tmp_path: Path) -> None:
    config = load_config(path)
    if config.env.id.startswith("ALE/"):
        pytest.importorskip("ale_py", reason="needs the extra atari")
    if config.env.id.startswith("mpe2:"):
        pytest.importorskip("mpe2", reason="needs the extra multi")
    plan = build(config, tmp_path).plan()
    assert config.run.stop_at_return is not None
    assert f"hive up examples/{path.name}" in path.read_text()
    workers = max(config.gradients.workers, 1)
    assert len(plan.actors) == 2 + (config.collection.workers or workers) + workers


# Schemes whose configs are those of others: c51, qr-dqn and rainbow as dqn; td3 and ddpg as sac, which needs box
# actions here; ippo and mappo as ppo, with several agents. bc needs a file of transitions.
AS_OTHERS = ("a2c", "single", "c51", "qr-dqn", "rainbow", "sac", "td3", "ddpg", "ippo", "mappo", "bc")


def test_there_are_examples() -> None:
    stems = {path.stem for path in EXAMPLES}
    assert {
        *("cartpole", "acrobot", "pendulum", "pendulum-sac"),
        *(f"cartpole-{s}" for s in SCHEMES if s not in AS_OTHERS),
    } <= stems
    gallery = (EXAMPLES[0].parent / "guide" / "gallery.md").read_text()
    assert all(f"`{stem}.toml`" in gallery for stem in stems)


FASTER = {"nstep-q": ["algorithm.exploration_steps=60_000", "collection.rollout=8"]}  # explores less, updates more


@pytest.mark.rotates
@pytest.mark.parametrize("scheme", ["a3c", "dd-ppo", "nstep-q", "pqn", "rapid"])
def test_a_short_form_of_it_learns(scheme: str, tmp_path: Path) -> None:
    """The goal is episodes four times as long as by chance, a twentieth of the steps to solve the task."""
    path = EXAMPLES[0].parent / f"cartpole-{scheme}.toml"
    config = load_config(path, ["run.stop_at_return=80", "run.steps=100_000", *FASTER.get(scheme, [])])
    directory = RunDirectory.create(tmp_path, "test")
    outcome = run_inline(build(config, directory.path), seconds=LIMIT_S)
    assert outcome.reason.startswith("mean return"), outcome.reason


@pytest.mark.full(reason="tests/probes learn with a memory too, in a tenth of the time", rotates=True)
def test_cartpole_without_velocities_is_learned(tmp_path: Path) -> None:
    """Without a memory the mean return is 45 after 100,000 steps."""
    config = load_config(ROOT / "examples" / "cartpole-memory.toml", ["run.stop_at_return=75", "run.steps=60_000"])
    directory = RunDirectory.create(tmp_path, "test")
    outcome = run_inline(build(config, directory.path), seconds=LIMIT_S)
    assert outcome.reason.startswith("mean return"), outcome.reason


def test_pendulum_is_learned(tmp_path: Path) -> None:
    """The goal is half way: some 45,000 steps. The example's goal only needs a hundred more episodes of that policy."""
    path = next(path for path in EXAMPLES if path.stem == "pendulum")
    config = load_config(path, [f"run.stop_at_return={HALF_WAY}", "run.steps=100_000"])
    directory = RunDirectory.create(tmp_path, "test")
    outcome = run_inline(build(config, directory.path), seconds=LIMIT_S)
    assert outcome.reason.startswith("mean return"), outcome.reason
    assert outcome.results["mean_return_100"] >= HALF_WAY


CATCH = """
[env]
id = "./catch.so:Catch"
options = { rows = 5, columns = 3 }
[collection]
rollout = 8
[algorithm]
learning_rate = 3e-3
[run]
scheme = "a2c"
steps = 60_000
stop_at_return = 0.9
"""


def test_catch_is_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled environment takes 7,000 steps; by chance the mean return is -0.3."""
    compiler = os.environ.get("CC", "cc")
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no C compiler `{compiler}`: set CC")
    monkeypatch.chdir(tmp_path)
    command = [compiler, "-shared", "-fPIC", f"-I{include_folder()}", str(ROOT / "examples" / "catch.c")]
    subprocess.run([*command, "-o", "catch.so"], check=True)
    directory = RunDirectory.create(tmp_path, "test")
    outcome = run_inline(build(load_config("run.toml", text=CATCH), directory.path), seconds=LIMIT_S)
    assert outcome.reason.startswith("mean return"), outcome.reason
