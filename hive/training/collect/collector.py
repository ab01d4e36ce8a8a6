"""The collector steps B environments with a policy and writes their transitions into a rollout, in place.

    for each step t     outputs = policy(observations[t])      phase "policy"
                        actions[t] = sample(outputs, noise[t])
                        step the environments                  phase "env"    writes rows t, observations t + 1

The collector is a synchronous object without ports: the caller provides weights and memory, and takes the rollout. The
environments write directly into the rollout's rows, so no array is stacked afterwards. Noise comes from a stream of the
rollout's number, so a rollout that another process repeats is bit-identical if the environments are deterministic. The
seeds of global generators, from which an environment may draw, follow from it too (`seed_all_globals`).

The state of a recurrent policy is carried from step to step and from rollout to rollout, and is zeros where an episode
begins. The rollout stores the state before its row 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from hive import _native
from hive.algorithms.batches.initial_errors import n_step_errors
from hive.envs import (
    EnvContext,
    FinalObservations,
    HelpedVector,
    ObservationSpec,
    ProcessVector,
    StepRow,
    VectorEnvironment,
    runs_python,
    seed_globals,
)
from hive.experience import Purpose, Rollout, stream, stream_seed, stream_seeds
from hive.networks.act.distributions import ActionDistribution
from hive.networks.act.exploration import EpsilonGreedy
from hive.networks.act.native_acting import FlatRollout
from hive.networks.build.layers import acting
from hive.networks.build.network import acting_alone
from hive.networks.rows.normalization import NormalizedNetwork, Scales, add_rows
from hive.networks.weights.wrapper import NetworkWrapper
from hive.policy.acting import Acting
from hive.runtime import Status
from hive.runtime.memory.segments import Arrays

MAX_INCARNATIONS = 1 << 20  # stride between the streams of two rounds; no collector restarts this often


# Maximum slots whose views are cached: more than a slab has. In library use each rollout may be in new memory, so a
# full cache is cleared.
PREPARED_SLOTS = 128


@dataclass(frozen=True)
class _Prepared:
    """Cached views of one slot: rows for the environments, tensors for the policy."""

    arrays: Arrays
    finals: FinalObservations
    rows: list[StepRow]
    observations: list[torch.Tensor]
    flat: FlatRollout | None


@dataclass(frozen=True)
class _Drawn:
    """What a rollout is made with besides the weights."""

    sequence: int
    distribution: ActionDistribution
    noise: NDArray[np.float32]


@dataclass(frozen=True)
class RolloutPart:
    """A rollout that a collector fills. kept: the policy's outputs of each step, if the rollout needs them."""

    member: Collector
    rollout: Arrays
    prepared: _Prepared
    distribution: ActionDistribution
    noise: NDArray[np.float32]
    kept: list[NDArray[Any]] | None
    native: _native.Acting | None

    def act(self, t: int) -> None:
        """Write the actions of row t, [B, ...], and keep the policy's outputs for it, float32 [B, ...]."""
        if self.native is not None:
            self.native.act(t)
            return
        acting, prepared = self.member.acting, self.prepared
        outputs = acting.outputs(self.rollout["observations"][t], seen=prepared.observations[t])
        self.rollout["actions"][t] = self.distribution.sample_numpy(outputs, self.noise[t])
        if self.kept is not None:
            self.kept.append(outputs)

    def after(self, t: int) -> None:
        """Follow step t of the environments with what the policy remembers."""
        acting, row = self.member.acting, self.prepared.rows[t]
        if acting.remembers:
            acting.forget(row.ended)
            acting.see(row.observations)


def seed_all_globals(seed: int, purpose: Purpose, source: int, sequence: int) -> None:
    """Seed the global generators of torch, NumPy and Python from a stream.

    An environment's code may draw from these; hive itself draws from streams alone. They are seeded before such code
    builds, resets or steps environments. So runs with environments that use them repeat and resume exactly, and the
    collectors of a run, forks of one process, do not draw the same numbers.
    """
    word = stream_seed(seed, purpose, source, sequence)
    torch.default_generator.manual_seed(word)
    seed_globals(word)


def observe(rollout: Rollout, observation: ObservationSpec, out: Arrays) -> None:
    """Add the valid steps of a rollout to the moments of a network that normalizes (hive.networks.rows.normalization).

    out: those of "observed", "rewarded" and "novelty" that it has.
    """
    valid = rollout.valid != 0
    if "observed" in out:
        add_rows(observation.numbers(rollout.observations[: rollout.length][valid]), out["observed"])
    if "rewarded" in out and rollout.discounted is not None:
        add_rows(rollout.discounted[valid], out["rewarded"])
    if "novelty" in out and rollout.novelty is not None:
        add_rows(rollout.novelty[valid], out["novelty"])


def occasion_of(start: int, incarnation: int) -> int:
    """Return the sequence of the streams that a reset uses: `start` is the round of its resume barrier."""
    return start * MAX_INCARNATIONS + incarnation


def contexts_of(
    seed: int, source: int, envs: int, *, start: int = 0, incarnation: int = 0, rows: int = 1, run: str = ""
) -> list[EnvContext]:
    """Return who the environments of collector `source` are, for a reset at the round `start`.

    rows: of each environment, whose first one has its seed. run: the name of the run.
    """
    occasion = occasion_of(start, incarnation)
    seeds = stream_seeds(seed, Purpose.environment, source * envs * rows, envs * rows, occasion)[::rows]
    return [EnvContext(source * envs + number, int(one), incarnation, run) for number, one in enumerate(seeds)]


class Collector:
    """Collects rollouts.

    vector: its environments; None for a member of several: its `reset`, `rebuild` and `collect` are those of
    hive.training.collect.several. observation: shape and dtype of an observation. network: its online network acts,
    with the weights of `bind`. distribution: maps its first output to actions. source: number of this collector in the
    run. incarnation: that of its process. log_probs: whether to store the log probabilities of the acting policy.
    discount: discount factor of the sums that normalized rewards need, and of n-step errors. n_step: rewards in the
    errors of rollouts that have room for them. status: the status page that shows its phases; None in library use.
    """

    def __init__(
        self,
        vector: VectorEnvironment | None,
        observation: ObservationSpec,
        network: NetworkWrapper,
        distribution: ActionDistribution,
        *,
        seed: int,
        source: int,
        incarnation: int = 0,
        log_probs: bool = False,
        discount: float = 1.0,
        n_step: int = 0,
        status: Status | None = None,
    ) -> None:
        self.vector: Any = vector  # a VectorEnvironment wherever it is used
        self.closed = False  # before others are made in their place, which may open the same ports
        self.runs_python = runs_python(vector)
        self.network = network
        self.policy = acting_alone(acting(network.online_network.module))
        self.distribution = distribution
        self.acting = Acting(self.policy, observation, distribution, network.bind, natively=True)
        self.seed = seed
        self.source = source
        self.incarnation = incarnation
        self.log_probs = log_probs
        self.discount = discount
        self.n_step = n_step
        self.status = status
        self.phases = (status.phase("policy"), status.phase("env")) if status else (0, 0)
        self.observation = observation
        self.current: NDArray[Any]  # [B, ...]: first observations of the next rollout, set by `reset`
        self.begins = True  # whether the next rollout is the first after a reset
        self._resets = 0  # of these environments
        self._prepared: dict[int, _Prepared] = {}
        self._drawn: _Drawn | None = None
        self._generator: np.random.Generator | None = None  # the one that drew the last noise; used again

    def bind(self, weights: NDArray[np.uint8]) -> None:
        """Act with these weights from now on: uint8 [block_bytes], read in place."""
        self.acting.bind(weights)

    def change_key(self, name: str, value: Any) -> None:
        """Use another value of a key of [algorithm] from the next rollout on: the discount; no other one is used here.

        name: "discount", also "algorithm.discount".
        """
        if name.removeprefix("algorithm.") == "discount":
            self.discount = float(value)

    @property
    def collects(self) -> Callable[..., None] | None:
        """What makes all steps of a rollout in one call: that of compiled environments (CompiledVector.collect)."""
        return getattr(self.vector, "collect", None)

    def reset(self, start: int = 0) -> None:
        """Start an episode in every environment, before the first rollout and at a resume barrier.

        `start` is the round of the barrier. It determines the environments' seeds and those of the global generators,
        together with the run's seed, the number of the environment and the incarnation. Raises EnvironmentFailed.
        """
        envs = self.vector.count
        self.begin_episodes(envs)
        occasion = occasion_of(start, self.incarnation)
        seeds = stream_seeds(self.seed, Purpose.environment, self.source * envs, envs, occasion)
        if self.runs_python:
            seed_all_globals(self.seed, Purpose.resetting, self.source, occasion)
        self._seed_processes(Purpose.resetting, occasion)
        self.vector.reset(seeds, self.current)
        self.acting.see(self.current)
        self._start = start
        self._resets += 1
        if isinstance(self.vector, HelpedVector) and self.vector.drew and self._may_leave_helpers():
            self._leave_helpers()

    def _seed_processes(self, purpose: Purpose, sequence: int) -> None:
        """Seed the global generators of processes of environments, as those of this process are for its own."""
        if isinstance(self.vector, ProcessVector):
            self.vector.seed_globals(stream_seed(self.seed, purpose, self.source, sequence))

    def begin_episodes(self, envs: int) -> None:
        """Forget all episodes of `envs` rows."""
        self.current = np.zeros((envs, *self.observation.shape), self.observation.dtype)
        self.begins = True
        self.acting.begin(envs)
        self.discounted = np.zeros(envs)  # sum of each running episode's discounted rewards

    def rebuild(self, vector: VectorEnvironment, start: int) -> None:
        """Replace the environments by `vector`, and reset them."""
        if vector is not self.vector:  # one with helpers has made its environments anew
            self.close()
        self.closed, self._resets = False, 0
        self.vector, self.runs_python = vector, runs_python(vector)
        self.reset(start)

    def draw(self, rollout: Arrays, sequence: int) -> None:
        """Draw what rollout `sequence` needs besides the weights, and seed the global generators for it.

        `collect` does it, too. A caller that waits for the weights may do it before, if no other code of the process
        draws from these generators meanwhile.
        """
        torch.default_generator.manual_seed(stream_seed(self.seed, Purpose.acting_forward, self.source, sequence))
        if self.runs_python:
            seed_globals(stream_seed(self.seed, Purpose.stepping, self.source, sequence))
        self._seed_processes(Purpose.stepping, sequence)
        steps, envs = rollout["rewards"].shape
        self._generator = stream(self.seed, Purpose.action, self.source, sequence, self._generator)
        noise = self.distribution.draw_noise(self._generator, steps, envs)
        self._drawn = _Drawn(sequence, self.distribution.for_rollout(sequence), noise)

    def collect(
        self, rollout: Arrays, *, sequence: int, version: int, enough: Callable[[int], bool] | None = None
    ) -> None:
        """Fill one rollout (layout: hive.experience.rollouts).

        sequence: number of the rollout. version: behaviour version of the bound weights. enough: called after every
        step with the number of steps so far; the rollout ends when it returns True.

        Raises EnvironmentFailed, and RuntimeError before the first `reset`.
        """
        if not hasattr(self, "current"):
            raise RuntimeError("no episode has begun: call reset() before the first collect()")
        began = self.begins
        self._collect(rollout, sequence, version, enough)
        if isinstance(self.vector, HelpedVector) and self.vector.look() and began and self._may_leave_helpers():
            self._leave_helpers()
            self._collect(rollout, sequence, version, enough)

    def _may_leave_helpers(self) -> bool:
        """Return whether hive chose the helpers, and the environments have not been reset since their first reset.

        A number that the user has set stays, and costs exactness.
        """
        return isinstance(self.vector, HelpedVector) and self.vector.helping.chosen and self._resets == 1

    def _leave_helpers(self) -> None:
        """Begin again at the last reset without helpers: their environments drew from the global generators."""
        assert isinstance(self.vector, HelpedVector)
        self.vector.helping.seed()
        self.vector = self.vector.leave_helpers()
        self.runs_python = runs_python(self.vector)
        self.reset(self._start)

    def _collect(self, rollout: Arrays, sequence: int, version: int, enough: Callable[[int], bool] | None) -> None:
        with torch.inference_mode():
            part = self.begin_rollout(rollout, sequence)
            if part.native is not None and enough is None and self.collects is not None:
                rows = part.prepared.rows
                self.collects(part.native, rows, self.status.page if self.status else None, self.phases)
                length = len(rows)
            else:
                length = self._step(part, enough)
            agents = getattr(self.vector, "agents", 0)
            self.current[...] = rollout["observations"][length]
            env_steps = length * self.vector.count // agents if agents else 0
            self.end_rollout(part, length, version, sequence, env_steps)

    def begin_rollout(self, rollout: Arrays, sequence: int, *, natively: bool = True) -> RolloutPart:
        """Begin to fill a rollout: draw, store what the policy remembers, bind its weights.

        natively: whether its actions may be chosen by native code, row by row.
        """
        prepared = self._prepare(rollout)
        if self.status:
            self.status.enter(self.phases[0])  # drawing the noise of all steps is part of the policy's time
            self.status.begin_rollout(sequence)
        if self._drawn is None or self._drawn.sequence != sequence:
            self.draw(rollout, sequence)
        assert self._drawn is not None
        distribution, noise = self._drawn.distribution, self._drawn.noise
        self._drawn = None  # a repeated rollout draws again
        rollout["observations"][0] = self.current
        self._store_remembered(rollout)
        prepared.finals.count = 0
        kept: list[NDArray[Any]] | None = [] if self.log_probs or "errors" in rollout else None
        native = self._begin_natively(prepared, distribution, noise, kept) if natively else None
        if native is None:
            self.acting.bind_network()
        return RolloutPart(self, rollout, prepared, distribution, noise, kept, native)

    def end_rollout(
        self,
        part: RolloutPart,
        length: int,
        version: int,
        sequence: int,
        env_steps: int = 0,
        *,
        in_turn: bool = False,
    ) -> None:
        """Write what follows from the rows, and the header. env_steps: as of `Rollout.write_header`.

        in_turn: whether agents act in turn, so that rows which are not valid are turns that were not taken.
        """
        rollout, kept = part.rollout, part.kept
        if kept:
            if self.status:
                self.status.enter(self.phases[0])
            self._store_outputs(rollout, part.distribution, kept[0][:length] if part.native else np.stack(kept))
        if "discounted" in rollout:
            self._discount(rollout, length, in_turn=in_turn)
        if "infos" in rollout:
            _store_ends(rollout, length)
        finals = part.prepared.finals.count
        Rollout.write_header(rollout, version, length, finals, self.source, sequence, self.begins, env_steps)
        self.begins = False
        if self.status:
            self.status.enter(self.status.runtime)

    def _begin_natively(
        self,
        prepared: _Prepared,
        distribution: ActionDistribution,
        noise: NDArray[np.float32],
        kept: list[NDArray[Any]] | None,
    ) -> _native.Acting | None:
        """Begin the native actions of a rollout, and give `kept` the memory for its outputs; None if there are none."""
        native, flat, weights = self.acting.native, prepared.flat, self.acting.weights
        if native is None or flat is None or weights is None or self.acting.remembers:
            return None
        outputs = None if kept is None else np.empty((*noise.shape[:2], distribution.width), np.float32)
        if not native.begin(weights, distribution, flat, noise, outputs):
            return None
        if kept is not None and outputs is not None:
            kept.append(outputs)
        return native.native

    def _step(self, part: RolloutPart, enough: Callable[[int], bool] | None) -> int:
        """Make the steps of a rollout one by one, and return how many."""
        enter, (policy_phase, env_phase) = self.status.enter if self.status else _no_status, self.phases
        act = part.native.act if part.native else part.act
        actions, remembers, step = part.rollout["actions"], self.acting.remembers, self.vector.step
        for t, row in enumerate(part.prepared.rows):
            enter(policy_phase)
            act(t)
            enter(env_phase)
            step(actions[t], row)
            if remembers:
                part.after(t)
            if enough is not None and enough(t + 1):
                return t + 1
        return len(part.prepared.rows)

    def _store_outputs(self, rollout: Arrays, distribution: ActionDistribution, outputs: NDArray[np.float32]) -> None:
        """Write what follows from the network's outputs [T, B, ...]; one call for all steps is cheaper than T."""
        length = len(outputs)
        if self.log_probs:
            actions = torch.from_numpy(rollout["actions"][:length])
            rollout["log_probs"][:length] = distribution.log_prob(torch.from_numpy(outputs), actions).numpy()
        if "errors" in rollout:
            self.acting.bind_network()  # native actions do not read the scale of rewards, which is a buffer
            scales = self.policy.scales() if isinstance(self.policy, NormalizedNetwork) else Scales()
            if scales is None:  # values of raw observations, which say nothing about those that will be learned
                rollout["errors"][:length] = np.nan
                return
            values = cast(EpsilonGreedy, distribution).values(outputs)
            errors = n_step_errors(rollout, values, self.n_step, self.discount, scales.reward)
            rollout["errors"][:length] = errors

    def _store_remembered(self, rollout: Arrays) -> None:
        """Write what the policy remembers at the beginning of the rollout."""
        memory, frames = self.acting.memory, self.acting.frames
        if memory is not None:
            rollout["state"][...] = memory.state.numpy()
        if frames is not None:
            rollout["history"][...] = frames[:, :-1].swapaxes(0, 1)

    def _discount(self, rollout: Arrays, length: int, *, in_turn: bool = False) -> None:
        """Write the discounted sum of rewards since each episode began. It continues in the next rollout.

        A row that is not valid belongs to no episode, and the next one begins another: the environment was reset or has
        failed. Where agents act in turn, it only fills the column (`in_turn`).
        """
        sums, ended = self.discounted, (rollout["terminated"] | rollout["truncated"]) > 0
        valid = rollout["valid"] != 0
        for t in range(length):
            acted: Any = ... if valid[t].all() else valid[t]
            sums[acted] *= self.discount
            sums[acted] += rollout["rewards"][t][acted]
            if not in_turn:
                sums[~valid[t]] = 0.0
            rollout["discounted"][t] = sums
            sums[ended[t]] = 0.0

    def _prepare(self, rollout: Arrays) -> _Prepared:
        prepared = self._prepared.get(id(rollout))
        if prepared is None or prepared.arrays is not rollout:
            finals = FinalObservations(rollout["final_observations"])
            names = (
                "rewards",
                "terminated",
                "truncated",
                "valid",
                "episode_returns",
                "episode_lengths",
                "final_index",
                "infos",
            )
            columns = {name: rollout[name] for name in names if name in rollout}
            if "infos" in columns:  # without the last, which `_store_ends` writes
                columns["infos"] = columns["infos"][..., :-1]
            rows = [
                StepRow(
                    observations=rollout["observations"][t + 1],
                    finals=finals,
                    **{name: column[t] for name, column in columns.items()},
                )
                for t in range(len(rollout["rewards"]))
            ]
            seen = [torch.from_numpy(row) for row in rollout["observations"]]
            flat = FlatRollout.of(rollout["observations"], rollout["actions"]) if self.acting.native else None
            prepared = _Prepared(rollout, finals, rows, seen, flat)
            if len(self._prepared) >= PREPARED_SLOTS:
                self._prepared.clear()
            self._prepared[id(rollout)] = prepared
        return prepared

    def close(self) -> None:
        """Close the environments, if they are open."""
        if not self.closed:
            self.closed = True
            self.vector.close()


def _store_ends(rollout: Arrays, length: int) -> None:
    """Write how episodes ended (EPISODE_END) into a rollout of `length` steps."""
    steps, columns = np.nonzero(rollout["episode_lengths"][:length])
    if len(steps):
        sign = np.where(rollout["truncated"][steps, columns], -1.0, 1.0)
        rollout["infos"][steps, columns, -1] = sign * rollout["episode_lengths"][steps, columns]


def _no_status(phase: int) -> None:
    """Ignore the phase: there is no status page."""
