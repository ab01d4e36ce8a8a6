"""The spaces of a program as hive stores observations and actions, and whether they are those of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hive.envs.external.frames import Misbehaved
from hive.envs.external.hello import Hello
from hive.envs.recipe import Recipe
from hive.envs.spaces.actions import ActionSpec, action_spec
from hive.envs.spaces.masked_space import masked_by_part
from hive.envs.spaces.observation import ArraySpec, ObservationPart, ObservationSpec, observation_spec

if TYPE_CHECKING:
    from gymnasium.spaces import Space


def specs_of(recipe: Recipe, said: Hello) -> tuple[ObservationSpec, ActionSpec]:
    """Return the forms in which its observations and actions are stored.

    Raises EnvironmentFailed for spaces that hive cannot use, and Misbehaved if it lacks a value of env.info.
    """
    if missing := [name for name in recipe.info if name not in said.info]:
        raise Misbehaved(f"has no value `{missing[0]}` of `info`, which env.info names")
    space = masked_space(recipe, said)
    return observation_spec(recipe.id, space), action_spec(recipe.id, said.action)


def masked_space(recipe: Recipe, said: Hello) -> Space[Any]:
    """Return the space of its observations, which says which part is the mask. Raises EnvironmentFailed."""
    if recipe.mask is None:
        return said.observation
    return masked_by_part(recipe.id, said.observation, said.action, recipe.mask)


def check_specs(
    observation: ObservationSpec, action: ActionSpec, run_observation: ObservationSpec, run_action: ActionSpec
) -> None:
    """Raise Misbehaved if these are not the forms that the run has, which it read from the first program."""
    mine, its = _form(observation), _form(run_observation)
    if mine != its:
        differs = next((pair for pair in zip(mine, its, strict=False) if pair[0] != pair[1]), None)
        one, other = differs or (f"{len(mine)} parts", f"{len(its)}")
        raise Misbehaved(f"has other observations than those of the run: {one}, expected {other}")
    if action != run_action:
        raise Misbehaved(f"has other actions than those of the run: {action}, expected {run_action}")


def _form(spec: ObservationSpec) -> list[str]:
    """Return the stored form of each part as a text, without its meaning for a network, such as env.images."""
    parts = sorted((*spec.parts, *spec.hidden), key=lambda part: part.offset)
    mask = [f"an action mask of {spec.mask.choices} at {'.'.join(map(str, spec.mask.path))}"] if spec.mask else []
    return [*map(_words, parts or (spec,)), *mask]


def _words(spec: ArraySpec) -> str:
    name = f"`{spec.name}` " if isinstance(spec, ObservationPart) else ""
    counts = f" of {spec.counts} values from {spec.firsts}" if spec.counts else ""
    return f"{name}{spec.dtype} {[*spec.shape]}{counts}"
