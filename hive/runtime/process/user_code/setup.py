"""Calls the function of run.setup in each process that runs users' code, once, before their classes are built.

    give_setup(config.run.setup)     where a process learns which run it serves (hive.config.references)
    set_up()                         before users' code: the first call in a process calls the function

A process that serves runs of several functions, as `hive eval` of several runs may, calls each once.
"""

from __future__ import annotations

import os

from hive.config.references import given_setup, load_reference
from hive.errors import HiveError, TopologyError
from hive.runtime.actor.error_location import explained, is_interrupt
from hive.runtime.process.user_code.torch_state import environment_torch

_called: set[tuple[int, str]] = set()  # (pid, reference)


def set_up() -> None:
    """Call the function that was given, unless this process has called it. Raises TopologyError if it raises."""
    reference = given_setup()
    if reference is None or (os.getpid(), reference) in _called:
        return
    try:
        with environment_torch():
            load_reference(reference)()
    except HiveError:
        raise
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise TopologyError(
            f"run.setup: `{reference}` raised {explained(error)}",
            hint="it is called without arguments in every process that runs your code",
        ) from error
    _called.add((os.getpid(), reference))
