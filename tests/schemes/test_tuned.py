"""Each tuned setting builds its environment and network and makes its first updates."""

from __future__ import annotations

from pathlib import Path

import pytest

from hive.config import load_config, reasoned, template, tuned_tasks
from hive.envs import settings_by_spaces, spaces_text
from hive.envs.make import describe
from hive.envs.recipe import Recipe
from hive.records import RunDirectory
from hive.schemes import build
from hive.testing import run_inline

LIMIT_S = 240.0  # time limit of a run that takes about a second
EVERY = [(env_id, scheme) for env_id, schemes in tuned_tasks().items() if env_id != "ALE/..." for scheme in schemes]
OLD = "Pusher-v4"  # needs an older MuJoCo than the extra installs
VERSIONS = [*EVERY, *((env_id.replace("-v5", "-v4"), scheme) for env_id, scheme in EVERY if env_id.endswith("-v5"))]
# A round of tens of updates; with a replay memory, the first of them at once.
SHORT = (
    *(("algorithm.epochs", 1), ("algorithm.minibatches", 2)),
    *(("collection.rollout", 16), ("algorithm.learning_starts", 0)),
)


@pytest.mark.full(reason="needs the extras `box2d` and `mujoco`")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Gymnasium warns of v4 ids
@pytest.mark.parametrize(("env_id", "scheme"), [case for case in VERSIONS if case[0] != OLD])
def test_it_runs(env_id: str, scheme: str, tmp_path: Path) -> None:
    entry = tuned_tasks()[env_id.replace("-v4", "-v5")][scheme]
    text = template(env_id, scheme, reasoned(entry.keys, env_id, scheme), entry.source)
    whole = load_config("tuned.toml", text=text)
    least = {name: min(whole.value(name), limit) for name, limit in SHORT if name in entry.keys}
    steps = 4 * whole.collection.envs * least["collection.rollout"]
    least["run.steps"] = steps
    config = load_config("tuned.toml", [f"{name}={value}" for name, value in least.items()], text=text)
    outcome = run_inline(build(config, RunDirectory.create(tmp_path, "test").path), seconds=LIMIT_S)
    assert outcome.reason == f"{steps:,} steps", outcome


@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "Pendulum-v1"])
def test_settings_chosen_by_the_spaces_run(env_id: str, tmp_path: Path) -> None:
    spec = describe(Recipe(env_id))
    text = template(env_id, "ppo", settings_by_spaces(spec, "ppo"), spaces_text(spec))
    config = load_config("chosen.toml", ["run.steps=4096", "algorithm.epochs=1"], text=text)
    outcome = run_inline(build(config, RunDirectory.create(tmp_path, "test").path), seconds=LIMIT_S)
    assert outcome.reason == "4,096 steps", outcome
