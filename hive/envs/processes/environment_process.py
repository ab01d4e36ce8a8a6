"""An environment process, as its collector sees it: started by exec, ordered by a row word, ended with its children."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

from hive import hash_seed
from hive.config.references import given_setup
from hive.envs.context import EnvContext
from hive.envs.processes import child
from hive.envs.processes.ending import MARK, end_processes, new_mark
from hive.envs.processes.folders import Folder
from hive.envs.processes.ordered import Ordered
from hive.envs.processes.output import Output
from hive.envs.recipe import Recipe
from hive.envs.spaces.actions import ActionSpec
from hive.envs.spaces.observation import ObservationSpec
from hive.envs.spaces.plain_specs import to_plain
from hive.envs.vectors.row_block import RowBlock
from hive.errors import ConfigError, EnvironmentFailed
from hive.plain_data import pack
from hive.runtime.actor.error_location import place_in_dump, signal_name
from hive.runtime.process.stop_signals import blocked
from hive.runtime.process.user_code.sent_errors import raise_sent

# Threads of OpenMP (torch, numba, MKL) spin for some ms after an operation, on cores that other processes need: on two
# cores, two environments with two threads each took 70 ms for a step of 0.3 ms. The user's value has precedence.
THREADS_SLEEP = {"OMP_WAIT_POLICY": "PASSIVE"}
CHUNK_BYTES = 1 << 16  # of an error that are read at once
ERROR_S = 5.0  # time that a process has to write an error which it has announced


@dataclass(frozen=True)
class Launch:
    """What all environment processes of a collector have in common.

    infos: values of `info` in a row. rows: of one environment. spins: as of `RowWord.ordered`.
    """

    recipe: Recipe
    observation: ObservationSpec
    action: ActionSpec
    infos: int
    rows: int
    spins: bool


class EnvironmentProcess(Ordered):
    """A `Stepper`, which documents the methods, that is executed. output: the file for what it prints; None: memory."""

    def __init__(
        self, launch: Launch, block: RowBlock, number: int, first: int, count: int, output: Path | None
    ) -> None:
        super().__init__(block, number, first, count, launch.rows, spins=launch.spins)
        self._launch = launch
        self._path = output
        self._output: Output | None = None
        self._tail = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._errors = -1
        self._mark = ""
        self._folder: Folder | None = None

    def start(self, contexts: Sequence[EnvContext]) -> None:
        """Start the process, and order it to construct the environments."""
        self.block.arrays["words"][self.number] = 0  # the orders that a predecessor has not answered
        self.block.arrays["doing"][self.number] = 0
        self.has_raised = False
        self._mark = new_mark(contexts[0].index, contexts[0].incarnation)
        output = self._output = Output(self._path)
        with contextlib.suppress(OSError):  # it then has its temporary files where all have them
            self._folder = Folder()
        passed, variables = [self.block.segment.fd], {} if self._folder is None else self._folder.variables
        self._process, self._errors = execute(self._task(contexts), passed, output, self._mark, variables)
        self.renew(contexts)

    def how_ended(self) -> str:
        """Return how the process has ended, with the line of a crash; "" while it runs."""
        assert self._process is not None and self._output is not None, "start comes first"  # noqa: PT018
        return "" if self._process.poll() is None else how_ended(self._process, self._output)

    def left(self, limit_s: float) -> bool:
        """Wait for the exit after an error that it raised itself; return whether it is gone."""
        if self._process is not None and self.has_raised:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(limit_s)
            return self._process.poll() is not None
        return True

    def pids(self) -> Sequence[int]:
        """Return the process that was started, if any."""
        return [] if self._process is None else [self._process.pid]

    def tail(self) -> str:
        """Return the last lines of its output."""
        return self._tail if self._output is None else self._output.tail()

    def bound(self) -> None:
        """Keep its output within a size."""
        if self._output is not None:
            self._output.bound()

    def end(self, limit_s: float) -> None:
        """Wait at most `limit_s` for its exit after `close`; then kill it with all that it has started."""
        if self._process is not None:
            if limit_s > 0:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(limit_s)
            end_processes(self._process, self._mark)
            os.close(self._errors)
            self._process, self.is_busy = None, False
        if self._folder is not None:
            self._folder.close()
            self._folder = None
        if self._output is not None:
            self._tail = self._output.tail()
            self._output.close()
            self._output = None

    def _task(self, contexts: Sequence[EnvContext]) -> dict[str, Any]:
        """Return what the process is told, as `hive.envs.processes.serving` reads it."""
        launch = self._launch
        return {
            "recipe": plain_recipe(launch.recipe),
            "observation": json.dumps(to_plain(launch.observation)),
            "action": json.dumps(to_plain(launch.action)),
            "infos": launch.infos,
            "number": self.number,
            "first": self.first,
            "count": self.count,
            "rows": launch.rows,
            "columns": len(self.block.arrays["rewards"]),
            "processes": len(self.block.words),
            "spins": launch.spins,
            "contexts": [asdict(one) for one in contexts],
        }

    def raise_error(self) -> NoReturn:
        """Raise what the process has raised: it has answered so, writes it now, and exits."""
        assert self._process is not None
        found = result_of(self._process, self._errors, ERROR_S)
        if found is None:
            raise EnvironmentFailed("it has failed, and has not said why")
        raise_sent(found["error"])


def execute(
    task: Mapping[str, Any],
    passed: Sequence[int],
    output: Output,
    mark: str,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> tuple[subprocess.Popen[bytes], int]:
    """Execute an environment process; return it and the end of its pipe for a result or an error.

    passed: further descriptors that it gets. variables: further ones of its environment. Raises EnvironmentFailed if it
    cannot be started, and ConfigError for values that it cannot be told.
    """
    try:
        content = pack({**task, "argv": [os.fsencode(word) for word in sys.argv], "setup": given_setup()})
    except TypeError as error:
        raise ConfigError(
            f"env.options have values that an environment process cannot be told: {error}",
            hint="use numbers, texts, arrays and tables, or set env.processes = 0",
        ) from None
    result, result_end = os.pipe()
    told = os.memfd_create("task", os.MFD_CLOEXEC)
    try:
        os.write(told, content)
        ends = (told, result_end, *passed)
        command = [sys.executable, "-P", str(child.__file__), json.dumps(sys.path), *map(str, ends), str(os.getpid())]
        with blocked():  # until it handles the signals that ask a run to end
            process = subprocess.Popen(
                command,
                pass_fds=ends,
                env={**THREADS_SLEEP, **hash_seed.DEFAULT, **os.environ, **variables, MARK: mark},
                stdin=subprocess.DEVNULL,
                stdout=output.fd,
                stderr=output.fd,
                process_group=0,  # an environment may end the group of what it has started, which is then its own
            )
    except OSError as error:
        os.close(result)
        raise EnvironmentFailed(f"an environment process cannot be started: {error.strerror}") from error
    finally:
        os.close(told)
        os.close(result_end)
    return process, result


def result_of(process: subprocess.Popen[bytes], end: int, limit_s: float) -> dict[str, Any] | None:
    """Return what a process writes to its pipe before it exits, within the limit; None for nothing of sense."""
    text, limit = b"", time.monotonic() + limit_s
    # A process that user code has forked may hold the other end open for longer than the process lives.
    pidfds = [os.pidfd_open(process.pid)] if process.returncode is None else []  # otherwise it is reaped already
    try:
        while end in select.select([end, *pidfds], [], [], max(limit - time.monotonic(), 0.0))[0]:
            chunk = os.read(end, CHUNK_BYTES)
            if not chunk:
                break
            text += chunk
    finally:
        for pidfd in pidfds:
            os.close(pidfd)
    found: dict[str, Any] | None = None
    with contextlib.suppress(ValueError):  # it was killed while it wrote
        found = json.loads(text)
    return found


def how_ended(process: subprocess.Popen[bytes], output: Output) -> str:
    """Return how a process has ended, with the line of a crash."""
    code = process.returncode
    place = place_in_dump(output.end())
    how = f"killed by {signal_name(-code)}" if code < 0 else f"exited with code {code}"
    return how + (f" ({place})" if place else "")


def plain_recipe(recipe: Recipe) -> dict[str, Any]:
    """Return a recipe of several environments as plain data."""
    return {field.name: plain(getattr(recipe, field.name)) for field in fields(Recipe) if field.name != "context"}


def plain(value: Any) -> Any:
    """Return a value of a config with dictionaries for mappings."""
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(plain(one) for one in value)
    return value
