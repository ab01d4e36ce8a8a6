"""Simulate the built-in trainer with two policies: `hive.training.several_actors`, and a learner for each policy.

A schedule is one of `simulation.trainer` for the first policy; the second has another number of gradients in a round.
Both record the rollouts of their turns, and must keep the promises of a run with one policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hive.config import load_config
from hive.runtime.memory.segments import Arrays
from hive.schemes.trainer import assemble
from hive.training.crew import Crew, common_barriers
from simulation import Simulation, simulate
from simulation.trainer import (
    PER_COLLECTOR,
    Schedule,
    SilentRecorder,
    SimulatedBlueprint,
    World,
    _Collector,
    _GradientWorkerActor,
    _judge,
    schedule,
)

REFUSED = ("collection.fraction_workers", "gradients.decentralized")


class _SeveralCollector:
    """Fills a labelled rollout of each policy."""

    vector = None

    def __init__(self, members: Sequence[_Collector]) -> None:
        self.members = members

    def reset(self, start: int = 0) -> None: ...

    def rebuild(self, vector: object, start: int) -> None: ...

    def collect(self, rollouts: Sequence[Arrays], *, sequence: int, versions: Sequence[int]) -> None:
        for member, rollout, version in zip(self.members, rollouts, versions, strict=True):
            member.collect(rollout, sequence=sequence, version=version)

    def close(self) -> None: ...


@dataclass(frozen=True)
class _SimulatedCrew(Crew):
    """A crew whose collectors have no environments."""

    def collector(self, source: int, *given: Any) -> Any:
        return _SeveralCollector([_Collector(source) for _ in self.blueprints])

    def table(self, *given: Any, **more: Any) -> Any:
        return None


def schedule_of_two(seed: int) -> Schedule:
    """Draw a schedule that several policies can have, with at most three collectors and gradient workers."""
    drawn = schedule(seed, most=3)
    sets = tuple(text for text in drawn.sets if not text.startswith(REFUSED))
    return replace(drawn, sets=sets, moments=False)


def run_two(planned: Schedule, goal: str = "") -> Simulation:
    """Simulate one schedule. `wrong` of the result lists every broken promise of either policy.

    goal: a setting of the second policy alone, which has more gradients to make.
    """
    config, second = (
        load_config("simulated.toml", [*planned.sets, *more], text='[run]\nscheme = "a2c"\n[env]\nid = "none"')
        for more in ((), (goal,) if goal else ())
    )
    worlds = [World({}, []) for _ in range(2)]
    blueprints = tuple(
        SimulatedBlueprint(own, planned.gradients_per_round + number, False, world)
        for number, (own, world) in enumerate(zip((config, second), worlds, strict=True))
    )
    common = common_barriers(config, blueprints)
    for blueprint in blueprints:
        blueprint.barriers = common
    crew = _SimulatedCrew(config, None, blueprints, (Path(), Path("policies/other")))  # type: ignore[arg-type]
    topology = assemble(crew.first, Path(), crew)
    for group in ("recorder", "recorder-1"):
        topology[group].cls = SilentRecorder
    for group in ("gradient-workers", "gradient-workers-1"):
        topology[group].cls = _GradientWorkerActor
    simulation = simulate(topology, planned.seed, planned.faults)
    for world in worlds:
        simulation.wrong += world.wrong
        _judge(simulation, planned, second, world)
    if goal and len({len({rollout % PER_COLLECTOR for rollout in world.rollouts}) for world in worlds}) > 1:
        simulation.wrong.append("the policies have ended after different rounds")
    return simulation
