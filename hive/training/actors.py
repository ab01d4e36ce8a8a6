"""The trainer's actors. Each wraps a synchronous worker and awaits its inputs. (The learner's is in learner_actor.)

              rollouts (slabs)                 gradients (slabs)
    Collector ────────────────> GWorker ───────────────────────> Learner ──metrics──> Recorder
        ^  behaviour (board, one version a round)                 │ │
        └─────────────────────────────────────────────────────────┘ └── state (board, one version a turn) -> workers

    collector           reserve a slot for rollout r, pin the behaviour version that r is made with, collect, commit
    gradient worker     claim its share of a round; for each gradient g of the round: reserve a slot, pin the state
                        version that g is made on, compute, commit; then retire the share
    learner             claim the gradients of a turn, reduce them, step the optimizer, commit, retire them, and publish
                        the behaviour version that is due

Which version, rollouts and gradients these are follows from the mode of communication: hive.training.schedule decides
it. Rollouts and gradients that are too old are dropped and counted as `stale`.

Every actor can be killed at any instruction. A collector's successor makes the first rollout that was never committed.
A gradient worker's successor makes every gradient that its predecessor owed: of the rollouts that are left of a round,
or of zero samples if none is. So the learner waits for every gradient of every worker and needs no other case. The
learner's successor reads the last committed turn, retires the gradients applied in it, and applies the rest.

In decentralized mode each gradient worker advances a copy of the state to the turn it needs
(hive.training.update.replica). The learner's weights then serve the behaviour policy, checkpoints and successors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hive.algorithms.algorithm import Moments
from hive.algorithms.batches.advantages import merged
from hive.algorithms.parameters import Configured, update_parameter
from hive.envs import (
    EnvContext,
    HelpedVector,
    Helping,
    VectorEnvironment,
    Watched,
    can_be_helped,
    statistics_text,
)
from hive.envs.configured import changed_env
from hive.envs.processes.helped_vector import helped_vector
from hive.envs.vectors.attributes import calls_method, set_attributes, takes_attributes
from hive.envs.vectors.resetting import report_resets
from hive.errors import ConfigError, EnvironmentFailed, RecordError, VersionGone
from hive.experience import Purpose, Rollout, steps_in, stream_seed
from hive.gradients import ROLLOUTS, SEQUENCE, VERSION
from hive.networks.rows.normalization import OBSERVATIONS, other_scale
from hive.plain_data import pack
from hive.records import JSON, RunDirectory, write_nan_dump
from hive.records.run_warnings import (
    FACT,
    GLOBAL_DRAWS,
    MASK_NOT_USED,
    METHOD_AGAIN,
    OTHER_SCALE,
    RUNNING_STATISTICS,
    WARNING,
)
from hive.runtime import START, Actor, Bytes, Slot, SlotInlet, SlotOutlet, Subscription, endpoint
from hive.runtime.memory.segments import Arrays
from hive.runtime.process.user_code.code_of_run import CODE, code_of_process
from hive.training.blueprint import Blueprint, blueprint_in
from hive.training.callbacks.changes import ChangedKeys, ChangesReader, Values
from hive.training.callbacks.messages import RunChanges
from hive.training.callbacks.start import changes_at_start
from hive.training.collect.apart import Apart
from hive.training.collect.collector import occasion_of, seed_all_globals
from hive.training.collect.cut_episodes import CutEpisodes
from hive.training.collect.witness import Witness
from hive.training.gradient.devices import begin_device, pin
from hive.training.gradient.g_worker import GWorker
from hive.training.gradient.numerics import NonFiniteOrigin
from hive.training.gradient.threads import helpers_of
from hive.training.messages import Gradient, OptimizerState, RolloutReady, Weights
from hive.training.noticed import log_notices
from hive.training.run_start import schedule_of, steps_between_barriers
from hive.training.schedule import Claim
from hive.training.update.native_rounds import NativeRounds
from hive.training.update.replica import Replica

SHOWN = 60  # characters of an option in a line of the log


class CollectorActor(Actor):
    """Collects one rollout after another, each with the behaviour version that the schedule names.

    Environments are constructed once, and reset at each resume barrier. They are constructed again where a callback
    changes an option, and with `env.rebuild` at each barrier. A resumed run constructs them as the run did last.

    A subclass may override `vector`, which makes its environments: `self.blueprint.vector(contexts=self.contexts())`,
    and replace them between two rollouts: `self.collector.rebuild(self.vector(), self.reset_round)`.
    `Topology.replace("collectors", Own)` makes it the class of the collectors.
    """

    role = "collector"
    source = True
    rollouts = SlotOutlet(RolloutReady)
    behaviour = Subscription(Weights)
    changes = Subscription(RunChanges, optional=True)

    def __init__(self, blueprint: Blueprint, first_source: int = 0, directory: Path | None = None) -> None:
        """`first_source`: the number, within the run, of the first collector of this group. directory: of the run."""
        config = blueprint.config
        self.blueprint = blueprint
        self.schedule = schedule_of(blueprint)
        # The round of the resume barrier that the environments were last reset at.
        self.reset_round = self.schedule.barriers.last(self.rollouts.produced)
        self.built = 0  # the number of their construction: 0, or the round that it was made for
        self.steps = self.status.counter("env_steps")
        self.skips_not_finite = config.supervision.non_finite == "skip"
        self.source_number = first_source + self.index
        self.apart: Apart | None = None  # its environments, if they have processes of their own
        if config.env.is_apart:
            self._check_own_vector()
            first = self.source_number * config.collection.envs
            self.apart = Apart(self, config, blueprint.environment, directory, first)
        self.helped: HelpedVector | None = None  # its environments, if they have helpers
        self.warned_of_draws = self.named_code = False
        self.called: set[str] = set()  # the names of methods that callbacks have called of these environments
        self.told: set[str] = set()  # the names of the warnings and facts that its environments have given
        self.may_help = True  # whether its environments may have helpers
        self.changed = ChangesReader(self.changes, changes_at_start(blueprint))
        self.values = self.changed.at(self.rollouts.produced)  # what callbacks have changed
        self.steps_single = False  # whether its environments are single ones because callbacks change attributes
        report_resets(self.status.page.pulse)  # before helpers are forked
        with self.status(START):
            vector = self._new_vector(self.reset_round)
            self.collector = blueprint.collector(self.source_number, self.incarnation, self.status, vector)
        self._change_keys()
        self.witness = Witness(self, blueprint, self.source_number)
        self.episodes = CutEpisodes(self, steps_between_barriers(blueprint))
        self.watched = Watched(vector) if self.source_number == 0 else None  # the environments of the others are alike

    @classmethod
    def private_bytes(cls, parameters: Mapping[str, Any]) -> int:
        """Return the bytes of its network."""
        return blueprint_in(parameters, lambda blueprint: blueprint.network_bytes)

    def vector(self) -> VectorEnvironment:
        """Return new environments, at the start and where options change. Subclasses may override."""
        if self.apart is not None:
            word = stream_seed(*self._building())
            return self.apart.made(self.blueprint.config.env, self.contexts(), self.values.options, word)
        contexts, options = self.contexts(), self.values.options
        if not (self.forked and self.may_help) or (self.helped is not None and self.helped.left):
            return self._made(0, len(contexts), options, [context.seed for context in contexts])
        if self.helped is not None:
            self.helped.make_environments(contexts, options)
            return self.helped
        config, environment = self.blueprint.config, self.blueprint.environment
        helping = Helping(
            self._made,
            self._seed_building,
            helpers_of(config) if can_be_helped(config.env) else 0,
            chosen=config.collection.helpers is None,
            observation=environment.observation,
            action=environment.action,
            infos=len(config.env.info),
            rows=environment.rows,
        )
        vector = helped_vector(helping, contexts, options)
        self.helped = vector if isinstance(vector, HelpedVector) else None
        self.may_help = self.helped is not None
        return vector

    def _check_own_vector(self) -> None:
        """Refuse a subclass that makes its environments itself, which nobody would look after."""
        if type(self).vector is not CollectorActor.vector:
            raise ConfigError(
                f"`{type(self).__name__}` makes its own environments (`vector`), which have no processes",
                hint="set env.processes = 0, or leave out the method; env.curriculum and callbacks change options",
            )

    def contexts(self) -> list[EnvContext]:
        """Return who its environments are. Their seeds are those of the first reset after the construction."""
        return self.blueprint.contexts(self.source_number, self.built, self.incarnation)

    def _made(self, first: int, count: int, options: Mapping[str, Any], seeds: Sequence[int]) -> VectorEnvironment:
        """Make environments `first` to `first + count`, also in a helper. options: what callbacks have changed."""
        env = changed_env(self.blueprint.config.env, options, single=self.steps_single)
        own = self.contexts()[first : first + count]
        contexts = [replace(one, seed=seed) for one, seed in zip(own, seeds, strict=True)]
        return self.blueprint.vector_in(env, contexts, first)

    def _new_vector(self, start: int) -> VectorEnvironment:
        """Return new environments. start: the round of the reset that follows."""
        self.built = start if self.blueprint.config.env.rebuild else self.values.built
        self._seed_building()
        vector = self.vector()
        is_final = self.apart is not None or self.steps_single  # set_attributes refuses values that it cannot give
        if self.values.attributes and not takes_attributes(vector) and not is_final:
            vector.close()  # compiled environments: those of Python can be given values
            self.steps_single = True
            self._seed_building()
            vector = self.vector()
        self.called.clear()
        self._give(vector, self.values.attributes)
        return vector

    def _give(self, vector: VectorEnvironment, values: Mapping[str, Any]) -> None:
        """Give the environments these values; say once that a method is called again, which no resumed run repeats."""
        set_attributes(vector, values)
        for environment in getattr(vector, "environments", ())[:1]:
            again = [name for name in values if name in self.called and METHOD_AGAIN not in self.told]
            self.called |= {name for name in values if calls_method(environment, name)}
            if again and self.source_number == 0 and not self.blueprint.config.env.rebuild:
                self.told.add(METHOD_AGAIN)
                text = f"callbacks call `{again[0]}` of environments again, and a resumed run calls it once"
                self.note(FACT, f"{text} (env.rebuild = true does so at each checkpoint)", fact=METHOD_AGAIN)

    def _seed_building(self) -> None:
        seed_all_globals(*self._building())

    def _building(self) -> tuple[int, Purpose, int, int]:
        """Return the stream of the seeds of global generators while environments are built."""
        occasion = occasion_of(self.built, self.incarnation)
        return self.blueprint.config.run.seed, Purpose.building, self.source_number, occasion

    async def setup(self) -> None:
        """Reset the environments, so that an environment that fails to reset ends the run before it begins."""
        with self.status(START):
            self.collector.reset(self.reset_round)
        if self.helped is not None and not self.helped.left:
            pids = [pid for helper in self.helped.helpers for pid in helper.pids()]
            processes = "a helper steps" if len(pids) == 1 else f"{len(pids)} helpers step"
            self.note("helpers", f"{processes} environments of {self.name}", pids=pids)

    async def run(self) -> None:
        # Then no other code of the interpreter draws random numbers.
        alone = self.forked and not self.actor_context.neighbors()
        while True:
            slot = await self.rollouts.reserve()  # before the pin: the slot's number determines the version
            if not self.changed.connected:  # else what holds after the barrier may not be known before the pin
                self._reset_at_barrier(slot.sequence)
            if alone and not self.changed.connected:
                self.collector.draw(slot.arrays, slot.sequence)
            version, weights = await self.behaviour.pin(self.schedule.collection.behaviour_version(slot.sequence))
            if self.changed.connected:
                self._change(slot.sequence)
            schedule = self.schedule.collection
            self.status.show_version(version, schedule.lag(slot.sequence, version, self.behaviour.latest))
            self.collector.bind(weights)
            self._collect(slot, version)
            self._compare_statistics(slot.arrays, weights)
            self.status.show_version(version, schedule.lag(slot.sequence, version, self.behaviour.latest))
            self.behaviour.unpin()
            self.status.add(self.steps, steps_in(slot.arrays))
            self.witness.see(slot.sequence, slot.arrays)
            self.episodes.see(slot.arrays)
            self._name_draws()  # before the rollout counts, so that the run's summary has it
            if self.source_number == 0:
                log_notices(self, self.collector.vector, self.told)
            self._name_statistics(slot.arrays["observations"])  # before others may write into the slot
            self.rollouts.commit(slot)
            self._name_code()
            if self.apart is not None:
                self.apart.write()

    def _name_draws(self) -> None:
        """Say once that environments draw global random numbers, which other processes would change or have changed."""
        if self.apart is not None and self.apart.vector is not None and self.apart.vector.drew and self.may_help:
            self.may_help = False
            cause = "environments draw from the global generators of Python, NumPy or torch"
            self.note("environments", f"{cause}, of which each process has its own, so numbers depend on env.processes")
        if not (self.may_help and self.helped is not None and self.helped.drew):
            return
        self.may_help = not self.helped.left
        cause = "environments draw from the global generators of Python, NumPy or torch"
        if self.helped.left:
            self.note("helpers", f"{cause}, so {self.name} steps them without helpers (collection.helpers = 0)")
        elif not self.warned_of_draws:
            self.warned_of_draws = True
            advice = "collection.helpers = 0, or a generator of its own in each environment, makes them equal"
            self.note(FACT, f"{cause}, so their numbers depend on collection.helpers; {advice}", fact=GLOBAL_DRAWS)

    def _name_statistics(self, observations: NDArray[Any]) -> None:
        """Warn of running means in the environments, which have changed in the first rollout, and of unused masks.

        observations: of that rollout, in stored form; transitions that were given may have other units.
        """
        if self.watched is None:
            return
        texts = [statistics_text(found) for found in self.watched.changed()]
        if texts:
            self._warn(RUNNING_STATISTICS, *map("; ".join, zip(*texts, strict=True)))
        if self.watched.unused_mask is not None:
            self._warn(MASK_NOT_USED, *self.watched.unused_mask)
        given = self.blueprint.given
        if given is not None and not given.warnings and (found := given.normalized(observations)) is not None:
            self._warn(found.kind, found.text, found.advice)
        for name, text, advice in self.blueprint.environment.seen or ():
            if advice:
                self._warn(name, text, advice)
            else:
                self.note(FACT, text, fact=name)
        self.watched = None

    def _compare_statistics(self, arrays: Arrays, weights: NDArray[np.uint8]) -> None:
        """Warn of statistics of another run (run.init_from) that the first rollout does not fit."""
        run, flat = self.blueprint.config.run, self.blueprint.flat
        if self.watched is None or self.blueprint.resume or run.init_from is None or not run.init_statistics:
            return
        seen = flat.arrays(weights[: flat.block_bytes]).get(f"{OBSERVATIONS}seen")
        rows = arrays["observations"][:-1][arrays["valid"] != 0]
        if seen is not None and (cause := other_scale(self.blueprint.environment.observation.numbers(rows), seen)):
            self._warn(OTHER_SCALE, f"by the statistics of run.init_from {cause}", "set run.init_statistics = false")

    def _warn(self, name: str, cause: str, advice: str) -> None:
        self.note(WARNING, f"{name}: {cause}; {advice}", warning=name, cause=cause, advice=advice, steps=0)

    def _name_code(self) -> None:
        """Say once what its environments were imported from, for the supervisor to compare."""
        if self.named_code:
            return
        self.named_code = True
        env = self.blueprint.config.env
        references = [env.id, *(str(one.get("name") if isinstance(one, Mapping) else one) for one in env.wrappers)]
        found = code_of_process(references)
        self.note(CODE, f"{self.name} has " + ", ".join(f"{name} {value}" for name, value in found.items()), code=found)

    def _reset_at_barrier(self, sequence: int) -> None:
        """Reset the environments if a resume barrier lies between the previous rollout and this one."""
        barrier = self.schedule.barriers.last(sequence)
        if barrier == self.reset_round:
            return
        self.reset_round = barrier
        self.episodes.cut()
        with self.status(START):
            if self.blueprint.config.env.rebuild:
                self._rebuild(barrier)
            else:
                self.collector.reset(barrier)

    def _rebuild(self, start: int) -> None:
        """Replace the environments and reset them at round `start`; the old ones are closed first.

        Processes and helpers close theirs themselves, and go on.
        """
        stays = self.helped is not None and not self.helped.left and self.forked and self.may_help
        if self.apart is None and not stays:
            self.collector.close()
        self.collector.rebuild(self._new_vector(start), start)

    def _change(self, sequence: int) -> None:
        """Use what callbacks have changed for this rollout. The policy that it is made with was published later."""
        before, self.values = self.values, self.changed.at(sequence)
        self._change_keys()
        if self.values is not before:
            self._change_environments(before, sequence)
        self._reset_at_barrier(sequence)

    def _change_environments(self, before: Values, sequence: int) -> None:
        """Give the environments what has changed since `before`: attributes, or options by new ones."""
        needs_new = pack(before.options) != pack(self.values.options) or (
            self.values.attributes and not takes_attributes(self.collector.vector)
        )
        if needs_new:
            if self.source_number == 0 and self.values.options:
                listed = ", ".join(f"{name} = {value!r}"[:SHOWN] for name, value in self.values.options.items())
                self.note("changed", f"environments are made with {listed} from rollout {sequence:,} on")
            self.reset_round = self.schedule.barriers.last(sequence)
            self.episodes.forget()
            with self.status(START):
                self._rebuild(sequence)
        else:
            known = {name: pack(value) for name, value in before.attributes.items()}
            attributes = self.values.attributes
            changed = {name: value for name, value in attributes.items() if known.get(name) != pack(value)}
            self._give(self.collector.vector, changed)

    def _change_keys(self) -> None:
        for name, value in self.values.keys.items():
            self.collector.change_key(name, value)

    @endpoint
    async def update_algorithm_parameter(self, name: str, value: object) -> None:
        """Change one hyper-parameter from the next rollout on. Endpoints run between two rollouts."""
        self.collector.change_key(name, value)

    def _collect(self, slot: Slot, version: int) -> None:
        report_resets(self.status.page.pulse)
        try:
            enough = self._enough(slot.sequence)
            self.collector.collect(slot.arrays, sequence=slot.sequence, version=version, enough=enough)
        except EnvironmentFailed as error:
            # A value that is not finite is worth a restart where such gradients are skipped: the successor makes new
            # environments.
            error.permanent &= not (error.not_finite and self.skips_not_finite)
            raise

    def _enough(self, sequence: int) -> Callable[[int], bool] | None:
        """Return a function that ends a rollout early once enough collectors have finished theirs; None: never."""
        partial = self.schedule.partial
        if partial is None:
            return None
        return lambda steps: partial.over(steps, lambda: self.rollouts.committed(sequence))

    async def teardown(self) -> None:
        if self.apart is not None:
            self.apart.write(last=True)
        self.witness.close()
        self.collector.close()


@dataclass(frozen=True)
class NanDumps:
    """Writes the rollouts, inputs and weights of a gradient that is not finite to a dump, and logs its path."""

    actor: Actor
    directory: Path  # of the run

    def __call__(self, finding: NonFiniteOrigin, header: NDArray[np.int64]) -> None:
        actor = self.actor
        name = f"{actor.name}-{int(header[SEQUENCE]):06d}"
        facts: dict[str, JSON] = {"cause": finding.cause, "text": finding.text, "state_version": int(header[VERSION])}
        try:
            kept = write_nan_dump(RunDirectory(self.directory).nan_dumps, name, finding.arrays, facts)
        except RecordError as error:  # the run continues without the dump, e.g. on a full disk
            actor.log.warning("%s", error)
            kept = None
        where = f"; its rollouts, inputs and weights are in {kept}" if kept else ""
        actor.note("not finite", f"{finding.text}, found by {actor.name}{where}", cause=finding.cause)


def gradient_worker_bytes(blueprint: Blueprint) -> int:
    """Return the bytes that a worker keeps outside of shared memory: networks, what its codec keeps, a replica."""
    flat, codec = blueprint.flat, blueprint.codec
    networks = blueprint.network_bytes * (2 if blueprint.state.has_target else 1)
    coded = 0 if codec.in_place else flat.parameter_bytes + codec.residual(1).nbytes * flat.parameter_elements
    replica = 2 * (blueprint.state.bytes + blueprint.optimizer_state_bytes) + flat.parameter_bytes
    return networks + coded + (replica if blueprint.config.gradients.decentralized else 0)


class GradientWorkerActor(Actor):
    """Makes the gradients of one round after another, of the rollouts and on the versions that the schedule names."""

    role = "gradient-worker"
    rollouts = SlotInlet(RolloutReady)
    state = Subscription(Weights)
    optimizer_state = Subscription(OptimizerState, optional=True)
    behaviour = Subscription(Weights, optional=True)
    changes = Subscription(RunChanges, optional=True)
    gradients = SlotOutlet(Gradient)
    rounds: NativeRounds | None = None  # set by the learner of this process

    def __init__(self, blueprint: Blueprint, directory: Path) -> None:
        config = blueprint.config
        self.blueprint = blueprint
        self.directory = directory
        self.schedule = schedule_of(blueprint)
        self.workers = range(blueprint.gradient_workers)
        self.bootstrap_rounds = config.gradients.bootstrap_rounds
        self.per_round = blueprint.gradients_per_round
        if blueprint.device is not None:
            begin_device(self, config, blueprint.device)
        self.worker = self.g_worker()
        self.changed, self.changed_replica = (ChangedKeys(self.changes, changes_at_start(blueprint)) for _ in range(2))
        self.replica = Replica(blueprint.learner(), blueprint.state.bytes) if config.gradients.decentralized else None

    @classmethod
    def private_bytes(cls, parameters: Mapping[str, Any]) -> int:
        """Return the bytes of its networks and, if decentralized, of its copy of the learner's state."""
        return blueprint_in(parameters, gradient_worker_bytes)

    def g_worker(self) -> GWorker:
        """Make the worker that computes the gradients. Subclasses may override."""
        worker = GWorker.of_run(self.blueprint, self.index, self.status)
        worker.slot.on_not_finite = NanDumps(self, self.directory)
        return worker

    async def run(self) -> None:
        if not self.schedule.gradients.needs(len(self.rollouts.producers)):
            self.note("idle", f"{self.name} has no collector in its share, so it makes no gradients")
            return
        sequence = self.gradients.produced
        first = self._first_rollouts(sequence)
        barriers = self.schedule.barriers
        barrier = barriers.last(barriers.round_of(sequence))
        if sequence % self.per_round:  # the rollouts of a round that a predecessor began are lost
            sequence = await self._make_gradients(sequence, [])
        while True:
            number = barriers.round_of(sequence)
            if barriers.last(number) != barrier:
                barrier = barriers.last(number)
                self.worker.clear_residual()
            share = [await self._claim(wanted) for wanted in self.schedule.collection.claims(number, first)]
            if self.changed.connected:  # after the claim: its rollouts were made later
                self.changed.apply(number, cast(Configured, self.worker.algo))
            self._pin(*(rollout.arrays["observations"] for rollout in share))
            sequence = await self._make_gradients(sequence, share)
            for rollout in share:  # only now: all gradients of the round read these rollouts in place
                self.rollouts.retire(rollout)

    async def _make_gradients(self, sequence: int, share: list[Slot]) -> int:
        """Make and commit gradient `sequence` and the later ones of its round. Return the first of the next round."""
        end = (sequence // self.per_round + 1) * self.per_round
        arrays = [rollout.arrays for rollout in share]
        number = sequence
        while number < end:
            # The last gradient of a round carries what the learner counts, so it is made here.
            if self.rounds is not None and (made := await self.rounds.offer(self.worker.described, end - 1 - number)):
                number += made
                continue
            slot = await self.gradients.reserve()  # before the pin, so no version is held while waiting for a slot
            moments = await self._moments(number)
            version, weights = await self._state(number)
            self.status.show_version(version, self.schedule.gradients.lag(number, version, self.state.latest))
            self._pin(None if self.replica is not None else weights, slot.arrays.get("gradient"))
            self.worker.bind(weights)
            self.worker.compute(arrays, slot.arrays, sequence=number, version=version, moments=moments)
            self.state.unpin()
            if number == end - 1:  # the learner counts the rollouts of whole rounds to publish the policy
                counted = self.schedule.collection.counted(len(share), len(self.rollouts.producers))
                slot.arrays["header"][ROLLOUTS] = counted
            self.gradients.commit(slot)
            number += 1
        return end

    def _pin(self, *arrays: NDArray[Any] | None) -> None:
        if self.forked:  # else the memory of this run is unmapped before the process ends
            pin(self.blueprint.config, self.blueprint.device, *arrays)

    @endpoint
    async def update_algorithm_parameter(self, name: str, value: object) -> None:
        """Change one hyper-parameter from the next gradient on. Endpoints run between two gradients.

        Raises ConfigError, also for an algorithm that is not Configured.
        """
        update_parameter(cast(Configured, self.worker.algo), name, value)

    async def _state(self, sequence: int) -> tuple[int, Bytes]:
        """Return (version, state) to compute this gradient with: the learner's, pinned, or the replica's."""
        wanted = self.schedule.gradients.state_version(sequence)
        if self.replica is None:
            return await self.state.pin(wanted)
        if self.replica.turn < 0:
            await self._copy_state(self.replica)
        while self.replica.turn < wanted:
            # Its optimizer has the keys of the learner's, from the same turn on.
            number = self.schedule.barriers.round_of(self.replica.turn * self.bootstrap_rounds)
            self.changed_replica.apply(number, self.replica.learner)
            first = self.replica.turn * self.bootstrap_rounds
            which = [(w, first + n) for w in self.workers for n in range(self.bootstrap_rounds)]
            if not self.replica.advance(await self.gradients.peek(which), [number for _, number in which]):
                await self._copy_state(self.replica)  # a gradient was overwritten: the other replicas are ahead
        return self.replica.turn, self.replica.weights

    async def _copy_state(self, replica: Replica) -> None:
        """Copy the learner's newest state, before the first turn and after gradients were overwritten."""
        while True:
            turn, optimizer_state = await self.optimizer_state.pin()
            try:
                _, weights = await self.state.pin(turn)
                replica.copy(turn, weights, optimizer_state)
                return
            except VersionGone:  # the learner has overwritten these weights meanwhile: retry with its newest turn
                continue
            finally:
                self.state.unpin()
                self.optimizer_state.unpin()

    async def _moments(self, sequence: int) -> tuple[float, float] | None:
        """Return mean and standard deviation of this round over all workers, from the turn before, whatever the lag.

        Return None unless `sequence` is the gradient that the algorithm asks for them with, the second of a round.
        """
        if not self.blueprint.asks_for_moments or sequence % self.per_round != 1:
            return None
        if self.replica is not None:
            parts = await self.gradients.peek([(worker, sequence - 1) for worker in self.workers])
            return merged([Moments(*part["moments"].tolist()) for part in parts])
        _, block = await self.state.pin(sequence // self.bootstrap_rounds)
        mean, deviation = self.blueprint.state.moments(block)
        self.state.unpin()
        return float(mean), float(deviation)

    async def _claim(self, wanted: Claim) -> Slot:
        """Claim a rollout, after dropping and counting those that are too old."""
        while True:
            slot = await self.rollouts.claim(wanted.producer, wanted.sequence)
            if wanted.max_lag is None or self.behaviour.latest - Rollout(slot.arrays).version <= wanted.max_lag:
                return slot
            self.rollouts.retire(slot, "stale")

    def _first_rollouts(self, sequence: int) -> Mapping[int, int]:
        """Return the first rollout of each producer that no earlier incarnation has claimed.

        Rollouts that an earlier incarnation had claimed are lost, and those of a round within which the run was saved.
        Their round is made of the rollouts that are left; if none is, its gradients have zero samples.
        """
        lines = self.rollouts.lines
        first = {p: lines.first_left(p) for p in lines.producers}
        if lost := self.schedule.collection.lost(self.schedule.barriers.round_of(sequence), first):
            left = -sequence % self.per_round // self.bootstrap_rounds
            rest = f"the run was saved within a round: {left:,} more updates of its {lost} rollouts are not made"
            what = rest if not self.incarnation else f"the previous incarnation of {self.name} lost {lost} rollouts"
            self.note("lost", what, rollouts=lost)
        return first
