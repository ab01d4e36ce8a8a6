"""Rules for the fields of parameter classes, checked at every assignment.

    class NetworkParameters(CheckedFields):
        RULES = {"batch_size": FieldRule.whole(1), "clip_gradients": FieldRule.number(0).or_none()}
        ...

    parameters.batch_size = 0      NetworkError: batch_size = 0 is not a whole number >= 1

The constructor of a dataclass assigns its fields, so its arguments are checked too. Lists and dictionaries can change
without an assignment, so `build_network` calls `check_fields`, which checks all fields again.
"""

from __future__ import annotations

import math
import numbers
import reprlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from hive.errors import NetworkError


@dataclass(frozen=True, slots=True)
class FieldRule:
    """The valid values of a field.

    expected: returns their description, which completes "is not ..."; called only for an error, because the valid
        names can change. accepts: whether a value is valid. convert: returns the value to store.
    """

    expected: Callable[[], str]
    accepts: Callable[[Any], bool]
    convert: Callable[[Any], Any] = lambda value: value

    def checked(self, owner: str, name: str, value: Any) -> Any:
        """Return the value to store. Raises NetworkError, which names the field, the value and the valid ones."""
        if not self.accepts(value):
            hint = f"it is a field of {owner}"
            raise NetworkError(f"{name} = {reprlib.repr(value)} is not {self.expected()}", hint=hint)
        return self.convert(value)

    def or_none(self) -> FieldRule:
        """Return a rule that accepts None too."""
        return FieldRule(
            lambda: f"{self.expected()} or None", lambda value: value is None or self.accepts(value), self.convert
        )

    @staticmethod
    def number(minimum: float = -math.inf, *, above: float = -math.inf, below: float = math.inf) -> FieldRule:
        """Accept a finite number of Python or NumPy with minimum <= value, above < value < below; no booleans."""
        bounds = {f" >= {minimum:g}": minimum, f" > {above:g}": above, f" < {below:g}": below}
        limits = " and".join(limit for limit, bound in bounds.items() if math.isfinite(bound))

        def accepts(value: Any) -> bool:
            finite = _is_number(value, numbers.Real) and math.isfinite(value)
            return finite and minimum <= value and above < value < below

        return FieldRule(lambda: f"a finite number{limits}", accepts)

    @staticmethod
    def whole(minimum: int) -> FieldRule:
        """Accept a whole number of Python or NumPy of at least `minimum`; no booleans."""
        return FieldRule(lambda: f"a whole number >= {minimum}", lambda value: _is_whole(value, minimum))

    @staticmethod
    def widths() -> FieldRule:
        """Accept a sequence of layer widths, whole numbers of at least 1."""

        def accepts(value: Any) -> bool:
            is_list = isinstance(value, Sequence) and not isinstance(value, str | bytes)
            return is_list and all(_is_whole(width, 1) for width in value)

        return FieldRule(lambda: "a list of whole numbers >= 1", accepts)

    @staticmethod
    def flag() -> FieldRule:
        return FieldRule(lambda: "True or False", lambda value: isinstance(value, bool | np.bool_))

    @staticmethod
    def name() -> FieldRule:
        return FieldRule(lambda: "a name", lambda value: isinstance(value, str) and value != "")

    @staticmethod
    def names() -> FieldRule:
        """Accept a list of names."""
        return FieldRule(
            lambda: "a list of names",
            lambda value: isinstance(value, list | tuple) and all(isinstance(one, str) and one for one in value),
        )

    @staticmethod
    def choice(names: Collection[str], *, any_case: bool = False) -> FieldRule:
        """Accept one of `names`, a live collection: names added later are valid. any_case: ignore upper case."""

        def accepts(value: Any) -> bool:
            known = [name.lower() for name in names] if any_case else names
            return isinstance(value, str) and (value.lower() if any_case else value) in known

        return FieldRule(lambda: f"one of {', '.join(names)}", accepts)

    @staticmethod
    def member(kind: type[Enum]) -> FieldRule:
        """Accept a member of an enumeration, or its name, which is converted to the member."""
        return FieldRule(
            lambda: f"one of {', '.join(kind.__members__)}",
            lambda value: isinstance(value, kind) or (isinstance(value, str) and value in kind.__members__),
            lambda value: kind[value] if isinstance(value, str) else value,
        )

    @staticmethod
    def function() -> FieldRule:
        return FieldRule(lambda: "a class or a function", callable)

    @staticmethod
    def having(attribute: str) -> FieldRule:
        return FieldRule(lambda: f"an object with `{attribute}`", lambda value: hasattr(value, attribute))

    @staticmethod
    def part(kind: type) -> FieldRule:
        return FieldRule(lambda: f"a {kind.__name__}", lambda value: isinstance(value, kind))

    @staticmethod
    def parts(kind: type) -> FieldRule:
        return FieldRule(
            lambda: f"a list of {kind.__name__}",
            lambda value: isinstance(value, list | tuple) and all(isinstance(part, kind) for part in value),
        )

    @staticmethod
    def named_parts(kind: type) -> FieldRule:
        return FieldRule(
            lambda: f"a dictionary from names to {kind.__name__}",
            lambda value: (
                isinstance(value, Mapping)
                and all(isinstance(name, str | tuple) and isinstance(part, kind) for name, part in value.items())
            ),
        )


FieldRules: TypeAlias = Mapping[str, FieldRule]


class CheckedFields:
    """A class whose fields are checked by `RULES`, field name -> rule. A field without a rule takes any value.

    Assigning an invalid value raises NetworkError.
    """

    __slots__ = ()
    RULES: ClassVar[FieldRules] = {}

    if not TYPE_CHECKING:  # a type checker that sees __setattr__ accepts every misspelt attribute

        def __setattr__(self, name: str, value: Any) -> None:
            rule = self.RULES.get(name)
            object.__setattr__(self, name, value if rule is None else rule.checked(type(self).__name__, name, value))

    def check_fields(self) -> None:
        """Check every field again. Raises NetworkError for the first invalid value."""
        for name in self.RULES:
            setattr(self, name, getattr(self, name))


def _is_number(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _is_whole(value: Any, minimum: int) -> bool:
    return _is_number(value, numbers.Integral) and int(value) >= minimum
