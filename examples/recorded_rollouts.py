"""A carrier of your own: rollouts travel through files, which remain as a record of all that the agent was trained on.

    python examples/recorded_rollouts.py                              # about 11 s
    hive up examples/cartpole.toml --topology examples/recorded_rollouts.py

The files lie in `rollouts/` of the current folder, one per rollout, named collector-number.npy: the fields of the
rollout one after another, as `Layout` places them. The weights are those of the same run without this carrier.

A carrier is a description with two ends. `Files` derives from `hive.Slots`, so numbers, credit, accounts, pauses and
the repair after a kill are those of slots: only the contents go another way. A producer writes them before it commits
the slot, and a consumer reads them when it has claimed it. Files outlive their writer, so a kill loses no committed
one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import hive

FOLDER = Path("rollouts")


@dataclass(frozen=True)
class Files(hive.Slots):
    """Slots whose contents lie in files of a folder."""

    folder: Path = FOLDER

    in_segment: ClassVar[bool] = False  # the shared memory holds only the words of the slots

    def source(self, end: hive.End) -> hive.Line:
        own = end.channel.producers.index(end.actor)
        view = end.host.views.slab(end.channel.segments[own]).with_slots(self.layout)
        self.folder.mkdir(parents=True, exist_ok=True)
        return FileSender(end, self, view)

    def target(self, end: hive.End) -> hive.Line:
        slabs = {p: end.host.views.slab(end.channel.segments[p]) for p in self.sources(end)}
        return FileReceiver(end, self, {p: view.with_slots(self.layout) for p, view in slabs.items()})

    def file(self, producer: int, number: int) -> Path:
        return self.folder / f"{producer}-{number:06d}.npy"


class FileSender(hive.SlotSender):
    def __init__(self, end: hive.End, carrier: Files, view: Any) -> None:
        super().__init__(end, carrier, view)
        self.carrier = carrier
        self.position = end.channel.producers.index(end.actor)

    def commit(self, slot: hive.Slot) -> int:
        final = self.carrier.file(self.position, slot.sequence)
        unfinished = final.with_suffix(".tmp.npy")
        np.save(unfinished, slot.contents)
        unfinished.replace(final)  # at once: no consumer reads half a file
        return super().commit(slot)


class FileReceiver(hive.SlotReceiver):
    def __init__(self, end: hive.End, carrier: Files, views: Mapping[int, Any]) -> None:
        super().__init__(end, carrier, views)
        self.carrier = carrier

    def claim_nowait(self, producer: int | None = None, sequence: int = -1) -> hive.Slot | None:
        slot = super().claim_nowait(producer, sequence)
        if slot is not None:
            contents = np.load(self.carrier.file(slot.producer, slot.sequence), allow_pickle=False)
            slot.block[: len(contents)] = contents
        return slot


def topology(config: hive.Config) -> hive.Topology:
    t = hive.schemes.build(config)
    rollouts = t["collectors"].rollouts
    slots = t.carrier_of(rollouts)
    t.carry(rollouts, Files(**{field.name: getattr(slots, field.name) for field in fields(slots)}))
    return t


if __name__ == "__main__":
    hive.run(topology, Path(__file__).with_name("cartpole.toml"))
