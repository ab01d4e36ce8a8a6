"""Turns what a Python program gives into a config: a scheme or a config, keywords, classes and functions.

    hive.train("ppo", env=Coin, steps=100_000, collection={"workers": 2})

Keywords are names of keys, of tables with a mapping, or dotted names. Classes and functions may stand wherever a config
has a reference "module:Name". Those of installed packages become that reference; all others are kept as `session.py`
in the run's directory (hive.session), so that the run can be resumed and evaluated without the program.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import json
import os
import re
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hive.config import SCHEMES, Config, is_reference, render
from hive.config.algorithms import ALGORITHMS
from hive.config.keys import keys_of
from hive.config.other_names import homes_of, is_key, note_on, way_of
from hive.config.policies import POLICIES
from hive.config.schema import CUSTOM, SECTIONS
from hive.config.syntax import parse, read
from hive.config.values import closest, toml_key, toml_setting, toml_text
from hive.errors import ConfigError, UsageError
from hive.paths import SESSION_FILE
from hive.records import Summary
from hive.runtime.process.user_code.code_of_run import is_installed
from hive.session import SessionModule

Given = str | os.PathLike[str] | Config | Mapping[str, Any] | None

REFERENCES = {
    "env.id": "env",
    "evaluation.env.id": "evaluation_env",
    "network.module": "network",
    "network.extractor": "extractor",
    "network.policy_head": "policy_head",
    "network.value_head": "value_head",
    "algorithm.name": "algorithm",
    "run.update_hook": "update_hook",
    "run.setup": "setup",
    "run.topology": "topology",
    "run.scheme": "scheme",
}
"""Key that takes a reference -> the name in `session.py` of an object without a name, such as a lambda."""

LISTS = {
    "env.wrappers": "wrapper",
    "evaluation.env.wrappers": "wrapper",
    "record.sinks": "sink",
    "run.callbacks": "callback",
}
"""Key with an array of references, or of tables with a `name` that is one -> the name as above."""

PROCESSES, SETUP = "env.processes", "run.setup"
ARGUMENTS = 'those of an environment\'s constructor are env={"id": MyEnv, "options": {"size": 3}}'

_inline = itertools.count(1)


@dataclass
class GivenConfig:
    """A config as the command line takes it: a file or a text, overrides, and the source of `session.py`."""

    file: Path | None
    text: str
    overrides: list[str]
    source: str | None

    @classmethod
    def of(cls, given: Given, keywords: Mapping[str, Any], *, inline: bool, sets: Sequence[str] = ()) -> GivenConfig:
        """Make the config of what a call gives.

        inline: objects stay in this process, and need no source, except those that processes of environments import.
        sets: further overrides, as for `--set`. Raises ConfigError for keywords that name no key or
        several, and for values that a config cannot hold; UsageError for objects that cannot be sent.
        """
        file, tables = _opened(given)
        flat = _keys(keywords)
        if file is None and not isinstance(given, Config):
            for name, value in flat.items():
                _put(tables, name.split("."), value)
            flat = {}
        apart = inline and _has_processes(given if isinstance(given, Config) else file, tables, flat, sets)
        source = _replaced(tables, flat, inline, ("env", "evaluation") if apart else ())
        text = render(given) if isinstance(given, Config) else toml_of(tables)
        overrides = [*(f"{name}={toml_setting(name, _plain(value))}" for name, value in flat.items()), *sets]
        return cls(file, text, overrides, source)


VERSIONED = re.compile(r"-v\d+$")  # how names of environments of Gymnasium end


def _opened(given: Given) -> tuple[Path | None, dict[str, Any]]:
    """Return the file of a config, or its tables."""
    if given is None or isinstance(given, Config):
        return None, {}
    if isinstance(given, Mapping):
        return None, _copied(given)
    other: object = given  # as programs without types may give it
    if not isinstance(other, str | os.PathLike):
        what = f"`{_shown(other)}`" if isinstance(other, type) else f"an object of type {type(other).__name__}"
        raise UsageError(f"{what} is neither a config file nor a scheme", hint=meant_call([other]))
    text = os.fspath(given)
    if isinstance(given, str) and (given in SCHEMES or is_reference(given)) and not Path(given).is_file():
        return None, {"run": {"scheme": given}}
    if isinstance(given, os.PathLike) or text.endswith(".toml") or Path(text).exists():
        return Path(text), {}
    close = closest(text.lower(), SCHEMES)
    hint = f"did you mean `{close}`?" if close else f"the schemes are {', '.join(SCHEMES)}"
    if VERSIONED.search(text):
        hint = f"an environment has a keyword of its own: {meant_call([text])}"
    if text.endswith("Policy"):
        hint = f"{way_of('hive', 'MlpPolicy')}; the first argument is the algorithm: {meant_call([])}"
    raise UsageError(f"`{text}` is neither a config file nor a scheme", hint=hint)


def meant_call(values: Sequence[object]) -> str:
    """Return the call of hive.train that positional arguments seem to mean, such as those of other trainers."""
    texts = [one for one in values if isinstance(one, str)]
    scheme = next((one.lower() for one in texts if one.lower() in SCHEMES), "ppo")
    config = next((one for one in texts if one.endswith(".toml")), scheme)
    environments = [one for one in values if isinstance(one, type) or callable(one) or hasattr(one, "step")]
    environments += [one for one in texts if VERSIONED.search(one) or is_reference(one)]
    steps = [f"steps={one:_}" for one in values if type(one) is int]
    env = [] if not environments and config.endswith(".toml") else [f"env={_shown(next(iter(environments), ...))}"]
    return f"hive.train({', '.join([_shown(config), *env, *steps[:1]])})"


def _shown(value: object) -> str:
    """Return a class, function, environment or text as a call names it."""
    if (spec := getattr(value, "spec", None)) is not None and not isinstance(value, type):
        value = str(getattr(spec, "id", spec))
    if isinstance(value, str):
        return json.dumps(value)
    name = str(getattr(value, "__name__", type(value).__name__))
    return name if name.isidentifier() and value is not ... else "..."


def _keys(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the full name of each key that the keywords name, and its value. Raises ConfigError with all problems."""
    found: dict[str, Any] = {}
    problems: list[str] = []
    for keyword, value in keywords.items():
        if keyword == "env" and not isinstance(value, Mapping):
            found["env.id"] = value
        elif keyword in (*SECTIONS, POLICIES, CUSTOM) and isinstance(value, Mapping):
            found |= {f"{keyword}.{toml_key(str(name))}": one for name, one in value.items()}
        elif "." in keyword:
            found[keyword] = value
        elif len(homes := homes_of(keyword)) == 1:
            found[homes[0]] = value
        else:
            problems.append(f"{keyword}: {_problem(keyword, homes)}")
    if problems:
        unknown = any(one.endswith(ARGUMENTS) for one in problems)
        raise ConfigError("\n".join(problems), hint="`hive config FILE` lists every key" if unknown else "")
    return found


def _problem(keyword: str, homes: list[str]) -> str:
    if homes:
        section, _, name = homes[0].partition(".")
        listed = ", ".join(f"`{home}`" for home in homes)
        own = f'{{"id": ..., "{name}": ...}}' if section == "env" else f'{{"{name}": ...}}'
        return f"several keys have this name: {listed}; give {section}={own}"
    if keyword in SECTIONS:
        return "the name of a table; give a mapping of its keys"
    names = {name for table in (*SECTIONS.values(), *ALGORITHMS.values()) for name in keys_of(table)}
    close = closest(keyword, names)
    return "no key has this name; " + (note_on(keyword) or (f"did you mean `{close}`?" if close else ARGUMENTS))


def _has_processes(
    config: Config | Path | None, tables: Mapping[str, Any], flat: Mapping[str, Any], sets: Sequence[str]
) -> bool:
    """Whether environments have processes of their own (env.processes), which import their classes."""
    if isinstance(config, Path):
        with contextlib.suppress(ConfigError):  # the check of the config names its problems
            tables = parse(read(config, str(config)), str(config))[0]
    named = config.env.processes if isinstance(config, Config) else _get(tables, PROCESSES)
    for name, value in [(PROCESSES, named), *flat.items(), *(tuple(one.split("=", 1)) for one in sets if "=" in one)]:
        if name.strip() == PROCESSES and value is not None:
            named = value
    return str(named).strip(" \"'") not in ("0", "None")


def _replaced(tables: dict[str, Any], flat: dict[str, Any], inline: bool, apart: Sequence[str] = ()) -> str | None:
    """Replace objects by references to them; return the source of `session.py`, None without one.

    inline: objects stay in this process, except those of the tables `apart`, which other processes import.
    """
    for name in (*REFERENCES, *LISTS):
        section, _, rest = name.partition(".")
        if rest and isinstance(tables.get(section), Mapping) and (value := _get(tables, name)) is not None:
            flat.setdefault(name, value)
    for section, table in tables.items():
        for name, value in table.items() if isinstance(table, Mapping) else ():
            if callable(value):
                flat.setdefault(f"{section}.{name}", value)
    own = [name for name in flat if _get(tables, name) is not None]
    sender = _Sender()
    here: _Sender = _Inline() if inline else sender
    replaced = {
        name: _sent(name, value, sender if name.partition(".")[0] in apart or (apart and name == SETUP) else here)
        for name, value in flat.items()
    }
    for name in own:
        _put(tables, name.split("."), replaced.pop(name))
    flat.clear()
    flat |= replaced
    return sender.source()


def _sent(name: str, value: Any, sender: _Sender) -> Any:
    """Return the value of a key with references in place of objects."""
    if name in LISTS and isinstance(value, list | tuple):
        return [_sent_item(name, one, sender) for one in value]
    if name in REFERENCES:
        return _sent_one(name, REFERENCES[name], value, sender)
    if isinstance(value, types.FunctionType | functools.partial | type):
        section, _, key = name.partition(".")
        known = [keys_of(table)[key] for table in (SECTIONS.get(section), *ALGORITHMS.values()) if _has(table, key)]
        expected = f": expected {known[0].expected()}" if known else ""
        hint = "" if known else note_on(key)
        if is_key(schedule := f"{name}_schedule"):
            start = known[0].default or 0.01
            points = toml_text([[0, start], [200_000, start / 10]])
            hint = (
                f"{schedule} = {points} changes it by points [environment steps, value] during the run; "
                f'"linear" and "cosine" decrease it to 0'
            )
        raise ConfigError(f"{name} takes no class or function{expected}", hint=hint)
    return value


def _sent_item(name: str, value: Any, sender: _Sender) -> Any:
    """Return an item of a list with a reference in place of an object, which may be the name in a table."""
    if not isinstance(value, Mapping):
        return _sent_one(name, LISTS[name], value, sender)
    if "name" not in value:
        return value  # the check of the config refuses it
    return {**value, "name": _sent_one(f"{name}.name", LISTS[name], value["name"], sender)}


def _has(table: type | None, key: str) -> bool:
    return table is not None and key in keys_of(table)


def _sent_one(name: str, wish: str, value: Any, sender: _Sender) -> Any:
    is_env = name.endswith("env.id")
    if isinstance(value, str):
        if is_env:
            _check_name(value)
        return sender.registered(value) if is_env else value
    if is_env and hasattr(value, "entry_point") and isinstance(getattr(value, "id", None), str):
        return sender.registered(value.id)  # a gymnasium.EnvSpec
    if is_env:
        _check_environment(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    return sender.reference(value, _made_by(value) if is_env else wish)


def _check_name(text: str) -> None:
    """Raise UsageError for the name of a class of the program, which the processes of a run cannot find by it."""
    name = text.removeprefix("__main__:")
    value = vars(sys.modules["__main__"]).get(name)
    if name.isidentifier() and (isinstance(value, type) or (text != name and callable(value))):
        raise UsageError(
            f"`{text}` is the name of a class or function of this program, which other processes do not find",
            hint=f"give it without quotes: env={name}",
        )


def _check_environment(value: Any) -> None:
    """Raise UsageError for an environment that exists already, and for a list of them."""
    if hasattr(value, "step") and not isinstance(value, type):
        spec = getattr(value, "spec", None)
        known = f'give its name: env="{spec.id}"' if spec is not None else "give the class, or a function that makes it"
        raise UsageError(
            "`env` is an environment that exists already; hive makes its own, in several processes", hint=known
        )
    if isinstance(value, list | tuple):
        raise UsageError("`env` is a list", hint="give one class or function; collection.envs is their number")


def _made_by(value: Any) -> str:
    """Return the name for a lambda or a partial of an environment: that of the class that it calls, in lower case."""
    if isinstance(value, functools.partial):
        return str(getattr(value.func, "__name__", "env")).lower()
    names = getattr(getattr(value, "__code__", None), "co_names", ())
    found = [name for name in names if isinstance(getattr(value, "__globals__", {}).get(name), type)]
    return found[0].lower() if found else "env"


class _Sender:
    """Gives objects references by which other processes import them."""

    def __init__(self) -> None:
        self.module = SessionModule()
        self.used = False

    def reference(self, value: Any, wish: str) -> str:
        """Return the reference of a class or function. Raises UsageError if it cannot be sent."""
        return _importable(value) or self._in_session(value, wish)

    def registered(self, id: str) -> str:
        """Return the reference of an environment that this program registered in Gymnasium; others stay as they are."""
        if not self.module.register(id):
            return id
        self.used = True
        return f"{SESSION_FILE}:{id}"

    def source(self) -> str | None:
        """Return the source of `session.py`; None if nothing needs it."""
        return self.module.text() if self.used else None

    def _in_session(self, value: Any, wish: str) -> str:
        self.used = True
        return f"{SESSION_FILE}:{self.module.add(value, wish)}"


class _Inline(_Sender):
    """Keeps objects in a module of this process, where breakpoints work."""

    def __init__(self) -> None:
        super().__init__()
        self.home = types.ModuleType(f"inline_{next(_inline)}")

    def reference(self, value: Any, wish: str) -> str:
        name = str(getattr(value, "__name__", wish))  # that of a class, which errors then have
        name = name if name.isidentifier() else wish
        while hasattr(self.home, name):
            name += "_"
        sys.modules[self.home.__name__] = self.home
        setattr(self.home, name, value)
        return f"{self.home.__name__}:{name}"

    def registered(self, id: str) -> str:
        return id


def _importable(value: Any) -> str:
    """Return the reference of an object of an installed module; "" for all others."""
    name, place = str(getattr(value, "__qualname__", "")), str(getattr(value, "__module__", ""))
    module = sys.modules.get(place)
    if module is None or place == "__main__" or not name.isidentifier() or getattr(module, name, None) is not value:
        return ""
    return f"{place}:{name}" if is_installed(module) else ""


def _copied(tables: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copied(value) if isinstance(value, Mapping) else copy.copy(value) for key, value in tables.items()}


def _get(tables: Mapping[str, Any], name: str) -> Any:
    """Return the value of a dotted name; None without one."""
    found: Any = tables
    for step in name.split("."):
        found = found.get(step) if isinstance(found, Mapping) else None
    return found


def _put(tables: dict[str, Any], path: list[str], value: Any) -> None:
    for step in path[:-1]:
        inner = tables.get(step)
        tables[step] = inner if isinstance(inner, dict) else {}
        tables = tables[step]
    tables[path[-1]] = value


def _plain(value: Any) -> Any:
    """Return a value with Python's own numbers and strings in place of NumPy's and of paths."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Summary):
        return str(getattr(value, "directory", value.name))  # a Result, for init_from
    convert: Callable[[], Any] | None = getattr(value, "tolist", None)
    return convert() if convert is not None and getattr(value, "ndim", None) == 0 else value


def toml_of(tables: Mapping[str, Any]) -> str:
    """Return a mapping of tables as TOML, values outside of them first; all are checked when the text is loaded.

    Raises ConfigError for values that TOML cannot hold.
    """
    lines: list[str] = []
    for key, value in sorted(tables.items(), key=lambda item: isinstance(item[1], Mapping)):
        name = toml_key(key)
        if isinstance(value, Mapping):
            plain = {k: v for k, v in value.items() if not isinstance(v, Mapping)}
            lines += [f"[{name}]", *(_line(name, k, v) for k, v in plain.items())]
            inner = {k: v for k, v in value.items() if isinstance(v, Mapping)}
            for k, v in inner.items():
                table = f"{name}.{toml_key(k)}"
                lines += [f"[{table}]", *(_line(table, a, b) for a, b in v.items())]
        else:
            lines.append(f"{name} = {toml_setting(name, _plain(value))}")
    return "\n".join(lines)


def _line(table: str, key: Any, value: Any) -> str:
    """Return one line of a table. Raises ConfigError for a key that is no string, and as `toml_setting`."""
    if not isinstance(key, str):
        toml_setting(table, {key: value})
    return f"{toml_key(key)} = {toml_setting(f'{table}.{toml_key(key)}', _plain(value))}"
