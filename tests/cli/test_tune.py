"""What a command does with a choice: records it, prints it, repeats it. (tests/live/test_tuning.py measures.)"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from hive.config import Config, load_config
from hive.errors import ConfigError
from hive.launch import new_run as module
from hive.launch.new_run import new_run
from hive.launch.tune import recorded_sets, table_lines, toml_lines, tune
from hive.tuning import Choice, Placement, Trial

ENV = '[env]\nid = "CartPole-v1"\n'
AUTO = ENV + '[collection]\nworkers = "auto"\n'
FOUR = Placement(4, 0, 4)
NUMBERS = {"collection.workers": 4, "collection.envs": 4}


def test_a_run_records_the_numbers_and_the_reasons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIVE_HOME", str(tmp_path))
    asked: list[Config] = []

    def decide(config: Config, report: object) -> Choice:
        asked.append(config)
        return Choice(FOUR, NUMBERS, "four are faster")

    monkeypatch.setattr(module, "decide", decide)
    lines: list[str] = []
    directory = new_run(None, ["run.seed=3"], AUTO, report=lines.append)
    config = load_config(directory.resolved_file)
    assert (config.collection.workers, config.collection.envs, config.run.seed) == (4, 4, 3)
    assert not config.automatic
    assert "# auto" in next(line for line in directory.resolved_file.read_text().splitlines() if "workers = 4" in line)
    assert directory.config_file.read_text() == AUTO
    assert recorded_sets(directory) == ["collection.workers=4", "collection.envs=4"]
    assert json.loads(directory.tuning_file.read_text())["reasons"] in lines
    assert new_run(None, recorded_sets(directory), AUTO) is not None  # as the next seed of a sweep
    assert len(asked) == 1


def test_a_run_without_auto_measures_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIVE_HOME", str(tmp_path))
    monkeypatch.setattr(module, "decide", lambda config, report: pytest.fail("measured"))
    directory = new_run(None, [], ENV)
    assert not directory.tuning_file.exists()
    assert recorded_sets(directory) == []


def test_a_custom_topology_cannot_be_measured() -> None:
    config = load_config("run.toml", ["run.topology=mine.py", "collection.workers=auto"], text=ENV)
    with pytest.raises(ConfigError, match="custom topology or scheme cannot be measured") as caught:
        tune(config, config.automatic, lambda text: None, lossy=False)
    assert "collection.workers = 1" in caught.value.hint


def test_the_table_marks_the_choice() -> None:
    lines = table_lines([Trial(Placement(1, 0, 16), 1000.0), Trial(FOUR, 3000.0), Trial(FOUR, 0.0, "failed")], FOUR)
    assert len(lines) == 4
    assert "1,000" in lines[1]
    assert lines[1].startswith(" ")
    assert "3,000" in lines[2]
    assert lines[2].startswith("*")


def test_the_printed_keys_are_lines_of_a_config() -> None:
    values = {**NUMBERS, "gradients.workers": 2, "network.backend": "torch"}
    assert tomllib.loads("\n".join(toml_lines(values))) == {
        "collection": {"workers": 4, "envs": 4},
        "gradients": {"workers": 2},
        "network": {"backend": "torch"},
    }
