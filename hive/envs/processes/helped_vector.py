"""Steps the environments of a collector in several processes: its own one, and helpers that are forked from it.

    collector   orders a step      steps its own environments      waits for all      copies the row
    helper      steps its environments, writes its columns, answers

The policy, its noise and all streams stay in the collector, and environments are seeded one by one, so helpers change
no byte of a rollout. They would change the numbers that environments draw from the global generators of Python, NumPy
and torch, which are seeded for a whole process. So each helper compares their states (`look`, `drew`). Where one has
drawn, `leave_helpers` makes all environments anew in this process.

A helper that exits, or whose environment fails, makes `step` raise what it raised, and thereby ends the collector: a
process that has computed with threads must not be forked again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from hive.envs.context import EnvContext
from hive.envs.processes.ordered import Ordered
from hive.envs.processes.process_vector import ProcessVector, Watcher
from hive.envs.processes.stepper import Stepper
from hive.envs.processes.supervised import Limits
from hive.envs.random_actions import RandomActions
from hive.envs.spaces.actions import ActionSpec
from hive.envs.spaces.observation import ObservationSpec
from hive.envs.vectors.attributes import set_attributes, takes_attributes
from hive.envs.vectors.row_block import RowBlock
from hive.envs.vectors.rows import StepRow
from hive.envs.vectors.seeding import globals_state, runs_python
from hive.envs.vectors.share import Order, Share, as_collector, follow_orders
from hive.envs.vectors.shared_buffers import WATCHED_STEPS
from hive.envs.vectors.vector import VectorEnvironment, let_play, refused
from hive.errors import EnvironmentFailed
from hive.runtime.process.user_code.companion import Companion
from hive.runtime.process.user_code.sent_errors import raise_sent

MEASURED_STEPS = 32  # of one environment, whose median is its cost
MEASURED_S = 0.02  # time limit of these steps
SLOW_S = 0.5  # if measuring one environment takes this long, two are not measured, which would be more exact
# What a vector step must save to be worth helpers: twice what it costs to wake one and to wait for it in turn.
WORTH_NS = 50_000
UNMEASURED_NS = np.iinfo(np.int64).max  # of a step that cannot be measured: the collector will meet why, and report it
PASSED_ON = Limits(math.inf, math.inf, math.inf, restarts=0, passes_on=True)


@dataclass(frozen=True)
class Helping:
    """How many helpers a collector has, and what they need to know.

    make: builds environments `first` to `first + count` of the collector, with further `options` of the constructor and
    the seeds of the resets that follow. seed: seeds the global generators as before the first call of it. number: of
    helpers. chosen: whether hive chose it, so that there are none where environments are cheap or draw from global
    generators. rows: of one environment, one for each of several agents.
    """

    make: Callable[[int, int, Mapping[str, Any], Sequence[int]], VectorEnvironment]
    seed: Callable[[], None]
    number: int
    chosen: bool
    observation: ObservationSpec
    action: ActionSpec
    infos: int = 0
    rows: int = 1


def helped_vector(
    helping: Helping, contexts: Sequence[EnvContext], options: Mapping[str, Any] | None = None
) -> VectorEnvironment:
    """Return environments: with helpers, or without where hive chose them and a measurement shows no gain.

    options: what callbacks have set. Raises what `make` raises, and EnvironmentFailed for a helper that ends.
    """
    options = options or {}
    count, seeds = len(contexts), [one.seed for one in contexts]
    if helping.number == 0 or count < 2:
        return helping.make(0, count, options, seeds)
    vector = None
    try:
        vector = HelpedVector(helping, count)
        if not helping.chosen or vector.is_worth_it(options):
            vector.make_environments(contexts, options)
            return vector
        vector.close()
    except Exception:
        if vector is not None:
            vector.close()
        if not helping.chosen:
            raise
        helping.seed()  # environments that number themselves, for ports, need one process
    return helping.make(0, count, options, seeds)


class HelpedVector(ProcessVector):
    """A `ProcessVector` that steps its first environments itself. left: whether another vector has taken its place."""

    def __init__(self, helping: Helping, count: int) -> None:
        helpers = min(helping.number, count - 1)
        shares = [count * part // (helpers + 1) for part in range(helpers + 2)]  # the first one is this process's own
        self.helping = helping
        self.left = False
        self.own: VectorEnvironment | None = None
        self.helpers: list[_Helper] = []
        self._contexts: Sequence[EnvContext] = ()
        super().__init__(
            helping.observation,
            helping.action,
            self._helper,
            np.diff(shares[1:]).tolist(),
            PASSED_ON,
            Watcher(lambda _: None),
            lambda index, incarnation: 0,
            infos=helping.infos,
            rows=helping.rows,
            own=shares[1],
        )

    def _helper(self, block: RowBlock, number: int, first: int, count: int) -> Stepper:
        try:
            self.helpers.append(_Helper(self.helping, block, number, first, count))
        except OSError as error:  # no room for another process
            self.close()
            what = f"the helper of environments {first} to {first + count - 1}"
            raise EnvironmentFailed(f"{what} cannot be started: {error.strerror}") from error
        return self.helpers[-1]

    @property
    def environments(self) -> Sequence[Any]:
        """The single environments of this process."""
        found: Sequence[Any] = getattr(self.own, "environments", ())
        return found

    @property
    def notices(self) -> Any:
        """What the environments of this process have shown, of several agents; None of one agent."""
        return getattr(self.own, "notices", None)

    @property
    def mask_in_info(self) -> bool:
        """As of `PythonVector`, for the environments of this process."""
        return bool(getattr(self.own, "mask_in_info", False))

    @property
    def runs_python(self) -> bool:  # type: ignore[override]
        """Whether a step runs Python code of an environment."""
        return runs_python(self.own)

    @property
    def refused(self) -> str:
        """As of `PythonVector`."""
        return refused(self.own) or super().refused

    @property
    def takes_attributes(self) -> bool:
        """Whether its environments can be given values."""
        return takes_attributes(self.own)

    def is_worth_it(self, options: Mapping[str, Any]) -> bool:
        """Have a helper measure a step of one environment; return whether helpers save more than they cost.

        They do not where it has drawn from a global generator.
        """
        self._block.write_changes(options, {})
        helper = self.helpers[0]
        self._ask(self.units[0], helper.measure)
        others = self.count // self.helping.rows - helper.count
        return bool(self._block.arrays["step_ns"][0] >= WORTH_NS / others) and not self.drew

    def make_environments(self, contexts: Sequence[EnvContext], options: Mapping[str, Any] | None = None) -> None:
        """Build the environments, in all processes at once, in place of those that they have."""
        self._contexts = contexts
        super().make_environments(contexts, options)

    def meanwhile(self, order: Order) -> None:
        """Follow an order with the environments of this process."""
        arrays, own = self._block.arrays, self._own
        if order in (Order.make, Order.close):
            if self.own is not None:
                self.own.close()
            self.own = None
        if order == Order.make:
            seeds = [one.seed for one in self._contexts[: own.stop // self.helping.rows]]
            self.own = self.helping.make(0, len(seeds), self.options, seeds)
            self._own_row = self._block.row(0, own.stop)
        if self.own is None:
            return
        if order == Order.step:
            self._own_row.finals.count = 0
            self.own.step(arrays["actions"][own], self._own_row)
        elif order == Order.reset:
            self.own.reset([int(seed) for seed in arrays["seeds"][own]], arrays["observations"][own])

    def set_attributes(self, values: Mapping[str, Any]) -> None:
        """Give every environment these values before its next reset."""
        set_attributes(self.own, values)
        super().set_attributes(values)

    def play(self, episodes: NDArray[np.int64]) -> None:
        """Let each environment play so many more episodes until the next reset, [B]; -1: without a limit."""
        let_play(self.own, episodes[self._own])
        super().play(episodes)

    def seed_globals(self, word: int) -> None:
        """Do nothing: a helper's numbers are its own, and `look` tells whether an environment needs them."""

    def look(self) -> bool:
        """Return whether the environments of a helper have drawn from a global generator since the last look."""
        drew = self._block.arrays["drew"]
        before = drew.copy()
        drew[:] = 0
        for unit, helper in zip(self.units, self.helpers, strict=True):
            unit.give(helper.look)
        for unit in self.units:
            self._await(unit)
        found = bool(drew.any())
        drew |= before
        return found

    def leave_helpers(self) -> VectorEnvironment:
        """Close all environments, and return as many without helpers, which must be reset then."""
        self.close()
        self.left = True
        seeds = [one.seed for one in self._contexts]
        vector = self.helping.make(0, len(seeds), self.options, seeds)
        set_attributes(vector, self._attributes)
        return vector


class _Helper(Ordered):
    """A `Stepper`, which documents the methods, that is forked where it is made, before there are environments."""

    def __init__(self, helping: Helping, block: RowBlock, number: int, first: int, count: int) -> None:
        super().__init__(block, number, first, count, helping.rows)
        self.what = f"the helper of environments {first} to {first + count - 1}"

        def work() -> None:
            follow_orders(block.words[number], _HelperShare(helping, block, number, first, count))

        self._process = Companion(work, f"hive:helper-{number + 1}", f"{self.what} failed")

    start = Ordered.renew

    def measure(self) -> None:
        """Order it to write the time of a step of one environment, and to make environments no part of this."""
        self.order(Order.measure, "step")

    def look(self) -> None:
        """Order it to write whether something has drawn from a global generator of its process since the last look."""
        self.order(Order.look, "step")

    def how_ended(self) -> str:
        """Return how the process has ended; "" while it runs."""
        return f"{self.what} has ended: {how}" if (how := self._process.exited()) else ""

    def raise_error(self) -> NoReturn:
        """Raise what the helper has raised."""
        if (sent := self._process.error()) is not None:
            raise_sent(sent)
        raise EnvironmentFailed(f"{self.what} has failed, and has not said why")

    def pids(self) -> Sequence[int]:
        """Return the process, if it has not exited."""
        return [] if self._process.exited() else [self._process.pid]

    def left(self, limit_s: float) -> bool:
        """Return True: an error of a helper ends its collector, too."""
        return True

    def tail(self) -> str:
        """Return "": a helper prints where its collector does."""
        return ""

    def bound(self) -> None:
        """Do nothing, likewise."""

    def end(self, limit_s: float) -> None:
        """Wait for its exit if `close` has ordered it: one that was busy then does not exit; then kill it."""
        if self.is_closing:
            self._process.exited(limit_s)
        self._process.end()


class _HelperShare(Share):
    """The environments of one helper, in its own process."""

    def __init__(self, helping: Helping, block: RowBlock, number: int, first: int, count: int) -> None:
        rows = helping.rows

        def build(options: Mapping[str, Any]) -> VectorEnvironment:
            return helping.make(first, count, options, [int(seed) for seed in self._seeds[::rows]])

        super().__init__(build, block, first * rows, (first + count) * rows, number)
        self._helping, self._number = helping, number
        self._state = globals_state()

    def follow(self, order: Order) -> None:
        """Follow an order; write what it has shown."""
        if order == Order.measure:
            options = self.block.read_changes()[0]
            self.block.arrays["step_ns"][self._number] = _cost_of_step(self._helping, options)
        super().follow(order)
        if order != Order.step and (state := globals_state()) != self._state:  # a look takes longer than many a step
            self._state = state
            self.block.arrays["drew"][self._number] = 1


def _cost_of_step(helping: Helping, options: Mapping[str, Any]) -> int:
    """Return the nanoseconds that one more environment adds to a step.

    An unseeded reset follows, so that the caller sees whether it draws from the global generators.
    """
    begin = time.perf_counter()
    try:
        one = _time_of_step(helping, options, 1)
        if time.perf_counter() - begin > SLOW_S:
            return one
        return max(_time_of_step(helping, options, 2) - one, 0)
    except Exception:
        return UNMEASURED_NS


def _time_of_step(helping: Helping, options: Mapping[str, Any], count: int) -> int:
    """Return the median time of a step of new environments, in nanoseconds."""
    vector = helping.make(0, count, options, [0] * count)
    row = StepRow.allocate(helping.observation, vector.count, helping.infos)
    vector.reset(range(vector.count), row.observations)
    act, times = RandomActions(helping.action, helping.observation.mask, 0), list[int]()
    limit = time.perf_counter() + MEASURED_S
    with as_collector():
        while len(times) < WATCHED_STEPS + MEASURED_STEPS and (not times or time.perf_counter() < limit):
            actions = act(row.observations)
            row.finals.count = 0
            begin = time.perf_counter_ns()
            vector.step(actions, row)
            times.append(time.perf_counter_ns() - begin)
    for environment in getattr(vector, "environments", ()):
        environment.reset()
    vector.close()
    return int(median(times[WATCHED_STEPS:] or times))  # the first steps of several copy their observations
