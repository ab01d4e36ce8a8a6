"""A run from a replay memory in library mode: collector, memory, gradient worker and learner, without actors."""

from __future__ import annotations

import numpy as np
import torch
from small_trainer import Arrays, allocate
from torch import Tensor

from hive.algorithms import Batch
from hive.experience import Rollout
from hive.networks import aligned_block
from hive.training import Blueprint, ReplayWorker
from hive.training.run_start import write_first_ledger, write_first_state
from hive.training.update.replay_memory import DrawnRows

Values = dict[str, Tensor]


class ReplayLoop:
    """Collector, memory, gradient worker and learner of a run in a plain loop; `rollouts` are kept."""

    def __init__(self, blueprint: Blueprint) -> None:
        self.blueprint = blueprint
        self.collector = blueprint.collector(0)
        self.collector.reset()
        self.learner = blueprint.learner()
        memory = np.zeros(blueprint.memory_layout.bytes, np.uint8)
        self.replay = blueprint.replay.memory(memory)
        self.worker = ReplayWorker(blueprint, 0, memory)
        self.ledgers = [allocate(blueprint.ledger_layout) for _ in range(2)]
        self.plan, self.slot = allocate(blueprint.plan_layout), allocate(blueprint.gradient_layout(1))
        self.states = [aligned_block(blueprint.state.bytes) for _ in range(2)]
        self.optimizer_states = [aligned_block(blueprint.optimizer_state_bytes) for _ in range(2)]
        write_first_state(blueprint, self.states[0], self.optimizer_states[0])
        write_first_ledger(blueprint, self.replay, self.ledgers[0], self.states[0])
        self.rollouts: list[Arrays] = []
        self.batch: Batch | None = None  # that of the last turn
        self.turns = 0

    def turn(self) -> DrawnRows:
        """Make a turn as a synchronous run does, and return its rows, whose contents are in `batch`."""
        (now, after), (ready, out) = self.states, self.ledgers
        rollout = allocate(self.blueprint.rollout_layout)
        self.collector.bind(now[: self.blueprint.flat.block_bytes])
        self.collector.collect(rollout, sequence=self.turns, version=self.turns)
        self.rollouts.append(rollout)
        self.replay.admit([Rollout(rollout)], ready, out, 0)
        self.replay.draw(self.turns, out, self.plan)
        drawn = DrawnRows.of(self.plan, 0, 0.4)
        self.worker.bind(now)
        self.batch = self.worker.gather(drawn, self.slot, self.turns)
        self.worker.compute(self.batch, self.slot, sequence=self.turns, version=self.turns)
        self.learner.turn([self.slot], now, self.optimizer_states[0], after, self.optimizer_states[1], None, out)
        for pair in (self.states, self.ledgers, self.optimizer_states):
            pair.reverse()
        self.turns += 1
        return drawn

    def values(self, target: bool = False) -> Values:
        """The weights, or those of the target network, in float64."""
        state = self.blueprint.state
        block = state.target(self.states[0]) if target else state.weights(self.states[0])
        return {
            name: torch.tensor(array, dtype=torch.float64) for name, array in self.blueprint.flat.arrays(block).items()
        }
