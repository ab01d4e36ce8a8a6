"""The inside of an environment process: it builds its environments, steps them when it is ordered to, and says where
it is.

It has no thread, lock or file of the collector, because it was executed, not forked. hive imports neither torch nor
ZeroMQ here, so such a process takes little more memory than its environment's own imports.
"""

from __future__ import annotations

import faulthandler
import io
import json
import os
import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np

from hive.config.each import overridden
from hive.config.references import give_setup
from hive.envs.context import EnvContext
from hive.envs.make import describe
from hive.envs.processes.stepper import ACTIVITIES, Activity
from hive.envs.recipe import Recipe
from hive.envs.spaces.actions import ActionSpec
from hive.envs.spaces.differences import check_alike
from hive.envs.spaces.observation import ObservationSpec
from hive.envs.spaces.plain_specs import from_plain, to_plain
from hive.envs.vectors.attributes import set_attributes
from hive.envs.vectors.row_block import RowBlock
from hive.envs.vectors.seeding import globals_state, seed_globals
from hive.envs.vectors.share import Share, follow_orders
from hive.envs.vectors.vector import VectorEnvironment, vector_of
from hive.plain_data import unpack
from hive.runtime.memory.segments import Segment
from hive.runtime.process.stop_signals import do_nothing
from hive.runtime.process.user_code.companion import end_with
from hive.runtime.process.user_code.sent_errors import error_data
from hive.runtime.process.user_code.user_exits import leave, raise_on_exit


@dataclass(frozen=True)
class Task:
    """The task of an environment process, which it reads when it starts.

    number: of its row word. first, count: its environments among those of its collector. rows: of each. columns: rows
    of all environments of the collector. processes: of the collector. spins: as of `RowWord.ordered`.
    """

    recipe: Recipe
    observation: ObservationSpec
    action: ActionSpec
    infos: int
    number: int
    first: int
    count: int
    rows: int
    columns: int
    processes: int
    spins: bool
    contexts: Sequence[EnvContext]


class _EnvironmentShare(Share):
    """The environments of one process, which show in `doing` whether they are constructed, reset or stepped."""

    def __init__(self, task: Task, block_end: int) -> None:
        segment = Segment(block_end, os.fstat(block_end).st_size)
        segment.close()
        block = RowBlock(task.observation, task.action, task.columns, task.infos, task.processes, segment)
        end = (task.first + task.count) * task.rows
        super().__init__(self._build, block, task.first * task.rows, end, task.number)
        self._task = task
        self._doing = block.arrays["doing"][task.number]
        self._step_ns = block.arrays["step_ns"][task.number : task.number + 1]
        self._seedings, self._seeded = block.arrays["seedings"], -1
        self._at_seeding: object = None

    def follow_orders(self) -> None:
        """Follow orders until the one to close."""
        follow_orders(self.block.words[self._task.number], self, spins=self._task.spins, stepped=self.block.gate.arrive)

    def make(self) -> None:
        """Close the environments, if there are any, and build new ones with what callbacks have changed."""
        self._seed()
        super().make()
        set_attributes(self.vector, self.block.read_changes()[1])

    def reset(self) -> None:
        """Begin an episode in each environment."""
        self._seed()
        super().reset()

    def step(self) -> None:
        """Step each environment once."""
        if self._seedings[0] != self._seeded:
            self._seed()
        begin = time.perf_counter_ns()
        super().step()
        self._step_ns[0] = time.perf_counter_ns() - begin

    def _build(self, options: Mapping[str, Any]) -> VectorEnvironment:
        task = self._task
        seeds = self._seeds[:: task.rows]
        each = overridden(task.recipe.each, options)
        recipe = replace(task.recipe, options={**task.recipe.options, **options}, each=each)
        contexts = [replace(one, seed=int(seed)) for one, seed in zip(task.contexts, seeds, strict=True)]
        vector = vector_of(recipe, task.count, task.first, contexts, task.observation)
        self._compare(vector)
        for number, environment in enumerate(getattr(vector, "environments", ())):
            self._watch_reset(number, environment)
        return vector

    def _compare(self, vector: VectorEnvironment) -> None:
        """Raise EnvironmentFailed if the spaces are others than those that were read before the run."""
        task = self._task
        observation, action = getattr(vector, "observation", None), getattr(vector, "action", None)
        if observation is not None and action is not None:  # those of other vectors are one description for all
            what = f"the environment {task.contexts[0].index}"
            check_alike(what, (observation, action), (task.observation, task.action), "the run (spaces.json)")

    def _watch_reset(self, number: int, environment: Any) -> None:
        """Have an environment show that it is reset, also within a step."""
        reset = environment.reset

        def shown(*arguments: Any, **named: Any) -> Any:
            before = ACTIVITIES[self._doing[0]]
            self._show("reset", number)
            try:
                return reset(*arguments, **named)
            finally:
                self._show(before, number)

        try:
            environment.reset = shown
        except Exception:  # a class with slots: its resets within a step count as part of the step
            return

    def _show(self, activity: Activity, number: int) -> None:
        # The time first: a reader between the two never sees a new activity that began long ago.
        self._doing[1:] = number, time.monotonic_ns()
        self._doing[0] = ACTIVITIES.index(activity)

    def _seed(self) -> None:
        """Seed the global generators, if the collector has ordered that; note whether something had drawn from them."""
        if self._seedings[0] == self._seeded:
            return
        if self._seeded >= 0 and globals_state() != self._at_seeding:
            self.block.arrays["drew"][self._task.number] = 1
        self._seeded = int(self._seedings[0])
        word = int(self.block.arrays["generators"][self._task.number])
        seed_globals(word)
        if (torch := sys.modules.get("torch")) is not None:
            torch.default_generator.manual_seed(word)
        self._at_seeding = globals_state()


def serve(arguments: Sequence[int]) -> NoReturn:
    """Follow orders until the one to close; or describe or play an environment.

    arguments: the descriptors of what to do, of the pipe for errors or the answer, and of the block, which is missing
    where an environment is to be described or played; and the pid of the collector.
    """
    task_end, result_end, *block_end, parent = arguments
    try:
        end_with(parent, "hive:env")
        do_nothing()
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(line_buffering=True)
        faulthandler.enable()
        for fd in (result_end, *block_end):
            os.set_inheritable(fd, False)
        given = unpack(_read(task_end))
        sys.argv[:] = map(os.fsdecode, given.pop("argv"))
        give_setup(given.pop("setup"))
        raise_on_exit()
        np.random.seed(0)  # noqa: NPY002  # until the first order: nothing may depend on the time of a start
        random.seed(0)
        recipe = Recipe(**given.pop("recipe"))
        share: _EnvironmentShare | None = None
        try:
            if block_end:
                share = _EnvironmentShare(_task_of(recipe, given), block_end[0])
                share.follow_orders()
            elif "question" in given:
                _write(result_end, {"value": _played(recipe, given["question"])})
            else:
                context = EnvContext(**given["context"])
                _write(result_end, {"value": to_plain(describe(recipe.at(context), plays=given["plays"]))})
        except BaseException as error:  # SystemExit and KeyboardInterrupt of user code too
            _write(result_end, {"error": error_data(error, f"`{recipe.id}` failed")})
            if share is not None:
                share.close()  # the collector kills a process that takes too long for it
            leave(1)
        sys.stdout.flush()
        sys.stderr.flush()
        leave(0)
    finally:
        leave(1)


def _played(recipe: Recipe, question: Mapping[str, Any]) -> Any:
    """Examine an environment, or trace what it does. A call beyond its limit ends this process."""
    from hive.envs.examination import examine
    from hive.envs.repeatability import trace

    steps, limit_s, limits = question["steps"], question["limit_s"], question["limits"]
    if question["what"] == "trace":
        return trace(recipe, steps, limit_s)

    def begin(call: str) -> None:
        faulthandler.dump_traceback_later(limits[call], exit=True)

    names = ("several", "look_s", "environments", "beside")
    done = examine(recipe, steps, limit_s, **{name: question[name] for name in names}, begin=begin)
    faulthandler.cancel_dump_traceback_later()
    failure = None if done.failure is None else error_data(done.failure, f"`{recipe.id}` failed")
    return {**vars(done), "failure": failure, "looked": done.looked and vars(done.looked)}


def _task_of(recipe: Recipe, given: Mapping[str, Any]) -> Task:
    """Return the task that `EnvironmentProcess` has packed."""
    specs = {name: from_plain(json.loads(given[name])) for name in ("observation", "action")}
    contexts = [EnvContext(**one) for one in given["contexts"]]
    numbers = {name: given[name] for name in ("infos", "number", "first", "count", "rows", "columns", "processes")}
    return Task(recipe=recipe, contexts=contexts, spins=given["spins"], **specs, **numbers)


def _read(fd: int) -> bytes:
    with os.fdopen(fd, "rb") as file:
        file.seek(0)
        return file.read()


def _write(fd: int, result: Mapping[str, Any]) -> None:
    with os.fdopen(fd, "wb") as pipe:
        pipe.write(json.dumps(result).encode(errors="backslashreplace"))
