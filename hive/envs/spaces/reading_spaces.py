"""Reads the spaces of an environment in a child process that is thrown away, for processes that fork others later.

    fork server ── child: imports the modules ── threads, children, files left? ── constructs, reads the spaces, closes
                   spaces, answer as plain data
    imports the modules too, if the answer is no, so that the processes forked later share them

Otherwise each process of the run imports them itself. The child's comparison of a compiled environment with Gymnasium's
is taken over too, so that no process repeats it. Before a run another child looks at two environments (hive.envs.look).
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from typing import Any

from hive.config import START_LIMIT_S
from hive.envs.make import describe, import_modules, steps_one_by_one
from hive.envs.recipe import Recipe
from hive.envs.spaces.plain_specs import from_plain, to_plain
from hive.envs.spaces.spec import EnvironmentSpec
from hive.errors import HiveError
from hive.runtime.actor.interrupted import raise_interrupt
from hive.runtime.process.user_code.throwaway import Holdings, in_child

CALLS = 4  # constructions for which a look has time; two environments of slower ones are not constructed before a run
MOST_LOOKS = 2  # times the duration of a look after which its call of the environment is interrupted
LEAST_S = 1e-6  # shortest duration of a timer
LOOK_CLOSE_S = 1.0  # time for `close` of the environments after that; then their process is ended


def described_by_child(
    recipe: Recipe, limit_s: float = START_LIMIT_S, *, plays: bool = False, environments: int = 0, beside: bool = False
) -> EnvironmentSpec:
    """Return what `describe` returns in a child, and import the modules here if that is safe. Raises its errors.

    limit_s: env.start_limit_s. environments: of a run, for a look at two (`look_of_run`, also for `beside`); 0: none.
    Raises EnvironmentFailed, too, if the child crashes or takes longer.
    """
    from hive.envs.look import LOOK_S
    from hive.envs.vectors import compiled

    def read() -> dict[str, Any]:
        begun_s, before = time.monotonic(), Holdings.now()
        import_modules(recipe)
        shareable = Holdings.now().shareable_after(before)
        if shareable:  # another child need not import them
            begun_s = time.monotonic()
        spec = describe(recipe, plays=plays)
        looks = environments > 0 and not spec.agents and steps_one_by_one(recipe)
        return {
            "spec": to_plain(spec),
            "shareable": shareable,
            "compared": compiled.COMPARED,
            "looks": looks and CALLS * (time.monotonic() - begun_s) <= LOOK_S,
        }

    reply = in_child(read, f"the environment `{recipe.id}`", limit_s, key="env.start_limit_s")
    if reply["shareable"]:
        import_modules(recipe)
    compiled.COMPARED.update(reply["compared"])
    described: EnvironmentSpec = from_plain(reply["spec"])
    if not reply["looks"]:
        return described
    return replace(described, seen=_seen_by_child(recipe, environments, beside=beside))


def _seen_by_child(recipe: Recipe, environments: int, *, beside: bool) -> tuple[tuple[str, str, str], ...] | None:
    """Return what a look at two environments finds, in another child, whose failure is no failure of a run: None."""
    from hive.envs.look import LOOK_S, look_of_run

    def work() -> list[tuple[str, str, str]]:
        quiet = os.open(os.devnull, os.O_WRONLY)
        for output in (1, 2):  # whatever it prints, a run prints it, too
            os.dup2(quiet, output)
        signal.signal(signal.SIGALRM, raise_interrupt)
        return look_of_run(recipe, environments, beside=beside, begin=watch)

    def watch(call: str) -> None:
        left_s = 0.0 if call == "close" else max(end_s - time.monotonic(), LEAST_S)  # 0: without a limit
        signal.setitimer(signal.ITIMER_REAL, left_s)

    limit_s = MOST_LOOKS * LOOK_S
    end_s = time.monotonic() + limit_s
    try:
        found = in_child(work, f"the environment `{recipe.id}`", limit_s + LOOK_CLOSE_S, attempts=1)
    except HiveError:  # collectors meet it, and report it
        return None
    return tuple((name, text, advice) for name, text, advice in found)
