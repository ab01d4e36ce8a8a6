"""Ways out of errors that environments raise because of what they share: a process, a machine, installed packages."""

from __future__ import annotations

import errno
import re
import sys

from hive.runtime.actor.error_location import terminal_hint

NESTED_LOOP = re.compile(r"running event loop|loop is already running|asyncio loop", re.IGNORECASE)
BEFORE_TORCH = re.compile(
    r"(?=.*import)(?=.*torch).*\b(?:before|after|already|first)\b|.*static TLS block", re.IGNORECASE | re.DOTALL
)
"""How a module says that torch was imported too early, and the linker that its libraries left no room."""
NEEDS_INT = re.compile(
    r"\baction\b.*\b(?:must|should|has to|needs?|expect\w*)\b.*\bint(?:eger)?\b", re.IGNORECASE | re.DOTALL
)
"""How an environment refuses numpy.int64, which action_space.sample() returns too."""
START_METHOD_SET = "context has already been set"  # multiprocessing.set_start_method

OWN_LOOP = (
    'a collector has an event loop of its own; env.processes = "each" gives each environment a process without one'
)
BEFORE = 'env.processes = "each" gives each environment a process that imports no torch, for what must come before it'
OTHER_VERSION = "that is a matter of versions: the code was written for another one (`pip check` names such packages)"
OWN_CONTEXT = (
    "a constructor runs several times in a process, for each environment and at resume barriers: use "
    "multiprocessing.get_context(method) in place of set_start_method(method)"
)
OWN_PORT = (
    'environments need a port each: `port = "{index + 47000}"` in [env.options] is one that follows from the index'
)

PLAIN_INT = (
    "hive passes numpy.int64, as action_space.sample() returns it: add a gymnasium.ActionWrapper whose method `action` "
    "returns int(action) to env.wrappers"
)
NO_SEED_METHOD = (
    "environments of Gymnasium have no method `seed`: `super().reset(seed=seed)` in reset seeds `self.np_random`"
)


def way_out(error: BaseException) -> str:
    """Return the hint for an error of an environment; "" if hive knows none."""
    text = str(error)
    if hint := terminal_hint(error):
        return hint
    if isinstance(error, AttributeError) and error.name == "seed":
        return NO_SEED_METHOD
    if isinstance(error, AssertionError | TypeError | ValueError) and NEEDS_INT.search(text):
        return PLAIN_INT
    if NESTED_LOOP.search(text) and _loop_is_running():
        return OWN_LOOP
    if BEFORE_TORCH.match(text) and "torch" in sys.modules:
        return BEFORE
    if isinstance(error, ImportError) and installed_package((error.name or "").partition(".")[0]):
        return OTHER_VERSION
    if isinstance(error, RuntimeError) and text == START_METHOD_SET:
        return OWN_CONTEXT
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return OWN_PORT
    return ""


def is_permanent(error: BaseException) -> bool:
    """Return whether an error with a way out would come again after a restart; a port may be free by then."""
    return bool(way_out(error)) and not isinstance(error, OSError)


def installed_package(module: str) -> str:
    """Return the installed package of a top-level module and its version, as `gymnasium 1.4.0`; "" without one."""
    import importlib.metadata  # it takes 30 ms

    for name in importlib.metadata.packages_distributions().get(module, ()):
        return f"{name} {importlib.metadata.version(name)}"
    return ""


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
