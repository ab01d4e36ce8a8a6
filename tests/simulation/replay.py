"""Simulate the trainer with a replay memory: the real scheme, actors, algorithm and memory, and kills at any moment.

`schedule(seed)` draws a config and the faults. `run` simulates it without and with the faults, and lists the promises
that were broken. Collectors are replaced: theirs are steps with a number, so that a row shows what was written there.
The expected content of every row and transition is computed from a list of all rollouts.

    kills of the learner, of gradient workers and of the recorder    change no byte of weights, memory, ledger and plans
    kills of collectors, too                                         lose no round, and no row that is not live is drawn

Processes are also killed between two writes of rows and leaves, not only where the simulator does it for any actor.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from hive.algorithms import Batch
from hive.algorithms.batches.initial_errors import n_step_errors
from hive.config import load_config
from hive.envs import VectorEnvironment
from hive.errors import VersionGone
from hive.experience import BEGINS, FINALS, LENGTH, SEQUENCE, SOURCE, VERSION, Rollout
from hive.networks.rows.normalization import LIMIT, Scales
from hive.runtime import SharedIn, SharedOut, Status, Subscription
from hive.runtime.memory.segments import Arrays, BoardView
from hive.schemes.trainer import assemble
from hive.training import Blueprint, ReplayWorkerActor
from hive.training.messages import CheckpointDue, ReplayFloor, ReplayLedger, ReplayRows
from hive.training.record.pinned_blocks import held_block, next_due
from hive.training.replay_floor import write_floor
from hive.training.update.learner import Count
from hive.training.update.replay_blueprint import ReplayBlueprint
from hive.training.update.replay_memory import DrawnRows, ReplayMemory
from simulation import Faults, Simulation, simulate
from simulation.fakes import DyingBoard
from simulation.trainer import KILLED_AT_THE_END, SilentRecorder

ROUNDS = 7  # of full rollouts
EXACT = 0.6  # share of schedules that change no byte
CONTINUOUS = 0.25  # share of schedules with continuous actions, of algorithms that may make two gradients of a batch
NORMALIZED = 0.3  # share of schedules whose network normalizes
# Chance that a process that is to be killed within an operation is killed in the next change of rows or leaves. It is
# small, because one rollout makes dozens of changes before its ledger is published.
KILLED_IN_CHANGE = 0.05
LATEST = 2.0  # when the last process is killed, in callbacks of the run without faults: those with faults are longer
NO_COLLECTORS = ("learner", "gradient-worker", "recorder")  # beginnings of the names of processes
SLOW_ROW_S = 0.002  # longest time for a row of a checkpoint
KINDS = (*("goes on",) * 6, "terminated", "truncated", "reset")  # of a step

Place = tuple[int, int, int]
"""Collector, row and environment of a step."""


class Numbered(gymnasium.Env[Any, Any]):
    """The spaces of the simulated steps: (column, number of the step, share of it)."""

    observation_space: Any = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space: Any = spaces.Discrete(2)


class Continuous(Numbered):
    """The same with one continuous action."""

    action_space: Any = spaces.Box(-1.0, 1.0, (1,), np.float32)


@dataclass(frozen=True)
class Schedule:
    """One config with faults to simulate. exact: whether the faults may not change a byte."""

    seed: int
    sets: tuple[str, ...]  # as for `hive up --set`
    faults: Faults
    exact: bool

    def __str__(self) -> str:
        return f"seed {self.seed}: {' '.join(self.sets)}; exact: {self.exact}; {self.faults}"


def schedule(seed: int, *, exact: bool | None = None) -> Schedule:
    """Draw the schedule of a seed. exact: whether collectors live; by default it is drawn."""
    chance = random.Random(seed)
    collectors, workers = chance.randint(0, 3), chance.choice((0, 1, 1, 2, 3))
    columns, batch = collectors or max(workers, 1), max(workers, 1) * chance.randint(1, 3)
    envs, rollout, n_step = chance.randint(1, 2), chance.randint(2, 4), chance.randint(1, 3)
    steps = columns * envs * rollout  # of a round
    sets = [f"collection.workers={collectors}", f"gradients.workers={workers}"]
    sets.append("gradients.native_rounds=false")  # a simulated kill needs the words in Python
    exact = bool(chance.random() < EXACT) if exact is None else exact
    modes = ("synchronous", "pipelined")
    for table, possible in (("collection", modes if exact else (*modes, "asynchronous")), ("gradients", modes)):
        mode = chance.choice(possible)
        sets.append(f"{table}.communication={mode}")
        if mode != "synchronous":
            sets.append(f"{table}.max_lag={chance.randint(1, 3)}")
    sets += [
        f"run.steps={ROUNDS * steps}",
        f"run.carrier={chance.choice(('slots', 'slots', 'zmq'))}",
        f"collection.envs={envs}",
        f"collection.rollout={rollout}",
        f"collection.broadcast_interval={chance.choice((1, 1, 2))}",
        f"checkpoint.every={chance.choice(('{}', '{updates=2}', '{updates=3}'))}",
        f"algorithm.batch_size={batch}",
        f"algorithm.n_step={n_step}",
        f'algorithm.updates_per_step="{chance.randint(1, 3)}/{steps}"',
        f"algorithm.learning_starts={chance.randint(0, 2) * steps}",
        f"algorithm.priority_exponent={chance.choice((0.0, 0.6, 0.6))}",
        f"algorithm.replay_capacity={columns * envs * chance.randint(n_step, 2 * rollout + n_step)}",
        f"algorithm.target_interval={chance.randint(1, 5)}",
    ]
    initial_errors = chance.choice(("false", "true"))
    victims: tuple[str, ...] = ()
    if exact and not collectors:  # a killed process would take its collector with it
        victims = ("learner", "recorder") if workers else ("recorder",)
    elif exact:
        victims = NO_COLLECTORS
    faults = Faults(
        deaths=chance.choice((1, 2, 4, 8)),
        torn=0.7,
        preempted=chance.choice((0.0, 0.02, 0.2)),
        lost_starts=chance.choice((0.0, 0.2)),
        full=chance.choice((0.0, 0.1)),
        victims=victims,
    )
    if chance.random() < CONTINUOUS:
        sets += [f"run.scheme={chance.choice(('sac', 'td3'))}", "env.id=simulation.replay:Continuous"]
        sets.append(f"algorithm.critic_first={chance.choice(('false', 'true'))}")
    else:
        sets += ["run.scheme=dqn", "env.id=simulation.replay:Numbered"]
        sets += [f"algorithm.initial_errors={initial_errors}"] * ("algorithm.priority_exponent=0.6" in sets)
    if chance.random() < NORMALIZED:
        sets += ["network.normalize_observations=true", "network.normalize_rewards=true"]
    return Schedule(seed, tuple(sets), faults, exact)


@dataclass(frozen=True)
class Step:
    """One row of one environment: what a collector wrote. `following`: the observation after the step."""

    observation: float
    action: int
    reward: float
    terminated: bool
    truncated: bool
    valid: bool
    following: float


SEAM = Step(-1.0, 0, 0.0, terminated=False, truncated=False, valid=False, following=-1.0)


@dataclass
class World:
    """The records of one simulated run."""

    n_step: int
    discount: float
    chance: random.Random
    rows: dict[int, list[list[Step]]] = field(default_factory=dict)  # of each collector, [rows][B]
    plans: dict[int, list[list[Place]]] = field(default_factory=dict)  # [W][n]
    used: Counter[Place] = field(default_factory=Counter)
    saved: dict[int, str] = field(default_factory=dict)  # turn -> digest of what a checkpoint of it has
    memory: Arrays = field(default_factory=dict)
    ledger: dict[str, NDArray[Any]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def fail(self, text: str) -> None:
        if text not in self.wrong:
            self.wrong.append(text)

    def admit(self, rollout: Rollout, first: int) -> int:
        """Record a rollout that is written from row `first` on, and return the row after it.

        It may be admitted again, until it is committed.
        """
        rows = self.rows.setdefault(rollout.source, [])
        envs = rollout.rewards.shape[1]
        new = [[SEAM] * envs] if first and rollout.begins else []
        new += [[_step(rollout, t, env) for env in range(envs)] for t in range(rollout.length)]
        if first > len(rows) or rows[first : first + len(new)] not in ([], new):
            self.fail(f"rollout {rollout.sequence} of collector {rollout.source} was admitted twice, or not at all")
        rows[first:] = new
        return len(rows)

    def draw(self, number: int, drawn: list[list[Place]], oldest: int, ledger: Arrays) -> None:
        """Record a plan whose rows must all be live. It may be drawn again, until it is published, and is the same."""
        if self.plans.setdefault(number, drawn) != drawn:
            self.fail(f"plan {number} was drawn twice, with other rows")
        for source, row, env in (place for each in drawn for place in each):
            written = int(ledger["written"][source])
            if not written - oldest <= row <= written - self.n_step:
                self.fail(f"plan {number} has row {row} of collector {source}, which has {written} rows")
            elif not self.rows[source][row][env].valid:
                self.fail(f"plan {number} has row {row} of collector {source}, in which no step was made")

    def save(self, source: int, row: int, found: Arrays) -> None:
        """Compare a saved row with the steps that were made of it."""
        for env, step in enumerate(self.rows[source][row]):
            observation = float(found["observations"][env, 1]) if step.valid else step.observation
            if (observation, bool(found["valid"][env])) != (step.observation, step.valid):
                self.fail(f"row {row} of collector {source} was overwritten before it was saved")

    def gather(self, number: int, worker: int, batch: Batch, scales: Scales) -> None:
        """Compare a batch with the steps of its plan, normalized as the network of its version says."""
        places = self.plans[number][worker]
        self.used.update(places)
        for index, place in enumerate(places):
            found = (
                float(batch.observations[index, 1]),
                int(batch.actions[index].item()),
                round(float(batch.returns[index]), 4),
                round(float(batch.discounts[index]), 4),
            )
            first, *expected, following = self._transition(place, scales.reward)
            seen, following = _normalized(first, scales), _normalized(following, scales)
            after = float(batch.next_observations[index, 1])
            if list(found) != [seen, *expected] or (found[3] and after != following):
                self.fail(f"row {place} of plan {number} was gathered as {found} instead of {expected}")

    def _transition(self, place: Place, reward_scale: float) -> tuple[float, int, float, float, float]:
        source, row, env = place
        rows = self.rows[source]
        first = rows[row][env]
        total, factor = 0.0, 1.0
        for at in range(row, row + self.n_step):
            step = rows[at][env]
            reward = np.float32(step.reward)
            total += factor * float(
                np.clip(reward * np.float32(reward_scale), -LIMIT, LIMIT) if reward_scale else reward
            )
            factor *= self.discount
            if step.terminated or step.truncated or (at + 1 < len(rows) and not rows[at + 1][env].valid):
                break
        factor *= not step.terminated
        return first.observation, first.action, round(float(np.float32(total)), 4), round(factor, 4), step.following

    def digests(self) -> dict[str, str]:
        """Return a digest of every part that no fault may change."""
        parts = {name: array for name, array in self.memory.items() if name != "held_leaves"}
        parts |= {f"ledger {name}": array for name, array in self.ledger.items()}
        named = {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in parts.items()}
        return named | {f"plan {number}": str(plan) for number, plan in self.plans.items()}


def _normalized(observation: float, scales: Scales) -> float:
    """Return the element of an observation that `Step` has."""
    if not len(scales.scale):
        return observation
    return float(np.clip((np.float32(observation) - scales.shift[1]) * scales.scale[1], -LIMIT, LIMIT))


def _step(rollout: Rollout, t: int, env: int) -> Step:
    final = int(rollout.final_index[t, env])
    following = rollout.final_observations[final, 1] if final >= 0 else rollout.observations[t + 1, env, 1]
    return Step(
        float(rollout.observations[t, env, 1]),
        int(rollout.actions[t, env].item()),
        float(rollout.rewards[t, env]),
        bool(rollout.terminated[t, env]),
        bool(rollout.truncated[t, env]),
        bool(rollout.valid[t, env]),
        float(following),
    )


class _Collector:
    """Makes numbered steps, whose ends follow from the number of the rollout, and their rewards from the policy."""

    vector = None  # of environments, which show nothing

    def __init__(self, source: int, n_step: int, discount: float) -> None:
        self.source = source
        self.n_step, self.discount = n_step, discount
        self.begins = True
        self.last: NDArray[np.float32] | None = None
        self.policy = 0.0
        self.discounted = 0.0

    def bind(self, weights: NDArray[np.uint8]) -> None:
        self.policy = float(weights[:4].view(np.float32)[0])

    def reset(self, start: int = 0) -> None:
        self.begins, self.last, self.discounted = True, None, 0.0

    def rebuild(self, vector: object, start: int) -> None:
        self.reset(start)

    def collect(
        self, rollout: Arrays, *, sequence: int, version: int, enough: Callable[[int], bool] | None = None
    ) -> None:
        chance = random.Random(sequence * 64 + self.source)
        length, envs = rollout["rewards"].shape
        observations, header = rollout["observations"], rollout["header"]
        numbers = sequence * (length + 2) + np.arange(length + 1, dtype=np.float32)
        observations[:, :, 0] = self.source * envs + np.arange(envs)
        observations[:, :, 1] = numbers[:, None]
        observations[:, :, 2] = 0.1 * (numbers[:, None] % 7)
        if self.last is not None:
            observations[0] = self.last
        header[:] = 0
        header[VERSION], header[LENGTH], header[SOURCE], header[SEQUENCE] = version, length, self.source, sequence
        header[BEGINS], self.begins = self.begins, False
        for name in ("terminated", "truncated", "episode_returns", "episode_lengths"):
            rollout[name][:] = 0
        rollout["final_index"][:] = -1
        for t in range(length):
            for env in range(envs):
                self._write(rollout, t, env, chance)
        if "errors" in rollout:
            values = np.random.default_rng([sequence, self.source]).normal(size=(length, envs, 2)).astype(np.float32)
            rollout["errors"][:length] = n_step_errors(rollout, values, self.n_step, self.discount)
        if "discounted" in rollout:
            for t in range(length):
                self.discounted = self.discount * self.discounted + float(rollout["rewards"][t].sum())
                rollout["discounted"][t] = self.discounted
        self.last = observations[length].copy()

    def _write(self, rollout: Arrays, t: int, env: int, chance: random.Random) -> None:
        kind, header = chance.choice(KINDS), rollout["header"]
        rollout["valid"][t, env] = kind != "reset"
        rollout["actions"][t, env] = chance.randrange(2)
        rollout["rewards"][t, env] = (chance.random() + self.policy) * (kind != "reset")
        if kind in ("terminated", "truncated"):
            rollout[kind][t, env] = 1
            rollout["episode_returns"][t, env], rollout["episode_lengths"][t, env] = chance.random(), t + 1
        if kind == "truncated":
            rollout["final_index"][t, env] = header[FINALS]
            rollout["final_observations"][header[FINALS]] = rollout["observations"][t + 1, env] + 0.5
            header[FINALS] += 1

    def close(self) -> None: ...


def _mortal(change: Callable[..., Any], chance: random.Random) -> Callable[..., Any]:
    """Return a change of the memory in which its process may be killed: before or after it."""

    def changed(*args: Any) -> Any:
        words = BoardView.Words
        if chance.random() < KILLED_IN_CHANGE and issubclass(words, DyingBoard) and words.dies():
            words.die(lambda done: change(*args) if done else None)
        return change(*args)

    return changed


class _Memory(ReplayMemory):
    """The real memory, in whose changes processes are killed, and which records what it does."""

    world: World

    def watch(self, world: World) -> None:
        self.world = world
        for owner, name in ((self.tree, "fill"), (self.tree, "write"), (self.rows, "_put")):
            setattr(owner, name, _mortal(getattr(owner, name), world.chance))
        world.memory = self.arrays

    def admit(self, rollouts: Sequence[Rollout], before: Arrays, after: Arrays, largest_leaf: int) -> None:
        super().admit(rollouts, before, after, largest_leaf)
        written, made = before["written"].tolist(), before["rollouts"].tolist()
        for rollout in rollouts:
            if made[rollout.source] != rollout.sequence:
                self.world.fail(f"rollout {rollout.sequence} follows {made[rollout.source]} others")
            written[rollout.source] = self.world.admit(rollout, written[rollout.source])
            made[rollout.source] += 1
        if written != after["written"].tolist() or made != after["rollouts"].tolist():
            self.world.fail(f"the ledger has {after['written'].tolist()} rows instead of {written}")
        self.world.ledger = {name: array.copy() for name, array in after.items()}

    def draw(self, number: int, ledger: Arrays, plan: Arrays) -> None:
        super().draw(number, ledger, plan)
        drawn = int(plan["header"][0])
        places = [[self._place(int(at), ledger) for at in each[:drawn]] for each in plan["positions"]]
        self.world.draw(number, places, self.size.kept + self.size.n_step - 1, ledger)

    def _place(self, position: int, ledger: Arrays) -> Place:
        source, rest = divmod(position, self.size.rows * self.size.envs)
        at, env = divmod(rest, self.size.envs)
        newest = int(ledger["written"][source]) - 1
        return source, newest - (newest - at) % self.size.rows, env


class _WorkerActor(ReplayWorkerActor):
    """The real actor, whose batches are compared with the steps that were made."""

    def __init__(self, blueprint: SimulatedBlueprint, directory: Path) -> None:
        super().__init__(blueprint, directory)
        gather, world = self.worker.gather, blueprint.world

        def compared(drawn: DrawnRows, out: Arrays, number: int) -> Batch | None:
            batch = gather(drawn, out, number)
            if batch is not None:
                normalized = self.worker.normalized
                scales = Scales() if normalized is None else normalized.scales()
                assert scales is not None
                world.gather(number // self.per_batch, self.index, batch, scales)
            return batch

        setattr(self.worker, "gather", compared)  # noqa: B010


class _Recorder(SilentRecorder):
    """Reads the rows of a checkpoint one by one, as slowly as a disk may take them, and compares them."""

    memory = SharedIn(ReplayRows)
    ledger = Subscription(ReplayLedger)
    floor = SharedOut(ReplayFloor)

    def __init__(self, blueprint: SimulatedBlueprint, directory: Path) -> None:
        super().__init__()
        self.blueprint = blueprint

    async def _save(self) -> None:
        held = self.ledger, self.optimizer_state, self.weights
        while True:
            due = await next_due(self.checkpoints, *held)
            try:
                await self._read(due)
            except VersionGone:
                pass
            finally:
                for port in held:
                    port.unpin()

    async def _read(self, due: CheckpointDue) -> None:
        weights, _ = held_block(self.weights, due.turn), held_block(self.optimizer_state, due.turn)
        ledger = held_block(self.ledger, due.ledger)
        size, world = self.blueprint.replay.size, self.blueprint.world
        arrays = self.blueprint.memory_layout.views(self.memory.memory)
        digest = hashlib.sha256(b"".join(part.tobytes() for part in (weights, ledger, arrays["held_leaves"])))
        written = self.blueprint.ledger_layout.views(ledger)["written"].copy()
        floor = size.first_rows(written)
        for source, end in enumerate(written.tolist()):
            for row in range(floor[source], end):
                write_floor(self.floor.memory.view(np.int64), due.ledger, floor)
                await asyncio.sleep(world.chance.random() * SLOW_ROW_S)
                world.save(source, row, {name: array[source, row % size.rows] for name, array in arrays.items()})
                floor[source] = row + 1
        world.saved[due.turn] = digest.hexdigest()


class _WatchedReplay(ReplayBlueprint):
    """A replay memory whose learner is watched."""

    def __init__(self, blueprint: SimulatedBlueprint) -> None:
        per_round = blueprint.gradients_per_round
        steps = blueprint.round_steps
        super().__init__(blueprint.config, blueprint.environment, per_round, blueprint.normalized, steps)
        self.blueprint = blueprint

    def memory(self, block: NDArray[np.uint8]) -> ReplayMemory:
        watched = _Memory(
            self.size,
            self.memory_layout,
            block,
            self.environment.observation,
            seed=self.run.run.seed,
            alpha=self.config.priority_exponent,
            least_steps=self.config.learning_starts,
        )
        watched.watch(self.blueprint.world)
        return watched


class SimulatedBlueprint(Blueprint):
    """The blueprint of the real trainer with other collectors and a watched memory."""

    world: World

    def collector(
        self,
        source: int,
        incarnation: int = 0,
        status: Status | None = None,
        vector: VectorEnvironment | None = None,
    ) -> Any:
        return _Collector(source, self.replay.config.n_step, self.config.algorithm.discount)

    def vector_in(self, *given: Any, **more: Any) -> Any:
        return None

    @functools.cached_property
    def replay(self) -> ReplayBlueprint:
        return _WatchedReplay(self)


def run(planned: Schedule) -> Simulation:
    """Simulate one schedule. `wrong` of the result lists every broken promise."""
    blueprint, undisturbed, calm = _undisturbed(planned.sets)
    faults = replace(planned.faults, after=round(LATEST * calm.callbacks))
    simulation, world = _simulate(blueprint, planned.seed, faults)
    _judge(simulation, blueprint, world)
    if planned.exact and not simulation.wrong:
        _compare(simulation, world, calm, undisturbed)
    return simulation


@functools.lru_cache(8)
def _undisturbed(sets: tuple[str, ...]) -> tuple[SimulatedBlueprint, World, Simulation]:
    """Simulate a config without faults. Raises RuntimeError if that breaks a promise."""
    text = "[network]\nmiddleware = [4]\n"
    blueprint = SimulatedBlueprint(load_config("simulated.toml", sets, text=text))
    calm = Faults(preempted=0.0, slow=0.0, lost=0.0)
    simulation, world = _simulate(blueprint, 0, calm)
    world.memory = {name: array.copy() for name, array in world.memory.items()}
    _judge(simulation, blueprint, world)
    if simulation.wrong:
        raise RuntimeError(f"without faults: {'; '.join(simulation.wrong)}")
    return blueprint, world, simulation


def _simulate(blueprint: SimulatedBlueprint, seed: int, faults: Faults) -> tuple[Simulation, World]:
    config = blueprint.config
    blueprint.world = world = World(blueprint.replay.config.n_step, config.algorithm.discount, random.Random(seed))
    topology = assemble(blueprint, Path())
    topology["recorder"].cls = _Recorder
    topology["gradient-workers"].cls = _WorkerActor
    return simulate(topology, seed, faults), world


def _judge(simulation: Simulation, blueprint: SimulatedBlueprint, world: World) -> None:
    """Check the promises that every schedule must keep, whatever faults it had."""
    wrong, outcome, config = simulation.wrong, simulation.outcome, blueprint.config
    assert outcome is not None
    wrong += world.wrong
    if outcome.state != "finished" and outcome.error != KILLED_AT_THE_END:
        wrong.append(f"the run ended as {outcome.state}: {outcome.reason} {outcome.error}")
        return
    wrong += [f"an actor raised {error!r}" for error in simulation.errors]
    if not world.ledger:
        wrong.append("no rollout was admitted")
        return
    counters, steps = world.ledger["counters"], [step for rows in world.rows.values() for each in rows for step in each]
    inserted = sum(step.valid for step in steps)
    if counters[Count.env_steps] != inserted or counters[Count.env_steps] < config.run.steps:
        wrong.append(f"{counters[Count.env_steps]} steps were counted and {inserted} admitted, of {config.run.steps}")
    for name in ("observed", "rewarded"):
        if name in world.ledger and world.ledger[name][0] != inserted:
            wrong.append(f"{inserted} steps were admitted, and {world.ledger[name][0]:g} are in the statistics")
    if len(set(world.ledger["rollouts"].tolist())) > 1 and config.collection.communication != "asynchronous":
        wrong.append(f"rounds that are not whole: {world.ledger['rollouts'].tolist()}")
    live, expected = np.count_nonzero(world.memory["leaves"]), _live(blueprint, world)
    if live != expected:
        wrong.append(f"{live} rows can be drawn instead of {expected}")
    if not world.used:
        wrong.append("no batch was gathered")


def _live(blueprint: SimulatedBlueprint, world: World) -> int:
    """Return how many steps a memory must hold: those inserted, less those evicted and those not complete yet."""
    size = blueprint.replay.size
    live = 0
    for rows in world.rows.values():
        complete = max(0, len(rows) - size.n_step + 1)
        live += sum(step.valid for each in rows[max(0, complete - size.kept) : complete] for step in each)
    return live


def _compare(simulation: Simulation, world: World, calm: Simulation, undisturbed: World) -> None:
    """Check that the faults have changed nothing."""
    assert simulation.outcome is not None
    assert calm.outcome is not None
    results, others = simulation.outcome.results, calm.outcome.results
    for name in ("updates", "env_steps", "episodes"):
        if results[name] != others[name]:
            simulation.wrong.append(f"{results[name]:g} {name} instead of {others[name]:g}")
    if simulation.outcome.digest != calm.outcome.digest:
        simulation.wrong.append("the weights are not those of the run without faults")
    found, expected = world.digests(), undisturbed.digests()
    if other := [name for name in expected if found.get(name) != expected[name]]:
        simulation.wrong.append(f"not as in the run without faults: {', '.join(other)}")
    common = world.saved.keys() & undisturbed.saved.keys()
    if other := [str(turn) for turn in sorted(common) if world.saved[turn] != undisturbed.saved[turn]]:
        simulation.wrong.append(f"checkpoints not as in the run without faults: {', '.join(other)}")
