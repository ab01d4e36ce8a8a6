"""Translates the keys of an entry about its environment: wrappers, options, stacks of frames.

The Zoo puts the wrappers of `env_wrapper` around each environment, in their order, as env.wrappers does. AtariWrapper
is hive's preset "atari". A wrapper of a package that is not installed is left out, with a note.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

from hive.config.zoo.draft import Draft
from hive.config.zoo.entries import names
from hive.printable import printable

KEYS = ("env_wrapper", "vec_env_wrapper", "frame_stack", "env_kwargs")
"""The keys that `translate_environment` translates."""

ATARI_WRAPPER = "AtariWrapper"
GYMNASIUM = "gymnasium"
USUAL_ATARI = {"terminal_on_life_loss": True}  # default of AtariWrapper that is not the preset's


def translate_environment(draft: Draft, *, atari: bool) -> None:
    """Translate KEYS. atari: whether the environment is a game of ale_py. Raises ConfigError for invalid values."""
    wrappers: list[Any] = []
    for name, arguments in _wrappers(draft, "env_wrapper"):
        if name.endswith(f".{ATARI_WRAPPER}") and atari:
            _preset(draft, arguments)
        elif (found := _wrapper(draft, name, arguments)) is not None:
            wrappers.append(found)
    if wrappers:
        draft.put("env_wrapper", "env.wrappers", wrappers, "env_wrapper")
    for name, arguments in _wrappers(draft, "vec_env_wrapper"):
        _vector_wrapper(draft, name, arguments)
    if draft.is_given("frame_stack"):
        draft.put("frame_stack", "env.frame_stack", draft.values["frame_stack"])
    if draft.is_given("env_kwargs"):
        if "env.preset" in draft.settings:
            draft.leave("env_kwargs", 'env.options are those of the preset "atari"')
        else:
            draft.put("env_kwargs", "env.options", draft.python("env_kwargs") or {})


def _wrappers(draft: Draft, key: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and arguments of each wrapper: a text, a table {name: arguments}, or an array of these."""
    given = draft.values.get(key)
    for one in given if isinstance(given, list) else [] if given is None else [given]:
        pairs = [(one, None)] if isinstance(one, str) else [*one.items()] if isinstance(one, dict) else []
        if len(pairs) != 1 or not isinstance(pairs[0][0], str) or not isinstance(pairs[0][1], dict | None):
            raise draft.refused(key, "expected `package.module.Class`, or a table of it and its arguments")
        yield pairs[0][0], {str(name): value for name, value in (pairs[0][1] or {}).items()}


def _preset(draft: Draft, arguments: dict[str, Any]) -> None:
    """Set the preset "atari", and its options that AtariWrapper has."""
    options = dict(USUAL_ATARI)
    for name, value in arguments.items():
        if (option := names()["atari"].get(name)) is None:
            draft.leave("env_wrapper", 'the preset "atari" has no option like it', f"{ATARI_WRAPPER}, {name}")
        else:
            options[option] = value
    draft.put("env_wrapper", "env.preset", "atari", f"env_wrapper: {ATARI_WRAPPER}")
    draft.put("env_wrapper", "env.options", options, f"those of {ATARI_WRAPPER}")


def _wrapper(draft: Draft, full: str, arguments: dict[str, Any]) -> Any:
    """Return the wrapper as env.wrappers has it; None if it is left out, with a note."""
    module, _, name = full.rpartition(".")
    root = module.partition(".")[0]
    root = names()["packages"].get(root, root)
    called = {key: value for key, value in names()["wrappers"].get(name, {}).items() if key != "name"}
    arguments = {called.get(key, key): value for key, value in arguments.items()}
    if (instead := names()["wrapper_instead"].get(name)) is not None:
        draft.leave("env_wrapper", instead, name)
        return None
    if name in names()["wrappers"]:
        found = names()["wrappers"][name]["name"]
    elif root == GYMNASIUM:
        found = name
    elif not root.isidentifier() or importlib.util.find_spec(root) is None:
        draft.leave("env_wrapper", f"the package `{printable(root or full, 40)}` is not installed", name)
        return None
    else:
        found = f"{'.'.join([root, *module.split('.')[1:]])}:{name}"
    return {"name": found, **arguments} if arguments else found


def _vector_wrapper(draft: Draft, full: str, arguments: dict[str, Any]) -> None:
    """Translate a wrapper of a whole vector of environments, or leave a note."""
    name = full.rpartition(".")[2]
    if name == "VecFrameStack" and arguments.keys() == {"n_stack"}:
        draft.put("vec_env_wrapper", "env.frame_stack", arguments["n_stack"])
    elif name == "VecNormalize":
        draft.values["normalize"] = arguments or True
    elif name != "VecMonitor":
        draft.leave("vec_env_wrapper", "hive has no wrappers of whole vectors; env.wrappers wrap each", name)
