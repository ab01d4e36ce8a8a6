"""The actors of runs with several policies, beside those of each policy's own (hive.training.actors).

               rollouts of policy 0 ═══> gradient worker ═══> learner 0 ──> recorder 0
    collector  rollouts of policy 1 ═══> gradient worker ═══> learner 1 ──> recorder 1
        ^ ^          behaviour of policy 0, of policy 1           ▓ goal ▓

A collector takes a slot of every policy before the first step, and commits all of them together. One that is killed
between two commits has a successor that makes the rollout again, and commits it only where it is missing.

A run ends when all policies have ended the same round. Each learner writes the round that it has ended into memory that
the others read, and the last round of all, if its own mean return has reached the goal.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from hive.envs.vectors.resetting import report_resets
from hive.errors import EnvironmentFailed
from hive.experience import Purpose, steps_in
from hive.networks.weights.flat import aligned_block
from hive.runtime import START, Actor, Slot, SlotOutlet, Subscription, endpoint
from hive.runtime.memory.segments import Arrays
from hive.training.collect.collector import occasion_of, seed_all_globals
from hive.training.collect.witness import Witness
from hive.training.crew import Crew
from hive.training.messages import RolloutReady, Weights
from hive.training.noticed import log_notices
from hive.training.policies import of_policy, port
from hive.training.run_start import schedule_of


class PoliciesCollectorActor(Actor):
    """Collects rollouts of every policy, each with the behaviour version that its schedule names.

    `policies_collector` makes the subclass with the ports of all policies: `rollouts` and `behaviour` of the first,
    `rollouts_1` and `behaviour_1` of the second, and so on.
    """

    role = "collector"
    source = True

    def __init__(self, crew: Crew, first_source: int = 0) -> None:
        """`first_source`: the number, within the run, of the first collector of this group."""
        config = crew.config
        self.crew = crew
        self.outlets: list[SlotOutlet[RolloutReady]] = [
            getattr(self, port(name)) for name in _numbers("rollouts", crew)
        ]
        self.behaviours: list[Subscription[Weights]] = [
            getattr(self, port(name)) for name in _numbers("behaviour", crew)
        ]
        self.schedules = [schedule_of(blueprint) for blueprint in crew.blueprints]
        self.number = first_source + self.index
        self.seed = config.run.seed
        self.next = min(outlet.produced for outlet in self.outlets)
        self.reset_round = self.schedules[0].barriers.last(self.next)
        self.steps = self.status.counter("env_steps")
        self.skips_not_finite = config.supervision.non_finite == "skip"
        self.told: set[str] = set()  # the names of the warnings and facts that its environments have given
        with self.status(START):
            table = self._new_table(self.reset_round)
            self.collector = crew.collector(self.number, self.incarnation, self.status, table)

        self.witnesses = [Witness(self, blueprint, self.number) for blueprint in crew.blueprints]

    @classmethod
    def private_bytes(cls, parameters: Mapping[str, Any]) -> int:
        """Return the bytes of its networks."""
        return sum(blueprint.network_bytes for blueprint in parameters["crew"].blueprints)

    def _new_table(self, start: int) -> Any:
        """Return new environments. start: the round of the reset that follows."""
        built = start if self.crew.config.env.rebuild else 0
        seed_all_globals(self.seed, Purpose.building, self.number, occasion_of(built, self.incarnation))
        return self.crew.table(self.number, built, self.incarnation)

    async def setup(self) -> None:
        """Reset the environments, so that an environment that fails to reset ends the run before it begins."""
        with self.status(START):
            self.collector.reset(self.reset_round)

    async def run(self) -> None:
        first = self.schedules[0].collection
        while True:
            slots = [await self._slot(outlet) for outlet in self.outlets]
            self._reset_at_barrier(self.next)
            versions = []
            for member, behaviour, schedule in zip(
                self.collector.members, self.behaviours, self.schedules, strict=True
            ):
                version, weights = await behaviour.pin(schedule.collection.behaviour_version(self.next))
                versions.append(version)
                member.bind(weights)
            lag = first.lag(self.next, versions[0], self.behaviours[0].latest)
            self.status.show_version(versions[0], lag)
            self._collect(self._memory(slots), versions)
            for behaviour in self.behaviours:
                behaviour.unpin()
            for witness, slot in zip(self.witnesses, slots, strict=True):
                if slot is not None:
                    witness.see(self.next, slot.arrays)
            if self.number == 0:  # the environments of the others are alike
                log_notices(self, self.collector.vector, self.told)
            made = next(slot for slot in slots if slot is not None)
            self.status.add(self.steps, steps_in(made.arrays))
            for outlet, slot in zip(self.outlets, slots, strict=True):
                if slot is not None:
                    outlet.commit(slot)
            self.next += 1

    async def _slot(self, outlet: SlotOutlet[RolloutReady]) -> Slot | None:
        """Reserve the slot of the next rollout; None where a predecessor has committed that already."""
        return None if outlet.produced > self.next else await outlet.reserve()

    def _memory(self, slots: Sequence[Slot | None]) -> list[Arrays]:
        """Return the memory of each policy's rollout: its slot, or memory that is not read."""
        pairs = zip(slots, [blueprint.rollout_layout for blueprint in self.crew.blueprints], strict=True)
        return [
            slot.arrays if slot is not None else layout.views(aligned_block(layout.bytes)) for slot, layout in pairs
        ]

    def _reset_at_barrier(self, sequence: int) -> None:
        """Reset the environments if a resume barrier lies between the previous rollout and this one."""
        barrier = self.schedules[0].barriers.last(sequence)
        if barrier != self.reset_round:
            self.reset_round = barrier
            with self.status(START):
                if self.crew.config.env.rebuild:
                    self.collector.close()  # the new ones may open the same ports
                    self.collector.rebuild(self._new_table(barrier), barrier)
                else:
                    self.collector.reset(barrier)

    def _collect(self, rollouts: Sequence[Arrays], versions: Sequence[int]) -> None:
        report_resets(self.status.page.pulse)
        try:
            self.collector.collect(rollouts, sequence=self.next, versions=versions)
        except EnvironmentFailed as error:
            error.permanent &= not (error.not_finite and self.skips_not_finite)
            raise

    @endpoint
    async def update_algorithm_parameter(self, name: str, value: object) -> None:
        """Change one hyper-parameter of all policies from the next rollout on."""
        for member in self.collector.members:
            member.change_key(name, value)

    async def teardown(self) -> None:
        for witness in self.witnesses:
            witness.close()
        self.collector.close()


def _numbers(name: str, crew: Crew) -> list[str]:
    return [of_policy(name, number) for number in range(len(crew.blueprints))]


@functools.cache
def policies_collector(policies: int) -> type[PoliciesCollectorActor]:
    """Return the class of collectors of this many policies."""
    ports: dict[str, Any] = {}
    for number in range(policies):
        ports[port(of_policy("rollouts", number))] = SlotOutlet(RolloutReady)
        ports[port(of_policy("behaviour", number))] = Subscription(Weights)
    return type("PoliciesCollectorActor", (PoliciesCollectorActor,), ports)
