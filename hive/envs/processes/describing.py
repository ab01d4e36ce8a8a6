"""Reads the spaces of an environment in a process that is executed for it, and whose exit is confirmed."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict

from hive.envs.context import EnvContext
from hive.envs.processes.ending import end_processes, mark_of
from hive.envs.processes.environment_process import execute, how_ended, plain_recipe, result_of
from hive.envs.processes.output import Output
from hive.envs.recipe import Recipe
from hive.envs.spaces.plain_specs import from_plain
from hive.envs.spaces.spec import EnvironmentSpec
from hive.errors import EnvironmentFailed
from hive.runtime.process.user_code.sent_errors import raise_sent


def described_apart(recipe: Recipe, limit_s: float, context: EnvContext | None = None) -> EnvironmentSpec:
    """Return what `describe` returns in a process of its own. Raises its errors, and EnvironmentFailed.

    limit_s: env.start_limit_s. context: which environment; None: that with the index 0.
    """
    context = context or EnvContext(0)
    output, mark = Output(None), mark_of(context.index, context.incarnation)
    process, end = execute({"recipe": plain_recipe(recipe), "context": asdict(context)}, [], output, mark)
    try:
        found = result_of(process, end, limit_s)
        late = process.poll() is None and found is None
    finally:
        end_processes(process.pid, mark, process.poll)
        process.wait()  # at once, but for threads that are still exiting
        os.close(end)
    if text := output.tail():
        sys.stderr.write(f"{text}\n")
    if found is not None and "value" in found:
        output.close()
        spec: EnvironmentSpec = from_plain(found["value"])
        return spec
    if found is not None:
        output.close()
        raise_sent(found["error"])
    how = f"was not constructed within {limit_s:g} s (env.start_limit_s)" if late else how_ended(process, output)
    output.close()
    raise EnvironmentFailed(f"the environment `{recipe.id}` {how}", hint="hive reads its spaces before a run starts")
