"""Compares the spaces of environments that must be alike: of training and of evaluations, or of one beside another."""

from __future__ import annotations

from dataclasses import fields, replace

from hive.envs.spaces.actions import ActionSpec
from hive.envs.spaces.meaning import kept_meaning, kept_scale
from hive.envs.spaces.observation import ObservationSpec
from hive.errors import EnvironmentFailed


def spec_difference(first: ObservationSpec | ActionSpec, second: ObservationSpec | ActionSpec) -> str:
    """Return the first difference of two specs, as "shape: (4,) and (8,)"; "" if they are equal."""
    if first == second:
        return ""
    if type(first) is not type(second):
        return f"kind: {type(first).__name__} and {type(second).__name__}"
    if isinstance(first, ObservationSpec) and isinstance(second, ObservationSpec) and (first.parts or second.parts):
        parts, other_parts = _parts(first), _parts(second)
        if parts != other_parts:
            return f"parts: {parts} and {other_parts}"
    values = ((field.name, getattr(first, field.name), getattr(second, field.name)) for field in fields(first))
    name, value, other = next(triple for triple in values if triple[1] != triple[2])
    return f"{name}: {value} and {other}"


def check_alike(
    what: str, own: tuple[ObservationSpec, ActionSpec], its: tuple[ObservationSpec, ActionSpec], other: str
) -> None:
    """Raise EnvironmentFailed if an environment is stored in another form than the one that a run is made for.

    own: its specs as its spaces give them, without the meaning that keys of [env] give. Bounds of observations may
    differ, those of actions may not. what, other: name the two, for the error.
    """
    observation = replace(kept_meaning(own[0], its[0]), stack=its[0].stack)
    pairs = (("observations", its[0], observation), ("actions", its[1], kept_scale(own[1], its[1])))
    for name, expected, found in pairs:
        if differs := spec_difference(expected, found):
            raise EnvironmentFailed(
                f"the {name} of {other} and of {what} differ in {differs}",
                hint="all environments of a run need the same spaces: declare the largest, and pad",
                permanent=True,
            )


def _parts(spec: ObservationSpec) -> str:
    """Return the parts of an observation, and whether it has an action mask."""
    named = [f"`{part.name}` {part.dtype} {part.shape}" for part in spec.parts] or [f"one array {spec.shape}"]
    return ", ".join([*named, *(["an action mask"] if spec.mask else [])])
