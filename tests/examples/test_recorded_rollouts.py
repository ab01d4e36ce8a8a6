"""Rollouts that travel through files change no weight, are all recorded, and survive kills."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import recorded_rollouts
from short_runs import CARTPOLE, short_run
from simulation import Faults, simulate

import hive

LAYOUT = hive.Layout({"number": ("int64", ()), "numbers": ("float32", (3,))})
MESSAGES = 12


def test_rollouts_travel_through_files_and_change_no_weight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    few = "run.steps=3_000", "collection.workers=2"
    plain = short_run(hive.schemes.build, CARTPOLE, *few)[0]
    summary = short_run(recorded_rollouts.topology, CARTPOLE, *few, "run.name=recorded")[0]
    assert summary.weights_sha256 == plain.weights_sha256
    files = sorted(path.name for path in (tmp_path / "rollouts").iterdir())
    assert len(files) == summary.channels["rollouts"]["produced"]
    assert files[0] == "0-000000.npy"
    assert {name[0] for name in files} == {"0", "1"}


class Rollout(hive.Message):
    """Written in place."""


class Source(hive.Actor):
    rollouts = hive.SlotOutlet(Rollout)

    async def run(self) -> None:
        while (number := self.rollouts.produced) < MESSAGES:
            slot = await self.rollouts.reserve()
            slot.arrays["number"][...], slot.arrays["numbers"][:] = number, number + 0.5
            self.rollouts.commit(slot)


class Sink(hive.Actor):
    rollouts = hive.SlotInlet(Rollout)

    def __init__(self, seen: list[int]) -> None:
        self.seen = seen

    async def run(self) -> None:
        while True:
            slot = await self.rollouts.claim()
            number = int(slot.arrays["number"])
            assert (slot.arrays["numbers"] == np.float32(number + 0.5)).all()
            self.seen.append(number)
            self.rollouts.retire(slot)
            if number == MESSAGES - 1:
                self.end_run("all were seen")


@pytest.mark.parametrize("seed", range(8))
def test_a_kill_loses_no_committed_file(seed: int, tmp_path: Path) -> None:
    seen: list[int] = []
    t = hive.Topology()
    files = recorded_rollouts.Files(LAYOUT, slots=3, on_death="reoffer", folder=tmp_path)
    t.connect(t.add(Source).rollouts, t.add(Sink, seen=seen).rollouts, files)
    simulation = simulate(t, seed, Faults(deaths=3, after=60))
    assert (simulation.wrong, simulation.errors) == ([], [])
    assert sorted(set(seen)) == [*range(MESSAGES)]
