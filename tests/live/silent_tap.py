"""A topology with an actor that takes rollouts and passes on only the first few: after these nothing can move."""

from __future__ import annotations

import hive
from hive.training import RolloutReady

PASSED = 3


class Tap(hive.Actor):
    """Forwards rollouts in place. It crashes once on the way, and keeps all rollouts after the first PASSED."""

    role = "tap"
    rollouts = hive.SlotInlet(RolloutReady)
    passed = hive.SlotOutlet(RolloutReady)

    def __init__(self, keeps: bool = True) -> None:
        self.keeps = keeps

    async def run(self) -> None:
        while True:
            taken = await self.rollouts.claim(0)
            if taken.sequence == 1 and not self.incarnation:
                raise RuntimeError("the tap crashes with a rollout in its hands")
            if self.keeps and taken.sequence >= PASSED:
                await self.rollouts.claim(0, 10**6)
            if taken.sequence >= self.passed.produced:  # else a predecessor has passed it on
                slot = await self.passed.reserve()
                for name, array in slot.arrays.items():
                    array[...] = taken.arrays[name]
                self.passed.commit(slot)
            self.rollouts.retire(taken)


def topology(config: hive.Config) -> hive.Topology:
    t = hive.schemes.build(config)
    t.insert(t["collectors"].rollouts, t.add(Tap), "rollouts", "passed")
    return t


def honest(config: hive.Config) -> hive.Topology:
    t = hive.schemes.build(config)
    t.insert(t["collectors"].rollouts, t.add(Tap, keeps=False), "rollouts", "passed")
    return t
