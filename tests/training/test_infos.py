"""Values of `info`: from the ends of episodes to the optimizer state, the metrics, checkpoints and evaluations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_trainer import Trainer, config_of

import hive
from hive.config import load_config
from hive.errors import EnvironmentFailed
from hive.experience import EPISODE_END
from hive.records import list_checkpoints, read_jsonl
from hive.training import Blueprint, EvaluationDue, Evaluator
from hive.training.run_start import write_first_state
from hive.training.update.learner import Count
from hive.training.update.turn_metrics import info_means

ENV = "small_environments:Succeeds"
INFO = '["is_success", "odd", "never"]'


def test_the_latest_episodes_are_in_the_optimizer_state() -> None:
    """Each environment's episodes are of 3 steps; every second one succeeds, and every second one has `odd`."""
    trainer = Trainer(config_of(ENV, env__info=INFO, env__options="{ terminates = 3 }"))
    trainer.train(3)
    state = trainer.optimizer_state
    episodes = int(state["counters"][Count.episodes])
    assert episodes == 16, "8 of each of two environments in 24 steps"
    infos = state["infos"][:episodes]
    assert infos[:, 0].tolist() == [0.0, 0.0, 1.0, 1.0] * 4
    assert np.isnan(infos[:, 2]).all()
    assert info_means(["is_success", "odd", "never"], infos) == {"is_success": 0.5, "odd": 7.0}


def test_the_ring_wraps_with_the_returns() -> None:
    trainer = Trainer(config_of(ENV, env__info='["number"]', env__options="{ terminates = 1 }"))
    trainer.train(8)
    state = trainer.optimizer_state
    assert state["counters"][Count.episodes] == 128
    assert sorted(state["infos"][:, 0].tolist()) == [float(n) for n in range(14, 64) for _ in range(2)]


def test_training_does_not_depend_on_them() -> None:
    with_infos, without = (Trainer(config_of(ENV, env__info=info)) for info in (INFO, "[]"))
    for trainer in (with_infos, without):
        trainer.train(3)
    assert np.array_equal(with_infos.weights[1], without.weights[1])
    assert without.optimizer_state["infos"].shape == (100, 1), "how each ended"


def test_metrics_evaluations_and_a_resumed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIVE_HOME", str(tmp_path))
    sets = ['env.info=["is_success", "odd", "never"]', "run.steps=320", "env.options={terminates = 2}"]
    sets += ["evaluation.every={updates = 10}", "evaluation.episodes=4", "collection.envs=2", "collection.rollout=8"]
    sets += [
        "gradients.workers=0",
        "collection.workers=0",
        "record.every_s=0.000001",
        "checkpoint.every={updates = 10}",
    ]
    text = f'[env]\nid = "{ENV}"\n'
    path = tmp_path / "infos.toml"
    path.write_text(text)
    result = hive.train(path, sets=sets, inline=True, quiet=True)
    directory = Path(result.directory)
    lines = [one for one in read_jsonl(directory / "metrics.jsonl") if "episodes" in one]
    assert (lines[-1]["info/is_success"], lines[-1]["info/odd"]) == (0.5, 7.0)
    assert not any("info/never" in one for one in lines)
    (*_, evaluation) = read_jsonl(directory / "evaluations.jsonl")
    assert evaluation["info/is_success"] == 1.0  # each environment has played one episode before, and no other one
    assert "info/odd" not in evaluation
    warned = [one["warning"] for one in read_jsonl(directory / "events.jsonl") if one.get("kind") == "warning"]
    assert warned.count("info missing") == 1
    checkpoint = list_checkpoints(directory / "checkpoints")[-1]
    assert checkpoint.state["info"] == ["is_success", "odd", "never", EPISODE_END]
    assert {name: lines[-1][f"ends/{name}"] for name in ("terminated", "truncated", "limit")} == {
        "terminated": 1.0,
        "truncated": 0.0,
        "limit": 0.0,
    }
    assert (lines[-1]["length/mean_100"], lines[-1]["length/deviation_100"]) == (2.0, 0.0)
    other = Blueprint(load_config(str(path), [*sets[1:], 'env.info=["odd", "new"]']), checkpoint)
    state = np.zeros(other.state.bytes, np.uint8), np.zeros(other.optimizer_state_bytes, np.uint8)
    write_first_state(other, *state)
    infos = other.learner().views(state[1])["infos"]
    assert info_means(["odd", "new"], infos) == {"odd": 7.0}
    assert set(infos[:, -1].tolist()) == {2.0}, "how they ended is kept, too"


def test_an_evaluation_has_the_means_of_its_episodes() -> None:
    config = config_of(ENV, env__info=INFO, env__options="{ terminates = 2 }", evaluation__episodes=6)
    found = Evaluator.of_run(Blueprint(config)).evaluate(EvaluationDue(0, 0, 0, 0, 0.0))
    assert found.info == {"odd": 7.0, "is_success": 0.0}, "each of 6 environments plays its first episode"


@pytest.mark.parametrize("value", ['"yes"', "[1, 2]"])
def test_a_value_that_is_not_one_number_is_an_error(value: str) -> None:
    trainer = Trainer(config_of(ENV, env__info='["odd"]', env__options=f"{{ terminates = 2, odd = {value} }}"))
    with pytest.raises(EnvironmentFailed, match=r"returned `odd` in `info` that is .*, expected one number \(env 0"):
        trainer.round()
