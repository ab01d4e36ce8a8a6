"""Steps the environments of a collector in several processes: its own one, and helpers that are forked from it.

    collector   writes actions [B, ...], orders a step      steps columns 0 ... k      waits, copies the row
    helper      waits for the order                         steps its columns          answers

One row of memory is shared by all. Everybody writes the columns of its own environments there, and a row word for each
helper (native/include/hive/row_words.hpp) says whose turn it is. The policy, its noise and all streams stay in the
collector, and environments are seeded one by one, so helpers change no byte of a rollout.

They would change the numbers that environments draw from the global generators of Python, NumPy and torch, which are
seeded for a whole process. So each helper compares their states (`look`, `drew`). Where a helper has drawn,
`leave_helpers` makes all environments anew in this process.

A helper that exits, or whose environment fails, makes `step` raise EnvironmentFailed, and thereby ends the collector.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.envs.random_actions import RandomActions
from hive.envs.spaces.actions import ActionSpec
from hive.envs.spaces.observation import ObservationSpec
from hive.envs.vectors.attributes import set_attributes, takes_attributes
from hive.envs.vectors.row_block import RowBlock
from hive.envs.vectors.rows import StepRow
from hive.envs.vectors.seeding import runs_python
from hive.envs.vectors.share import Answer, Order, Share, as_collector, follow_orders
from hive.envs.vectors.shared_buffers import WATCHED_STEPS
from hive.envs.vectors.vector import VectorEnvironment, refused
from hive.errors import EnvironmentFailed
from hive.runtime.process.user_code.companion import Companion
from hive.runtime.process.user_code.sent_errors import raise_sent

LOOK_S = 0.2  # interval between two looks whether a helper that has not answered has exited
CLOSE_S = 10.0  # time for all helpers to close their environments, side by side; then they are killed

MEASURED_STEPS = 32  # of one environment, whose median is its cost
MEASURED_S = 0.02  # time limit of these steps
SLOW_S = 0.5  # if measuring one environment takes this long, two are not measured, which would be more exact
# What a vector step must save to be worth helpers: twice what it costs to wake one and to wait for it in turn.
WORTH_S = 50e-6


@dataclass(frozen=True)
class Helping:
    """How many helpers a collector has, and what they need to know.

    make: builds environments `first` to `first + count` of the collector, with `options` and the seeds of the resets
    that follow. seed: seeds the global generators as before the first call of it. number: of helpers. chosen: whether
    hive chose it, so that there are none where environments are cheap or draw from global generators. rows: of one
    environment, one for each of several agents. options: further keyword arguments of the constructor, which callbacks
    have set. seeds: of each environment, of the reset that follows; []: 0.
    """

    make: Callable[[int, int, Mapping[str, Any], Sequence[int]], VectorEnvironment]
    seed: Callable[[], None]
    number: int
    chosen: bool
    observation: ObservationSpec
    action: ActionSpec
    infos: int = 0
    rows: int = 1
    options: dict[str, Any] = field(default_factory=dict)
    seeds: list[int] = field(default_factory=list)

    def build(self, first: int, count: int) -> VectorEnvironment:
        """Build environments `first` to `first + count`."""
        return self.make(first, count, self.options, self.seeds[first : first + count] or [0] * count)

    def use(self, options: Mapping[str, Any], seeds: Sequence[int]) -> None:
        """Build environments with these further options, and for resets with these seeds, from now on."""
        self.options.clear()
        self.options.update(options)
        self.seeds[:] = seeds


def helped_vector(helping: Helping, count: int) -> VectorEnvironment:
    """Return `count` environments: with helpers, or without where hive chose them and a measurement shows no gain.

    Raises what `make` raises, and EnvironmentFailed for a helper that ends.
    """
    if helping.number == 0 or count < 2:
        return helping.build(0, count)
    vector = HelpedVector(helping, count)
    if helping.chosen and not vector.is_worth_it():
        vector.close()
        return helping.build(0, count)
    try:
        vector.make_environments()
    except Exception:
        vector.close()
        if not helping.chosen:
            raise
        helping.seed()
        return helping.build(0, count)  # environments that number themselves, for ports, need one process
    return vector


class HelpedVector:
    """A `VectorEnvironment`, which documents `reset` and `step`, of `count` environments in several processes.

    Its environments exist after `make_environments`. drew: whether a helper has drawn from a global generator.
    alone: whether it has left its helpers.
    """

    alone = False

    def __init__(self, helping: Helping, count: int) -> None:
        rows = helping.rows
        self.count = count * rows
        self.agents = rows if rows > 1 else 0
        self.helping = helping
        helpers = min(helping.number, count - 1)
        shares = [count * part // (helpers + 1) for part in range(helpers + 2)]  # the first one is this process's own
        block = RowBlock(helping.observation, helping.action, self.count, helping.infos, helpers)
        block.segment.close()  # forks have the mapping
        self.drew = False
        self.own: VectorEnvironment | None = None
        self._attributes: Mapping[str, Any] = {}
        self._block = block
        self._envs, self._own_envs, self._own_end = count, shares[1], shares[1] * rows
        starts = rows * np.array(shares)
        self._starts = np.repeat(starts[:-1], np.diff(starts))  # of each row: the first one of its process
        self.helpers: list[_Helper] = []
        try:
            for number, (first, end) in enumerate(pairwise(shares[1:])):
                self.helpers.append(_Helper(number, helping, block, first, end))
        except OSError:  # no room for another process
            self.close()
            raise

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
    def runs_python(self) -> bool:
        """Whether a step runs Python code of an environment."""
        return runs_python(self.own)

    @property
    def refused(self) -> str:
        """As of `PythonVector`, for the environments of this process."""
        return refused(self.own)

    def is_worth_it(self) -> bool:
        """Have a helper measure a step of one environment; return whether helpers save more than they cost."""
        helper = self.helpers[0]
        helper.order(Order.measure)
        return helper.answer() == Answer.done

    def make_environments(self) -> None:
        """Build the environments, in all processes at once, in place of those that they have.

        At a resume barrier, too: a process that has computed with threads must not be forked again.
        """
        self._block.write_changes(self.helping.options, {})
        self._block.arrays["seeds"][:: self.helping.rows] = self.helping.seeds or 0
        self._order(Order.make)
        if self.own is not None:
            self.own.close()
        self.own = self.helping.build(0, self._own_envs)
        self._own_row = self._block.row(0, self._own_end)
        self._finish()

    def reset(self, seeds: Sequence[int], observations: NDArray[Any]) -> None:
        """Start an episode in every environment; write `observations` [B, ...]."""
        if self.alone:
            self._own().reset(seeds, observations)
            return
        arrays = self._block.arrays
        arrays["seeds"][:] = seeds
        self._order(Order.reset)
        self._own().reset(seeds[: self._own_end], arrays["observations"][: self._own_end])
        self._finish()
        np.copyto(observations, arrays["observations"])

    def step(self, actions: NDArray[Any], row: StepRow) -> None:
        """Step every environment once with stored `actions` [B, ...]; write `row`."""
        if self.alone:
            self._own().step(actions, row)
            return
        arrays, end = self._block.arrays, self._own_end
        np.copyto(arrays["actions"], actions)
        for helper in self.helpers:
            helper.order(Order.step)
        self._own_row.finals.count = 0
        self._own().step(actions[:end], self._own_row)
        self._finish()
        self._block.copy_to(row, self._starts)

    @property
    def takes_attributes(self) -> bool:
        """Whether its environments can be given values."""
        return takes_attributes(self.own)

    def set_attributes(self, values: Mapping[str, Any]) -> None:
        """Give every environment these values before its next reset."""
        self._attributes = {**self._attributes, **values}
        if not self.alone:
            self._block.write_changes(self.helping.options, values)
            self._order(Order.change)
        set_attributes(self._own(), values)
        self._finish()

    def look(self) -> bool:
        """Return whether the environments of a helper have drawn from a global generator since the last look."""
        if self.alone:
            return False
        before, self.drew = self.drew, False
        self._order(Order.look)
        self._finish()
        drawn, self.drew = self.drew, self.drew or before
        return drawn

    def leave_helpers(self) -> None:
        """Make all environments anew in this process, which must be reset then."""
        self.close()
        self.alone = True
        self.own = self.helping.build(0, self._envs)
        set_attributes(self.own, self._attributes)

    def close(self) -> None:
        """Close the environments in all processes."""
        if self.own is not None:
            self.own.close()
        for helper in self.helpers:
            helper.begin_close()
        limit = time.monotonic() + CLOSE_S
        for helper in self.helpers:
            helper.end(limit)
        self.helpers = []

    def _order(self, order: Order) -> None:
        for helper in self.helpers:
            helper.order(order)

    def _finish(self) -> None:
        """Wait until every helper has answered. Raises EnvironmentFailed for one that failed or exited."""
        for helper in self.helpers:
            self.drew |= helper.answer() == Answer.drew

    def _own(self) -> VectorEnvironment:
        assert self.own is not None, "make_environments comes first"
        return self.own


class _Helper:
    """One helper, as its collector sees it: environments `first` to `end`."""

    def __init__(self, number: int, helping: Helping, block: RowBlock, first: int, end: int) -> None:
        self.what = f"the helper of environments {first} to {end - 1}"
        self._word = block.words[number]
        self._open = False  # whether an order has no answer yet
        self._closing = False

        def work() -> None:
            follow_orders(self._word, _HelperShare(helping, block, first, end))

        self._process = Companion(work, f"hive:helper-{number + 1}", f"{self.what} failed")
        self.pid = self._process.pid

    def order(self, order: Order) -> None:
        """Order something, which `answer` waits for."""
        self._word.order(order)
        self._open, self._closing = True, order == Order.close

    def answer(self) -> Answer:
        """Wait for the answer. Raises what the helper raised, and EnvironmentFailed if it has exited."""
        while (code := self._word.answered(LOOK_S)) is None:
            if how := self._process.exited():
                if (code := self._word.answered(0.0)) is not None:  # it answered before it exited
                    break
                raise EnvironmentFailed(f"{self.what} has ended: {how}")
        self._open = False
        if code == Answer.failed:
            if (sent := self._process.error()) is not None:
                raise_sent(sent)
            raise EnvironmentFailed(f"{self.what} has failed, and has not said why")
        return Answer(code)

    def begin_close(self) -> None:
        """Have the helper close its environments, if it is not busy."""
        if not self._open and not self._process.exited():
            self.order(Order.close)

    def end(self, limit: float) -> None:
        """Wait for its exit until the time `limit`; then kill it."""
        if self._closing:
            self._process.exited(max(0.0, limit - time.monotonic()))
        self._process.end()


class _HelperShare(Share):
    """The environments of one helper, in its own process. first, end: of its environments."""

    def __init__(self, helping: Helping, block: RowBlock, first: int, end: int) -> None:
        self._helping = helping
        self._others = len(block.arrays["rewards"]) // helping.rows - (end - first)

        def build(options: Mapping[str, Any]) -> VectorEnvironment:
            helping.use(options, [int(seed) for seed in block.arrays["seeds"][:: helping.rows]])
            return helping.build(first, end - first)

        super().__init__(build, block, first * helping.rows, end * helping.rows)

    def follow(self, order: Order) -> Answer:
        """Follow an order; return the answer to it."""
        cheap = order == Order.measure and _cost_of_step(self._helping) * self._others < WORTH_S
        answer = super().follow(order)
        return Answer.cheap if cheap and answer == Answer.done else answer


def _cost_of_step(helping: Helping) -> float:
    """Return the seconds that one more environment adds to a step; infinity if it cannot be measured.

    An unseeded reset follows, so that the caller sees whether it draws from the global generators.
    """
    begin = time.perf_counter()
    try:
        one = _time_of_step(helping, 1)
        if time.perf_counter() - begin > SLOW_S:
            return one
        return max(_time_of_step(helping, 2) - one, 0.0)
    except Exception:  # the collector will meet it, and report it
        return np.inf


def _time_of_step(helping: Helping, count: int) -> float:
    """Return the median time of a step of new environments, in seconds."""
    vector = helping.build(0, count)
    row = StepRow.allocate(helping.observation, vector.count, helping.infos)
    vector.reset(range(vector.count), row.observations)
    act, times = RandomActions(helping.action, helping.observation.mask, 0), list[float]()
    limit = time.perf_counter() + MEASURED_S
    with as_collector():
        while len(times) < WATCHED_STEPS + MEASURED_STEPS and (not times or time.perf_counter() < limit):
            actions = act(row.observations)
            row.finals.count = 0
            begin = time.perf_counter()
            vector.step(actions, row)
            times.append(time.perf_counter() - begin)
    for environment in getattr(vector, "environments", ()):
        environment.reset()
    vector.close()
    return median(times[WATCHED_STEPS:] or times)  # the first steps of several copy their observations
