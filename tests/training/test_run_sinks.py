from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import ClassVar

import pytest
from small_trainer import config_of

from hive.config import references
from hive.records import Episode, MetricsRecord, RunDirectory, Video, read_jsonl
from hive.records.sinks.sinks import ConfigTables
from hive.training.record.recorder import RunSinks, config_tables

RECORD = MetricsRecord(3, 30, 0.75, {"return/mean_100": 5.0})


class Collecting:
    """A user-defined sink that stores everything, by the folder of its run."""

    made: ClassVar[dict[Path, Collecting]] = {}
    is_set_up: ClassVar = False

    def __init__(self, folder: Path) -> None:
        self.made[folder] = self
        self.was_set_up = self.is_set_up
        self.got: list[object] = []
        self.thread = threading.current_thread()

    def write(self, record: MetricsRecord) -> None:
        self.got.append(record)

    def write_config(self, config: ConfigTables) -> None:
        self.got.append(config)

    def write_video(self, video: Video) -> None:
        self.got.append(video)

    def close(self) -> None:
        self.got.append("closed")


def prepare() -> None:
    Collecting.is_set_up = True


class Raising(Collecting):
    def __init__(self, folder: Path) -> None:
        raise SystemExit("not today")


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return RunDirectory.create(tmp_path, "test")


def sinks_of(directory: RunDirectory, warnings: list[str], *names: str) -> RunSinks:
    config = config_of("small_environments:OneState", record__sinks=["jsonl", *names])
    return RunSinks(config, directory, warnings.append)


def test_a_user_defined_sink_gets_config_metrics_and_videos_after_run_setup(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    from test_run_sinks import Collecting as Imported  # the module that the run imports

    warnings: list[str] = []
    monkeypatch.setattr(references, "_setup", "test_run_sinks:prepare")
    directory.videos.mkdir()
    (directory.videos / "a.gif").touch()
    sinks = sinks_of(directory, warnings, "test_run_sinks:Collecting")
    sinks.write(RECORD)
    sinks.write(RECORD)
    sinks.close()
    made = Imported.made[directory.path]
    config, *others = made.got
    assert isinstance(config, dict)
    assert config["env"]["id"] == "small_environments:OneState"
    video = Video(directory.videos / "a.gif", 3, 30)
    assert others == [RECORD, video, RECORD, "closed"]
    assert made.was_set_up
    assert made.thread is not threading.current_thread()
    assert not warnings


class Listing(Collecting):
    def write_episode(self, episode: Episode) -> None:
        self.got.append(episode.number)


EPISODES = [
    Episode(7, 30, 3, 0.7512, 2, None, 1.5, 12, {"win": 1.0}),
    Episode(8, 30, 3, 0.7512, 0, "left", -1.0, 9, {}),
]


def test_episodes_reach_their_file_and_the_sinks_that_want_them(directory: RunDirectory) -> None:
    warnings: list[str] = []
    others = ("Collecting", "Listing")
    sinks = sinks_of(directory, warnings, "episodes", *(f"test_run_sinks:{name}" for name in others))
    sinks.write_episodes(EPISODES)
    sinks.close()
    assert directory.episodes_file.read_text().splitlines() == [
        '{"episode": 7, "steps": 30, "updates": 3, "seconds": 0.751, "environment": 2, "return": 1.5, "length": 12, '
        '"info/win": 1.0}',
        '{"episode": 8, "steps": 30, "updates": 3, "seconds": 0.751, "environment": 0, "agent": "left", '
        '"return": -1.0, "length": 9}',
    ]
    from test_run_sinks import Collecting as Imported  # the module that the run imports

    assert Imported.made[directory.path].got[1:] == [7, 8, "closed"]
    assert not warnings


def test_tensorboard_begins_after_the_lines_of_a_resumed_run(directory: RunDirectory) -> None:
    from tensorboardX.proto.event_pb2 import Event, SessionLog

    for values in ({"steps": 50, "updates": 5}, {"steps": 70, "updates": 7}, {"steps": 60, "updates": 6}):
        with directory.metrics_file.open("a") as file:
            file.write(json.dumps(values) + "\n")
    for _ in range(2):  # the first one has no earlier file
        sinks_of(directory, [], "tensorboard").close()
    found = b"".join(path.read_bytes() for path in (directory.path / "tensorboard").iterdir())
    begins = Event(step=71, session_log=SessionLog(status=SessionLog.START))
    assert found.count(begins.SerializeToString()) == 1


def test_sinks_that_fail_cost_a_line_each(directory: RunDirectory) -> None:
    warnings: list[str] = []
    directory.csv_file.mkdir()
    sinks = sinks_of(directory, warnings, "csv", "test_run_sinks:Raising", "no_such_module:Sink")
    sinks.write(RECORD)
    sinks.close()
    assert sorted(warning.split(" is dropped: ")[0] for warning in warnings) == [
        "the CSV sink",
        "the sink `no_such_module:Sink`",
        "the sink `test_run_sinks:Raising`",
    ]
    assert [line["updates"] for line in read_jsonl(directory.metrics_file)] == [3]


def test_a_folder_of_videos_that_cannot_be_read_costs_a_line(directory: RunDirectory) -> None:
    warnings: list[str] = []
    directory.videos.mkdir()
    (directory.videos / "a.gif").touch()
    (directory.videos / ".passed").mkdir()
    sinks = sinks_of(directory, warnings)
    sinks.write(RECORD)
    sinks.write(RECORD)
    sinks.close()
    (warning,) = warnings
    assert warning.startswith("videos no longer reach the sinks: ")


def test_a_restarted_recorder_continues_the_table(directory: RunDirectory) -> None:
    for _ in range(2):
        sinks = sinks_of(directory, [], "csv")
        sinks.write(RECORD)
        sinks.close()
    assert (
        directory.csv_file.read_text().splitlines() == ["steps,updates,seconds,return/mean_100"] + ["30,3,0.75,5.0"] * 2
    )


def test_the_config_as_tables() -> None:
    tables = config_tables(config_of("small_environments:OneState"))
    assert tables["record"]["sinks"] == ["jsonl"]
    assert {"run", "env", "algorithm", "network"} <= tables.keys()
