"""Imports the modules of environments and wrappers and calls their constructors, with one clear error per failure."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

from hive.config import module_of, why_not_found
from hive.distribution import pip_install, with_extra
from hive.envs.ways_out import OTHER_VERSION, installed_package, way_out
from hive.errors import EnvironmentFailed, EnvironmentMissing, HiveError, TopologyError
from hive.runtime.actor.error_location import is_interrupt, named
from hive.runtime.process.user_code.setup import set_up
from hive.runtime.process.user_code.torch_state import environment_torch
from hive.versions import check_versions

EXTRAS = {
    "Box2D": "box2d",
    "mujoco": "mujoco",
    "ale_py": "atari",
    "cv2": "atari",
    "minigrid": "minigrid",
    "pettingzoo": "multi",
    "mpe2": "multi",
}
"""Top-level module -> the extra of hive that installs it."""

CHECKED = {"ale_py": "ale-py", "minigrid": "minigrid", "pettingzoo": "pettingzoo", "mpe2": "mpe2"}
"""Top-level module -> its package, of which hive needs a version."""

PACKAGES = {"minatar": "MinAtar", "envpool": "envpool"}
"""Top-level module -> the name of its package for pip, where hive has no extra but knows the package."""

WRONG_ARGUMENTS = re.compile(r"missing \d+ required .*argument|unexpected keyword argument")
"""How Python says that a call lacks arguments, or has some that the function does not take."""

OPTIONS = "the arguments of a constructor are the table [env.options]; in Python also env=lambda: MyEnv(argument)"


def import_module(kind: str, name: str, module: str) -> ModuleType:
    """Import `module`, a file or a name, for the environment or wrapper `name`; `kind` is "environment" or "wrapper".

    Raises EnvironmentMissing if it or a module that it needs is not installed, EnvironmentFailed if it raises, and
    PlatformError for a package that is too old for hive.
    """
    if package := CHECKED.get(top_level(module)):
        check_versions([package])
    try:
        with environment_torch():
            return module_of(module) if module.endswith(".py") else importlib.import_module(module)
    except TopologyError as error:
        raise EnvironmentMissing(f"no {kind} `{name}`: {error}") from None
    except HiveError:
        raise
    except ModuleNotFoundError as error:
        raise _lacks(kind, name, error) from error
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise EnvironmentFailed(f"importing `{module}` raised {named(error)}", hint=way_out(error)) from error


def construct(kind: str, name: str, what: str, constructor: Callable[[], Any], hint: str = "") -> Any:
    """Return the result of `constructor`. `what` is the name with its context, for errors: "`CartPole-v1`".

    Raises EnvironmentMissing if it needs a module that is not installed; EnvironmentFailed, with `hint`, if it raises.
    """
    import gymnasium

    set_up()
    try:
        with environment_torch():
            return constructor()
    except HiveError:
        raise
    except ModuleNotFoundError as error:
        raise _lacks(kind, name, error) from error
    except gymnasium.error.DependencyNotInstalled as error:
        cause = str(error).partition(",")[0]
        raise EnvironmentMissing(f"{what} cannot be built: {cause}", hint=_commands(str(error))) from error
    except BaseException as error:
        if is_interrupt(error):
            raise
        if not hint and isinstance(error, TypeError) and WRONG_ARGUMENTS.search(str(error)):
            hint = OPTIONS
        text = f"{what} cannot be built: its constructor raised {named(error)}"
        raise EnvironmentFailed(text, hint=hint or way_out(error)) from error


def close(environment: Any) -> str:
    """Close an environment; return what it raised, "" for nothing.

    Its results do not depend on it, and many raise for a window that they never opened, so a run goes on.
    """
    try:
        environment.close()
    except BaseException as error:
        if is_interrupt(error):
            raise
        return named(error)
    return ""


def top_level(module: str) -> str:
    """Return the first word of `package.module:Class`."""
    return re.split("[.:]", module)[0]


def install(module: str) -> str:
    """Return a hint with the command that installs a top-level module."""
    package = with_extra(EXTRAS[module]) if module in EXTRAS else PACKAGES.get(module, module)
    return f"install it with: `pip install {package}`"


def _commands(text: str) -> str:
    """Return a hint with the commands in Gymnasium's error, or with hive's extra of the same name."""
    extra = re.search(rf"\[({'|'.join(sorted({*EXTRAS.values()}))})\]", text)
    commands = [pip_install(extra[1])] if extra else re.findall(r"pip install [^`]+", text)
    return f"install it with: {' and '.join(f'`{command}`' for command in commands)}" if commands else ""


def _lacks(kind: str, name: str, error: ModuleNotFoundError) -> EnvironmentMissing:
    """Return the error for a missing module: the one in the name, or one that hive or the environment imports."""
    missing = error.name or str(error)
    top = missing.partition(".")[0]
    if package := "" if missing == top else installed_package(top):
        what = f"no {kind} `{name}`: {package} has no" if top == top_level(name) else f"`{name}` needs the"
        lacks = "" if top == top_level(name) else f", which {package} does not have"
        return EnvironmentMissing(f"{what} module `{missing}`{lacks}", hint=OTHER_VERSION)
    if top == top_level(name) and top not in {*EXTRAS, *PACKAGES}:
        clause, hint = why_not_found(name)
        if clause:
            return EnvironmentMissing(f"no {kind} `{name}`: {clause}", hint=hint)
        return EnvironmentMissing(
            f"no {kind} `{name}`: there is no module `{missing}`",
            hint="start hive in a folder from which the module can be imported, or install the module's package",
        )
    return EnvironmentMissing(f"`{name}` needs the module `{missing}`, which is not installed", hint=install(top))
