"""What calls of hive from Python have in common: brief tracebacks, and an answer to calls of other trainers' form."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar, cast

from hive.errors import BriefErrors, UsageError

P = ParamSpec("P")
T = TypeVar("T")


def by_name(count: int, meant: Callable[[Sequence[object]], str]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Make a function raise UsageError for more than `count` arguments without names, and its errors brief.

    meant: returns the call that these arguments mean.
    """

    def decorated(function: Callable[P, T]) -> Callable[P, T]:
        method = "." in function.__qualname__
        name = function.__qualname__.lower() if method else f"hive.{function.__qualname__}"

        def check(given: Sequence[object], named: Mapping[str, object]) -> None:
            if twice := [one for one in list(inspect.signature(function).parameters)[: len(given)] if one in named]:
                hint = f"`{twice[0]}` is the first: keys are arguments of their own, such as learning_rate=3e-4"
                raise UsageError(f"`{name}` got two values of `{twice[0]}`", hint=hint)
            if len(given) > count:
                takes = f"{count - method} argument{'' if count - method == 1 else 's'}"
                what = f"`{name}` takes {takes} without a name, and got {len(given) - method}"
                raise UsageError(what, hint=meant(given))

        @functools.wraps(function)
        def call(*given: P.args, **named: P.kwargs) -> T:
            with BriefErrors(bool(named.get("inline"))):
                check(given, named)
                return function(*given, **named)

        @functools.wraps(function)
        async def call_async(*given: P.args, **named: P.kwargs) -> Any:
            with BriefErrors(bool(named.get("inline"))):
                check(given, named)
                return await cast(Any, function)(*given, **named)

        return cast(Callable[P, T], call_async if inspect.iscoroutinefunction(function) else call)

    return decorated
