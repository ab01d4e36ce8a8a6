"""The Weights & Biases sink with a fake of its client; and, where it is installed, offline with the real one."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from hive.errors import RecordError, UsageError
from hive.records.sinks.sinks import MetricsRecord, Video
from hive.records.sinks.wandb_sink import WandbSink


class FakeRun:
    """Stores its values. Steps must increase, as wandb requires."""

    def __init__(self) -> None:
        self.logged: list[tuple[int, dict[str, Any]]] = []
        self.updated: list[dict[str, Any]] = []
        self.config = SimpleNamespace(update=lambda values, allow_val_change: self.updated.append(values))
        self.metrics: list[tuple[str, dict[str, Any]]] = []
        self.finished = False

    def define_metric(self, name: str, **options: Any) -> None:
        self.metrics.append((name, options))

    def log(self, values: dict[str, Any], step: int) -> None:
        assert not self.logged or step > self.logged[-1][0]
        self.logged.append((step, values))

    def finish(self) -> None:
        self.finished = True


class FakeWandb(ModuleType):
    def __init__(self) -> None:
        super().__init__("wandb")
        self.runs: list[FakeRun] = []
        self.starts: list[dict[str, Any]] = []
        self.reporting: str | None = None

    def init(self, **options: Any) -> FakeRun:
        self.starts.append(options)
        self.reporting = os.environ.get("WANDB_ERROR_REPORTING")
        self.runs.append(FakeRun())
        return self.runs[-1]

    def Settings(self, **options: Any) -> dict[str, Any]:
        return options

    def Video(self, path: str) -> str:
        return f"video {path}"


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> FakeWandb:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    for name in ("MODE", "PROJECT", "ERROR_REPORTING", "RUN_ID", "SWEEP_ID", "NAME"):
        monkeypatch.setenv(f"WANDB_{name}", "")
    return fake


def record(n: int) -> MetricsRecord:
    return MetricsRecord(n, 10 * n, n / 4, {"a/x": float(n), "a/nan": math.nan})


def test_offline_by_default_and_without_reports(tmp_path: Path, wandb: FakeWandb) -> None:
    WandbSink(tmp_path).close()
    (options,) = wandb.starts
    assert (options["mode"], options["project"], options["name"]) == ("offline", "hive", tmp_path.name)
    assert (options["dir"], options["resume"], wandb.reporting) == (str(tmp_path), "allow", "false")


def test_the_user_chooses_mode_and_project(tmp_path: Path, wandb: FakeWandb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_PROJECT", "robots")
    WandbSink(tmp_path)
    assert (wandb.starts[0]["mode"], wandb.starts[0]["project"], wandb.reporting) == ("online", "robots", "")


def test_a_run_of_an_agent_has_its_id_and_is_online(
    tmp_path: Path, wandb: FakeWandb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`wandb agent` sets these two, and waits for that run in the project of the sweep."""
    monkeypatch.setenv("WANDB_SWEEP_ID", "s1")
    monkeypatch.setenv("WANDB_RUN_ID", "a-1")
    other = tmp_path / "policies" / "other"
    other.mkdir(parents=True)
    WandbSink(tmp_path).close()
    WandbSink(other).close()
    monkeypatch.setenv("WANDB_SWEEP_ID", "")
    monkeypatch.setenv("WANDB_RUN_ID", "")
    WandbSink(tmp_path).close()  # resumed by hand
    monkeypatch.setenv("WANDB_RUN_ID", "b_2")
    monkeypatch.setenv("WANDB_NAME", "mine")
    WandbSink(tmp_path).close()
    assert [options["id"] for options in wandb.starts] == ["a-1", "a-1-other", "a-1", "b_2"]
    assert [options["mode"] for options in wandb.starts] == ["online", "online", "offline", "offline"]
    assert [options["project"] for options in wandb.starts] == [None, None, "hive", "hive"]
    assert [options["name"] for options in wandb.starts] == [tmp_path.name, "other", tmp_path.name, "mine"]
    monkeypatch.setenv("WANDB_RUN_ID", "../b")
    with pytest.raises(UsageError, match="invalid id"):
        WandbSink(tmp_path)


def test_records_config_and_videos(tmp_path: Path, wandb: FakeWandb) -> None:
    sink = WandbSink(tmp_path)
    sink.write_config({"run": {"seed": 1}})
    sink.write(record(5))
    sink.write(MetricsRecord(2, 20, 9.0, {"evaluation/mean_return": 1.0}))  # an evaluation of an older version
    sink.write_video(Video(Path("v/a.mp4"), 5, 50))
    sink.write_video(Video(Path("v/a.unknown"), 5, 50))
    sink.close()
    (run,) = wandb.runs
    assert run.updated == [{"run": {"seed": 1}}]
    assert run.logged == [
        (0, {"env_steps": 50, "updates": 5, "seconds": 1.25, "a/x": 5.0}),
        (1, {"env_steps": 20, "updates": 2, "seconds": 9.0, "evaluation/mean_return": 1.0}),
        (2, {"env_steps": 50, "updates": 5, "videos/a": "video v/a.mp4"}),
    ]
    assert ("*", {"step_metric": "env_steps"}) in run.metrics
    assert run.finished


def test_a_resumed_run_continues_its_id_and_steps(tmp_path: Path, wandb: FakeWandb) -> None:
    """After a normal end without a gap, after a kill with a gap; no step is used twice."""
    first = WandbSink(tmp_path)
    first.write(record(1))
    first.close()
    killed = WandbSink(tmp_path)
    killed.write(record(2))
    WandbSink(tmp_path).write(record(3))
    assert len({options["id"] for options in wandb.starts}) == 1
    assert [step for run in wandb.runs for step, _ in run.logged] == [0, 1, 1001]


def test_a_damaged_file_is_an_error(tmp_path: Path, wandb: FakeWandb) -> None:
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "hive.json").write_text('{"id": "../x", "next_step": 1}')
    with pytest.raises(RecordError, match="invalid id"):
        WandbSink(tmp_path)


def test_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "")
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UsageError, match="needs wandb") as caught:
        WandbSink(tmp_path)
    assert caught.value.hint == "pip install 'hive-trainer[wandb]'"


REAL = """
import sys
from pathlib import Path
from hive.records.sinks.sinks import MetricsRecord, Video
from hive.records.sinks.wandb_sink import WandbSink
run = Path(sys.argv[1])
(run / "a.gif").write_bytes(b"GIF89a" + bytes(20))
for n in (1, 2):
    sink = WandbSink(run)
    sink.write_config({"run": {"seed": n}})
    sink.write(MetricsRecord(n, n, 1.0, {"a/x": 0.5}))
    sink.write_video(Video(run / "a.gif", n, n))
    sink.close()
"""


@pytest.mark.full(reason="starts the service of wandb twice: 4 s")
def test_the_real_client_writes_files_offline(tmp_path: Path) -> None:
    """In a process of its own: wandb leaves threads and hooks in the one that imports it."""
    pytest.importorskip("wandb", reason="wandb is not installed")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    done = subprocess.run(
        [sys.executable, "-P", "-c", REAL, str(tmp_path)], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads((tmp_path / "wandb" / "hive.json").read_text())
    assert facts["next_step"] == 4
    files = list((tmp_path / "wandb").glob(f"offline-run-*-{facts['id']}/run-{facts['id']}.wandb"))
    assert files
    assert all(file.stat().st_size > 0 for file in files)
    assert list((tmp_path / "wandb").glob("offline-run-*/files/media/videos/videos/a_*.gif"))
