"""Where a run begins: its first numbers and its first state, which are those of a checkpoint if it continues from one.

A checkpoint may come from another placement: rounds of another size, another number of gradient workers or another
interval between policies. Gradients keep their numbers, of which each update takes the next. Rounds are counted anew if
they have another shape, because schedules count steps by them:

    first round of the run             environment steps of the checkpoint / steps of a round
    round of gradient 0                first round - rounds of this shape that its updates are made of; may be negative

So a learner neither makes updates of rounds that are missing nor waits for rounds that it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hive.errors import RecordError
from hive.networks.rows.normalization import MOMENTS_OF
from hive.networks.weights.flat import aligned_block
from hive.records import Checkpoint
from hive.runtime.memory.segments import Arrays
from hive.training.given_weights import copy_weights_of
from hive.training.schedule import Schedule
from hive.training.update.learner import Count, optimizer_state_layout
from hive.training.update.replay_memory import ReplayMemory, ledger_layout

if TYPE_CHECKING:
    from hive.training.blueprint import Blueprint


def first_round(blueprint: Blueprint) -> int:
    """Return the first round of this run: the first that the checkpoint, or that of any policy, has not finished."""
    return blueprint.barriers.resumed_at if blueprint.barriers is not None else own_first_round(blueprint)


def own_first_round(blueprint: Blueprint) -> int:
    """Return the first round that the checkpoint of this policy has not finished."""
    resume = blueprint.resume
    if resume is None:
        return 0
    if blueprint.config.asynchronous:  # more rounds may have begun than those of its updates
        return _rounds_by_steps(blueprint, resume)
    begun = rounds_at(blueprint, resume.update)
    if not (blueprint.replays and resume.has_replay):
        return begun
    if same_rounds(blueprint):
        return int(resume.state["rounds"])  # the memory may hold a round that no turn has begun
    return begun if resume.update else min(_rounds_by_steps(blueprint, resume), begun)


def first_gradient(blueprint: Blueprint) -> int:
    """Return the number of each worker's first gradient."""
    return (blueprint.resume.update if blueprint.resume else 0) * blueprint.config.gradients.bootstrap_rounds


def round_shape(blueprint: Blueprint) -> list[int]:
    """Return the settings that relate the number of a round to environment steps and to updates."""
    return [blueprint.round_steps, blueprint.gradients_per_round, blueprint.config.gradients.bootstrap_rounds]


def same_rounds(blueprint: Blueprint) -> bool:
    """Return whether rounds keep the numbers that they had in the checkpoint: in asynchronous runs they have none."""
    if blueprint.resume is None:
        return True
    return blueprint.resume.state.get("round_shape") == round_shape(blueprint) and not blueprint.config.asynchronous


def first_gradient_round(blueprint: Blueprint) -> int:
    """Return the round that a worker's gradient 0 is made of: the first one after the warm-up of a new run."""
    planned, resume = blueprint.warmup or 0, blueprint.resume
    if resume is None or (blueprint.config.asynchronous and not blueprint.replays):
        return planned
    same, asynchronous = same_rounds(blueprint), blueprint.config.asynchronous
    kept = int(resume.state.get("first_gradient_round", planned)) if resume.update else planned
    if resume.update and same:
        return kept
    done = int(resume.state.get("rounds", 0)) if same else _rounds_by_steps(blueprint, resume)
    by_steps = done - _rounds_of(blueprint, resume.update)
    most = kept + 1 + (blueprint.config.collection.max_lag if asynchronous else 0)  # rounds may begin before updates
    if resume.update == 0:
        return planned if by_steps <= most else by_steps  # its warm-up may be shorter now than what has been collected
    fits = resume.state.get("round_shape") == round_shape(blueprint) and kept <= by_steps <= most
    return kept if fits else by_steps


def rounds_at(blueprint: Blueprint, turn: int) -> int:
    """Return the number of rounds that have begun before a turn, and with it those that a run resumed there has."""
    return first_gradient_round(blueprint) + _rounds_of(blueprint, turn)


def _rounds_of(blueprint: Blueprint, turn: int) -> int:
    """Return the number of rounds, the last one in part, that the gradients before a turn are made of."""
    return -(-turn * blueprint.config.gradients.bootstrap_rounds // blueprint.gradients_per_round)


def _rounds_by_steps(blueprint: Blueprint, resume: Checkpoint) -> int:
    """Return the full rounds in the environment steps of a checkpoint: as many as end a turn together."""
    per_turn = blueprint.config.gradients.bootstrap_rounds
    return _steps_of(resume) // blueprint.round_steps // per_turn * per_turn


def _steps_of(resume: Checkpoint) -> int:
    """Return the environment steps of a checkpoint. Within a warm-up no turn has counted them yet."""
    state = resume.state
    if not resume.update and "round_shape" in state:
        return int(state.get("rounds", 0)) * int(state["round_shape"][0])
    return int(state.get("env_steps", 0))


def schedule_start(blueprint: Blueprint) -> float:
    """Return the round from which schedules count; 0 unless a checkpoint was resumed in rounds of another shape.

    The number of the first round then does not determine the share of the run that is done, and the environment steps
    of the checkpoint do. In asynchronous runs it never does: every gradient of every worker is an update.
    """
    if blueprint.resume is None:
        return 0.0
    state = blueprint.resume.state
    if same_rounds(blueprint):
        return float(state.get("schedule_start", 0.0))
    return first_round(blueprint) - _steps_of(blueprint.resume) / blueprint.round_steps


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
        first_gradient_round(blueprint),
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
    if (run := blueprint.config.run).init_from is not None:
        arrays = blueprint.flat.arrays(blueprint.state.weights(state))
        copy_weights_of(run.init_from, arrays, statistics=run.init_statistics)
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
        ledger["counters"][Count.rollouts] = _rollouts_of(blueprint, blueprint.resume, ledger)
        if blueprint.barriers is not None:
            ledger["counters"][Count.env_steps] = blueprint.barriers.env_steps
        rows = {name: array for name, array in replay.arrays.items() if name != "held_leaves"}
        if [span.stop for span in blueprint.resume.read_replay(rows)] != saved["written"].tolist():
            raise RecordError(f"the ledger of {blueprint.resume.path} counts other rows than its replay memory has")
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
    before, after = layout.views(_bytes_of(resume, "optimizer_state", layout.bytes)), learner.views(optimizer_state)
    for name in ("counters", "returns", "moments", *(["group_updates"] if groups > 1 else [])):
        after[name][:] = before[name]
    if "infos" in after:  # a value that the checkpoint does not have is missing in its episodes
        after["infos"][:] = np.nan
        for column, name in enumerate(blueprint.episode_values):
            if name in stored:
                after["infos"][:, column] = before["infos"][:, stored.index(name)]
    if blueprint.barriers is not None:  # a policy with an older checkpoint has lost rounds
        after["counters"][Count.env_steps] = blueprint.barriers.env_steps
    after["applied"][:] = first_gradient(blueprint)  # every worker of the new run begins with this number
    after["counters"][Count.rollouts] = _rollouts_of(blueprint, resume, before)
    learner.shift_times(optimizer_state)


def _rollouts_of(blueprint: Blueprint, resume: Checkpoint, stored: Arrays) -> int:
    """Return the count of rollouts that a run begins with. stored: the fields of the checkpoint with its counters.

    Without order the behaviour version is rollouts // per_version, which must not go back. Else rounds are counted,
    unless a checkpoint of an earlier hive does not say which shape they had.
    """
    rollouts, per_version = int(stored["counters"][Count.rollouts]), blueprint.per_version
    if blueprint.config.asynchronous or "round_shape" not in resume.state:
        before = int(resume.state.get("per_version", per_version))
        return rollouts if before == per_version else rollouts // before * per_version
    return rollouts if same_rounds(blueprint) else first_round(blueprint) * blueprint.collectors


def _bytes_of(checkpoint: Checkpoint, part: str, size: int) -> NDArray[np.uint8]:
    """Return a part of a checkpoint as uint8 [size]. Raises RecordError if it has another size."""
    data = np.frombuffer(checkpoint.part(part), np.uint8)
    if len(data) != size:
        raise RecordError(
            f"`{part}` of {checkpoint.path} has {len(data)} bytes, this run needs {size}",
            hint="the network and the optimizer must be those of the checkpoint",
        )
    return data
