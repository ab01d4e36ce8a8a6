"""Reads the spaces of an environment, or plays it, in a process that is executed for it; its exit is confirmed."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hive.envs.context import EnvContext
from hive.envs.external.program import describe_program
from hive.envs.processes.ending import end_processes, new_mark
from hive.envs.processes.environment_process import execute, how_ended, plain_recipe, result_of
from hive.envs.processes.output import Output
from hive.envs.recipe import Recipe
from hive.envs.spaces.plain_specs import from_plain, to_plain
from hive.envs.spaces.spec import EnvironmentSpec
from hive.errors import EnvironmentFailed, RecordError
from hive.records.atomic import write_bytes
from hive.records.documents import read_object
from hive.runtime.actor.error_location import place_in_dump
from hive.runtime.process.user_code.sent_errors import raise_sent

TIMED_OUT = "Timeout ("  # begins what faulthandler prints for a call beyond its limit
PLAYS = 4  # times the limit of an examination: what it compares is played again, and ends take time

ORIGINS = "origins"  # among the descriptions, whose names are digests: that of the run's environment

KEPT: ContextVar[Path | None] = ContextVar("kept", default=None)
"""The file in which descriptions are kept: a simulator that starts in minutes need not start for each resume."""


@contextmanager
def keeping(path: Path | None) -> Iterator[None]:
    """Keep what is described in a `with` block in a file, and read what is there already; None: do neither."""
    token = KEPT.set(path)
    try:
        yield
    finally:
        KEPT.reset(token)


def kept_origins() -> EnvironmentSpec | None:
    """Return the description of the run's environment that an earlier start has kept for its origins; None without."""
    kept = _kept(KEPT.get()).get(ORIGINS)
    return None if kept is None else from_plain(kept)


def keep_origins(found: EnvironmentSpec) -> None:
    """Keep the description of the run's environment, with the origins of its observations."""
    if (path := KEPT.get()) is not None:
        write_bytes(path, json.dumps({**_kept(path), ORIGINS: to_plain(found)}).encode())


def described_apart(
    recipe: Recipe, limit_s: float, context: EnvContext | None = None, *, plays: bool = False
) -> EnvironmentSpec:
    """Return what `read_apart` returns, or has returned for an earlier start of the run."""
    context, path = context or EnvContext(0), KEPT.get()
    told = json.dumps([plain_recipe(recipe), context.index], sort_keys=True, default=str)
    name = hashlib.sha256(told.encode()).hexdigest()
    kept = _kept(path)
    if name in kept:
        spec: EnvironmentSpec = from_plain(kept[name])
        return spec
    found = (describe_program if recipe.is_program else read_apart)(recipe, limit_s, context, plays=plays)
    if path is not None:
        write_bytes(path, json.dumps({**kept, name: to_plain(found)}).encode())
    return found


def _kept(path: Path | None) -> dict[str, Any]:
    """Return the descriptions in a file; none if it cannot be read, because they can be read again."""
    try:
        return {} if path is None else read_object(path)
    except RecordError:
        return {}


def read_apart(recipe: Recipe, limit_s: float, context: EnvContext, *, plays: bool = False) -> EnvironmentSpec:
    """Return what `describe` returns in a process of its own. Raises its errors, and EnvironmentFailed.

    limit_s: env.start_limit_s. context: which environment. plays: as of `describe`.
    """
    late = f"was not constructed within {limit_s:g} s (env.start_limit_s)"
    answer = _answer(recipe, {"plays": plays}, limit_s, context, late, "hive reads its spaces before a run starts")
    spec: EnvironmentSpec = from_plain(answer)
    return spec


def play_apart(
    recipe: Recipe,
    question: Mapping[str, Any],
    limits: Mapping[str, float],
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    """Play an environment in a process of its own; return the answer to the question as plain data.

    question: as `hive.envs.processes.serving` reads it. limits: as of `hive.envs.configured.examined`. variables:
    further ones of the process's environment. Raises the errors of `read_apart`.
    """
    limit_s = sum(limits.values()) + PLAYS * float(question["limit_s"])
    late = f"was not played to the end within {limit_s:g} s"
    hint = "the limits of its calls are env.start_limit_s, env.reset_limit_s and env.step_limit_s"
    asked = {"question": {**question, "limits": dict(limits)}}
    return _answer(recipe, asked, limit_s, EnvContext(0), late, hint, variables)


def _answer(
    recipe: Recipe,
    question: Mapping[str, Any],
    limit_s: float,
    context: EnvContext,
    late: str,
    hint: str,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    """Execute a process, and return what it answers, as plain data. late: how an error says that it took too long."""
    output, mark = Output(None), new_mark(context.index, context.incarnation)
    task = {"recipe": plain_recipe(recipe), "context": asdict(context), **question}
    process, end = execute(task, [], output, mark, variables)
    try:
        found = result_of(process, end, limit_s)
        is_late = process.poll() is None and found is None
    finally:
        end_processes(process, mark)
        os.close(end)
    if text := output.tail():
        sys.stderr.write(f"{text}\n")
    if found is not None and "value" in found:
        output.close()
        return found["value"]
    if found is not None:
        output.close()
        raise_sent(found["error"])
    how = late if is_late else how_ended(process, output)
    if TIMED_OUT in output.end():
        place = place_in_dump(output.end())
        how = "was in a call that did not end within its limit" + (f" ({place})" if place else "")
    output.close()
    raise EnvironmentFailed(f"the environment `{recipe.id}` {how}", hint=hint)
