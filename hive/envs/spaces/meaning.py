"""Gives the spaces of an environment their meaning: by the keys of [env], and by the checkpoint of earlier weights.

`observation_spec` describes spaces by the rules of hive.declared. `configured_meaning` applies env.images,
env.scale_observations and env.scale_actions to that. `kept_meaning` takes what a checkpoint says, because
weights fit only the scale that they were trained with. `space_meanings` has the result in words, for `hive check`.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from hive.declared import (
    ABSENT,
    FIRST,
    LAST,
    NO_IMAGE,
    is_bound,
    stacked_pictures,
)
from hive.envs.spaces.actions import ActionSpec, Box, Composite
from hive.envs.spaces.observation import ArraySpec, ObservationPart, ObservationSpec
from hive.envs.spaces.spec import EnvironmentSpec
from hive.errors import EnvironmentFailed

if TYPE_CHECKING:
    from hive.config import EnvConfig

AnyArray = TypeVar("AnyArray", bound=ArraySpec)


def configured_meaning(spec: EnvironmentSpec, env: EnvConfig) -> EnvironmentSpec:
    """Return the spec with the meaning that the keys of [env] give to its spaces, and with env.frame_stack."""
    agents = tuple(replace(one, **_meant(one.observation, one.action, env)) for one in spec.agents)
    return replace(spec, agents=agents, **_meant(spec.observation, spec.action, env))


def _meant(observation: ObservationSpec, action: ActionSpec, env: EnvConfig) -> dict[str, Any]:
    """Return `observation` and `action` with the meaning that the keys of [env] give to them."""
    observation = replace(observation, stack=env.frame_stack)
    for one in observation.inputs:
        if env.images != "none" and (count := stacked_pictures(one.shape)):
            raise EnvironmentFailed(
                f"{_named(one)} of `{env.id}` has four axes, which hive reads as numbers and not as {count} pictures",
                hint="let the environment return one picture, without FrameStackObservation, and set "
                f'env.frame_stack = {count}; env.images = "none" takes them as numbers',
                permanent=True,
            )
    changed = [_configured(one, env) for one in observation.inputs]
    acted = _scaled(action) if env.scale_actions else action
    return {"observation": _with_inputs(observation, changed), "action": acted}


def kept_meaning(mine: ObservationSpec, its: ObservationSpec) -> ObservationSpec:
    """Return `mine` with the scales, channels and origins of `its`, those of weights that are used again.

    Inputs that differ in form keep their own: such weights do not fit, and the error for it follows.
    """
    pairs = zip(mine.inputs, its.inputs, strict=False)
    inputs = [
        replace(own, low=one.low, high=one.high, channels=one.channels, origin=one.origin)
        if _form(own) == _form(one)
        else own
        for own, one in pairs
    ]
    if len(mine.inputs) != len(its.inputs):
        return mine
    return _with_inputs(mine, inputs)


def kept_scale(mine: ActionSpec, its: ActionSpec) -> ActionSpec:
    """Return `mine` with boxes that are scaled where those of `its` are, if the actions are otherwise the same."""
    if isinstance(mine, Composite) and isinstance(its, Composite) and len(mine.parts) == len(its.parts):
        return replace(mine, parts=tuple(map(kept_scale, mine.parts, its.parts)))
    if isinstance(mine, Box) and isinstance(its, Box) and mine.shape == its.shape:
        return replace(mine, scaled=its.scaled)
    return mine


def space_meanings(spec: EnvironmentSpec) -> list[tuple[str, str]]:
    """Return (input, meaning) for each observation, part of one, and box action whose meaning is not its shape alone.

    For example ("board uint8 8 x 8 x 3", "image, channels last (env.images); 0 to 2 become 0 to 1"). Imports torch.
    """
    lines = [(_named(one), text) for one in spec.observation.inputs if (text := _meaning(one))]
    return lines + [("actions" if name == "" else f"action {name}", text) for name, text in _action_lines(spec.action)]


def _configured(one: AnyArray, env: EnvConfig) -> AnyArray:
    low, high = (one.low, one.high) if env.scale_observations else ((), ())
    channels = one.channels
    if env.images == "none" or (env.images in (FIRST, LAST) and len(one.shape) == 3):
        channels = env.images
    return replace(one, low=low, high=high, channels=channels)


def _with_inputs(observation: ObservationSpec, inputs: list[Any]) -> ObservationSpec:
    """Return the spec with these in the place of its `inputs`."""
    if observation.parts:
        return replace(observation, parts=tuple(inputs))
    (whole,) = inputs
    return whole  # type: ignore[no-any-return]


def _form(one: ArraySpec) -> tuple[Any, ...]:
    return one.shape, one.dtype, one.counts, getattr(one, "path", ())


def _scaled(action: ActionSpec) -> ActionSpec:
    """Return the action with `scaled` boxes."""
    if isinstance(action, Composite):
        return replace(action, parts=tuple(map(_scaled, action.parts)))
    return replace(action, scaled=True) if isinstance(action, Box) else action


def _named(one: ArraySpec) -> str:
    name = one.name if isinstance(one, ObservationPart) and one.path else "observations"
    return f"{name} {one.dtype} {' x '.join(map(str, one.shape))}" if not one.numbered else name


def _meaning(one: ArraySpec) -> str:
    if one.numbered:
        numbers = "a number" if len(one.counts) == 1 else f"{len(one.counts):,} numbers"
        return f"{numbers} of up to {max(one.counts):,} values, looked up in an embedding table"
    where = {FIRST: "image, channels first", LAST: "image, channels last", ABSENT: "image, one channel", NO_IMAGE: ""}
    channels = one.channels
    image = f"{where[channels]} (env.images)" if channels != NO_IMAGE else ""
    assert one.low is not None
    assert one.high is not None
    scale = ""
    if len(one.low) == 1:
        scale = f"{one.low[0]:g} to {one.high[0]:g} become 0 to 1"
    elif one.low:
        scale = "the bounds of each element become 0 and 1"
    return "; ".join(filter(None, [image, _unseen(one), _origin(one), scale]))


def _origin(one: ArraySpec) -> str:
    """Return what is subtracted from numbers whose differences float32 does not hold."""
    bases = sorted({base for base in one.origin if base}, key=abs)
    if not bases:
        return ""
    what = f"{bases[-1]:.10g}" if len(bases) == 1 else f"an origin of each element, up to {bases[-1]:.10g},"
    return f"{what} is subtracted, as float32 would round the differences"


def _unseen(one: ArraySpec) -> str:
    """Return how much of an image its convolutions do not reach."""
    if one.channels == NO_IMAGE:
        return ""
    from hive.networks.build.embedders import unseen

    counts = zip(unseen(one), ("rows", "columns"), strict=True)
    left = [f"the last {count} {what}" for count, what in counts if count]
    return f"convolutions do not reach {' and '.join(left)}" if left else ""


def _action_lines(action: ActionSpec, name: str = "") -> list[tuple[str, str]]:
    """Return (name, meaning) of each box of an action."""
    if isinstance(action, Composite):
        names = action.names or map(str, range(len(action.parts)))
        inner = (f"{name}.{one}" if name else one for one in names)
        return [*chain.from_iterable(_action_lines(part, one) for part, one in zip(action.parts, inner, strict=True))]
    if not isinstance(action, Box):
        return []
    pairs = set(zip(action.low, action.high, strict=True))
    if any(is_bound(low) != is_bound(high) for low, high in pairs):
        return [(name, "bounded on one side only, so not scaled: a policy begins at 0 with a deviation of 1")]
    if not action.scaled or all(pair == (-1.0, 1.0) or not is_bound(pair[0]) for pair in pairs):
        return []
    if len(pairs) == 1:
        ((low, high),) = pairs
        return [(name, f"{low:g} to {high:g} are -1 to 1 for a Gaussian policy")]
    return [(name, "the bounds of each element are -1 and 1 for a Gaussian policy")]
