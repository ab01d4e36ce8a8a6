"""An update hook sees every update with its weights, adds to the metrics, and changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import own_code
import pytest
from test_actors import train

from hive.algorithms import A2C
from hive.errors import TopologyError
from hive.records import read_jsonl
from hive.records.checkpoints.weights import load_weights


def test_a_hook_gets_every_update_and_returns_metrics(tmp_path: Path) -> None:
    own_code.seen.clear()
    values = {"run__update_hook": '"own_code:watch"', "algorithm__learning_rate_schedule": '"constant"'}
    run = train(tmp_path, record__every_s=60, **values)
    assert [update.number for update in own_code.seen] == list(range(1, 17))
    assert [update.env_steps for update in own_code.seen] == [16 * number for number in range(1, 17)]
    assert all(update.gradient_norm > 0 and update.learning_rate > 0 for update in own_code.seen)
    assert own_code.seen[0].statistics.keys() == {*A2C.statistics}
    (line,) = read_jsonl(run.directory.metrics_file)
    weights, _ = load_weights(run.checkpoint())
    norm = float(np.sqrt(sum(np.square(array).sum() for array in weights.values())))
    assert line["own/weight_norm"] == pytest.approx(norm)


def test_a_run_is_the_same_with_and_without(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    one = train(tmp_path / "one", run__update_hook='"own_code:watch"')
    other = train(tmp_path / "other")
    assert one.outcome.digest == other.outcome.digest


def test_weights_can_only_be_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="read-only"):
        train(tmp_path, run__update_hook='"own_code:meddles"')


@pytest.mark.parametrize("name", ["no_such_module:watch", "own_code:no_such"])
def test_a_missing_hook_ends_the_run_at_its_start(tmp_path: Path, name: str) -> None:
    with pytest.raises(TopologyError, match="no_such"):
        train(tmp_path, run__update_hook=f'"{name}"')


# --- other user-defined code


def test_a_user_defined_algorithm_gets_its_options(tmp_path: Path) -> None:
    options: dict[str, Any] = {"algorithm__name": '"own_code:Cautious"', "record__every_s": 60}
    run = train(tmp_path, **options, algorithm__options="{entropy=0.5}")
    (line,) = read_jsonl(run.directory.metrics_file)
    assert {"learner/own_loss", "learner/value_loss"} <= line.keys()
    assert run.results["updates"] == 16


def test_its_options_matter(tmp_path: Path) -> None:
    digests = set()
    for entropy in (0.0, 0.5):
        folder = tmp_path / str(entropy)
        folder.mkdir()
        options = f"{{entropy={entropy}}}"
        digests.add(train(folder, algorithm__name='"own_code:Cautious"', algorithm__options=options).outcome.digest)
    assert len(digests) == 2


def test_a_class_of_a_built_in_one_has_its_keys(tmp_path: Path) -> None:
    """A subclass of PPO in the scheme `ppo` has the keys of PPO with the same defaults."""
    from own_code import Bolder

    options = {"run__scheme": '"ppo"', "algorithm__epochs": 1, "algorithm__clip_range": 0.3}
    plain = train(tmp_path / "plain", **options)
    Bolder.clipped_at.clear()
    own = train(tmp_path / "own", algorithm__name='"own_code:Bolder"', **options)
    assert set(Bolder.clipped_at) == {0.3}
    assert own.outcome.digest == plain.outcome.digest


def test_an_incomplete_algorithm_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match=r"`own_code:NotOne` has no statistics, gradients_per_round"):
        train(tmp_path, algorithm__name='"own_code:NotOne"')


def test_a_user_defined_sink_gets_every_record(tmp_path: Path) -> None:
    run = train(tmp_path, record__sinks='["jsonl", "own_code:LinesSink"]', record__every_s=60)
    (line,) = (run.directory.path / "own_lines.txt").read_text().splitlines()
    assert line.startswith("[16, [")
