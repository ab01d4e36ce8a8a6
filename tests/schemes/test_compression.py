"""Compressed gradients in whole runs: smaller slots, the same run every time and in every place, and it learns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_runs import check_end, modes, train
from small_trainer import config_of

from hive.errors import ConfigError
from hive.gradients import COMPRESSIONS
from hive.records import read_jsonl
from hive.schemes import build

SMALLER = [name for name in COMPRESSIONS if name != "none"]
every_compression = pytest.mark.parametrize("name", SMALLER)
IN_STEP = ("synchronous", "pipelined")


def of(name: str, **values: Any) -> dict[str, Any]:
    return {"gradients__compression": f'"{name}"', **values}


def slot_bytes(folder: Path, name: str, width: int = 64) -> int:
    """Return the size of a gradient slot; a run maps `slots` of them for each worker."""
    config = config_of("small_environments:Drift", **of(name), network__middleware=[width, width])
    plan = build(config, folder).plan()
    (channel,) = [channel for channel in plan.channels if channel.name == "gradients"]
    (segment,) = [segment for segment in plan.segments if segment.name in channel.segments]
    return segment.item_bytes


def test_slots_are_smaller(tmp_path: Path) -> None:
    sizes = {name: slot_bytes(tmp_path, name) for name in COMPRESSIONS}
    gradient = sizes["none"] - sizes["bf16"]  # half of it
    assert gradient > 0.45 * sizes["none"]
    assert sizes["fp16"] == sizes["bf16"]
    assert sizes["none"] - sizes["top-k"] > 0.75 * 2 * gradient


@every_compression
def test_placement_changes_no_byte(tmp_path: Path, name: str) -> None:
    counts = [(1, 1), (0, 1), (1, 0), (0, 0)]
    runs = [train(tmp_path, "a2c", **of(name), **modes("pipelined", "pipelined", *count)) for count in counts]
    assert len({run.outcome.digest for run in runs}) == 1


@pytest.mark.rotates
@every_compression
@pytest.mark.parametrize("mode", IN_STEP)
def test_decentralized_replicas_have_the_learners_bytes(tmp_path: Path, name: str, mode: str) -> None:
    """A replica that went astray would make other gradients, so the learner's weights would differ."""
    values = {**of(name), **modes(mode, mode, 2, 2), "run__steps": 192}
    runs = [train(tmp_path, "a2c", **values, gradients__decentralized=word) for word in ("true", "false")]
    check_end(runs[0])
    assert runs[0].outcome.digest == runs[1].outcome.digest


def test_each_is_another_run_and_the_same_every_time(tmp_path: Path) -> None:
    digests = {train(tmp_path, "a2c", **of(name)).outcome.digest for name in COMPRESSIONS}
    assert len(digests) == len(COMPRESSIONS)
    assert {train(tmp_path, "a2c", **of(name)).outcome.digest for name in COMPRESSIONS} == digests


def test_top_k_of_everything_is_no_compression(tmp_path: Path) -> None:
    whole = train(tmp_path, "a2c", **of("top-k"), gradients__top_k=1.0)
    assert whole.outcome.digest == train(tmp_path, "a2c").outcome.digest


@pytest.mark.parametrize(("name", "ratio", "error"), [("bf16", 2.0, 3e-3), ("fp16", 2.0, 4e-4), ("top-k", 5.0, 1.0)])
def test_ratio_and_error_are_metrics(tmp_path: Path, name: str, ratio: float, error: float) -> None:
    run = train(tmp_path, "a2c", **of(name), network__middleware=[64])
    last = list(read_jsonl(run.directory.metrics_file))[-1]
    assert last["gradients/compression_ratio"] == pytest.approx(ratio, rel=0.1)
    assert 0 < last["gradients/compression_error"] < error
    plain = list(read_jsonl(train(tmp_path, "a2c").directory.metrics_file))[-1]
    assert not [key for key in plain if "compression" in key]


LEARN: dict[str, Any] = {
    "run__steps": 20_000,
    "run__stop_at_return": 0.97,
    "collection__envs": 8,
    "algorithm__learning_rate": 0.01,
    "algorithm__learning_rate_schedule": '"constant"',
    **modes("pipelined", "synchronous", 2, 2),
}


@pytest.mark.rotates
@every_compression
def test_it_learns_until_the_return_is_reached(tmp_path: Path, name: str) -> None:
    """Guessing earns 0.5 of 1; test_a2c shows that without learning the return is not reached by chance."""
    run = train(tmp_path, "a2c", "Bandit", **LEARN, **of(name))
    assert run.outcome.reason.endswith(" >= 0.97")


def test_with_little_of_it_it_still_learns(tmp_path: Path) -> None:
    """One element of fifty; the rest arrives later."""
    run = train(tmp_path, "a2c", "Bandit", **LEARN, **of("top-k"), gradients__top_k=0.02)
    assert run.outcome.reason.endswith(" >= 0.97")


@every_compression
def test_out_of_step_it_ends_too(tmp_path: Path, name: str) -> None:
    run = train(tmp_path, "impala", run__steps=192, **of(name), **modes("asynchronous", "asynchronous", 2, 2))
    check_end(run)


def test_a_share_without_top_k_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match=r'gradients\.compression = "bf16" .* sends all'):
        config_of("small_environments:Drift", **of("bf16"), gradients__top_k=0.5)
