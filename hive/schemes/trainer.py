"""The built-in trainer as a topology: collectors, gradient workers, a learner and a recorder.

Worker counts of 0 change only the placement. `collection.workers = 0` puts a collector into each gradient worker's
process, and `gradients.workers = 0` puts the gradient worker into the learner's process. Both together make one
training process.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from hive.config import Config, PPOConfig
from hive.errors import RecordError, TopologyError
from hive.hosts import connect_hosts, host_facts, resumed_elsewhere
from hive.records import Checkpoint, RunDirectory, list_checkpoints, read_resume_point
from hive.runtime import Board, Group, Shared, Slots, Topology, Zmq, size_text
from hive.training import (
    REPLAY_VALUES,
    RESULTS,
    Blueprint,
    CollectorActor,
    EvaluatorActor,
    GradientWorkerActor,
    LearnerActor,
    Recorder,
    ReplayLearnerActor,
    ReplayWorkerActor,
    best_by,
    first_gradient,
    first_round,
    info_counters,
    replica_slots,
)


def resumed_from(directory: Path) -> Checkpoint | None:
    """Return the checkpoint that `hive resume` has chosen for this run, or None if the run begins with nothing.

    Raises RecordError if the checkpoint is gone.
    """
    facts = host_facts(directory)
    if facts is not None:
        return resumed_elsewhere(directory, facts)
    chosen = read_resume_point(RunDirectory(directory))
    if chosen is None:
        return None
    found = [c for c in list_checkpoints(directory / "checkpoints") if c.update == chosen.update]
    if not found and chosen.update == 0:
        return None  # it ended before the first checkpoint, and begins again
    if not found:
        raise RecordError(
            f"checkpoint {chosen.update:06d} of {directory} is gone", hint="`hive resume` selects another"
        )
    return found[0]


def trainer(config: Config, directory: Path) -> Topology:
    """Build the topology of a trainer. `directory`: that of the run.

    Raises TopologyError for workers that would wait for each other forever, RecordError, and what a Blueprint raises.
    """
    return assemble(Blueprint(config, resumed_from(directory)), directory)


def assemble(blueprint: Blueprint, directory: Path) -> Topology:
    """Build the topology of a blueprint. Raises TopologyError for workers that would wait for each other forever."""
    _check_progress(blueprint)
    if blueprint.replays and blueprint.resume is None:
        _check_disk(blueprint, directory)
    collection, gradients = blueprint.config.collection, blueprint.config.gradients
    processes = ["learner-0"] if not gradients.workers else [f"gradient-worker-{w}" for w in range(gradients.workers)]
    # Collectors without a dedicated process share those of the gradient workers.
    collector_processes = None if collection.workers else processes

    t = Topology()
    collector = t.add(CollectorActor, count=blueprint.collectors, process=collector_processes, blueprint=blueprint)
    worker = t.add(
        ReplayWorkerActor if blueprint.replays else GradientWorkerActor,
        count=blueprint.gradient_workers,
        process=processes,
        blueprint=blueprint,
        directory=directory,
    )
    learner = t.add(ReplayLearnerActor if blueprint.replays else LearnerActor, blueprint=blueprint)
    recorder = t.add(Recorder, last=True, blueprint=blueprint, directory=directory)

    _connect_data(t, blueprint, collector, worker, learner)
    _connect_state(t, blueprint, collector, worker, learner, recorder)
    if blueprint.replays:
        _connect_replay(t, blueprint, worker, learner, recorder)
    t.connect(learner.metrics, recorder.metrics)
    t.connect(learner.checkpoints, recorder.checkpoints)
    best = best_by(blueprint)
    if best == "evaluation":
        _evaluate(t, blueprint, learner, recorder, directory)
    elif best == "training":
        t.connect(learner.improved, recorder.improved)
    connect_hosts(t, blueprint, directory)

    counters = REPLAY_VALUES if blueprint.replays else ()
    t.results(learner, *RESULTS, *info_counters(blueprint.config.env.info), *counters)
    t.digest(learner.weights, blueprint.flat.block_bytes)
    return t


def _connect_data(t: Topology, blueprint: Blueprint, collector: Group, worker: Group, learner: Group) -> None:
    """Connect rollouts and gradients."""
    collection, gradients = blueprint.config.collection, blueprint.config.gradients
    asynchronous = collection.communication == "asynchronous"
    # In the deterministic modes worker w of W takes rollouts of the collectors c with c mod W = w. Asynchronously it
    # takes any rollout, unless each worker owns its share.
    by_share = not asynchronous or collection.ownership == "gradient_worker"
    share = 1 if asynchronous else -(-blueprint.collectors // blueprint.gradient_workers)
    rollouts, gradient = blueprint.rollout_layout, blueprint.gradient_layout(share)
    slots = gradients.bootstrap_rounds + gradients.max_lag + 1
    if gradients.decentralized:
        slots = replica_slots(gradients.max_lag, gradients.bootstrap_rounds)
    carrier = Zmq if blueprint.config.run.carrier == "zmq" else Slots
    # The learner of a replay memory takes the rollouts. What it had claimed when it was killed, its successor appends.
    t.connect(
        collector.rollouts,
        learner.rollouts if blueprint.replays else worker.rollouts,
        carrier(
            rollouts,
            slots=collection.slots,
            by_share=by_share and not blueprint.replays,
            first=first_round(blueprint),
            in_step=not asynchronous,
            on_death="reoffer" if blueprint.replays else "drop",
        ),
    )
    t.connect(
        worker.gradients,
        learner.gradients,
        carrier(
            gradient, slots=slots, on_death="reoffer", first=first_gradient(blueprint), shared=gradients.decentralized
        ),
    )


def _connect_state(
    t: Topology, blueprint: Blueprint, collector: Group, worker: Group, learner: Group, recorder: Group
) -> None:
    """Connect the optimizer state, the weights and the behaviour policy."""
    collection, gradients = blueprint.config.collection, blueprint.config.gradients
    # The version of the optimizer state commits both boards: weights and moments change together or not at all.
    t.connect(learner.optimizer_state, recorder.optimizer_state, Board(blueprint.optimizer_state_bytes))
    if gradients.decentralized:
        t.connect(learner.optimizer_state, worker.optimizer_state)
    t.connect(
        learner.weights,
        worker.state,
        Board(blueprint.state.bytes, keep=gradients.max_lag + 1, commit_with="optimizer_state"),
    )
    t.connect(learner.weights, recorder.weights)
    t.connect(learner.behaviour, collector.behaviour, Board(blueprint.flat.block_bytes, keep=collection.max_lag + 1))
    if collection.communication == "asynchronous" and not blueprint.replays:
        t.connect(learner.behaviour, worker.behaviour)


def _check_disk(blueprint: Blueprint, directory: Path) -> None:
    """Raise TopologyError if the disk has no room for a checkpoint of the replay memory when it is full."""
    needed = blueprint.replay.saved_bytes
    existing = next(folder for folder in (directory, *directory.absolute().parents) if folder.is_dir())
    free = shutil.disk_usage(existing).free
    if needed > free:
        raise TopologyError(
            f"a checkpoint of the full replay memory has {size_text(needed)}, and the disk of {existing} has "
            f"{size_text(free)} left",
            hint="lower algorithm.replay_capacity, or leave the memory out of checkpoints: checkpoint.replay = false "
            "(a resumed run is then not exact)",
        )


def _connect_replay(t: Topology, blueprint: Blueprint, worker: Group, learner: Group, recorder: Group) -> None:
    """Connect the replay memory, its ledger and the plans."""
    layout, config = blueprint.memory_layout, blueprint.config
    sparse = blueprint.replay.sparse_finals_bytes
    t.connect(learner.memory, worker.memory, Shared(layout.bytes, sparse, config.run.replay_folder or ""))
    t.connect(learner.memory, recorder.memory)
    t.connect(learner.ledger, recorder.ledger, Board(blueprint.ledger_layout.bytes))
    t.connect(recorder.floor, learner.floor, Shared(8 * (1 + blueprint.collectors)))
    ahead = config.gradients.max_lag // blueprint.gradients_per_batch + 1  # plans that may be in use at once
    t.connect(learner.plans, worker.plans, Board(blueprint.plan_layout.bytes, keep=ahead + 1))


def _evaluate(t: Topology, blueprint: Blueprint, learner: Group, recorder: Group, directory: Path) -> None:
    """Add the evaluators, the last readers of the weights: the learner holds versions by the position of a reader."""
    workers = blueprint.config.evaluation.workers
    evaluator = t.add(EvaluatorActor, group="evaluator", count=workers, blueprint=blueprint, directory=directory)
    t.connect(learner.weights, evaluator.weights)
    t.connect(learner.evaluations_due, evaluator.due)
    t.connect(evaluator.evaluations, recorder.evaluations)


def _check_progress(blueprint: Blueprint) -> None:
    """Raise TopologyError for workers that would wait for each other forever."""
    collection, gradients = blueprint.config.collection, blueprint.config.gradients
    workers, rollouts = blueprint.gradient_workers, collection.slots * blueprint.collectors
    if blueprint.asks_for_moments and gradients.bootstrap_rounds > 1:
        has_choice = isinstance(blueprint.config.algorithm, PPOConfig)
        other = 'normalize_over = "minibatch"' if has_choice else "normalize_advantages = false"
        raise TopologyError(
            f"{workers} gradient workers cannot share the normalization of advantages with gradients.bootstrap_rounds "
            f"= {gradients.bootstrap_rounds}: a gradient would wait for the update that it is part of",
            hint=f"set gradients.bootstrap_rounds = 1, or algorithm.{other}",
        )
    # A worker may hold its next rollout while it waits for an update, and an update needs a gradient of every worker.
    all_together = gradients.communication != "asynchronous"
    if collection.communication == "asynchronous" and all_together and rollouts < workers:
        raise TopologyError(
            f"{workers} gradient workers hold a rollout each, but there are only {rollouts} slots",
            hint=f"set collection.slots to {-(-workers // blueprint.collectors)} or more",
        )
