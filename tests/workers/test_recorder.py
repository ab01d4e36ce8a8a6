"""The recorder behind a source of our own: what was sent is written, and the last weights are saved."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_trainer import LIMIT_S, config_of

from hive.errors import RecordError
from hive.records import RunDirectory, read_jsonl
from hive.records.atomic import check_folder
from hive.records.weights import load_weights
from hive.runtime import Actor, Outlet, Publication, Topology
from hive.runtime.supervisor import Outcome
from hive.testing import run_inline
from hive.workers import Blueprint, Metrics, Recorder, Weights


class Source(Actor):
    """Publishes versions whose every byte is the version, sends as many metrics, and ends the run."""

    metrics = Outlet(Metrics, pattern="broadcast")
    weights = Publication(Weights)

    def __init__(self, versions: list[int], block_bytes: int) -> None:
        self.versions = versions
        self.block_bytes = block_bytes

    async def run(self) -> None:
        for version in self.versions:
            self.weights.begin()[:] = version
            self.weights.publish(version)
            await self.metrics.send(Metrics(version, 10 * version, version / 4, {"return/mean_100": -1.0 * version}))
        self.end_run("all is said")


class Desk:
    """A run directory and what a recorder needs."""

    def __init__(self, folder: Path, **values: Any) -> None:
        self.directory = RunDirectory.create(folder, "test")
        self.blueprint = Blueprint(config_of("small_environments:OneState", **values))

    def run(self, versions: list[int], cls: type[Recorder] = Recorder, **options: Any) -> Outcome:
        size = self.blueprint.flat.block_bytes
        t = Topology()
        source = t.add(Source, versions=versions, block_bytes=size)
        recorder = t.add(cls, last=True, blueprint=self.blueprint, directory=self.directory.path)
        t.connect(source.weights, recorder.weights, block_bytes=size)
        t.connect(source.metrics, recorder.metrics)
        return run_inline(t, seconds=LIMIT_S, **options)

    def checkpoints(self) -> list[str]:
        return sorted(path.name for path in self.directory.checkpoints.iterdir())


def test_every_metric_is_a_line(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    outcome = desk.run([0, 1, 2, 3])
    assert outcome.channels["metrics"] == {"produced": 4, "consumed": 4, "dropped": {}, "in_flight": 0}
    lines = list(read_jsonl(desk.directory.metrics_file))
    assert [{name: line[name] for name in line if name != "t"} for line in lines] == [
        {"steps": 10 * n, "updates": n, "seconds": n / 4, "return/mean_100": -1.0 * n} for n in range(4)
    ]


class Slow(Recorder):
    """Writes nothing while the run lasts."""

    async def run(self) -> None:
        await asyncio.Event().wait()


def test_what_waits_at_the_end_is_written_too(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.run([0, 1, 2, 3], Slow, virtual=True)  # the source waits for its last acknowledgements
    assert [line["updates"] for line in read_jsonl(desk.directory.metrics_file)] == [0, 1, 2, 3]


def test_the_last_weights_are_saved_under_their_version(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    assert desk.run([0, 5, 42]).state == "finished"
    assert desk.checkpoints() == ["000042"]
    folder = desk.directory.checkpoints / "000042"
    check_folder(folder)
    weights, state = load_weights(folder)
    assert state == {"version": 42, "env": "small_environments:OneState"}
    assert {name: array.shape for name, array in weights.items()} == dict(desk.blueprint.flat.describe())
    assert all((array.view(np.uint8) == 42).all() for array in weights.values())


def test_buffers_are_saved_with_the_parameters(tmp_path: Path) -> None:
    desk = Desk(tmp_path, network__module='"small_environments:Normalising"')
    desk.run([3])
    weights, _ = load_weights(desk.directory.checkpoints / "000003")
    network = desk.blueprint.network()
    assert {*weights} == {*network.state_dict()}


def test_nothing_published_is_nothing_saved(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    assert desk.run([]).state == "finished"
    assert desk.checkpoints() == []
    assert list(read_jsonl(desk.directory.metrics_file)) == []


def test_what_a_killed_writer_left_is_cleared(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    left = desk.directory.checkpoints / ".000001.hive-tmp"
    left.mkdir()
    (left / "weights.safetensors").write_bytes(b"half")
    desk.run([2])
    assert desk.checkpoints() == ["000002"]


def test_a_checkpoint_that_is_there_stays(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.run([2])
    file = desk.directory.checkpoints / "000002" / "DONE"
    before = file.stat().st_mtime_ns
    assert desk.run([2]).state == "finished"
    assert file.stat().st_mtime_ns == before


def test_tensorboard_is_a_sink(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    desk = Desk(tmp_path, record__sinks=["jsonl", "tensorboard"])
    desk.run([1])
    assert list((desk.directory.path / "tensorboard").glob("events.*"))
    assert len(list(read_jsonl(desk.directory.metrics_file))) == 1


def test_it_needs_a_run_directory(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.directory = RunDirectory(tmp_path / "elsewhere")
    with pytest.raises(RecordError, match="elsewhere` is not a run directory"):
        desk.run([1])
