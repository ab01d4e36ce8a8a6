"""Makes the environments of a config that have processes of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hive.config import EnvConfig
from hive.config.sizes import bytes_of
from hive.cores import cores
from hive.envs.external.program import Program
from hive.envs.processes.environment_process import EnvironmentProcess, Launch
from hive.envs.processes.process_vector import ProcessVector, Watcher, mixed
from hive.envs.processes.stepper import Stepper
from hive.envs.processes.supervised import Limits
from hive.envs.recipe import Recipe
from hive.envs.spaces.spec import EnvironmentSpec
from hive.envs.vectors.row_block import RowBlock

SEED_SHIFT = 32  # seeds of environments have 31 bits
STEP_LIMIT_S = 60.0  # of one step, outside of a run, which has supervision.phase_limit_s
START_LIMIT_S = 300.0  # the same of a start and of a reset


@dataclass(frozen=True)
class Household:
    """Facts that processes of environments need besides the config.

    reseed: as of `Supervised`. output: the file for what the processes of an environment print, given its number in the
    collector; None: in memory. start_limit_s, step_limit_s: where the config sets none. collectors: of this machine,
    each of which has as many processes. may_leave_out: whether env.on_failure is followed; an evaluation would wait
    for the episodes of one that is left out.
    """

    watcher: Watcher
    reseed: Callable[[int, int], int] = lambda index, incarnation: mixed(incarnation, index + 1) >> SEED_SHIFT
    output: Callable[[int], Path | None] = lambda _: None
    start_limit_s: float = START_LIMIT_S
    step_limit_s: float = STEP_LIMIT_S
    collectors: int = 1
    may_leave_out: bool = True


def process_vector(
    env: EnvConfig, recipe: Recipe, spec: EnvironmentSpec, count: int, household: Household
) -> ProcessVector:
    """Return `count` environments, which exist after `make_environments`. spec: what all of them must have."""
    counts = divided(count, env.processes_for(count))
    spins = household.collectors * len(counts) < cores()
    launch = Launch(recipe, spec.observation, spec.action, len(env.info), spec.rows, spins)

    def stepper(block: RowBlock, number: int, first: int, many: int) -> Stepper:
        if recipe.is_program:
            return Program(
                recipe,
                block.row(first, first + many),
                block.arrays["actions"][first : first + many],
                spec.observation,
                spec.action,
                first=first,
                output=household.output(first),
                took=block.arrays["step_ns"][number : number + 1],
                plays=block.arrays["plays"],
            )
        return EnvironmentProcess(launch, block, number, first, many, household.output(first))

    return ProcessVector(
        spec.observation,
        spec.action,
        stepper,
        counts,
        limits_of(env, household),
        household.watcher,
        household.reseed,
        infos=len(env.info),
        rows=spec.rows,
        spins=None if recipe.is_program else spins,
    )


def limits_of(env: EnvConfig, household: Household) -> Limits:
    """Return the limits of one process."""
    start_s = household.start_limit_s if env.start_limit_s is None else env.start_limit_s
    return Limits(
        start_s,
        start_s if env.reset_limit_s is None else env.reset_limit_s,
        household.step_limit_s if env.step_limit_s is None else env.step_limit_s,
        bytes_of(env.memory_limit),
        env.restarts,
        env.window_s,
        env.on_failure == "leave out" and household.may_leave_out,
    )


def divided(count: int, number: int) -> list[int]:
    """Return how many of `count` environments each of `number` processes has."""
    return [count * (part + 1) // number - count * part // number for part in range(number)]
