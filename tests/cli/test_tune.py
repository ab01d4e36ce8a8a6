"""What a command does with a choice: records it, prints it, repeats it. (tests/live/test_tuning.py measures.)"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from hive.cli.parts import new_run as module
from hive.cli.parts.new_run import new_run
from hive.cli.parts.tune import Tuning, recorded_sets, table_lines, toml_lines, tune
from hive.config import Config, load_config
from hive.errors import ConfigError
from hive.tuning import Choice, CostLine, Costs, Placement, Trial, predict

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


def test_the_table_marks_the_choice_and_shows_both_rates() -> None:
    line = CostLine(1e-6, 1e-6)
    costs = Costs(line, 1.0, line, line, 1, line, 1e-6, 9000)
    config = load_config("run.toml", text=ENV)
    rates = [predict(config, costs, placement, 2) for placement in (Placement(1, 0, 16), FOUR)]
    trials = [Trial(rates[0].placement, 1000.0), Trial(FOUR, 3000.0), Trial(FOUR, 2000.0)]
    lines = table_lines(Tuning(costs, rates, trials, Choice(FOUR, NUMBERS, "")))
    assert len(lines) == 3
    assert f"{rates[0].steps_per_s:,.0f}" in lines[1]
    assert "1,000" in lines[1]
    assert lines[1].startswith(" ")
    assert "2,500" in lines[2]
    assert lines[2].startswith("*")


def test_the_printed_keys_are_lines_of_a_config() -> None:
    values = {**NUMBERS, "gradients.workers": 2, "network.backend": "torch"}
    assert tomllib.loads("\n".join(toml_lines(values))) == {
        "collection": {"workers": 4, "envs": 4},
        "gradients": {"workers": 2},
        "network": {"backend": "torch"},
    }
