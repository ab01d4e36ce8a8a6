"""The trainer's actors: each wraps one synchronous worker and orders its waits.

              rollouts (slabs)                 gradients (slabs)
    Collector ────────────────> GradientWorker ────────────────> Learner ──metrics──> Recorder
        ^  behaviour (board, one version a round)                 │ │
        └─────────────────────────────────────────────────────────┘ └── state (board, one version a turn) -> workers

Who uses which version follows from numbers alone, never from timing. With r the number of a rollout, g of a gradient:

    rollout r    is made with behaviour version  max(0, r // broadcast_interval - collection lag)
    gradient g   is made of the rollouts r = g of its share, on state version  max(0, g // bootstrap_rounds - lag)
    turn t       reduces the gradients t * bootstrap_rounds ... of every worker, in (worker, sequence) order

A lag of 0 is synchronous, one of k >= 1 pipelined: everyone is busy, and the run is the same run every time.

Every actor can be killed anywhere. A collector's successor makes the first rollout that was never committed. A gradient
worker's successor speaks for the dead one: a round that lost rollouts with it is made of those that are left, in the
worst case a gradient of zero samples, so that the learner waits for every worker's every gradient and needs no other
case. The learner's successor reads the last committed turn, frees what that turn had applied, and applies the rest.
"""

from __future__ import annotations

import time

import numpy as np

from hive.gradients import SAMPLES, VERSION
from hive.runtime import Actor, Inlet, Outlet, Publication, Slot, Subscription
from hive.storage import Rollout
from hive.workers.blueprint import Blueprint
from hive.workers.collector import Collector
from hive.workers.gradient_worker import GWorker
from hive.workers.learner import Count, Learner, Turn, mean_return
from hive.workers.messages import Gradient, Ledger, Metrics, RolloutReady, Weights

__all__ = ["CollectorActor", "GradientWorkerActor", "LearnerActor"]


class CollectorActor(Actor):
    """Makes rollout after rollout, each with the version that its number asks for."""

    role = "collector"
    rollouts = Outlet(RolloutReady)
    behaviour = Subscription(Weights)

    def __init__(self, blueprint: Blueprint) -> None:
        config = blueprint.config
        self.lag = config.collection.max_lag
        self.interval = config.collection.broadcast_interval
        self.steps = self.status.counter("env_steps")
        self.collector = Collector(
            blueprint.vector(),
            blueprint.environment.observation,
            blueprint.network(),
            blueprint.distribution,
            seed=config.run.seed,
            source=self.index,
            incarnation=self.incarnation,
            status=self.status,
        )

    async def setup(self) -> None:
        """An environment that cannot even be reset ends the run before it begins."""
        self.collector.reset()

    async def run(self) -> None:
        while True:
            slot = await self.rollouts.reserve()
            wanted = max(0, slot.sequence // self.interval - self.lag)
            version, weights = await self.behaviour.pin(wanted)
            self.status.show_version(version, self.behaviour.board.latest - version)
            self.collector.bind(weights)
            self.collector.collect(slot.arrays, sequence=slot.sequence, version=version)
            self.behaviour.unpin()
            self.status.add(self.steps, int(np.count_nonzero(Rollout(slot.arrays).valid)))
            self.rollouts.commit(slot)

    async def teardown(self) -> None:
        self.collector.close()


class GradientWorkerActor(Actor):
    """Makes one gradient of its share of every round."""

    role = "gradient-worker"
    rollouts = Inlet(RolloutReady)
    state = Subscription(Weights)
    gradients = Outlet(Gradient)

    def __init__(self, blueprint: Blueprint) -> None:
        config = blueprint.config
        self.lag = config.gradients.max_lag
        self.bootstrap_rounds = config.gradients.bootstrap_rounds
        self.worker = GWorker(
            blueprint.network(), blueprint.algorithm(), seed=config.run.seed, source=self.index, status=self.status
        )

    async def run(self) -> None:
        sequence, first = self.gradients.produced, self._first_rollouts()
        while True:
            lines = self.rollouts.lines
            share = [await self.rollouts.claim(p, sequence) for p in lines.producers if sequence >= first[p]]
            slot = await self.gradients.reserve()
            wanted = max(0, sequence // self.bootstrap_rounds - self.lag)
            version, weights = await self.state.pin(wanted)
            self.status.show_version(version, self.state.board.latest - version)
            self.worker.bind(weights)
            self.worker.compute([rollout.arrays for rollout in share], slot.arrays, sequence=sequence, version=version)
            self.state.unpin()
            self.gradients.commit(slot)
            for rollout in share:
                lines.retire(rollout)
            sequence += 1

    def _first_rollouts(self) -> dict[int, int]:
        """The first rollout of each producer that is still to be had: an earlier incarnation took some with it.

        A round is made of those of its rollouts that are left, in the worst case of none, which is a gradient of zero
        samples. It still waits for them: the learner must not run ahead of a collector that is behind.
        """
        lines = self.rollouts.lines
        first = {p: min(lines.waiting(p), default=lines.views[p].words.produced) for p in lines.producers}
        lost = sum(max(0, sequence - self.gradients.produced) for sequence in first.values())
        if lost:
            self.note("lost", f"{lost} rollouts went with the last incarnation of {self.name}", rollouts=lost)
        return first


class LearnerActor(Actor):
    """Turn after turn: claims every worker's gradients, applies them, commits, publishes, judges."""

    role = "learner"
    gradients = Inlet(Gradient)
    weights = Publication(Weights)
    ledger = Publication(Ledger)
    behaviour = Publication(Weights)
    metrics = Outlet(Metrics, pattern="broadcast")

    def __init__(self, blueprint: Blueprint) -> None:
        config = blueprint.config
        self.config = config
        self.blueprint = blueprint
        self.bootstrap_rounds = config.gradients.bootstrap_rounds
        self.interval = config.collection.broadcast_interval
        self.algorithm = blueprint.algorithm()
        self.learner = Learner(config.algorithm, blueprint.flat.parameter_elements, config.run.steps, self.status)
        self.shown = {name: self.status.counter(name) for name in RESULTS}
        self.window: list[tuple[Turn, int]] = []  # turns since the last Metrics, with their lag
        self.reported_s = 0.0

    async def setup(self) -> None:
        """Publishes the first version of everything, or takes up where the last incarnation committed."""
        ledger, weights = self.ledger.board, self.weights.board
        if ledger.latest < 0:
            self.blueprint.flat.initialize_into(weights.begin())
            ledger.begin()[:] = 0
            weights.seal(0)
            ledger.publish(0)
            weights.ring()
        self.turn = ledger.latest
        self._publish_behaviour()
        self._show()

    async def run(self) -> None:
        sequence = self.turn * self.bootstrap_rounds
        for worker in self.gradients.lines.producers:
            for done in self.gradients.lines.waiting(worker):
                if done < sequence:
                    self.gradients.lines.retire(await self.gradients.claim(worker, done))
        held: list[Slot] = []
        over = self._over()
        while over is None:
            held += [await self.gradients.claim(worker, sequence) for worker in self.gradients.lines.producers]
            sequence += 1
            if sequence % self.bootstrap_rounds == 0:
                held.sort(key=lambda slot: (slot.producer, slot.sequence))
                self._turn(held)
                for slot in held:
                    self.gradients.lines.retire(slot)
                held.clear()
                over = self._over()
                await self._report(force=over is not None)
            self._publish_behaviour(sequence)
        self.end_run(over)

    def _turn(self, held: list[Slot]) -> None:
        """One turn and its commit: the ledger's version is the word that makes both blocks the state."""
        weights, ledger = self.weights.board, self.ledger.board
        weights_out, ledger_out = weights.begin(), ledger.begin()
        turn = self.learner.turn(
            [slot.arrays for slot in held], weights.read(self.turn), ledger.read(self.turn), weights_out, ledger_out
        )
        counters = self.learner.layout.views(ledger_out)["counters"]
        counters[Count.rounds] = (self.turn + 1) * self.bootstrap_rounds
        counters[Count.last_ns] = time.monotonic_ns()
        counters[Count.first_ns] = counters[Count.first_ns] or counters[Count.last_ns]
        lag = (
            max(self.turn - int(slot.arrays["header"][VERSION]) for slot in held if slot.arrays["header"][SAMPLES])
            if turn.samples
            else 0
        )
        self.turn += 1
        weights.seal(self.turn)
        ledger.publish(self.turn)
        weights.ring()
        self.window.append((turn, lag))
        self._show()
        if turn.bad >= 0:
            slot = held[turn.bad]
            worker = f"gradient-worker-{slot.producer}"
            self.note(
                "not finite",
                f"gradient {slot.sequence} of {worker} holds NaN or infinity and was not applied",
                worker=worker,
                turn=self.turn,
            )

    def _publish_behaviour(self, rounds: int | None = None) -> None:
        """The behaviour version that is due after so many rounds, if it is missing."""
        board = self.behaviour.board
        due = (self.turn * self.bootstrap_rounds if rounds is None else rounds) // self.interval
        if due > board.latest:
            board.begin()[:] = self.weights.board.read(self.turn)
            board.publish(due)

    # --- what others see

    def _counters(self) -> dict[str, float]:
        views = self.learner.layout.views(self.ledger.board.read(self.turn))
        counters = views["counters"]
        train_s = (int(counters[Count.last_ns]) - int(counters[Count.first_ns])) / 1e9
        return {
            "updates": int(counters[Count.updates]),
            "env_steps": int(counters[Count.env_steps]),
            "episodes": int(counters[Count.episodes]),
            "skipped": int(counters[Count.skipped]),
            "train_s": train_s,
            "mean_return_100": mean_return(views["returns"], int(counters[Count.episodes])),
        }

    def _show(self) -> None:
        for name, value in self._counters().items():
            self.status.set(self.shown[name], value)
        self.status.show_version(self.turn, 0)

    def _over(self) -> str | None:
        """Whether the run has reached its goal, judged from what gradients carried, in their order."""
        run, now = self.config.run, self._counters()
        if run.stop_at_return is not None and now["episodes"] >= 100 and now["mean_return_100"] >= run.stop_at_return:
            return f"mean return {now['mean_return_100']:.1f} >= {run.stop_at_return:g}"
        return f"{run.steps:,} steps" if now["env_steps"] >= run.steps else None

    async def _report(self, *, force: bool = False) -> None:
        """Metrics of the turns since the last report, if it is time. Nothing that decides looks at this clock."""
        now = self._counters()
        if not self.window or (not force and now["train_s"] - self.reported_s < self.config.record.every_s):
            return
        since = now["train_s"] - self.reported_s
        samples = sum(turn.samples for turn, _ in self.window)
        values = {
            "return/mean_100": now["mean_return_100"],
            "episodes": now["episodes"],
            "learner/gradient_norm": float(np.mean([turn.norm for turn, _ in self.window])),
            "learner/learning_rate": self.window[-1][0].learning_rate,
            "learner/lag": float(np.mean([lag for _, lag in self.window])),
            "learner/skipped": now["skipped"],
            "rate/env_steps_per_s": samples / since if since > 0 else 0.0,
            "rate/updates_per_s": sum(turn.applied for turn, _ in self.window) / since if since > 0 else 0.0,
        }
        means = np.mean([turn.statistics for turn, _ in self.window], axis=0)
        values |= {f"learner/{name}": float(mean) for name, mean in zip(self.algorithm.statistics, means, strict=False)}
        self.window.clear()
        self.reported_s = now["train_s"]
        await self.metrics.send(Metrics(int(now["updates"]), int(now["env_steps"]), now["train_s"], values))

    async def teardown(self) -> None:
        await self._report(force=True)


RESULTS = ("updates", "env_steps", "episodes", "skipped", "train_s", "mean_return_100")
