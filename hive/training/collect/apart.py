"""The environments of a collector or an evaluator in processes of their own, and what the run is told of them.

Each failure is an event and a warning of the run, which is not exact from then on. The state of each environment is in
a file for views (hive.records.environments), which is written at most once a second.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hive.config import Config, EnvConfig
from hive.envs import EnvContext, EnvironmentSpec, Failure, Household, ProcessVector, Watcher, process_vector, recipe_of
from hive.envs.processes.ending import end_processes, marks_of
from hive.errors import EnvironmentFailed, RecordError
from hive.experience import Purpose, stream_seeds
from hive.records import RunDirectory
from hive.records.environments import read_environments, write_environments
from hive.records.run_warnings import ENVIRONMENT_FAILED, WARNING
from hive.runtime import Actor
from hive.runtime.memory.status import WAIT_IN

WRITE_S = 1.0  # least time between two files
DOWN = "wait for env"  # phase while no environment can be stepped


class Apart:
    """Makes the environments of `actor`, and tells the run of their failures.

    spec: what they must have. directory: of the run, if it has one. first: the index of the first of them. vector: they
    themselves, once they are made.
    """

    def __init__(self, actor: Actor, config: Config, spec: EnvironmentSpec, directory: Path | None, first: int) -> None:
        self._actor = actor
        self._directory = None if directory is None else RunDirectory(directory)
        self._down = actor.status.phase(DOWN, WAIT_IN)
        self._written_s = 0.0
        self._before: dict[int, int] = {}  # failures in earlier incarnations of the actor
        self._spec = spec
        self._first = first
        self.vector: ProcessVector | None = None
        self.household = Household(
            Watcher(self._failed, self._waiting),
            lambda index, incarnation: stream_seeds(config.run.seed, Purpose.restarted, index, 1, incarnation)[0],
            self._output,
            config.start_limit_s,
            config.supervision.phase_limit_s,
            config.collectors,
        )

    def made(
        self, env: EnvConfig, contexts: Sequence[EnvContext], options: Mapping[str, Any], word: int
    ) -> ProcessVector:
        """Make the environments, or make them anew in the same processes, at a resume barrier.

        options: what callbacks have set. word: the seed of global generators while they are built.
        """
        if options and env.is_program:
            raise EnvironmentFailed(
                "env.options that change during a run do not reach a program, which has them from its start",
                hint="leave env.curriculum and env.options(...) of callbacks out; it can count its own episodes",
                permanent=True,
            )
        if self.vector is None:
            self.follow(contexts)
            self.vector = process_vector(env, recipe_of(env), self._spec, len(contexts), self.household)
        self.vector.seed_globals(word)
        self.vector.make_environments(contexts, options)
        self.write()
        return self.vector

    def write(self, *, last: bool = False) -> None:
        """Write the file with the state of each environment, if it is time for it, or the last time."""
        now_s = time.monotonic()
        if self._directory is None or self.vector is None or (now_s - self._written_s < WRITE_S and not last):
            return
        self._written_s = now_s
        try:
            rows = (replace(row, failures=row.failures + self._before.get(row.index, 0)) for row in self.vector.rows())
            write_environments(self._directory, self._actor.name, rows)
        except RecordError as error:  # a full disk: only views miss it
            self._actor.log.warning("%s", error)

    def follow(self, contexts: Sequence[EnvContext]) -> None:
        """Follow an earlier incarnation of the actor: end what its environments have left, and go on counting."""
        if self._actor.incarnation == 0:
            return
        for context in contexts:
            end_processes(None, marks_of(context.index))
        if self._directory is not None:
            rows = read_environments(self._directory, self._actor.name)
            self._before = {row.index: row.failures for row in rows}

    def _output(self, first: int) -> Path | None:
        """Return the file for the output of environment `first` of this actor, whose size the supervisor bounds."""
        return None if self._directory is None else self._directory.logs / f"env-{self._first + first}.out"

    def _failed(self, failure: Failure) -> None:
        actor = self._actor
        details = {
            "environments": list(failure.indices),
            "activity": failure.activity,
            "seconds": failure.seconds,
            "output": failure.output,
        }
        last = failure.output.splitlines()[-1:]
        cause = failure.text + "".join(f'; it printed last: "{line}"' for line in last)
        back = "" if failure.for_good else " until it is back"
        advice = f"its rows are not valid{back}; `hive ps --envs` counts the failures of each"
        actor.note(
            WARNING,
            f"{ENVIRONMENT_FAILED}: {cause}",
            warning=ENVIRONMENT_FAILED,
            cause=cause,
            advice=advice,
            steps=0,
            **details,
        )
        actor.status.count("env_failures")
        self._written_s = 0.0

    def _waiting(self, down: bool) -> None:
        self._actor.status.page.pulse()  # each environment has a limit, so the wait for them needs none
        if down:
            self._actor.status.enter(self._down)
        self.write()
