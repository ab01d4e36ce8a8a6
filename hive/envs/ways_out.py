"""Ways out of errors that environments raise because they share a process or a machine with others."""

from __future__ import annotations

import errno
import re
import sys

NESTED_LOOP = re.compile(r"running event loop|loop is already running|asyncio loop", re.IGNORECASE)
START_METHOD_SET = "context has already been set"  # multiprocessing.set_start_method

OWN_LOOP = (
    'a collector has an event loop of its own; env.processes = "each" gives each environment a process without one'
)
OWN_CONTEXT = (
    "a constructor runs several times in a process, for each environment and at resume barriers: use "
    "multiprocessing.get_context(method) in place of set_start_method(method)"
)
OWN_PORT = (
    'environments need a port each: `port = "{index + 47000}"` in [env.options] is one that follows from the index'
)


def way_out(error: BaseException) -> str:
    """Return the hint for an error of an environment; "" if hive knows none."""
    text = str(error)
    if NESTED_LOOP.search(text) and _loop_is_running():
        return OWN_LOOP
    if isinstance(error, RuntimeError) and text == START_METHOD_SET:
        return OWN_CONTEXT
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return OWN_PORT
    return ""


def is_permanent(error: BaseException) -> bool:
    """Return whether an error with a way out would come again after a restart; a port may be free by then."""
    return bool(way_out(error)) and not isinstance(error, OSError)


def _loop_is_running() -> bool:
    """Return whether this thread runs an event loop, which environments then cannot do."""
    asyncio = sys.modules.get("asyncio")  # it takes 3 MB, which an environment process does not need
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
