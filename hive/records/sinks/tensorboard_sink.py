"""Writes metrics, the config and videos for TensorBoard with tensorboardX.

Metrics are scalars over environment steps. The config is a table of hyperparameters (the HPARAMS page) and a text. A
GIF is an image, which TensorBoard plays; of other videos only the path is written, as a text, because TensorBoard has
no format for them.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

from hive.config.values import toml_text
from hive.distribution import pip_install
from hive.errors import UsageError
from hive.records.regular import read_regular
from hive.records.sinks.sinks import ConfigTables, MetricsRecord, Video
from hive.versions import check_versions

GOALS = ("return/mean_100", "evaluation/mean_return")  # the metrics beside the hyperparameters
VIDEO_BYTES = 64 << 20  # largest GIF in an event file: TensorBoard loads each of them whole


class TensorBoardSink:
    """Writes an event file into `folder`. Values that are not finite are left out."""

    def __init__(self, folder: Path, begins: int | None = None) -> None:
        """Create a writer to `folder`. Raises UsageError if tensorboardX is not installed.

        begins: first environment step that this writer may write. TensorBoard drops the values of earlier files from
        there on: a run that is resumed makes those steps again. None: there are no earlier files.
        """
        check_versions(["tensorboardX"])
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise UsageError("the TensorBoard sink needs tensorboardX", hint=pip_install("tensorboard")) from error
        suffix = f".{time.time_ns()}"  # two writers of one second would have one file
        self._writer = SummaryWriter(logdir=str(folder), purge_step=begins, filename_suffix=suffix)

    def write(self, record: MetricsRecord) -> None:
        for name, value in record.values.items():
            if math.isfinite(value):
                self._writer.add_scalar(name, value, record.env_steps)

    def write_config(self, config: ConfigTables) -> None:
        from tensorboardX.summary import hparams

        flat = {f"{table}.{name}": value for table, keys in config.items() for name, value in keys.items()}
        values = {name: _hyperparameter(value) for name, value in flat.items() if value is not None}
        for summary in hparams(values, dict.fromkeys(GOALS, 0.0)):
            self._writer.file_writer.add_summary(summary)
        self._writer.add_text("config", "\n".join(f"    {name} = {value}" for name, value in values.items()))

    def write_video(self, video: Video) -> None:
        """Write a GIF as an image, or the path of another video as a text. Raises OSError if it cannot be read."""
        tag = f"videos/{video.path.stem}"
        if video.path.suffix.lower() != ".gif" or video.path.stat().st_size > VIDEO_BYTES:
            self._writer.add_text(tag, str(video.path), video.env_steps)
            return
        from tensorboardX.proto.summary_pb2 import Summary

        content = read_regular(video.path)
        width, height = (int.from_bytes(content[at : at + 2], "little") for at in (6, 8))  # from the GIF's header
        image = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=content)
        summary = Summary(value=[Summary.Value(tag=tag, image=image)])
        self._writer.file_writer.add_summary(summary, video.env_steps)

    def close(self) -> None:
        self._writer.close()


def _hyperparameter(value: Any) -> bool | int | float | str:
    """Return a value of a type that the table of hyperparameters has; arrays and tables become TOML."""
    return value if isinstance(value, bool | int | float | str) else toml_text(value)
