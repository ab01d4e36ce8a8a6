"""Where a run begins: its first numbers and its first state, which are those of a checkpoint if it continues from one.

A checkpoint may come from another placement: rounds of another size, another number of gradient workers or another
interval between policies. So the numbers of rounds and gradients are computed from its updates and environment steps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hive.errors import RecordError
from hive.networks.rows.normalization import MOMENTS_OF
from hive.networks.weights.flat import aligned_block
from hive.records import Checkpoint
from hive.runtime.memory.segments import Arrays
from hive.training.blueprint import Blueprint
from hive.training.given_weights import copy_weights_of
from hive.training.schedule import Schedule
from hive.training.update.learner import Count, optimizer_state_layout
from hive.training.update.replay_memory import ReplayMemory, ledger_layout


def first_round(blueprint: Blueprint) -> int:
    """Return the first round of this run: the first that the checkpoint, or that of any policy, has not finished."""
    return blueprint.barriers.resumed_at if blueprint.barriers is not None else own_first_round(blueprint)


def own_first_round(blueprint: Blueprint) -> int:
    """Return the first round that the checkpoint of this policy has not finished."""
    resume = blueprint.resume
    if resume is None:
        return 0
    if blueprint.replays and resume.has_replay:  # which may hold a round that no turn has begun
        return int(resume.state["rounds"])
    return rounds_at(blueprint, resume.update)


def first_gradient(blueprint: Blueprint) -> int:
    """Return the number of each worker's first gradient."""
    return (blueprint.resume.update if blueprint.resume else 0) * blueprint.config.gradients.bootstrap_rounds


def round_shape(blueprint: Blueprint) -> list[int]:
    """Return the settings that relate the number of a round to environment steps and to updates."""
    return [blueprint.round_steps, blueprint.gradients_per_round, blueprint.config.gradients.bootstrap_rounds]


def rounds_at(blueprint: Blueprint, turn: int) -> int:
    """Return the number of rounds that have begun before a turn, and with it those that a run resumed there has."""
    gradients = turn * blueprint.config.gradients.bootstrap_rounds
    return (blueprint.warmup or 0) - (-gradients // blueprint.gradients_per_round)


def schedule_start(blueprint: Blueprint) -> float:
    """Return the round from which schedules count; 0 unless a checkpoint was resumed in rounds of another shape.

    The number of the first round then does not determine the share of the run that is done, and the environment steps
    of the checkpoint do. In asynchronous runs it never does: every gradient of every worker is an update.
    """
    if blueprint.resume is None:
        return 0.0
    state = blueprint.resume.state
    if state.get("round_shape") == round_shape(blueprint) and not blueprint.config.asynchronous:
        return float(state.get("schedule_start", 0.0))
    return first_round(blueprint) - int(state.get("env_steps", 0)) / blueprint.round_steps


def schedule_of(blueprint: Blueprint) -> Schedule:
    """Make the schedule of one actor: the versions, rollouts and gradients that it uses."""
    return Schedule.of(
        blueprint.config,
        blueprint.gradients_per_round,
        blueprint.collectors,
        blueprint.gradient_workers,
        first_round(blueprint),
        blueprint.warmup,
        blueprint.barriers,
        blueprint.turns,
    )


def steps_between_barriers(blueprint: Blueprint) -> int:
    """Return the steps of each environment from one scheduled checkpoint, where all begin anew, to the next; 0: none.

    Asynchronous runs do not begin anew.
    """
    barriers = schedule_of(blueprint).barriers
    anew = barriers.every and not blueprint.config.asynchronous
    return barriers.period * blueprint.config.collection.rollout if anew else 0


def write_first_state(blueprint: Blueprint, state: NDArray[np.uint8], optimizer_state: NDArray[np.uint8]) -> int:
    """Write the initial state, or that of the checkpoint resumed from, and return its turn.

    state: uint8 [state.bytes]. optimizer_state: uint8 [optimizer_state_bytes]. Raises RecordError if the checkpoint
    does not fit this network and optimizer.
    """
    if blueprint.resume is not None:
        state[:] = _bytes_of(blueprint.resume, "weights", len(state))
        _resume_optimizer_state(blueprint, blueprint.resume, optimizer_state)
        return blueprint.resume.update
    blueprint.flat.initialize_into(blueprint.state.weights(state))
    if blueprint.config.run.init_from is not None:
        arrays = blueprint.flat.arrays(blueprint.state.weights(state))
        copy_weights_of(blueprint.config.run.init_from, arrays)
        blueprint.initial.given.write(arrays)
    blueprint.state.moments(state)[:] = 0.0, 1.0
    if blueprint.state.has_target:
        blueprint.state.begin_target(state)
    optimizer_state[:] = 0
    return 0


def write_first_ledger(blueprint: Blueprint, replay: ReplayMemory, ledger: Arrays, weights: NDArray[np.uint8]) -> int:
    """Fill the memory and its first ledger, with the rows of a checkpoint if it has any; return its version.

    weights: the first of this run, whose statistics go on. Raises RecordError for rows that do not fit this run.
    """
    for array in ledger.values():
        array[:] = 0
    buffers = blueprint.flat.buffer_arrays(blueprint.state.weights(weights))
    for name in blueprint.normalized:
        ledger[name][:] = buffers[f"{MOMENTS_OF[name][0]}seen"]
    if blueprint.gives_rows and (given := blueprint.replay.given()) is not None:
        config = blueprint.replay.config
        replay.give(given[1].rollouts(config.discount), ledger, config.given_weight)
    if blueprint.resume is None:
        return 0
    ledger["rollouts"][:] = first_round(blueprint)
    block = aligned_block(blueprint.optimizer_state_bytes)
    _resume_optimizer_state(blueprint, blueprint.resume, block)
    for name, array in blueprint.learner().views(block).items():
        if name in ("counters", "returns", "infos"):
            before = int(ledger["counters"][Count.given])
            ledger[name][:] = array
            ledger["counters"][Count.given] = before
    if blueprint.resume.has_replay:
        stored = ledger_layout(blueprint.collectors, len(blueprint.resume.state.get("info", ())), blueprint.normalized)
        saved = stored.views(_bytes_of(blueprint.resume, "replay_ledger", stored.bytes))
        for name in ("counters", "written", "returns", *blueprint.normalized):
            ledger[name][:] = saved[name]
        if blueprint.barriers is not None:
            ledger["counters"][Count.env_steps] = blueprint.barriers.env_steps
        blueprint.resume.read_replay({name: array for name, array in replay.arrays.items() if name != "held_leaves"})
        replay.tree.rebuild()
        replay.forget_unfinished(ledger)  # also rows that a smaller memory does not keep
    return first_round(blueprint) * blueprint.collectors


def _resume_optimizer_state(blueprint: Blueprint, resume: Checkpoint, optimizer_state: NDArray[np.uint8]) -> None:
    """Restore the optimizer state of a checkpoint, which may have another number of workers."""
    learner, state = blueprint.learner(), resume.state
    workers = int(state.get("gradient_workers", blueprint.gradient_workers))
    stored = [str(name) for name in state.get("info", ())]
    groups = len(blueprint.flat.groups)
    sizes = learner.network.optimizer.moment_blocks, blueprint.flat.parameter_elements, workers, len(stored), groups
    layout = optimizer_state_layout(*sizes)
    part = "optimizer_state" if resume.format > 1 else "ledger"
    before, after = layout.views(_bytes_of(resume, part, layout.bytes)), learner.views(optimizer_state)
    for name in ("counters", "returns", "moments", *(["group_updates"] if groups > 1 else [])):
        after[name][:] = before[name]
    if "infos" in after:  # a value that the checkpoint does not have is missing in its episodes
        after["infos"][:] = np.nan
        for column, name in enumerate(blueprint.config.env.info):
            if name in stored:
                after["infos"][:, column] = before["infos"][:, stored.index(name)]
    if blueprint.barriers is not None:  # a policy with an older checkpoint has lost rounds
        after["counters"][Count.env_steps] = blueprint.barriers.env_steps
    after["applied"][:] = first_gradient(blueprint)  # every worker of the new run begins with this number
    # The behavior version is rollouts // per_version. With another per_version, rescale the count of rollouts so
    # that the version does not go back.
    version = int(before["counters"][Count.rollouts]) // int(state.get("per_version", blueprint.per_version))
    if state.get("per_version", blueprint.per_version) != blueprint.per_version:
        after["counters"][Count.rollouts] = version * blueprint.per_version
    learner.shift_times(optimizer_state)


def _bytes_of(checkpoint: Checkpoint, part: str, size: int) -> NDArray[np.uint8]:
    """Return a part of a checkpoint as uint8 [size]. Raises RecordError if it has another size."""
    data = np.frombuffer(checkpoint.part(part), np.uint8)
    if len(data) != size:
        raise RecordError(
            f"`{part}` of {checkpoint.path} has {len(data)} bytes, this run needs {size}",
            hint="the network and the optimizer must be those of the checkpoint",
        )
    return data
