"""Reads the spaces of an environment in a child process that is thrown away, for processes that fork others later.

    fork server ── child: imports the modules ── threads, children, files left? ── constructs, reads the spaces, closes
                   spaces, answer as plain data
    imports the modules too, if the answer is no, so that the processes forked later share them

Otherwise each process of the run imports them itself. The child's comparison of a compiled environment with Gymnasium's
is taken over too, so that no process repeats it.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from hive.config import START_LIMIT_S
from hive.envs.make import describe, import_modules
from hive.envs.recipe import Recipe
from hive.envs.spaces.plain_specs import from_plain, to_plain
from hive.envs.spaces.spec import EnvironmentSpec
from hive.runtime.process.user_code.throwaway import Holdings, in_child


def described_by_child(
    recipe: Recipe, limit_s: float = START_LIMIT_S, *, plays: bool = False, environments: int = 0, beside: bool = False
) -> EnvironmentSpec:
    """Return what `describe` returns in a child, and import the modules here if that is safe. Raises its errors.

    limit_s: env.start_limit_s. environments: of a run, for a look at two (`look_of_run`, also for `beside`); 0: none.
    Raises EnvironmentFailed, too, if the child crashes or takes longer.
    """
    from hive.envs.look import look_of_run
    from hive.envs.vectors import compiled

    def read() -> dict[str, Any]:
        before = Holdings.now()
        import_modules(recipe)
        shareable = Holdings.now().shareable_after(before)
        begun_s = time.monotonic()
        spec = describe(recipe, plays=plays)
        if environments and not spec.agents:
            spec = replace(spec, seen=look_of_run(recipe, environments, time.monotonic() - begun_s, beside=beside))
        return {"spec": to_plain(spec), "shareable": shareable, "compared": compiled.COMPARED}

    reply = in_child(read, f"the environment `{recipe.id}`", limit_s, key="env.start_limit_s")
    if reply["shareable"]:
        import_modules(recipe)
    compiled.COMPARED.update(reply["compared"])
    described: EnvironmentSpec = from_plain(reply["spec"])
    return described
