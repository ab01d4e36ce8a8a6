"""The space of observations that have an action mask as one of their parts."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from hive.envs.spaces.actions import ActionSpec, action_spec, choices_of
from hive.envs.spaces.observation import MASK_KEY, ObservationSpec, Path
from hive.errors import EnvironmentFailed


class MaskedSpace(spaces.Dict):
    """A Dict of which one part, at `mask_path`, is the action mask. choices: the sizes of all discrete actions."""

    def __init__(self, parts: dict[str, spaces.Space[Any]], mask_path: Path, choices: tuple[int, ...]) -> None:
        super().__init__(parts)
        self.mask_path = mask_path
        self.choices = choices


def masked_by_part(id: str, seen: spaces.Space[Any], actions: spaces.Space[Any], source: str) -> MaskedSpace:
    """Return the space of observations of which the part `source` is the mask. Raises EnvironmentFailed as Masked."""
    choices = masked_choices(id, actions)
    if not isinstance(seen, spaces.Dict) or source not in seen.spaces:
        keys = ", ".join(f"`{key}`" for key in seen.spaces) if isinstance(seen, spaces.Dict) else "no dictionary"
        raise EnvironmentFailed(
            f"env.action_mask: the observations of `{id}` have no `{source}` (they have {keys})",
            hint='set env.action_mask to the key of the mask, or to "info" for info["action_mask"]',
            permanent=True,
        )
    shape = seen[source].shape
    if int(np.prod(shape or ())) != sum(choices) or not shape:
        raise EnvironmentFailed(
            f"env.action_mask: `{source}` of `{id}` has the shape {shape}, and there are {sum(choices)} actions to "
            "allow or forbid",
            hint=f"give it {' + '.join(map(str, choices))} elements, without padding",
            permanent=True,
        )
    return MaskedSpace(dict(seen.spaces), (source,), choices)


def unused_mask(observation: ObservationSpec, action: ActionSpec, *, in_info: bool) -> tuple[str, str] | None:
    """Return (cause, advice) for an action mask that is no mask to hive, since env.action_mask is not set; else None.

    in_info: whether info has a mask of these actions.
    """
    choices = choices_of(action)
    if observation.mask is not None or choices is None:
        return None
    if any(part.path == (MASK_KEY,) for part in observation.parts):
        (size,) = {int(np.prod(part.shape)) for part in observation.parts if part.path == (MASK_KEY,)}
        advice = f'set env.action_mask = "{MASK_KEY}"'
        if size != sum(choices):  # of combinations of choices, or padded
            needed = f"{' + '.join(map(str, choices))} elements, one for each choice, and has {size}"
            advice = f"it needs {needed}: let a wrapper change it, or make one Discrete action of all; then {advice}"
        return f"`{MASK_KEY}` of the observations is read as numbers, and forbids nothing", advice
    if in_info:
        return f'info["{MASK_KEY}"] is not read, and forbids nothing', 'set env.action_mask = "info"'
    return None


def masked_choices(id: str, space: spaces.Space[Any]) -> tuple[int, ...]:
    """Return the sizes of the discrete actions that a mask allows or forbids."""
    choices = choices_of(action_spec(id, space))
    if choices is not None:
        return choices
    raise EnvironmentFailed(
        f"env.action_mask: `{id}` takes {type(space).__name__} actions, and only discrete ones can be masked",
        hint="leave env.action_mask out",
        permanent=True,
    )
