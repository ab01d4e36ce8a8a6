"""What a translation has so far: settings of hive, and notes on what is not, or not exactly, translated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hive.config.algorithms import ALGORITHMS
from hive.config.keys import Key, keys_of
from hive.config.rules import IDLE
from hive.config.schema import SECTIONS
from hive.config.schemes import SCHEMES
from hive.config.templates import Setting
from hive.config.values import shown
from hive.config.zoo.entries import DEFAULT, RECURRENT, ZooEntry, names
from hive.config.zoo.python_values import values_in
from hive.errors import ConfigError
from hive.printable import printable

VALUE_LENGTH = 60  # maximum characters of a value of the file in a comment
USUAL = "Stable-Baselines3's default"


@dataclass(frozen=True)
class Note:
    """A key of the file, as `key: value`, that has no translation, or one that differs. text: what hive does."""

    what: str
    text: str
    translated: bool

    def __str__(self) -> str:
        return f"{'differs' if self.translated else 'not translated'}: {self.what} - {self.text}"


@dataclass(frozen=True)
class Actions:
    """The actions of the environment. elements: of a box, 0 for others; unit: whether its bounds are -1 and 1."""

    elements: int
    unit: bool


class Draft:
    """The translation of `entry` so far. `values`: its keys, over the defaults that names.toml has.

    `recurrent`: whether the policy has an LSTM. `images`: whether it sees images. `box`: whether actions are numbers,
    once that is known. `options`: the keys of policy_kwargs that the file has.
    """

    def __init__(self, entry: ZooEntry) -> None:
        self.entry, self.recurrent = entry, entry.kind == RECURRENT
        self.scheme = entry.scheme
        self.algorithm = str(SCHEMES[entry.scheme].defaults.get("algorithm.name", "a2c"))
        self.values: dict[str, Any] = {**names()["defaults"][entry.kind], **entry.values}
        self.settings: dict[str, Setting] = {}
        self.notes: list[Note] = []
        if entry.name == DEFAULT:
            near = f"; near ones are {', '.join(entry.near)}" if entry.near else ""
            what = printable(f"{entry.file} has none of `{entry.env_id}`{near}")
            self.notes.append(Note(f"the entry `{DEFAULT}` is used", what, translated=True))
        self.box = False
        self.options: set[str] = set()
        self.images = str(self.values.get("policy", "")).startswith("Cnn")

    def put(self, key: str, name: str, value: Any, given: str = "") -> None:
        """Set the key `name` of hive, for `key` of the file; or leave a note if this algorithm has no such key.

        given: what the comment shows in place of `key: value`. Raises ConfigError for a value that it cannot have.
        """
        declared = self._declared(name)
        if declared is None:
            self.leave(key, f"{self.algorithm} has no {name}")
            return
        if declared.kind in (int, float) and not declared.is_array:
            value = self.plain_number(key, value)
            value = int(value) if declared.kind is int and value == int(value) else value
            value = float(value) if declared.kind is float else value
        if declared.fault(value) is not None:
            raise self.refused(key, f"{name} is {declared.expected()}")
        where = given or self.shown(key)
        self.settings[name] = Setting(name, value, where if self.is_given(key) else USUAL, written=self.is_given(key))

    def add(self, name: str, value: Any, reason: str) -> None:
        """Set a key of hive that no key of the file has, and note it."""
        self.settings[name] = Setting(name, value, reason)
        self.notes.append(Note(f"{name}, which is added", reason, translated=True))

    def usual(self, values: Mapping[str, Any]) -> None:
        """Set keys of hive that nothing else has set, to defaults of Stable-Baselines3."""
        for name, value in values.items():
            if name not in self.settings and self._declared(name) is not None:
                self.settings[name] = Setting(name, value, USUAL)

    def drop_idle(self) -> None:
        """Leave keys out that have no effect beside the others, which a config of hive may not have."""
        for idle in IDLE:
            values = [self._value(other) for other in idle.others]
            if idle.name not in self.settings or not (text := idle.breach(*values)):
                continue
            others = (f"{other} = {shown(value)}" for other, value in zip(idle.others, values, strict=True))
            setting = self.settings.pop(idle.name)
            if setting.written:
                self.notes.append(Note(setting.reason, text.format(*others), translated=False))

    def _value(self, name: str) -> Any:
        """Return the value that a key of hive has so far; None if this algorithm has none."""
        if name in self.settings:
            return self.settings[name].value
        declared = self._declared(name)
        return self.algorithm if name == "algorithm.name" else None if declared is None else declared.default

    def leave(self, key: str, text: str, part: str = "") -> None:
        """Note that `key` has no translation. part: only this part of its value."""
        if self.is_given(key):
            what = printable(f"{key}: {part}", VALUE_LENGTH) if part else self.shown(key)
            self.notes.append(Note(what, text, translated=False))

    def differs(self, key: str, text: str) -> None:
        """Note that the translation of `key` differs."""
        if self.is_given(key):
            self.notes.append(Note(self.shown(key), text, translated=True))

    def is_given(self, key: str) -> bool:
        """Whether the file has a key, such as `gamma` or `policy_kwargs.net_arch`."""
        return key in self.entry.values or key in self.options

    def number(self, key: str) -> float:
        """Return the number that a key has. Raises ConfigError for another value."""
        return self.plain_number(key, self.values.get(key))

    def count(self, key: str) -> int:
        """Return the whole number of at least 1 that a key has. Raises ConfigError for another value."""
        number = self.number(key)
        if number < 1 or number != int(number):
            raise self.refused(key, "expected a whole number >= 1")
        return int(number)

    def plain_number(self, key: str, value: Any) -> float:
        """Return a number; YAML reads `3e-4`, without a point, as a text. Raises ConfigError for `key`."""
        try:
            if isinstance(value, str | int | float) and not isinstance(value, bool):
                number = float(value)
                if math.isfinite(number):
                    return number
        except (ValueError, OverflowError):
            pass
        raise self.refused(key, "expected a number")

    def python(self, key: str) -> Any:
        """Return the value of a key that may be written as a text of Python. Raises ConfigError for other code."""
        value = self.values.get(key)
        try:
            return values_in(value) if isinstance(value, str) else value
        except ValueError as error:
            raise self.refused(key, str(error)) from None

    def refused(self, key: str, text: str) -> ConfigError:
        """Return the error for a key with an invalid value."""
        return ConfigError(f"`{self.entry.file}`, entry `{self.entry.name}`: {self.shown(key)}: {text}")

    def shown(self, key: str) -> str:
        """Return `key: value` as in the file, on one line."""
        outer, _, inner = (key, "", "") if key in self.values else key.partition(".")
        value = self.values.get(outer)
        value = value.get(inner) if inner and isinstance(value, dict) else value
        text = str(value) if isinstance(value, dict | list) else shown(value).strip('"')
        return printable(f"{printable(key, VALUE_LENGTH)}: {printable(text, VALUE_LENGTH)}")

    def _declared(self, name: str) -> Key | None:
        section, _, key = name.partition(".")
        table = ALGORITHMS[self.algorithm] if section == "algorithm" else SECTIONS[section]
        return keys_of(table).get(key)
