"""Finds wrappers that keep a running mean of observations or rewards inside of an environment.

Such a mean differs between the environments of a run, and no checkpoint has it: evaluations and a loaded policy start
with another one, so the policy then sees other numbers than in training. The wrappers are found by what they have, not
by their names: an object with a mean and a variance that change while the environment is played.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from hive.envs.spaces.masked_space import unused_mask

SPREADS = ("var", "std", "variance", "deviation", "S")
"""Ends of the names of what stands beside a running mean; `S` is Welford's sum of squares."""

KEYS = {"observations": "network.normalize_observations", "rewards": "network.normalize_rewards"}
"""What is normalized -> the key that does it with statistics that belong to the policy."""

WORDS = {"observations": ("obs", "state"), "rewards": ("rew", "ret")}
MOST_LAYERS = 100  # wrappers around one environment: more is a circle


class RunningStatistics(NamedTuple):
    """A running mean: the class of the layer that keeps it, and what it is of: "observations", "rewards" or ""."""

    layer: str
    of: str


class Watched:
    """The running means of a vector's environments at one time, to find those that change."""

    def __init__(self, vector: Any) -> None:
        self._vector = vector
        self._environments: Sequence[Any] = getattr(vector, "environments", ())  # compiled and custom ones have none
        self._before = self._means()

    @property
    def unused_mask(self) -> tuple[str, str] | None:
        """Why an action mask of a single environment forbids nothing, and what to do; None if there is none."""
        observation, action = (getattr(self._vector, name, None) for name in ("observation", "action"))
        if observation is None or action is None:
            return None
        return unused_mask(observation, action, in_info=bool(getattr(self._vector, "mask_in_info", False)))

    def changed(self) -> list[RunningStatistics]:
        """Return the running means that have changed since, one for each class and kind of value."""
        now = self._means()
        return [*dict.fromkeys(found for (_, found), mean in now.items() if self._before.get((_, found)) != mean)]

    def _means(self) -> dict[tuple[str, RunningStatistics], bytes]:
        """Return every mean by its place: (number of the environment, layer and attribute; whose it is)."""
        found = {}
        for number, environment in enumerate(self._environments):
            for depth, layer in enumerate(_layers(environment)):
                for name, mean in _means_of(layer):
                    owner = RunningStatistics(type(layer).__name__, _kind(name, type(layer).__name__))
                    found[f"{number} {depth} {name}", owner] = mean
        return found


def _layers(environment: Any) -> Iterator[Any]:
    """Yield the wrappers of an environment from outside, and then the environment itself."""
    for _ in range(MOST_LAYERS):
        yield environment
        environment = getattr(environment, "__dict__", {}).get("env")
        if environment is None:
            return


def _means_of(layer: Any) -> Iterator[tuple[str, bytes]]:
    """Yield (attribute, mean) of the running means of one layer."""
    import gymnasium

    attributes = dict(getattr(layer, "__dict__", {}))
    for name, value in attributes.items():
        named = value.items() if isinstance(value, Mapping) else [("", value)]
        for part, one in named:
            if name != "env" and hasattr(one, "__dict__") and (mean := _mean_of(one)) is not None:
                yield f"{name} {part}", mean
    if isinstance(layer, gymnasium.Wrapper | gymnasium.vector.VectorWrapper):  # arrays of its own: `running_mean`
        for name in attributes:
            prefix = name.removesuffix("mean")
            beside = prefix != name and any(prefix + spread in attributes for spread in SPREADS)
            if beside and (mean := _number(attributes[name])) is not None:
                yield name, mean


def _mean_of(value: Any) -> bytes | None:
    """Return the mean of an object that has a mean and a spread which are numbers; None for any other."""
    for name in ("mean", "running_mean", "_mean", "M", "_M"):
        prefix = "running_" if name.startswith("running_") else ""
        if _has(value, name) and any(_has(value, prefix + spread) or _has(value, "_" + spread) for spread in SPREADS):
            return _number(getattr(value, name, None))
    return None


def _has(value: Any, name: str) -> bool:
    """Whether an object has an attribute that is no method, without running code of a property."""
    found = inspect.getattr_static(value, name, None)
    return found is not None and (isinstance(found, property) or not callable(found))


def _number(value: Any) -> bytes | None:
    """Return the bytes of a number or an array of numbers; None for any other value."""
    try:
        array = np.asarray(value)
    except Exception:  # the `__array__` of any class
        return None
    return array.tobytes() if array.dtype.kind in "iuf" else None


def _kind(attribute: str, layer: str) -> str:
    """Return what a mean is of, by the name of its attribute or of its class; "" if neither says it."""
    for text in (attribute.lower(), layer.lower()):
        for kind, words in WORDS.items():
            if any(word in text for word in words):
                return kind
    return ""
