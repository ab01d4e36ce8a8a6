from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import pytest

from hive.errors import UsageError
from hive.records.sinks.sinks import MetricsRecord, Video
from hive.records.sinks.tensorboard_sink import TensorBoardSink

RECORD = MetricsRecord(updates=3, env_steps=1536, seconds=2.25, values={"learner/loss": 0.5, "learner/nan": math.nan})
GIF = b"GIF89a" + bytes([4, 0, 2, 0, 0x80, 0, 0])  # the header of 4 x 2 pixels


def test_tensorboard_writes_finite_scalars_over_steps(tmp_path: Path) -> None:
    sink = TensorBoardSink(tmp_path / "tensorboard")
    sink.write(RECORD)
    sink.close()
    scalars = [(event.step, v.tag, v.simple_value) for event in events_in(tmp_path) for v in event.summary.value]
    assert scalars == [(1536, "learner/loss", 0.5)]


def test_a_resumed_run_drops_what_is_beyond_its_checkpoint(tmp_path: Path) -> None:
    sink = TensorBoardSink(tmp_path / "tensorboard", begins=1000)
    sink.write(RECORD)
    sink.close()
    starts = [event.step for event in events_in(tmp_path) if event.session_log.status == event.session_log.START]
    assert starts == [1000]


def events_in(folder: Path) -> list[Any]:
    from tensorboardX.proto.event_pb2 import Event

    (file,) = (folder / "tensorboard").iterdir()
    return [Event.FromString(data) for data in records(file.read_bytes())]


def records(data: bytes) -> list[bytes]:
    """The payloads of an event file: length u64, its checksum u32, payload, its checksum u32."""
    found = []
    while data:
        length = int.from_bytes(data[:8], "little")
        found.append(data[12 : 12 + length])
        data = data[16 + length :]
    return found


def test_tensorboard_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(UsageError, match="needs tensorboardX") as caught:
        TensorBoardSink(tmp_path)
    assert caught.value.hint == "pip install 'hive-trainer[tensorboard]'"


def test_config_is_a_table_of_hyperparameters_and_a_text(tmp_path: Path) -> None:
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData

    sink = TensorBoardSink(tmp_path / "tensorboard")
    sink.write_config({"run": {"seed": 7, "init_from": None}, "network": {"layers": [64, 64]}})
    sink.close()
    values = {v.tag: v for event in events_in(tmp_path) for v in event.summary.value}
    started = values["_hparams_/session_start_info"].metadata.plugin_data.content
    table = HParamsPluginData.FromString(started).session_start_info.hparams
    assert (table["run.seed"].number_value, table["network.layers"].string_value) == (7, "[64, 64]")
    assert "run.init_from" not in table
    (text,) = next(v for tag, v in values.items() if tag.startswith("config")).tensor.string_val
    assert text.decode() == "    run.seed = 7\n    network.layers = [64, 64]"


def test_a_gif_is_an_image_and_another_video_its_path(tmp_path: Path) -> None:
    gif, mp4 = tmp_path / "a.gif", tmp_path / "b.mp4"
    gif.write_bytes(GIF)
    mp4.write_bytes(b"mp4")
    sink = TensorBoardSink(tmp_path / "tensorboard")
    sink.write_video(Video(gif, 3, 1536))
    sink.write_video(Video(mp4, 3, 1536))
    sink.close()
    values = [(event.step, v) for event in events_in(tmp_path) for v in event.summary.value]
    (step, image), (_, text) = values
    assert (step, image.tag, image.image.width, image.image.height) == (1536, "videos/a", 4, 2)
    assert image.image.encoded_image_string == GIF
    assert text.tensor.string_val[0].decode() == str(mp4)
