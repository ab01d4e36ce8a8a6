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

import enum
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive import _native
from hive.envs.random_actions import RandomActions
from hive.envs.spaces.actions import ActionSpec
from hive.envs.spaces.observation import ObservationSpec
from hive.envs.vectors.attributes import set_attributes, takes_attributes
from hive.envs.vectors.rows import FinalObservations, StepRow
from hive.envs.vectors.seeding import globals_state, runs_python
from hive.envs.vectors.vector import VectorEnvironment
from hive.errors import EnvironmentFailed
from hive.plain_data import pack, read_content, unpack, write_content
from hive.runtime.memory.segments import Layout, Segment
from hive.runtime.process.stop_signals import do_nothing
from hive.runtime.process.user_code.companion import Companion
from hive.runtime.process.user_code.sent_errors import raise_sent

LOOK_S = 0.2  # interval between two looks whether a helper that has not answered has exited
IDLE_S = 60.0  # limit of one wait for an order; the helper then waits again
CLOSE_S = 10.0  # time for all helpers to close their environments, side by side; then they are killed

MEASURED_STEPS = 32  # of one environment, whose median is its cost
MEASURED_S = 0.02  # time limit of these steps
CHANGES_BYTES = 1 << 17  # for what callbacks have changed, twice as much as they may send
SLOW_S = 0.5  # if measuring one environment takes this long, two are not measured, which would be more exact
# What a vector step must save to be worth helpers: twice what it costs to wake one and to wait for it in turn.
WORTH_S = 50e-6


class Order(enum.IntEnum):
    """What a helper is asked to do."""

    make = 1
    reset = 2
    step = 3
    look = 4
    close = 5
    measure = 6
    change = 7


class HelperAnswer(enum.IntEnum):
    """How a helper answers an order."""

    done = 0
    drew = 1  # its environments have drawn from a global generator since its last look
    failed = 2
    cheap = 3  # its environments are too fast for helpers


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


COPIED = ("rewards", "terminated", "truncated", "valid", "episode_returns", "episode_lengths", "final_index")


class RowBlock:
    """The memory of one row that the processes share: views of all of it, and of the columns of one process."""

    def __init__(self, observation: ObservationSpec, action: ActionSpec, count: int, infos: int, helpers: int) -> None:
        layout = Layout(
            {
                "words": ("uint8", (helpers, _native.ROW_WORD_BYTES)),
                "seeds": ("uint64", (count,)),
                "actions": (np.dtype(action.dtype).name, (count, *action.shape)),
                "observations": (np.dtype(observation.dtype).name, (count, *observation.shape)),
                "finals": (np.dtype(observation.dtype).name, (count, *observation.shape)),
                "rewards": ("float32", (count,)),
                "terminated": ("uint8", (count,)),
                "truncated": ("uint8", (count,)),
                "valid": ("uint8", (count,)),
                "episode_returns": ("float32", (count,)),
                "episode_lengths": ("int32", (count,)),
                "final_index": ("int32", (count,)),
                "infos": ("float32", (count, infos)),
                "changes": ("uint8", (CHANGES_BYTES,)),
            }
        )
        segment = Segment.create("helpers", layout.bytes)
        segment.close()  # forks have the mapping
        self.arrays = layout.views(segment.memory)
        self.write_changes({}, {})
        self.words = [_native.RowWord(segment.memory, number) for number in range(helpers)]

    def write_changes(self, options: Mapping[str, Any], attributes: Mapping[str, Any]) -> None:
        """Write what callbacks have changed, for helpers to read."""
        write_content(pack([dict(options), dict(attributes)]), self.arrays["changes"])

    def read_changes(self) -> list[dict[str, Any]]:
        """Return the options and the attributes."""
        found: list[dict[str, Any]] = unpack(read_content(self.arrays["changes"]))
        return found

    def row(self, first: int, end: int) -> StepRow:
        """Return the row of columns `first` to `end`, which has its own finals."""
        columns = {name: self.arrays[name][first:end] for name in ("observations", *COPIED, "infos")}
        return StepRow(finals=FinalObservations(self.arrays["finals"][first:end]), **columns)


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
    def runs_python(self) -> bool:
        """Whether a step runs Python code of an environment."""
        return runs_python(self.own)

    def is_worth_it(self) -> bool:
        """Have a helper measure a step of one environment; return whether helpers save more than they cost."""
        helper = self.helpers[0]
        helper.order(Order.measure)
        return helper.answer() == HelperAnswer.done

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
        np.copyto(row.observations, arrays["observations"])
        for name in COPIED:
            np.copyto(getattr(row, name), arrays[name])
        if self.helping.infos:
            np.copyto(row.infos, arrays["infos"])
        for index in np.flatnonzero(arrays["truncated"]):  # one process would add them in this order
            if row.final_index[index] >= 0:
                final = arrays["finals"][self._starts[index] + row.final_index[index]]
                row.final_index[index] = row.finals.add(final)

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
            self.drew |= helper.answer() == HelperAnswer.drew

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
        work = partial(_help, self._word, helping, block, first, end)
        self._process = Companion(work, f"hive:helper-{number + 1}", f"{self.what} failed")
        self.pid = self._process.pid

    def order(self, order: Order) -> None:
        """Order something, which `answer` waits for."""
        self._word.order(order)
        self._open, self._closing = True, order == Order.close

    def answer(self) -> HelperAnswer:
        """Wait for the answer. Raises what the helper raised, and EnvironmentFailed if it has exited."""
        while (code := self._word.answered(LOOK_S)) is None:
            if how := self._process.exited():
                if (code := self._word.answered(0.0)) is not None:  # it answered before it exited
                    break
                raise EnvironmentFailed(f"{self.what} has ended: {how}")
        self._open = False
        if code == HelperAnswer.failed:
            if (sent := self._process.error()) is not None:
                raise_sent(sent)
            raise EnvironmentFailed(f"{self.what} has failed, and has not said why")
        return HelperAnswer(code)

    def begin_close(self) -> None:
        """Have the helper close its environments, if it is not busy."""
        if not self._open and not self._process.exited():
            self.order(Order.close)

    def end(self, limit: float) -> None:
        """Wait for its exit until the time `limit`; then kill it."""
        if self._closing:
            self._process.exited(max(0.0, limit - time.monotonic()))
        self._process.end()


class _Share:
    """The environments of one helper, in its own process: a method for each order."""

    def __init__(self, helping: Helping, block: RowBlock, first: int, end: int) -> None:
        self._helping = helping
        rows = helping.rows
        self._first, self._count = first, end - first
        self._others = len(block.arrays["rewards"]) // rows - self._count
        first, end = first * rows, end * rows
        self._row = block.row(first, end)
        self._block = block
        self._actions, self._seeds = block.arrays["actions"][first:end], block.arrays["seeds"][first:end]
        self._vector: VectorEnvironment | None = None
        self._state = globals_state()

    def follow(self, order: Order) -> HelperAnswer:
        """Follow an order; return its answer."""
        answer = HelperAnswer.done
        if order == Order.step:
            assert self._vector is not None
            self._row.finals.count = 0
            with as_collector():
                self._vector.step(self._actions, self._row)
            return answer  # without a look, which takes longer than many a step
        if order == Order.measure:
            answer = HelperAnswer.cheap if _cost_of_step(self._helping) * self._others < WORTH_S else answer
        elif order == Order.make:
            self.close()
            seeds = self._block.arrays["seeds"][:: self._helping.rows]
            self._helping.use(self._block.read_changes()[0], [int(seed) for seed in seeds])
            self._vector = self._helping.build(self._first, self._count)
            do_nothing()  # again: environments may have set handlers, and the collector alone ends its helpers
        elif order == Order.change:
            set_attributes(self._vector, self._block.read_changes()[1])
        elif order == Order.reset:
            assert self._vector is not None
            self._vector.reset([int(seed) for seed in self._seeds], self._row.observations)
        state, self._state = self._state, globals_state()
        return answer if state == self._state else HelperAnswer.drew

    def close(self) -> None:
        """Close the environments, if there are any."""
        if self._vector is not None:
            self._vector.close()


def _help(word: _native.RowWord, helping: Helping, block: RowBlock, first: int, end: int) -> None:
    """Follow orders until the one to close. Answers `failed` before it raises."""
    share = _Share(helping, block, first, end)
    try:
        while (order := word.ordered(IDLE_S)) != Order.close:
            if order is not None:
                word.answer(share.follow(Order(order)))
        share.close()
    except BaseException:
        word.answer(HelperAnswer.failed)
        raise


def as_collector() -> AbstractContextManager[object]:
    """Return the context in which a collector steps its environments, in a process that may not have torch."""
    torch = sys.modules.get("torch")
    return nullcontext() if torch is None else torch.inference_mode()


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
        while len(times) < MEASURED_STEPS and (not times or time.perf_counter() < limit):
            actions = act(row.observations)
            row.finals.count = 0
            begin = time.perf_counter()
            vector.step(actions, row)
            times.append(time.perf_counter() - begin)
    for environment in getattr(vector, "environments", ()):
        environment.reset()
    vector.close()
    return median(times)
