"""Chooses what the spaces of an environment without tuned settings need besides the defaults of the algorithm.

Vectors of numbers whose scale is unknown need nothing, because the defaults are made for them. The values for frames of
a game are those of rl-baselines3-zoo for Atari (hyperparams/ppo.yml). The grids of small worlds need nothing either:
with Atari's values they learn less (examples/results/init.csv).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from hive.config import ALGORITHM_DEFAULTS, BARRIER_STEPS, SCHEMES, CollectionConfig, PolicyRow, Setting
from hive.config.keys import keys_of
from hive.declared import NO_IMAGE, PIXELS
from hive.envs.spaces.actions import ActionSpec, Box, Composite, Discrete, MultiBinary, MultiDiscrete, choices_of
from hive.envs.spaces.kinds import kinds_of, patterns_for, spec_of_kind
from hive.envs.spaces.observation import BESIDE_MASK, INDEX_KEY, MASK_KEY, STATE_KEY, ArraySpec, ObservationPart
from hive.envs.spaces.spec import EnvironmentSpec

FRAME_SIDE = 64  # least height and width of a frame of a game: smaller images are grids and boards, one cell a pixel
MANY_ELEMENTS = 64  # one-hot states with more elements get wider layers than the default of 64, 64
EPISODES = 10  # least episodes of each environment between two checkpoints, if their limit is known


def settings_by_spaces(
    spec: EnvironmentSpec,
    scheme: str,
    preset: str = "none",
    *,
    wrappers: Sequence[str] = (),
    info_has_mask: bool = False,
) -> list[Setting]:
    """Return settings for this environment and named scheme; none for a custom scheme, which may use keys freely.

    preset, wrappers: the keys of env with which the environment was described. info_has_mask: whether the info of its
    resets has an action mask.
    """
    if scheme not in SCHEMES:
        return []
    how = scheme, preset, wrappers, info_has_mask
    first, *others = (_settings(one, *how) for one in (_kinds(spec).values() if spec.agents else [spec]))
    return [one for one in first if not _is_own(one) or all(_has(other, one) for other in others)]


def policies_by_spaces(spec: EnvironmentSpec, scheme: str) -> list[PolicyRow]:
    """Return a policy for each kind of agents, with the settings of its networks; none if all agents have one kind."""
    kinds, every = _kinds(spec), [agent.name for agent in spec.agents]
    if len(kinds) < 2:
        return []
    common = settings_by_spaces(spec, scheme)
    rows = []
    for name, agents in kinds_of(spec.agents).items():
        kind = kinds[name]
        own = [one for one in _settings(kind, scheme, "none", (), False) if _is_own(one) and not _has(common, one)]
        network = {one.name.partition(".")[2]: one.value for one in own}
        reason = "; ".join([_own_text(kind), *(one.reason for one in own)])
        rows.append(PolicyRow(name, patterns_for(agents, every), network, reason))
    return rows


def agents_text(spec: EnvironmentSpec) -> str:
    """Return the agents of an environment and their spaces in words."""
    kinds = _kinds(spec)
    acting = "act in turn" if spec.takes_turns else "act at once"
    text = f"{len(spec.agents)} agent{'s' * (len(spec.agents) != 1)} that {acting}"
    return f"{text}, of {len(kinds)} kinds" if len(kinds) > 1 else f"{text}: {_own_text(spec)}"


def _own_text(spec: EnvironmentSpec) -> str:
    """Return the spaces in words, without the parts of env.agent_index and env.state."""
    parts = tuple(part for part in spec.observation.parts if part.path not in ((INDEX_KEY,), (STATE_KEY,)))
    if [part.path for part in parts] == [(BESIDE_MASK,)]:  # the name is hive's
        parts = (replace(parts[0], path=()),)
    return spaces_text(replace(spec, observation=replace(spec.observation, parts=parts)))


def _kinds(spec: EnvironmentSpec) -> dict[str, EnvironmentSpec]:
    """Return the environment as it is for each kind of agents; {} for one without agents."""
    return {name: spec_of_kind(spec, agents) for name, agents in kinds_of(spec.agents).items()} if spec.agents else {}


def _is_own(setting: Setting) -> bool:
    """Whether policies of one run may have different values of it."""
    return setting.name.startswith("network.")


def _has(settings: Sequence[Setting], one: Setting) -> bool:
    """Return whether a key has the same value there."""
    return any((other.name, other.value) == (one.name, one.value) for other in settings)


def _settings(
    spec: EnvironmentSpec, scheme: str, preset: str, wrappers: Sequence[str], info_has_mask: bool
) -> list[Setting]:
    """Return the settings for one kind of agents."""
    settings = [] if spec.agents else _mask(spec, info_has_mask)  # the mask of agents is found without a key
    if scheme in ("ppo", "ippo", "mappo"):
        settings += _frame_rounds() if _has_frames(spec) else _rare_checkpoints(spec)
    settings += _network(spec, SCHEMES[scheme].defaults.get("network.critic_parts", ()))
    usual = ALGORITHM_DEFAULTS[SCHEMES[scheme].defaults.get("algorithm.name", "a2c")]
    if usual.get("network.normalize_observations") and _is_scaled(spec) and (_has_frames(spec) or _is_wide(spec)):
        reason = "these observations have a known scale"
        settings.append(Setting("network.normalize_observations", False, reason))
    if preset == "atari":
        if usual.get("network.normalize_rewards"):
            settings.append(Setting("network.normalize_rewards", False, "the preset makes signs of the rewards"))
        if scheme in ("c51", "rainbow"):
            reason = "signs of rewards give small returns, as in the paper"
            settings += [Setting("algorithm.v_min", -10.0, reason), Setting("algorithm.v_max", 10.0, reason)]
        settings.append(Setting("env.preset", preset, "the usual frames, starts and rewards of these games"))
    if wrappers:
        settings.append(Setting("env.wrappers", list(wrappers), "hive takes no texts, so they are left out"))
    return settings


def spaces_text(spec: EnvironmentSpec) -> str:
    """Return the spaces in words: "8 numbers observed, one of 4 actions"."""
    observation, action = spec.observation, spec.action
    seen = " and ".join(f"{_seen(one)}{_called(one)}" for one in observation.inputs)
    return f"{seen} observed, {_acted(action)}{', of which a mask forbids some' if observation.mask else ''}"


def _acted(action: ActionSpec) -> str:
    match action:
        case Discrete():
            return f"one of {action.n} actions"
        case MultiDiscrete():
            return f"{len(action.nvec)} discrete actions"
        case MultiBinary():
            return f"{len(action.nvec)} bits"
        case Box():
            return f"{prod(action.shape)} continuous actions"
        case Composite():
            return " + ".join(map(_acted, action.parts))


def _mask(spec: EnvironmentSpec, info_has_mask: bool) -> list[Setting]:
    """Return where the mask is: a part of the observations of this name that fits the actions, or info."""
    choices = choices_of(spec.action) or ()
    masks = [part for part in spec.observation.parts if part.path == (MASK_KEY,) and part.shape == (sum(choices),)]
    reason = "it says which actions are allowed"
    if masks and choices:
        return [Setting("env.action_mask", MASK_KEY, reason)]
    return [Setting("env.action_mask", "info", f'info["{MASK_KEY}"] says which actions are allowed')] * info_has_mask


def _seen(one: ArraySpec) -> str:
    """Return one input of the network in words."""
    if len(one.counts) == 1:
        return f"one of {one.counts[0]} states"
    if one.counts:
        return f"{len(one.counts)} discrete values"
    if _shows_image(one):
        return f"images of {' x '.join(map(str, one.shape))} bytes"
    return f"{prod(one.shape)} numbers"


def _called(one: ArraySpec) -> str:
    name = one.name or '""' if isinstance(one, ObservationPart) and one.path else ""
    return f" (`{name}`)" if name else ""


def _shows_image(one: ArraySpec) -> bool:
    """Whether it is an image of pixels; planes of a board are none."""
    return one.channels != NO_IMAGE and (one.low, one.high) == PIXELS


def _has_frames(spec: EnvironmentSpec) -> bool:
    """Whether a part of the observation is a frame of a game, and not the grid of a small world."""
    return any(_shows_image(one) and min(_sides(one)) >= FRAME_SIDE for one in spec.observation.inputs)


def _sides(image: ArraySpec) -> tuple[int, int]:
    """Return height and width of an image."""
    height, width = image.shape[1:] if image.channels == "first" else image.shape[:2]
    return height, width


def _rare_checkpoints(spec: EnvironmentSpec) -> list[Setting]:
    """Return rarer checkpoints than by default if environments, which begin anew there, would end few episodes."""
    steps = EPISODES * (spec.max_episode_steps or 0)
    if steps <= BARRIER_STEPS:
        return []
    reason = f"{steps:,} steps of each environment, which begin anew there: {EPISODES} of the longest episodes"
    return [Setting("checkpoint.every", {"steps": steps * keys_of(CollectionConfig)["envs"].default}, reason)]


def _frame_rounds() -> list[Setting]:
    return [
        Setting("run.steps", 10_000_000, "images take many steps: as rl-baselines3-zoo for Atari"),
        Setting("collection.envs", 8, "8 x 128 = 1,024 steps a round, as there"),
        Setting("collection.rollout", 128, "steps of each in a round"),
        Setting("algorithm.epochs", 4, "as there: each step is learned from four times"),
        Setting("algorithm.minibatches", 4, "of 256 steps, as there"),
        Setting("algorithm.entropy_weight", 0.01, "as there: many games need exploration"),
        Setting("algorithm.learning_rate", 2.5e-4, "as there"),
        Setting("algorithm.learning_rate_schedule", "linear", "to 0 at run.steps, so that late updates are small"),
        Setting("algorithm.clip_range", 0.1, "small changes: policy and images' features are learned together"),
        Setting("algorithm.clip_range_schedule", "linear", "to 0 at run.steps: the policy settles"),
    ]


def _network(spec: EnvironmentSpec, hidden: Sequence[str]) -> list[Setting]:
    """Return settings of the layers. hidden: parts of observations that the policy does not see."""
    settings = []
    if _has_frames(spec):
        settings.append(Setting("env.frame_stack", 4, "several frames show what moves, and where to"))
        settings.append(Setting("network.separate_networks", False, "policy and value share the convolutions"))
    if _is_wide(spec, hidden):
        count = _elements(_seen_by_policy(spec, hidden))
        settings.append(Setting("network.middleware", (256, 256), f"{count} elements to combine"))
    return settings


def _is_wide(spec: EnvironmentSpec, hidden: Sequence[str] = ()) -> bool:
    """Whether the first dense layer combines many states. hidden: as in `_network`.

    Taxi's 500 states learn with wider layers only; as many numbers do not (FlappyBird learns less).
    """
    seen = _seen_by_policy(spec, hidden)
    return all(one.counts for one in seen) and _elements(seen) > MANY_ELEMENTS


def _seen_by_policy(spec: EnvironmentSpec, hidden: Sequence[str]) -> list[ArraySpec]:
    return [one for one in spec.observation.inputs if getattr(one, "name", "") not in hidden]


def _elements(inputs: Sequence[ArraySpec]) -> int:
    return sum(prod(one.shape) for one in inputs)


def _is_scaled(spec: EnvironmentSpec) -> bool:
    """Whether all inputs are bytes, one-hot vectors or integers with bounds, whose scale is known.

    Few of them learn as well or better with normalization, which makes rare states large (FrozenLake, CliffWalking).
    """
    return not any(one.dtype == "float32" and not one.counts and not one.low for one in spec.observation.inputs)
