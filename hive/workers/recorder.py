"""The recorder: writes metrics as they come, and the weights at the end.

It is stopped last, when everybody else is gone: by then all metrics have arrived and the state no longer changes.
"""

from __future__ import annotations

from pathlib import Path

from hive.records import (
    JsonlSink,
    MetricsRecord,
    RunDirectory,
    Sink,
    SinkSet,
    TensorBoardSink,
    atomic_folder,
    remove_unfinished,
)
from hive.records.weights import save_weights
from hive.runtime import Actor, Inlet, Subscription
from hive.workers.blueprint import Blueprint
from hive.workers.messages import Metrics, Weights

__all__ = ["Recorder"]


class Recorder(Actor):
    """Folds metrics into the sinks of [record]; saves weights in `checkpoints/<version>/` when the run ends."""

    role = "recorder"
    numbered = False
    metrics = Inlet(Metrics)
    weights = Subscription(Weights)

    def __init__(self, blueprint: Blueprint, directory: Path) -> None:
        self.blueprint = blueprint
        self.directory = RunDirectory.open(directory)
        remove_unfinished(self.directory.checkpoints)  # of an incarnation that was killed while it wrote
        sinks: list[Sink] = [JsonlSink(self.directory.metrics_file)]
        if "tensorboard" in blueprint.config.record.sinks:
            sinks.append(TensorBoardSink(self.directory.path / "tensorboard"))
        self.sinks = SinkSet(sinks, self.log.warning)

    async def run(self) -> None:
        async for message in self.metrics:
            self._write(message)

    def _write(self, message: Metrics) -> None:
        self.sinks.write(MetricsRecord(message.updates, message.env_steps, message.seconds, message.values))

    async def drain(self) -> None:
        """Everybody else is gone: write what has arrived, save, end."""
        while (message := self.metrics.receive_nowait()) is not None:
            self._write(message)
        await self._save()
        await super().drain()

    async def _save(self) -> None:
        if self.weights.board.latest < 0:
            return
        version, block = await self.weights.pin()
        folder = self.directory.checkpoints / f"{version:06d}"
        if not folder.exists():
            with atomic_folder(folder) as temporary:
                save_weights(
                    temporary,
                    self.blueprint.flat.arrays(block),
                    {"version": version, "env": self.blueprint.config.env.id},
                )
        self.weights.unpin()
        self.note("saved", f"weights of version {version} are in {folder.name}", path=str(folder))

    async def teardown(self) -> None:
        self.sinks.close()
