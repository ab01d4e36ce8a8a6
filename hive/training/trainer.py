"""A whole trainer in one process, for scripts that train many: populations, tuners, curricula.

    trainer = Trainer(config)
    while trainer.env_steps < 100_000:
        trainer.train()                 # one round: a rollout and all of its updates
    print(trainer.mean_return_100)

It consists of the workers of a run and makes the same numbers: with the same config, seed and settings its weights are
those of a run with `collection.workers = 0`, `gradients.workers = 0` and synchronous communication.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from hive.algorithms.parameters import update_parameter
from hive.config import Config
from hive.config.answers import answers
from hive.config.other_names import way_of
from hive.errors import ConfigError, MemoryShort, UsageError, brief
from hive.experience import steps_in
from hive.free_memory import free_memory, size_text
from hive.networks.weights.flat import aligned_block
from hive.runtime import Status
from hive.runtime.process.user_code.guest import Guest
from hive.training.blueprint import Blueprint
from hive.training.gradient.g_worker import GWorker
from hive.training.update.learner import Count, mean_return
from hive.training.update.replica import Replica


@answers("trainer")
class Trainer:
    """Collects, computes gradients and updates, in turns, with the newest weights.

    config: that of a run. One collector and one gradient worker replace the numbers of workers in it, and its modes of
    communication, checkpoints and goals are not used.
    number: number of this trainer among those that share a seed. Trainers of different numbers begin with the same
    weights and see different episodes.
    incarnation: that of the actor which holds it, so that a successor does not repeat the episodes.
    status: the status page of the actor, which then shows the phases.

    Raises what a Blueprint raises, and EnvironmentFailed.
    """

    @brief
    def __init__(self, config: Config, number: int = 0, incarnation: int = 0, status: Status | None = None) -> None:
        given: object = config  # as programs without types may give it
        if not isinstance(given, Config):
            raise UsageError(f"hive.Trainer takes a hive.Config, not {given!r}", hint=way_of("trainer", "__init__"))
        self._guest = Guest()
        with self._guest:
            self._begin(config, number, incarnation, status)

    def _begin(self, config: Config, number: int, incarnation: int, status: Status | None) -> None:
        if config.run.callbacks or config.env.curriculum:
            key = "run.callbacks" if config.run.callbacks else "env.curriculum"
            raise ConfigError(f"hive.Trainer calls no callbacks, and the config has {key}", hint="use hive.train")
        self.blueprint = blueprint = Blueprint(_without_lag(config))
        _check_memory(blueprint)
        self.collector = blueprint.collector(number, incarnation, status)
        self.worker = GWorker.of_run(blueprint, number, status)
        self.replica = Replica(blueprint.learner(status), blueprint.state.bytes)
        self.replica.begin(blueprint)
        rollout, gradient = blueprint.rollout_layout, blueprint.gradient_layout(1)
        self._rollout = rollout.views(aligned_block(rollout.bytes))
        per_turn = blueprint.config.gradients.bootstrap_rounds
        self._gradients = [gradient.views(aligned_block(gradient.bytes)) for _ in range(per_turn)]
        self._made = 0  # gradients
        self._rounds = 0
        self.collector.reset()

    def train(self) -> int:
        """Train one round: collect a rollout, and make all updates that the algorithm makes of it.

        Return the environment steps of the rollout. Raises EnvironmentFailed.
        """
        with self._guest:
            return self._train()

    def _train(self) -> int:
        replica, number = self.replica, self._rounds
        self.collector.bind(replica.weights)
        self.collector.collect(self._rollout, sequence=number, version=number)
        for _ in range(self.worker.algo.gradients_per_round):
            slot = self._gradients[self._made % len(self._gradients)]
            self.worker.bind(replica.weights)
            self.worker.compute([self._rollout], slot, sequence=self._made, version=replica.turn)
            self._made += 1
            if self._made % len(self._gradients) == 0:
                replica.apply(self._gradients)
        self._rounds += 1
        return steps_in(self._rollout)

    @property
    def env_steps(self) -> int:
        """Environment steps behind the current state, also those of the trainers that it was copied from."""
        return self._counter(Count.env_steps)

    @property
    def updates(self) -> int:
        """Updates behind the current state."""
        return self._counter(Count.updates)

    @property
    def mean_return_100(self) -> float | None:
        """The mean return of the last 100 episodes; None before the first has ended."""
        episodes = self._counter(Count.episodes)
        returns = self.replica.learner.views(self.replica.optimizer_state)["returns"]
        return mean_return(returns, episodes) if episodes else None

    def _counter(self, count: Count) -> int:
        return int(self.replica.learner.views(self.replica.optimizer_state)["counters"][count])

    @property
    def state(self) -> bytes:
        """The whole state of learning: weights, targets, moments of the optimizer, counters. Of the same size always.

        Another trainer of the same config continues from it once it is assigned there. The environments are not in it.
        """
        return self.replica.weights.tobytes() + self.replica.optimizer_state.tobytes()

    @state.setter
    def state(self, state: bytes) -> None:
        weights, optimizer_state = self.replica.weights, self.replica.optimizer_state
        size = len(weights) + len(optimizer_state)
        if len(state) != size:
            raise ConfigError(
                f"the state has {len(state):,} bytes, and this trainer needs {size:,}",
                hint="it must come from a trainer with the same network, optimizer and environments",
            )
        block = np.frombuffer(state, np.uint8)
        self.replica.copy(self.replica.turn, block[: len(weights)], block[len(weights) :])
        self.worker.clear_residual()

    def set(self, key: str, value: object) -> None:
        """Change a key of [algorithm], "learning_rate" or "entropy_weight", from the next round on.

        Raises ConfigError, and changes nothing, for a wrong value and for a key that is fixed.
        """
        update_parameter(self.replica.learner, key, value)
        update_parameter(self.worker.algo, key, value)  # type: ignore[arg-type]
        self.collector.change_key(key, value)

    def close(self) -> None:
        """Close the environments."""
        self.collector.close()


def _check_memory(blueprint: Blueprint) -> None:
    """Raise MemoryShort if networks, state, rollout and gradients need more memory than is free here."""
    gradients = blueprint.config.gradients.bootstrap_rounds * blueprint.gradient_layout(1).bytes
    state = 2 * (blueprint.state.bytes + blueprint.optimizer_state_bytes)
    needed = blueprint.rollout_layout.bytes + gradients + state + 2 * blueprint.network_bytes
    if needed > (free := free_memory()).usable:
        raise MemoryShort(
            f"a trainer of this config needs {size_text(needed)} of memory, and {free} are free",
            hint="lower network.middleware, collection.envs or collection.rollout; `hive check` shows the parts",
        )


def _without_lag(config: Config) -> Config:
    """Return the config with one collector and one gradient worker that take turns."""
    collection = dataclasses.replace(
        config.collection, workers=0, communication="synchronous", max_lag=0, broadcast_interval=1
    )
    gradients = dataclasses.replace(config.gradients, workers=0, communication="synchronous", max_lag=0)
    return dataclasses.replace(config, collection=collection, gradients=gradients)
