"""Starts runs from a script or a notebook: the same runs as `hive up` starts. Returns their results.

    result = hive.train("ppo", env=Coin, steps=100_000, learning_rate=3e-4)
    result = hive.train("cartpole.toml", seed=2)
    result = hive.run(topology, custom={"curriculum": {"level": 3}})

All work where an event loop runs, as in a notebook's cell, and block it. Their asynchronous forms do not:

    result = await hive.train_async("ppo", env=Coin)

Classes and functions of the program are kept with the run (hive.session.given), so a script needs no
`if __name__ == "__main__":`. With `inline=True` everything runs in this process, where breakpoints work.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from typing import TYPE_CHECKING, Any

from hive.api.calls import by_name
from hive.api.ending import cancelled_by_sigterm, ending_as_asked
from hive.api.own_callbacks import OwnCallbacks
from hive.api.result import Result, finish, no_report, refuse_while_imported
from hive.errors import HiveError
from hive.launch.continuing import begin_or_continue
from hive.launch.control import print_to_stderr
from hive.launch.new_run import new_run
from hive.launch.starting import RETRY_S
from hive.records import RunDirectory
from hive.runtime.run.control import open_run
from hive.session.given import Given, GivenConfig, meant_call

if TYPE_CHECKING:
    from hive.runtime import Topology

RUN_CALL = "hive.run(topology, config, steps=100_000)"


@by_name(1, meant_call)
def train(
    config: Given = None,
    *,
    sets: Sequence[str] = (),
    name: str | None = None,
    resume: bool = False,
    inline: bool = False,
    quiet: bool = False,
    **keys: Any,
) -> Result:
    """Train, wait for the end of the run, and return its result.

    config: the name of a scheme, such as "ppo" or "sac"; a TOML file, a mapping of tables, or a `hive.Config`.
    keys: values of keys. Each name must be that of exactly one key (`steps`, `learning_rate`, `rollout`), of a table
        with a mapping (`collection={"workers": 2}`), or `env`: an id, or a class or function that makes the
        environment. Classes, functions and lambdas may stand wherever a config has a reference "module:Name". An
        object among `callbacks` stays in this process, and is called there.
    sets: overrides `KEY=VALUE`, as for `--set`.
    name: name of the run; a number is appended.
    resume: continue the newest run of this name and seed if it has not finished, and begin it if there is none; of one
        that has finished, return the result.
    inline: run everything in this process, for debugging.
    quiet: print nothing.

    Raises ConfigError for an invalid config, UsageError for an object that other processes cannot get, and ActorFailed
    if the run fails.
    """
    refuse_while_imported()
    with ending_as_asked():
        own = OwnCallbacks(keys, config)
        with own.serving() as keys:
            prepare = _deferred(config, keys, sets, name, resume=resume, inline=inline, quiet=quiet)
            result = finish(prepare(), inline, quiet)
        return own.returned(result)


@by_name(2, lambda given: RUN_CALL)
def run(
    topology: Callable[..., Topology],
    config: Given = None,
    *,
    sets: Sequence[str] = (),
    name: str | None = None,
    resume: bool = False,
    inline: bool = False,
    quiet: bool = False,
    **keys: Any,
) -> Result:
    """Run the topology that the function `topology` returns for the config; the other parameters are as in `train`."""
    refuse_while_imported()
    with ending_as_asked():
        own = OwnCallbacks(keys, config)
        with own.serving() as keys:
            prepare = _deferred(config, keys, sets, name, topology, resume=resume, inline=inline, quiet=quiet)
            result = finish(prepare(), inline, quiet, topology)
        return own.returned(result)


@by_name(1, meant_call)
async def train_async(
    config: Given = None,
    *,
    sets: Sequence[str] = (),
    name: str | None = None,
    resume: bool = False,
    inline: bool = False,
    quiet: bool = False,
    **keys: Any,
) -> Result:
    """Train as `train` does, while the event loop of the caller continues. Cancelling the call ends the run."""
    refuse_while_imported()
    own = OwnCallbacks(keys, config)
    with cancelled_by_sigterm(), own.serving() as keys:
        prepare = _deferred(config, keys, sets, name, resume=resume, inline=inline, quiet=quiet)
        result = await _in_thread(prepare, inline, quiet)
    return own.returned(result)


@by_name(2, lambda given: RUN_CALL)
async def run_async(
    topology: Callable[..., Topology],
    config: Given = None,
    *,
    sets: Sequence[str] = (),
    name: str | None = None,
    resume: bool = False,
    inline: bool = False,
    quiet: bool = False,
    **keys: Any,
) -> Result:
    """Run a topology as `run` does, while the event loop of the caller continues. Cancelling the call ends the run."""
    refuse_while_imported()
    own = OwnCallbacks(keys, config)
    with cancelled_by_sigterm(), own.serving() as keys:
        prepare = _deferred(config, keys, sets, name, topology, resume=resume, inline=inline, quiet=quiet)
        result = await _in_thread(prepare, inline, quiet, topology)
    return own.returned(result)


async def _in_thread(
    prepare: Callable[[], RunDirectory], inline: bool, quiet: bool, topology: Callable[..., Topology] | None = None
) -> Result:
    made: list[RunDirectory] = []

    def call() -> Result:
        made.append(prepare())
        return finish(made[0], inline, quiet, topology)

    pool = ThreadPoolExecutor(1, "hive-run")  # not the loop's own pool, whose few threads runs would occupy for hours
    work = pool.submit(contextvars.copy_context().run, call)
    pool.shutdown(wait=False)
    ended = asyncio.wrap_future(work)
    try:
        return await asyncio.shield(ended)
    except asyncio.CancelledError:
        await asyncio.to_thread(_stop, made, work)
        await asyncio.wait([ended])
        ended.exception()  # the run's error is in its summary
        raise


def _stop(made: Sequence[RunDirectory], work: Future[Result]) -> None:
    """Ask a run to drain, save and end, as `hive down` does, as soon as it listens. `work` waits for its end.

    made: the run's directory, as soon as it exists.
    """
    while not work.done():
        with contextlib.suppress(HiveError):  # it is starting or ending
            for directory in made:
                with closing(open_run(directory)) as client:
                    return client.down("cancellation")
        wait([work], RETRY_S)


def _deferred(
    config: Given,
    keys: dict[str, Any],
    sets: Sequence[str],
    name: str | None,
    topology: Callable[..., Topology] | None = None,
    *,
    resume: bool = False,
    inline: bool,
    quiet: bool,
) -> Callable[[], RunDirectory]:
    """Return a function that makes the run's directory. What Python gives is read at once, in the caller's thread."""
    keys = keys if topology is None else {"topology": topology, **keys}
    named = [] if name is None else [f"run.name={json.dumps(name)}"]
    given = GivenConfig.of(config, keys, inline=inline, sets=[*sets, *named])
    report = no_report if quiet else print_to_stderr
    make = begin_or_continue if resume else new_run
    argv = [*sys.argv]
    return lambda: make(given.file, given.overrides, given.text, given.source, report, argv)
