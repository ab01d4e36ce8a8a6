"""Callbacks: classes and functions of users that a run calls at the ends of rounds, episodes and evaluations.

    class Harder:
        def on_evaluation(self, event: hive.EvaluationEvent) -> None:
            if event.mean_return > 400:
                event.env.set("difficulty", 2)

    run.callbacks = ["module:Harder"], or hive.train(..., callbacks=[Harder])

A callback has any of the methods of `Callback`, which it need not derive from. Each method gets one event, whose fields
say what has happened, and whose methods act on the run: `stop`, `log`, `set`, `env.set` and `env.options`. A function
of one argument is called with the event of each round.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hive.config.answers import answers
from hive.config.other_names import way_of
from hive.config.values import closest
from hive.errors import TopologyError, UsageError
from hive.plain_data import is_plain

ATTRIBUTE, OPTION, KEY = "attribute", "option", "key"
"""Kinds of changes: of an attribute of environments, of an option of their constructor, of a key of [algorithm]."""

MOST_LOGGED = 200  # metrics of one event: more are a mistake, such as a name with a number in it
NAME_BYTES = 200  # of the name of a metric, attribute or option


@answers("callback")
class Callback:
    """What a callback may have. Override any of these methods; each is called with one event."""

    def on_round(self, event: RoundEvent) -> None:
        """Follow the end of a round: each collector has made one more rollout, and all updates of it are made."""

    def on_episode(self, event: EpisodeEvent) -> None:
        """Follow the end of one training episode. Called for each episode of a round, before `on_round`."""

    def on_evaluation(self, event: EvaluationEvent) -> None:
        """Follow an evaluation. Training waits for evaluations if a callback has this method."""

    def on_end(self, event: EndEvent) -> None:
        """Follow the end of the run."""


class Following(Callback):
    """A function of one event, which is called at each round. arguments: those beside the event."""

    kept = ()  # its state is its own: a resumed run calls it as it is

    def __init__(self, function: Callable[..., Any], arguments: Mapping[str, Any] | None = None) -> None:
        self.function = function
        self.arguments = dict(arguments or {})
        self.shown = shown_name(function)

    def on_round(self, event: RoundEvent) -> Any:
        """Call the function. A lambda is an expression, whose value means nothing."""
        result = self.function(event, **self.arguments)
        return None if getattr(self.function, "__name__", "") == "<lambda>" else result


HANDLERS = ("on_round", "on_episode", "on_evaluation", "on_end")


@dataclass
class Actions:
    """What a callback has asked for during one event, as plain data."""

    stop: str | None = None
    log: dict[str, float] = field(default_factory=dict)
    changes: list[tuple[str, str, Any]] = field(default_factory=list)  # kind, name, value, in the order of the calls


@dataclass(frozen=True)
class EnvironmentHandle:
    """The environments of a run, as a callback changes them."""

    _actions: Actions

    def set(self, name: str, value: Any) -> None:
        """Give every training environment a value, between two of its episodes.

        name: of an attribute, in whichever wrapper or environment it is; of a method, which is called with the value;
            or of a property. value: numbers, texts, booleans, None, lists, dictionaries, NumPy arrays.

        It stays so in environments that are made later, and in a resumed run. The run fails if an environment has no
        such attribute. Raises UsageError for other values.
        """
        self._change(ATTRIBUTE, name, value)

    def options(self, **options: Any) -> None:
        """Replace all training environments by new ones, with these constructor arguments beside env.options.

        Episodes in progress are cut. Raises UsageError for values as `set` does.
        """
        for name, value in options.items():
            self._change(OPTION, name, value)

    def _change(self, kind: str, name: str, value: Any) -> None:
        _check_name(name, kind)
        if not is_plain(value):
            raise UsageError(
                f"the value of {kind} `{name}` is of type {type(value).__name__}, which other processes cannot get",
                hint="give numbers, texts, lists, dictionaries or NumPy arrays",
            )
        self._actions.changes.append((kind, name, value))


@answers("event")
@dataclass(frozen=True, kw_only=True)
class CallbackEvent:
    """What all events have. Counts are those of the run when the event happens."""

    env_steps: int
    updates: int
    seconds: float  # training time, as in metrics; it differs between runs
    mean_return_100: float  # mean of the last 100 training returns, of fewer if there are fewer; NaN before the first
    number_of_episodes: int = 0  # training episodes so far
    _actions: Actions = field(default_factory=Actions, repr=False, compare=False)

    @property
    def env(self) -> EnvironmentHandle:
        """The training environments, to change them."""
        return EnvironmentHandle(self._actions)

    def stop(self, reason: str) -> None:
        """End the run, which is then finished, for this reason."""
        self._actions.stop = self._actions.stop or str(reason) or "a callback ended it"

    def log(self, values: Mapping[str, float] | None = None, **more: float) -> None:
        """Add numbers to the next line of metrics, by their names. Raises UsageError for what is no number."""
        for name, value in {**(values or {}), **more}.items():
            _check_name(name, "metric")
            try:
                self._actions.log[name] = float(value)
            except (TypeError, ValueError):
                raise UsageError(f"the metric `{name}` is {value!r}, not a number") from None
        if len(self._actions.log) > MOST_LOGGED:
            raise UsageError(f"one event logs more than {MOST_LOGGED} metrics", hint="give metrics constant names")

    def set(self, name: str, value: Any) -> None:
        """Change a key of [algorithm] that can change during a run, as `hive set` does: "algorithm.learning_rate".

        A wrong name or value makes this callback fail.
        """
        _check_name(name, "key")
        if not is_plain(value):
            raise UsageError(f"the value of `{name}` is of type {type(value).__name__}, not a number or text")
        self._actions.changes.append((KEY, name, value))


@dataclass(frozen=True, kw_only=True)
class EpisodeEvent(CallbackEvent):
    """A training episode that has ended."""

    episode_return: float
    length: int  # steps
    environment: int  # its number among all environments of the run
    info: Mapping[str, float] = field(default_factory=dict)  # values of env.info that its last step had


@dataclass(frozen=True, kw_only=True)
class RoundEvent(CallbackEvent):
    """The end of a round."""

    number: int  # rounds so far
    episodes: list[EpisodeEvent] = field(
        default_factory=list
    )  # those that ended in it; [] unless a callback has `on_episode`


@dataclass(frozen=True, kw_only=True)
class EvaluationEvent(CallbackEvent):
    """An evaluation of the newest weights over whole episodes. Its numbers are those of evaluations.jsonl."""

    episodes: int
    mean_return: float
    deviation: float  # population standard deviation of the returns
    min: float
    max: float
    mean_length: float  # steps
    info: Mapping[str, float] = field(default_factory=dict)  # means of env.info
    value: float = float("nan")  # the quantity that evaluation.best_by names; by default the mean return
    is_best: bool = False  # whether it is higher than that of all earlier evaluations, or none can be compared


@dataclass(frozen=True, kw_only=True)
class EndEvent(CallbackEvent):
    """The end of the run."""

    reason: str  # as in summary.json; "" if the run was stopped from outside
    finished: bool  # whether the run has reached its goal


FUNCTION = "a function that is a callback takes one argument, the event: def watch(event), called at each round"

KINDS: dict[str, type[CallbackEvent]] = {
    "round": RoundEvent,
    "evaluation": EvaluationEvent,
    "end": EndEvent,
}
"""Kind of an event that is sent to callbacks -> its class. Episodes are sent with their round."""


def takes_event(target: Any, arguments: Mapping[str, Any] | None = None) -> bool:
    """Whether a function or another callable lacks one argument, the event: it follows rounds, and makes no callback.

    arguments: those that it is given by name.
    """
    return [one.kind is not one.KEYWORD_ONLY for one in _lacking(target, arguments)] == [True]


def _lacking(target: Any, arguments: Mapping[str, Any] | None) -> list[inspect.Parameter]:
    """Return the parameters that a function needs beside `arguments`; none for classes, and objects with handlers."""
    makes = isinstance(target, type) or isinstance(getattr(target, "func", None), type)
    if makes or not callable(target) or any(hasattr(target, name) for name in HANDLERS):
        return []
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):  # some functions in C have none
        return []
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [one for one in parameters if one.default is one.empty and one.kind not in several]
    return [one for one in needed if one.name not in (arguments or {})]


def shown_name(target: object) -> str:
    """Return what errors call an object or function."""
    own = getattr(target, "shown", "") or getattr(target, "__qualname__", "")
    return str(own or type(target).__qualname__)


def handlers_of(target: Any, arguments: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """Return the names of the methods of Callback that a class, a function that makes a callback, or an object has.

    What a function makes is not known: all. A function of an event has the first.
    """
    if takes_event(target, arguments):
        return HANDLERS[:1]
    named = getattr(target, "handlers", None)
    if isinstance(named, list | tuple):
        return tuple(name for name in HANDLERS if name in named)
    cls = target if isinstance(target, type) else type(target)
    if not isinstance(target, type) and callable(target) and not any(hasattr(target, name) for name in HANDLERS):
        return HANDLERS
    return tuple(name for name in HANDLERS if getattr(cls, name, None) not in (None, getattr(Callback, name)))


def check_methods(target: Any, shown: str, arguments: Mapping[str, Any] | None = None) -> None:
    """Raise TopologyError for a callback without any method that is called, or with one that never is.

    arguments: those of a class or function by name.
    """
    cls = target if isinstance(target, type) else type(target)
    if len(lacking := _lacking(target, arguments)) > 1:
        raise TopologyError(f"the callback `{shown}` is a function of {len(lacking)} arguments", hint=FUNCTION)
    if any(inspect.iscoroutinefunction(one) for one in (target, *(getattr(target, name, None) for name in HANDLERS))):
        raise TopologyError(f"the callback `{shown}` is a coroutine function", hint="hive calls it: leave `async` out")
    if not isinstance(target, type) and callable(target):
        return  # what a function makes is checked once it is made
    unknown = [name for name in dir(cls) if name.startswith("on_") and name not in (*HANDLERS, "on_result")]
    if unknown:
        close = closest(unknown[0], HANDLERS)
        way = way_of("method", unknown[0])
        meant = f"use {way}" if way else f"did you mean `{close}`?" if close else ""
        raise TopologyError(
            f"the callback `{shown}` has a method `{unknown[0]}`, which hive never calls",
            hint="; ".join(filter(None, [meant, f"a callback may have {', '.join(HANDLERS)}"])),
        )
    if not handlers_of(target):
        others = [f"in place of `{name}` use {way}" for name in dir(cls) if (way := way_of("method", name))]
        raise TopologyError(
            f"the callback `{shown}` has none of the methods of a callback",
            hint=FUNCTION if target is None else "; ".join([*others[:1], f"define {', '.join(HANDLERS)}"]),
        )


def event_of(kind: str, data: Mapping[str, Any], actions: Actions) -> CallbackEvent:
    """Return the event that `data` describes; unknown names are ignored."""
    cls = KINDS[kind]
    names = {one.name for one in dataclasses.fields(cls)} - {"_actions", "episodes" if kind == "round" else ""}
    return cls(**{name: value for name, value in data.items() if name in names}, _actions=actions)


def _check_name(name: object, what: str) -> None:
    if not (isinstance(name, str) and name and name.isprintable() and len(name.encode()) <= NAME_BYTES):
        raise UsageError(f"{name!r} is no name of a {what}", hint=f"printable text of at most {NAME_BYTES} bytes")
