"""Converts transitions between the arrays of a file and rows as a replay memory stores them.

    stored_transitions(fields, environment, place)   arrays as the environment has them   -> StoredTransitions
    fields_of(transitions, observation, action)      the inverse

hive.records.transitions has the names of the arrays. Observations and actions of a file are those of the environment
that hive steps, in its units and within its wrappers; with env.frame_stack an observation is a single frame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.declared import LARGEST_BOUND
from hive.envs import ActionSpec, Box, Composite, Discrete, ObservationPart, ObservationSpec, action_converter
from hive.envs.spaces.observation import ArraySpec
from hive.policy.given_observations import GivenObservations
from hive.records.transitions import (
    ACTIONS,
    ENVIRONMENTS,
    EPISODES,
    NEXT,
    OBSERVATIONS,
    REWARDS,
    TERMINATED,
    TRUNCATED,
    Fields,
    parts_of,
    transitions_refused,
)

BEYOND = 1e-4
"""Share of the width of its bounds by which an action may be outside of them: rounding. It is then clipped."""

INTEGERS = "biu"  # kinds of dtypes


@dataclass(frozen=True)
class StoredTransitions:
    """N transitions in the order of time, in the form of a replay memory.

    observations, next_observations: [N, ...] of the observation's stored form; the latter is not read where an episode
    terminated. actions: [N, ...] of the action's. rewards: float32 [N]. terminated, truncated: uint8 [N], never both.
    environments: int64 [N], the sequence that a row belongs to.

    Every sequence of steps ends with `terminated` or `truncated`: a row of which neither is set is followed by the next
    row of its environment, whose observation is its next one.
    """

    observations: NDArray[Any]
    next_observations: NDArray[Any]
    actions: NDArray[Any]
    rewards: NDArray[np.float32]
    terminated: NDArray[np.uint8]
    truncated: NDArray[np.uint8]
    environments: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rewards)


def stored_transitions(
    fields: Fields, observation: ObservationSpec, action: ActionSpec, place: str
) -> tuple[StoredTransitions, int]:
    """Return the transitions in stored form, and how many were left out because their next observation is unknown.

    fields: as `read_transitions` returns them. place: their origin, for messages. Raises RecordError, which names all
    faults, for observations and actions that are not of these spaces.
    """
    faults: list[str] = []
    observations = _observations(fields, OBSERVATIONS, observation, faults)
    following = _observations(fields, NEXT, observation, faults) if parts_of(fields, NEXT) else None
    actions = _actions(fields, action, faults)
    if faults or observations is None or actions is None:
        raise transitions_refused(place, faults)
    count = len(fields[REWARDS])
    zeros = np.zeros(count, np.int64)
    environments, episodes = fields.get(ENVIRONMENTS, zeros), fields.get(EPISODES, zeros)
    terminated = fields[TERMINATED]
    truncated = fields.get(TRUNCATED, np.zeros(count, np.uint8)) & ~terminated & 1
    then = successors(environments)
    continues = (then >= 0) & (terminated == 0) & (truncated == 0)
    continues[continues] &= episodes[continues] == episodes[then[continues]]
    if following is None:
        known = continues | (terminated != 0)
        following = observations.copy()
        following[continues] = observations[then[continues]]
    else:
        known = np.ones(count, bool)
        continues[continues] &= _equal_rows(following[continues], observations[then[continues]])
    # Where the next row is left out, this one is the last of its sequence.
    continues[continues] &= known[then[continues]]
    truncated = ((terminated == 0) & ~continues).astype(np.uint8)
    rows: tuple[Any, ...] = observations, following, actions, fields[REWARDS], terminated, truncated, environments
    if known.all():
        return StoredTransitions(*rows), 0
    if not known.any():
        raise transitions_refused(place, [f"no next observation is known: `{NEXT}` is missing"])
    return StoredTransitions(*(array[known] for array in rows)), count - int(known.sum())


def successors(environments: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of the next row of the same environment, int64 [N]; -1 if there is none."""
    then = np.full(len(environments), -1, np.int64)
    order = np.argsort(environments, kind="stable")
    same = environments[order[1:]] == environments[order[:-1]]
    then[order[:-1][same]] = order[1:][same]
    return then


def fields_of(transitions: StoredTransitions, observation: ObservationSpec, action: ActionSpec) -> Fields:
    """Return the arrays of a file with these transitions."""
    return {
        **_given_observations(OBSERVATIONS, transitions.observations, observation),
        **_given_actions(action_converter(action)(transitions.actions)),
        REWARDS: transitions.rewards,
        **_given_observations(NEXT, transitions.next_observations, observation),
        TERMINATED: transitions.terminated != 0,
        TRUNCATED: transitions.truncated != 0,
        ENVIRONMENTS: transitions.environments,
    }


# --- observations


def _observations(fields: Fields, name: str, spec: ObservationSpec, faults: list[str]) -> NDArray[Any] | None:
    """Return the stored form of the arrays of `name`, and add their faults to `faults`."""
    parts = parts_of(fields, name)
    paths = [part.path for part in spec.parts] + ([spec.mask.path] if spec.mask else [])
    wanted = {".".join(map(str, path)) for path in paths} or {""}
    if parts.keys() != wanted:
        faults.append(_other_names(name, parts, wanted))
        return None
    tree: Any = parts[""] if "" in parts else _tree({path: parts[".".join(map(str, path))] for path in paths})
    try:
        rows, single = GivenObservations(spec)(tree, None)
        if not single and len(rows) == len(fields[REWARDS]):
            return rows
        faults.append(f"`{name}` has the shape {list(next(iter(parts.values())).shape)} of a single observation")
    except ValueError as error:
        faults.append(f"`{name}`: {error}")
    return None


def _other_names(name: str, found: Mapping[str, Any], wanted: set[str]) -> str:
    def text(keys: Sequence[str]) -> str:
        return ", ".join(f"`{name}{f'.{key}' if key else ''}`" for key in sorted(keys))

    return f"{text([*found])} in the place of {text([*wanted])}"


def _tree(leaves: Mapping[tuple[str | int, ...], Any]) -> dict[str | int, Any]:
    """Return arrays by their paths as nested dictionaries."""
    tree: dict[str | int, Any] = {}
    for path, array in leaves.items():
        inner = tree
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
        inner[path[-1]] = array
    return tree


def _given_observations(name: str, rows: NDArray[Any], spec: ObservationSpec) -> Fields:
    """Return stored rows [N, ...] as the environment's arrays."""
    if not spec.parts:
        return {name: _given_array(rows, spec)}
    parts = {_joined(name, part): _given_array(part.view(rows), part) for part in (*spec.parts, *spec.hidden)}
    if spec.mask is not None:
        parts[".".join([name, *map(str, spec.mask.path)])] = spec.mask.view(rows).copy()
    return parts


def _joined(name: str, part: ObservationPart) -> str:
    return f"{name}.{part.name}" if part.path else name


def _given_array(stored: NDArray[Any], spec: ArraySpec) -> NDArray[Any]:
    """Return stored arrays [N, *shape] of one part as the environment has them; floats stay float32."""
    dtype = np.dtype(spec.env_dtype or spec.dtype)
    if spec.origin:
        return spec.absolute(stored)
    if not spec.counts:
        return stored.copy() if dtype.kind == "f" else stored.astype(dtype)
    if spec.numbered:
        values = np.ascontiguousarray(stored).view("<u4").reshape(len(stored), -1).astype(np.int64)
    else:
        groups = np.split(stored, np.cumsum(spec.counts)[:-1], axis=1)
        values = np.stack([group.argmax(1) for group in groups], axis=1)
    values = values + np.array(spec.firsts or [0] * len(spec.counts), np.int64)
    shape = spec.env_shape if spec.env_shape is not None else () if len(spec.counts) == 1 else (len(spec.counts),)
    return values.reshape(len(stored), *shape).astype(dtype if dtype.kind in INTEGERS else np.int64)


def _equal_rows(first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which of N rows are equal, bool [N]."""
    if not len(first):
        return np.zeros(0, bool)
    equal: NDArray[np.bool_] = (first.reshape(len(first), -1) == second.reshape(len(second), -1)).all(1)
    return equal


# --- actions


def _actions(fields: Fields, action: ActionSpec, faults: list[str]) -> NDArray[Any] | None:
    """Return the stored form of the actions, and add their faults to `faults`."""
    given, leaves = parts_of(fields, ACTIONS), _leaves(action)
    if given.keys() != leaves.keys():
        faults.append(_other_names(ACTIONS, given, {*leaves}))
        return None
    before, columns = len(faults), []
    for name, one in leaves.items():
        called = f"{ACTIONS}.{name}" if name else ACTIONS
        array = given[name]
        if array.dtype.kind not in "biuf":
            faults.append(f"`{called}` has the dtype {array.dtype}, expected numbers")
        elif array.size != len(array) * prod(one.shape):
            faults.append(f"`{called}` has the shape {list(array.shape)}, expected [N, *{list(_env_shape(one))}]")
        else:
            columns.append(_stored_action(array.reshape(len(array), -1), one, called, faults))
    if len(faults) > before:
        return None
    stored = columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)
    return stored.astype(action.dtype).reshape(len(stored), *action.shape)


def _leaves(action: ActionSpec, name: str = "") -> dict[str, Any]:
    """Return the parts of an action by their names, in stored order; {"": action} if there is one."""
    if not isinstance(action, Composite):
        return {name: action}
    names = action.names or tuple(str(number) for number in range(len(action.parts)))
    found: dict[str, Any] = {}
    for key, part in zip(names, action.parts, strict=True):
        found |= _leaves(part, f"{name}.{key}" if name else key)
    return found


def _env_shape(action: Any) -> tuple[int, ...]:
    if isinstance(action, Box | Discrete):
        return tuple(action.shape)
    shape = action.env_shape
    return tuple(action.shape if shape is None else shape)


def _stored_action(array: NDArray[Any], action: Any, called: str, faults: list[str]) -> NDArray[Any]:
    """Return actions [N, k] of the environment in stored form [N, k]."""
    if not np.isfinite(array).all():
        faults.append(f"`{called}` has {array[~np.isfinite(array)][0]}, expected finite numbers")
        return array
    if isinstance(action, Box):
        low, high = (np.array(bound, np.float64) for bound in (action.low, action.high))
        reach = np.where(high - low < 2 * LARGEST_BOUND, (high - low) * BEYOND, 0.0)
        outside = (array < low - reach) | (array > high + reach)
        if outside.any():
            share, at = outside.any(1).mean(), np.argwhere(outside)[0]
            faults.append(
                f"`{called}` has {array[tuple(at)]:g} in row {at[0]:,} ({share:.0%} of the rows have such), expected "
                f"the environment's units, {low[at[1]]:g} to {high[at[1]]:g}: clip or scale them"
            )
        clipped: NDArray[np.float32] = np.clip(array, low, high).astype(np.float32)
        return clipped
    counts = np.array((action.n,) if isinstance(action, Discrete) else action.nvec)
    start = np.array(action.start or 0)
    values: NDArray[Any] = array - start
    wrong = (values < 0) | (values >= counts) | (array != np.rint(array))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        first = int(np.broadcast_to(start, counts.shape)[column])
        faults.append(
            f"`{called}` has {array[row, column]} in row {row:,}, expected whole numbers from {first} to "
            f"{first + counts[column] - 1}"
        )
    return values


def _given_actions(actions: Any, name: str = ACTIONS) -> Fields:
    """Return a batch of the environment's actions as arrays by their names."""
    if isinstance(actions, Mapping):
        return {k: v for key, part in actions.items() for k, v in _given_actions(part, f"{name}.{key}").items()}
    if isinstance(actions, tuple):
        return {k: v for n, part in enumerate(actions) for k, v in _given_actions(part, f"{name}.{n}").items()}
    return {name: actions}
