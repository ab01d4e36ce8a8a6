"""The built-in trainer as a topology: collectors, gradient workers, a learner and a recorder.

Worker counts of 0 change only the placement. `collection.workers = 0` puts a collector into each gradient worker's
process, and `gradients.workers = 0` puts the gradient worker into the learner's process. Both together make one
training process.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from hive.config import Config, PPOConfig
from hive.errors import RecordError, TopologyError
from hive.free_memory import size_text
from hive.hosts import connect_hosts, host_facts, resumed_elsewhere
from hive.records import Checkpoint, RunDirectory, list_checkpoints, read_resume_point
from hive.runtime import Board, Group, PortRef, Shared, SharedIn, Slots, Topology, Zmq
from hive.training import (
    CHANGES_BYTES,
    GOAL_BYTES,
    REPLAY_VALUES,
    RESULTS,
    Blueprint,
    CallbackActor,
    CallbacksState,
    CollectorActor,
    Crew,
    Goal,
    GradientWorkerActor,
    LearnerActor,
    Policies,
    Recorder,
    ReplayLearnerActor,
    ReplayWorkerActor,
    answer_layout,
    best_by,
    check_crew,
    check_has_agents,
    check_has_transitions,
    crew_needed,
    environment_of,
    first_gradient,
    first_round,
    folders_of,
    info_counters,
    of_policy,
    policies_collector,
    policies_evaluator,
    port,
    replica_slots,
    with_goal,
    witness_folder,
    write_policies,
)


def resumed_from(directory: Path) -> Checkpoint | None:
    """Return the checkpoint that `hive resume` has chosen for this run, or None if the run begins with nothing.

    Raises RecordError if the checkpoint is gone.
    """
    facts = host_facts(directory) if directory.is_dir() else None
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
    check_has_transitions(config)
    environment = environment_of(config, RunDirectory(directory) if directory.is_dir() else None)
    policies = crew_needed(environment, config)
    if policies is None:
        if not environment.agents:
            check_has_agents(config)
            return assemble(Blueprint(config, resumed_from(directory), environment), directory)
        alone = Policies.of(config, environment)
        write_policies(alone, directory)
        first = alone.learning[0]
        return assemble(Blueprint(first.config, resumed_from(directory), first.seat.spec), directory)
    check_crew(config)
    write_policies(policies, directory)
    folders = folders_of(directory, policies)
    crew = Crew.of(config, policies, directory, [resumed_from(folder) for folder in folders])
    return assemble(crew.first, directory, crew)


def assemble(blueprint: Blueprint, directory: Path, crew: Crew | None = None) -> Topology:
    """Build the topology of a blueprint, or of the policies of a crew.

    Raises TopologyError for workers that would wait for each other forever.
    """
    blueprints = (blueprint,) if crew is None else crew.blueprints
    facts = host_facts(directory) if directory.is_dir() else None
    for one, folder in zip(blueprints, [directory] if crew is None else crew.folders, strict=True):
        one.run = directory.name if facts is None else facts.run
        one.witness = None if facts is not None else witness_folder(one.config, folder)
        _check_progress(one)
        if one.replays and one.resume is None:
            _check_disk(one, directory)
    collection = blueprint.config.collection
    spec = blueprint.environment
    # Collectors without a dedicated process share those of the gradient workers.
    processes = None if collection.workers else _gradient_processes(blueprint, 0)
    t = Topology()
    if not spec.deterministic:
        t.inexact.append(f"`{spec.id}` does not say that equal seeds give equal bytes (`deterministic` in its hello)")
    if crew is None:
        given = (
            {"blueprint": blueprint, "directory": directory}
            if blueprint.config.env.is_apart
            else {"blueprint": blueprint}
        )
        collector = t.add(CollectorActor, count=blueprint.collectors, process=processes, **given)
    else:
        several = policies_collector(len(blueprints))
        collector = t.add(several, group="collectors", count=blueprint.collectors, process=processes, crew=crew)
    added = [
        _add_policy(t, one, directory if crew is None else crew.folders[number], collector, number, crew)
        for number, one in enumerate(blueprints)
    ]
    learners = [learner for learner, _ in added]
    if best_by(blueprint) == "evaluation":
        _evaluate(t, blueprint, added, directory, crew)
    _connect_goals(t, learners)
    connect_hosts(t, blueprint, directory)
    counters = REPLAY_VALUES if blueprint.replays else ()
    t.results(learners[0], *RESULTS, *info_counters(blueprint.config.env.info), *counters)
    t.digest(learners[0].weights, blueprint.flat.block_bytes)
    return t


def _gradient_processes(blueprint: Blueprint, number: int) -> list[str]:
    """Return the processes of the gradient workers of policy `number`: by default that of its learner."""
    workers = blueprint.config.gradients.workers
    return [f"gradient-worker-{number * workers + w}" for w in range(workers)] or [f"learner-{number}"]


def _add_policy(
    t: Topology, blueprint: Blueprint, directory: Path, collector: Group, number: int, crew: Crew | None
) -> tuple[Group, Group]:
    """Add the actors of a policy; return its learner and its recorder. directory: where it is recorded."""
    worker = t.add(
        ReplayWorkerActor if blueprint.replays else GradientWorkerActor,
        group=of_policy("gradient-workers", number),
        count=blueprint.gradient_workers,
        process=_gradient_processes(blueprint, number),
        blueprint=blueprint,
        directory=directory,
    )
    kind: type = ReplayLearnerActor if blueprint.replays else LearnerActor
    learner = t.add(
        kind if crew is None or len(crew.blueprints) == 1 else with_goal(kind, len(crew.blueprints)),
        group=of_policy("learner", number),
        blueprint=blueprint,
    )
    recorder = t.add(
        Recorder,
        group=of_policy("recorder", number),
        role=of_policy("recorder", number),
        last=True,
        blueprint=blueprint,
        directory=directory,
    )
    _connect_data(t, blueprint, collector, worker, learner, number)
    _connect_state(t, blueprint, collector, worker, learner, recorder, number)
    if blueprint.replays:
        _connect_replay(t, blueprint, worker, learner, recorder, number)
    t.connect(learner.metrics, recorder.metrics, name=of_policy("metrics", number))
    t.connect(learner.checkpoints, recorder.checkpoints, name=of_policy("checkpoints", number))
    if blueprint.records_episodes:
        t.connect(learner.episodes, recorder.episodes, name=of_policy("episodes", number))
    best = best_by(blueprint)
    if number == 0 and blueprint.wanted.any:
        _call_back(t, blueprint, None if crew else collector, worker, learner, recorder)
    if best == "training":
        t.connect(learner.improved, recorder.improved, name=of_policy("improved", number))
    return learner, recorder


def _connect_goals(t: Topology, learners: Sequence[Group]) -> None:
    """Let the learners of several policies end together."""
    for number, learner in enumerate(learners):
        for other in learners if len(learners) > 1 else ():
            if other is not learner:
                target: PortRef[SharedIn[Goal]] = getattr(other, f"goal_of_{number}")
                t.connect(learner.own_goal, target, Shared(GOAL_BYTES), name=f"goal-{number}")


def _connect_data(
    t: Topology, blueprint: Blueprint, collector: Group, worker: Group, learner: Group, number: int
) -> None:
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
        getattr(collector, port(of_policy("rollouts", number))),
        learner.rollouts if blueprint.replays else worker.rollouts,
        carrier(
            rollouts,
            slots=collection.slots,
            by_share=by_share and not blueprint.replays,
            first=first_round(blueprint),
            in_step=not asynchronous,
            on_death="reoffer" if blueprint.replays else "drop",
        ),
        name=of_policy("rollouts", number),
    )
    t.connect(
        worker.gradients,
        learner.gradients,
        carrier(
            gradient, slots=slots, on_death="reoffer", first=first_gradient(blueprint), shared=gradients.decentralized
        ),
        name=of_policy("gradients", number),
    )


def _connect_state(
    t: Topology, blueprint: Blueprint, collector: Group, worker: Group, learner: Group, recorder: Group, number: int
) -> None:
    """Connect the optimizer state, the weights and the behaviour policy."""
    collection, gradients = blueprint.config.collection, blueprint.config.gradients
    # The version of the optimizer state commits both boards: weights and moments change together or not at all.
    commit = of_policy("optimizer" if number else "optimizer_state", number)
    t.connect(learner.optimizer_state, recorder.optimizer_state, Board(blueprint.optimizer_state_bytes), name=commit)
    if gradients.decentralized:
        t.connect(learner.optimizer_state, worker.optimizer_state)
    t.connect(
        learner.weights,
        worker.state,
        Board(blueprint.state.bytes, keep=gradients.max_lag + 1, commit_with=commit),
        name=of_policy("weights", number),
    )
    t.connect(learner.weights, recorder.weights)
    behaviour = getattr(collector, port(of_policy("behaviour", number)))
    board = Board(blueprint.flat.block_bytes, keep=collection.max_lag + 1)
    t.connect(learner.behaviour, behaviour, board, name=of_policy("behaviour", number))
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


def _connect_replay(
    t: Topology, blueprint: Blueprint, worker: Group, learner: Group, recorder: Group, number: int
) -> None:
    """Connect the replay memory, its ledger and the plans."""
    layout, config = blueprint.memory_layout, blueprint.config
    sparse = blueprint.replay.sparse_finals_bytes
    memory = Shared(layout.bytes, sparse, config.run.replay_folder or "")
    t.connect(learner.memory, worker.memory, memory, name=of_policy("memory", number))
    t.connect(learner.memory, recorder.memory)
    t.connect(learner.ledger, recorder.ledger, Board(blueprint.ledger_layout.bytes), name=of_policy("ledger", number))
    t.connect(recorder.floor, learner.floor, Shared(8 * (1 + blueprint.collectors)), name=of_policy("floor", number))
    ahead = config.gradients.max_lag // blueprint.gradients_per_batch + 1  # plans that may be in use at once
    plans = Board(blueprint.plan_layout.bytes, keep=ahead + 1)
    t.connect(learner.plans, worker.plans, plans, name=of_policy("plans", number))


def _evaluate(
    t: Topology, blueprint: Blueprint, policies: Sequence[tuple[Group, Group]], directory: Path, crew: Crew | None
) -> None:
    """Add the evaluators, the last readers of the weights: a learner holds versions by the position of a reader."""
    workers = blueprint.config.evaluation.workers
    kind = policies_evaluator(len(policies))
    evaluator = t.add(kind, group="evaluator", count=workers, blueprint=blueprint, directory=directory, crew=crew)
    for number, (learner, recorder) in enumerate(policies):
        due, weights, made = (
            getattr(evaluator, port(of_policy(name, number))) for name in ("due", "weights", "evaluations")
        )
        t.connect(learner.weights, weights)
        t.connect(learner.evaluations_due, due, name=of_policy("due" if number else "evaluations_due", number))
        t.connect(made, recorder.evaluations, name=of_policy("evaluations", number))
    if blueprint.wanted.evaluations:
        t.connect(evaluator.evaluations, policies[0][0].evaluations)


def _call_back(
    t: Topology, blueprint: Blueprint, collector: Group | None, worker: Group, learner: Group, recorder: Group
) -> None:
    """Add the callbacks, and what carries events to them, answers to the learner, and changes to all others.

    collector: None: that of several policies, which takes no changes.
    """
    wanted, config = blueprint.wanted, blueprint.config
    if wanted.evaluations and not config.evaluation.every:
        names = [entry.name for entry in wanted.entries if "on_evaluation" in entry.handlers]
        raise TopologyError(
            f"the callback `{names[0]}` has on_evaluation, but the run has no evaluations",
            hint="set evaluation.every, for example to { steps = 10_000 }",
        )
    first = CallbacksState.resumed(blueprint.resume).number
    if wanted.entries:
        callback = t.add(
            CallbackActor,
            group="callbacks",
            count=len(wanted.entries),
            blueprint=blueprint,
            may_change=collector is not None,
        )
        # The first event of a run with a replay memory has the episodes of its warm-up.
        rows = blueprint.collectors * config.collection.rollout * blueprint.columns * (1 + (blueprint.warmup or 0))
        size = wanted.event_bytes(rows, len(config.env.info))
        t.connect(learner.callback_events, callback.events, Board(size))
        t.connect(callback.answers, learner.callback_answers, Slots(answer_layout(), on_death="reoffer", first=first))
    t.connect(learner.callback_state, recorder.callback_state, Board(wanted.state_bytes))
    if wanted.may_change and collector is not None:
        t.connect(learner.changes, collector.changes, Board(CHANGES_BYTES))
        t.connect(learner.changes, worker.changes)


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
