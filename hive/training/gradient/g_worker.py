"""GWorker computes the gradients of one share of the rounds. The gradient worker's actor wraps it.

    rollouts -> algorithm.gradients -> forward, loss, backward -> one copy into the gradient slot

A GWorker is a synchronous object without ports. Its networks are the online and target copies of a NetworkWrapper,
which read the learner's state in place (`bind`). An algorithm makes S gradients of a round, each on its own version of
the weights; gradient g is number g mod S of round g // S. A gradient that cannot be made has zero samples, so no number
is ever missing: that of a share without samples, or of a round that a killed worker began. A gradient that is not
finite is marked in its header and never applied; `slot.on_not_finite` is called while its inputs still exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hive.algorithms.algorithm import Algorithm, Gradients, Moments
from hive.config.refusals import IN_SCRIPTS
from hive.errors import NetworkError, TopologyError
from hive.experience import Purpose, Rollout, stream
from hive.free_memory import size_text
from hive.gradients import ENV_STEPS, POLICY, Codec, clear, put_episodes
from hive.learning import SharedTarget
from hive.learning.described import UNDESCRIBED, Described, describes
from hive.networks.rows.normalization import add_rows, clipped_rewards, count_clipped, observed_elements, reward_scale
from hive.runtime import Status
from hive.runtime.memory.segments import Arrays
from hive.training.blueprint import Blueprint
from hive.training.collect.collector import observe
from hive.training.gradient.devices import seed_forward
from hive.training.gradient.gradient_slot import GradientSlot
from hive.training.run_start import schedule_start

SMALLER = "more algorithm.minibatches, fewer collection.envs, a shorter collection.rollout"


class GWorker:
    """Computes gradients of rollouts: `GWorker.of_run(blueprint, 0)`, then `bind` and `compute` for each gradient.

    index_worker: its number, which determines the seeds of its minibatches. status: the status page for its phases.
    algorithm: default: the blueprint's, which shares its rounds with the run's other workers. codec: default: the
    config's.

    Raises TopologyError for an algorithm that learns from a replay memory.
    """

    def __init__(
        self,
        blueprint: Blueprint,
        index_worker: int,
        status: Status | None = None,
        *,
        algorithm: Algorithm | None = None,
        codec: Codec | None = None,
    ) -> None:
        if isinstance(blueprint, int):  # the first argument of the class of scripts
            raise TypeError("hive.GWorker takes a Blueprint; one that collects is hive.compat.pytorchrl.GWorker")
        self.blueprint = blueprint
        self.schedule_start = schedule_start(blueprint)
        self.index_worker = index_worker
        self.seed = blueprint.config.run.seed
        self.codec = codec or blueprint.codec
        self.networks = blueprint.wrapper(blueprint.device)
        self.actor = self.networks.online_network.module
        self.flat = self.networks.online_network.flat
        self.slot = GradientSlot(self.flat, self.codec, blueprint.threads)
        self.algo: Algorithm = algorithm or cast(Algorithm, blueprint.algorithm())
        if not hasattr(self.algo, "gradients"):
            raise TopologyError(f"{blueprint.config.algorithm.name} {IN_SCRIPTS.reason}", hint=IN_SCRIPTS.instead)
        target = self.networks.target_network
        shared = SharedTarget(self.actor, target.module, self.slot.device) if target else None
        self.algo.connect(self.actor, self.slot, shared)
        self.status = status
        self._phase = status.phase("gradient") if status else 0
        self._noise: np.random.Generator | None = None  # random stream of the round in progress
        self._round: tuple[int, Gradients] | None = None  # round in progress and the gradients left of it
        self._rollouts: Sequence[Rollout] = ()  # rollouts of the round in progress
        self._has_checked = type(self.algo).__module__.startswith("hive.")  # whether it ends where it says

    @classmethod
    def of_run(cls, blueprint: Blueprint, index_worker: int, status: Status | None = None) -> GWorker:
        """Make gradient worker `index_worker` of a run, which shares its rounds with the other gradient workers."""
        return GWorker(blueprint, index_worker, status)  # also of a subclass, whose constructor may differ

    def bind(self, state: NDArray[np.uint8]) -> None:
        """Compute with this block of the learner's state from now on: uint8 [state.bytes], read in place."""
        self.networks.bind(state)
        self.slot.rebound()

    def clear_residual(self) -> None:
        """Discard the codec's residual, at a resume barrier: checkpoints do not contain it."""
        self.slot.residual[:] = 0.0

    def compute(
        self,
        rollouts: Sequence[Arrays],
        out: Arrays,
        *,
        sequence: int,
        version: int,
        moments: tuple[float, float] | None = None,
    ) -> None:
        """Write gradient `sequence` into the slot `out` (layout: hive.gradients.blocks).

        rollouts: those of its round. version: that of the bound state. moments: mean and standard deviation of the
        round over all workers, passed with the gradient after the one that yielded Moments.
        """
        if self.status:
            self.status.enter(self._phase)
        number, step = divmod(sequence, self.algo.gradients_per_round)
        clear(out, version, sequence)
        if step == 0:
            self._begin(number, rollouts, out)
        if self._round is not None and self._round[0] == number:
            seed_forward(self.seed, self.index_worker, sequence, self.slot.device)
            with self.slot.filling(out, self._rollouts, self._describe, SMALLER):
                try:
                    request = self._round[1].send(moments)  # the algorithm runs to its next yield: one gradient
                except StopIteration:  # it has finished, so this gradient has zero samples
                    request = None
            if step == self.algo.gradients_per_round - 1 and not self._has_checked:
                self._check_ended(self._round[1])
            if isinstance(request, Moments):
                out["moments"][:] = request.count, request.total, request.squares
            if step == self.algo.gradients_per_round - 1:  # one normalization holds for a round
                for view in self._rollouts:
                    observe(view, self.blueprint.environment.observation, out)
        if self.status:
            self.status.enter(self.status.runtime)

    def _check_ended(self, gradients: Gradients) -> None:
        """Raise TopologyError for an algorithm that would yield more gradients than it names, once."""
        self._has_checked = True
        try:
            gradients.send(None)
        except StopIteration:
            return
        except NetworkError:  # it computes one more, and no slot is open
            pass
        count = self.algo.gradients_per_round
        raise TopologyError(
            f"{type(self.algo).__name__} yields more than its gradients_per_round = {count}",
            hint="count every yield of a round, also that of Moments",
        )

    def described(self, sequence: int) -> Described | str | None:
        """Return gradient `sequence` and the later ones of its round for hive._native, or why `compute` makes them.

        None: their round has not begun.
        """
        if self._round is None or self._round[0] != sequence // self.algo.gradients_per_round:
            return None
        algorithm: Any = self.algo
        return cast("Described | str", algorithm.described()) if describes(algorithm) else UNDESCRIBED

    def _begin(self, number: int, rollouts: Sequence[Arrays], out: Arrays) -> None:
        """Begin a round: count its steps and episodes in its first gradient, and let the algorithm make gradients."""
        counts = self.blueprint.rounds, self.schedule_start, self.blueprint.round_steps
        views = [Rollout(arrays, *counts) for arrays in rollouts]
        columns = [view.episode_columns() for view in views] if "episode_columns" in out else ()
        put_episodes(out, [view.episodes() for view in views], [view.episode_infos() for view in views], columns)
        samples = sum(view.samples for view in views)
        out["header"][ENV_STEPS] = sum(view.env_steps for view in views)
        out["header"][POLICY] = min((view.version for view in views), default=-1)
        self._round = None
        if samples:
            for view in views:
                view.lagged = self.blueprint.has_lag and self._is_older(number, view.version)
            self._scale_rewards(views, out)
            self._noise = stream(self.seed, Purpose.minibatches, self.index_worker, number, self._noise)
            self._round, self._rollouts = (number, self.algo.gradients(views, self._noise)), views

    def _is_older(self, number: int, version: int) -> bool:
        """Return whether policy `version` is older than that of the first gradient of round `number`.

        Without order every rollout counts as older.
        """
        collection = self.blueprint.config.collection
        in_order = collection.communication != "asynchronous"
        return not (in_order and version * collection.broadcast_interval == number)

    def _scale_rewards(self, views: Sequence[Rollout], out: Arrays) -> None:
        """Normalize the rewards of the round by the statistics of the bound weights, and count clipped ones."""
        if (normalizer := getattr(self.actor, "reward_normalizer", None)) is None:
            return
        own = np.zeros(observed_elements(()))
        for view in views:
            assert view.discounted is not None
            add_rows(view.discounted[view.valid != 0], own)
        if (scale := reward_scale(normalizer.seen.cpu().numpy(), own)) is None:
            return
        limit = self.blueprint.config.network.reward_clip
        for view in views:
            if "clipped" in out:
                count_clipped(view.rewards[view.valid != 0], scale, limit, out["clipped"])
            view.rewards = clipped_rewards(view.rewards, scale, limit)

    def _describe(self) -> str:
        """Describe the work of a gradient and its sizes."""
        rows = sum(prod(rollout.observations.shape[:2]) for rollout in self._rollouts)
        each = self._rollouts[0].observations[0, 0].nbytes
        parameters = size_text(self.flat.parameter_bytes)
        return f"a gradient of {rows:,} observations of {each:,} bytes by a network of {parameters}"
