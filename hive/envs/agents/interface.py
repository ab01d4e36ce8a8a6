"""What an environment of several agents declares: its agents, their spaces, and whether they act in turn.

    parallel     step(actions of all live agents) -> five dictionaries by agent      PettingZoo's ParallelEnv
    turn-based   step(action of agent_selection), then last()                        PettingZoo's AECEnv

A class of a user needs the methods, not PettingZoo: `possible_agents`, `agents`, `observation_space(agent)`,
`action_space(agent)`, `reset` and `step`. An `AgentView` puts together what an agent sees: its own observation, and
on request its position among the agents (env.agent_index) and the `state()` of the environment (env.state).
"""

from __future__ import annotations

import functools
from collections.abc import Collection, KeysView, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

import numpy as np

from hive.envs.first_observations import with_origins_of_agents
from hive.envs.loading import construct
from hive.envs.recipe import MASKED, Recipe
from hive.envs.spaces.actions import ActionSpec, action_spec, choices_of
from hive.envs.spaces.declared import checked_space
from hive.envs.spaces.observation import BESIDE_MASK, INDEX_KEY, MASK_KEY, STATE_KEY, ObservationSpec, observation_spec
from hive.envs.spaces.spec import AgentSpec, EnvironmentSpec
from hive.envs.vectors.checks import store
from hive.envs.vectors.resetting import begin
from hive.envs.wrappers import ARGUMENTS, WrapperConfig, find_wrapper, parts_of
from hive.errors import EnvironmentFailed
from hive.runtime.actor.error_location import is_interrupt, named

if TYPE_CHECKING:
    from gymnasium.spaces import Space


LISTS = ("possible_agents", "_agent_ids", "agents")
"""Attributes that list all agents, the first that an environment has; the last two are those of RLlib."""

RLLIB = "MultiAgentEnv"  # RLlib's base class, which is a gymnasium.Env


def has_agents(environment: Any) -> bool:
    """Whether an environment is one of several agents: it has `possible_agents`, or lists them in the way of RLlib.

    A gymnasium.Env whose spaces are objects is one of a single agent.
    """
    import gymnasium

    is_rllib = any(base.__name__ == RLLIB for base in type(environment).__mro__)
    own = [_attribute(environment, name) for name in ("observation_space", "action_space")]
    has_spaces = all(isinstance(space, gymnasium.Space) for space in own)
    if has_spaces and not is_rllib and isinstance(environment, gymnasium.Env):
        return False
    name, found = _listed(environment)
    if name == "agents":  # which may be anything
        is_each = is_rllib or callable(own[0]) or _attribute(environment, "observation_spaces") is not None
        return is_each and isinstance(found, Collection) and all(isinstance(one, str | int) for one in found)
    return name != ""


def _listed(environment: Any) -> tuple[str, Any]:
    """Return the attribute of an environment that lists its agents, and its value; "" and None if none does."""
    listed = [(name, found) for name in LISTS if (found := _attribute(environment, name)) is not None]
    # Classes of RLlib have empty lists that another attribute fills.
    filled = [(name, found) for name, found in listed if not isinstance(found, Collection) or len(found)]
    return next(iter(filled or listed), ("", None))


def _attribute(environment: Any, name: str) -> Any:
    """Return an attribute, None if it is missing or its property raises."""
    try:
        return getattr(environment, name, None)
    except Exception:
        return None


def acts_in_turn(environment: Any) -> bool:
    """Whether the agents of an environment act one after the other, each told its turn by `agent_selection`."""
    return callable(getattr(environment, "last", None)) and callable(getattr(environment, "agent_iter", None))


def agent_names(id: str, environment: Any) -> tuple[str, ...]:
    """Return the names of all agents, in the order of `possible_agents`, those of a set sorted.

    Raises EnvironmentFailed.
    """
    listed, found = _listed(environment)
    if not isinstance(found, Collection) or isinstance(found, str | bytes):
        raise _refused(
            f"the `{listed}` of `{id}` is of type {type(found).__name__}, expected the names of all agents",
            f'set {listed} to a list of names, such as ["agent_0", "agent_1"], in its constructor',
        )
    names = tuple(found.tolist() if isinstance(found, np.ndarray) else found)
    if not names:
        raise _refused(f"`{id}` has no agents: its `{listed}` is empty", "list all agents that may ever act")
    if odd := next((name for name in names if not isinstance(name, str | int)), None):
        raise _refused(f"`{id}` has the agent {odd!r} of type {type(odd).__name__}, expected a name", "name it by text")
    if len({*names}) != len(names):
        raise _refused(f"`{id}` lists an agent twice in `{listed}`: {list(names)}", "give each its own name")
    if isinstance(found, Set) and not isinstance(found, KeysView):
        return tuple(sorted(names, key=lambda name: (isinstance(name, str), name)))
    return names


def wrapped_agents(id: str, environment: Any, wrappers: Sequence[WrapperConfig]) -> Any:
    """Return an environment of several agents inside `wrappers`, which take and return one.

    That of env.action_mask is left out: each agent has its own mask (`AgentView`). Raises EnvironmentMissing and
    EnvironmentFailed.
    """
    for name, arguments in map(parts_of, wrappers):
        if name == MASKED:
            continue
        constructor = functools.partial(find_wrapper(name), environment, **arguments)
        result = construct("wrapper", name, f"`{id}` with the wrapper `{name}`", constructor, ARGUMENTS)
        if not has_agents(result):
            raise _refused(
                f"the wrapper `{name}` of `{id}` returned an object of type {type(result).__name__}, expected an "
                "environment with `possible_agents`",
                "name a wrapper for several agents, for example one of the package supersuit",
            )
        environment = result
    return environment


def describe_agents(id: str, environment: Any, recipe: Recipe, *, plays: bool = False) -> EnvironmentSpec:
    """Return the spec of an environment: each agent's spaces. Those of the whole are the first agent's.

    plays: as of `hive.envs.make.describe`. Raises EnvironmentFailed for spaces that hive cannot use.
    """
    views = views_of(id, environment, recipe)
    agents = tuple(AgentSpec(name, view.observation, view.action) for name, view in views.items())
    first, in_turn = agents[0], acts_in_turn(environment)
    spec = EnvironmentSpec(id, first.observation, first.action, agents=agents, takes_turns=in_turn)
    if not plays:
        return spec

    def observe(seed: int) -> dict[str, Any]:
        result = begin(environment, seed, recipe.reset_options)
        own, infos = ({}, environment.infos) if in_turn else result
        state = environment.state() if recipe.state else None
        each = {view.agent: environment.observe(view.agent) for view in views.values()} if in_turn else own
        return {
            name: view.seen(each[view.agent], infos.get(view.agent, {}), state, ended=True)
            for name, view in views.items()
            if view.agent in each
        }

    return with_origins_of_agents(spec, observe)


def views_of(id: str, environment: Any, recipe: Recipe) -> dict[str, AgentView]:
    """Return the view of each agent, by its name as text. Raises as `describe_agents`."""
    names = agent_names(id, environment)
    whole = _state_space(id, environment, recipe) if recipe.state else None
    return {
        str(name): AgentView(id, environment, name, position, len(names), whole, recipe)
        for position, name in enumerate(names)
    }


class AgentView:
    """What one agent of an environment sees and does.

    agent: its name in the environment. space: of what `seen` returns. blank: an observation in that form for an agent
    that is not there, which allows every action.
    """

    observation: ObservationSpec
    action: ActionSpec

    def __init__(
        self,
        id: str,
        environment: Any,
        agent: Any,
        position: int,
        agents: int,
        state: Space[Any] | None,
        recipe: Recipe,
    ) -> None:
        """position: of the agent among `agents`. state: the space of `state()`, None without env.state."""
        from gymnasium import spaces

        self.agent = agent
        self._id, self._what = id, f"agent `{agent}` of `{id}`"
        own = _space(id, environment, agent, "observation_space")
        acted = _space(id, environment, agent, "action_space")
        self.action = action_spec(self._what, acted)
        self._mask_in = self._mask_place(own, recipe.mask)
        parts: dict[str, Space[Any]] = dict(own.spaces) if isinstance(own, spaces.Dict) else {}
        self._is_dict = bool(parts)
        self._position, self.has_state = position if recipe.agent_index else None, state is not None
        self._from_info = self._mask_in == "info"
        self.is_plain = self._position is None and state is None and not self._from_info
        if self.is_plain and self._mask_in is None:
            self.space = own
        else:
            parts = parts or {BESIDE_MASK: own}
            added = {INDEX_KEY: spaces.Discrete(agents) if recipe.agent_index else None, STATE_KEY: state}
            for key, space in added.items():
                if space is not None:
                    if key in parts:
                        raise _refused(
                            f"the observations of {self._what} have a part `{key}`, the name of what hive adds",
                            "rename the part, or leave out " + ("env.agent_index" if key == INDEX_KEY else "env.state"),
                        )
                    parts[key] = space
            self.space = self._with_mask(parts)
        self.observation = observation_spec(self._what, self.space)
        self._all_allowed = np.ones(sum(choices_of(self.action) or ()), np.int8)
        self.blank = self._allowed(_blank(self.space))

    def seen(self, observation: Any, info: Any, state: Any, *, ended: bool = False) -> Any:
        """Return what the agent sees, in the form of `space`. ended: after it, no action follows.

        Raises EnvironmentFailed for a mask that is missing.
        """
        if self._is_dict and not isinstance(observation, Mapping):
            return observation  # which is refused where it is stored
        if self.is_plain:
            return self._closing(observation) if ended and self._mask_in is not None else observation
        parts = dict(observation) if self._is_dict else {BESIDE_MASK: observation}
        if self._position is not None:
            parts[INDEX_KEY] = self._position
        if self.has_state:
            parts[STATE_KEY] = state
        if self._from_info:
            mask = info.get(MASK_KEY) if isinstance(info, Mapping) else None
            if mask is None and not ended:
                raise EnvironmentFailed(
                    f'{self._what} has an info without "{MASK_KEY}", and env.action_mask is "info"',
                    hint="put the mask into the infos of reset and step, 1 for every action that is allowed",
                    permanent=True,
                )
            parts[MASK_KEY] = mask
        return self._closing(parts) if ended else parts

    def seen_dead(self, observation: Any, info: Any, state: Any) -> Any:
        """Return what an agent sees that has ended and whose action is ignored; `blank` for what cannot be stored."""
        seen = self.seen(observation, info, state, ended=True)
        stored = np.zeros((1, *self.observation.shape), self.observation.dtype)
        return seen if store(self.observation, [seen], stored) else self.blank

    def _closing(self, observation: Any) -> Any:
        """Return the last observation of an episode, whose mask may be None or allow nothing."""
        return observation if self.observation.mask is None else self.observation.mask.closing(observation)

    def _allowed(self, observation: Any) -> Any:
        """Return an observation that allows every action."""
        if self.observation.mask is None:
            return observation
        return {**observation, self.observation.mask.path[0]: self._all_allowed}

    def _mask_place(self, own: Space[Any], mask: str | None) -> str | None:
        """Return where the action mask is: "info", a key of the observation, or None.

        A dictionary of observations with the key `action_mask` has it there, by PettingZoo's convention.
        """
        from gymnasium import spaces

        choices = choices_of(self.action)
        parts = own.spaces if isinstance(own, spaces.Dict) else {}
        place = MASK_KEY if mask is None else mask
        if place in parts and choices is not None and (len(parts) > 1 or mask is not None):
            shape = parts[place].shape or ()
            if int(np.prod(shape)) != sum(choices) or not shape:
                raise _refused(
                    f"`{place}` of {self._what} has the shape {shape}, and there are {sum(choices)} actions to allow "
                    "or forbid",
                    f"give it {' + '.join(map(str, choices))} elements, without padding, or rename it if it is no mask",
                )
        if mask is None:
            return MASK_KEY if choices is not None and MASK_KEY in parts and len(parts) > 1 else None
        if choices is None:
            raise _refused(
                f"env.action_mask: {self._what} takes actions that are not discrete, which cannot be masked",
                "leave env.action_mask out",
            )
        if mask != "info" and mask not in parts:
            keys = ", ".join(f"`{key}`" for key in parts) or "no dictionary"
            raise _refused(
                f"env.action_mask: the observations of {self._what} have no `{mask}` (they have {keys})",
                'set env.action_mask to the key of the mask, or to "info" for the action_mask of each agent\'s info',
            )
        return mask

    def _with_mask(self, parts: dict[str, Space[Any]]) -> Space[Any]:
        from gymnasium import spaces

        from hive.envs.spaces.masked_space import MaskedSpace

        choices = choices_of(self.action) or ()
        if self._mask_in is None:
            return spaces.Dict(parts)
        key = MASK_KEY if self._from_info else self._mask_in
        parts[key] = spaces.MultiBinary(sum(choices))
        return MaskedSpace(parts, (key,), choices)


def _space(id: str, environment: Any, agent: Any, name: str) -> Space[Any]:
    """Return a space of one agent. Raises EnvironmentFailed."""
    what = f"{name} of agent `{agent}` of `{id}`"
    try:
        space = _space_in(environment, agent, name)
        if space is None:
            raise _refused(f"the {what} is missing", f"define `def {name}(self, agent)` that returns it")
    except EnvironmentFailed:
        raise
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise _refused(f"the {what} cannot be read: {named(error)}", f"let `{name}(agent)` return it") from error
    return checked_space(f"agent `{agent}` of `{id}`", space, name)


def _space_in(environment: Any, agent: Any, name: str) -> Any:
    """Return what stands for the space of an agent; None if nothing does.

    The method of this name returns it, or it is in the dictionary of the plural. The space of this name of an RLlib
    class has a part for each agent, or is that of every agent.
    """
    from gymnasium import spaces

    one = getattr(environment, name, None)
    if callable(one) and not isinstance(one, spaces.Space):
        return one(agent)
    if isinstance(table := getattr(environment, f"{name}s", None), Mapping):
        return table[agent]
    if isinstance(one, spaces.Dict) and agent in one.spaces:
        return one.spaces[agent]
    return one if isinstance(one, spaces.Space) else None


def _state_space(id: str, environment: Any, recipe: Recipe) -> Space[Any]:
    """Return the space of `state()`; without a declared one it follows from the state after a reset."""
    from gymnasium import spaces

    try:
        space = getattr(environment, "state_space", None)
        if isinstance(space, spaces.Space):
            return space
        begin(environment, 0, recipe.reset_options)
        state = np.asarray(environment.state())
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise _refused(
            f"`{id}` has no state that env.state could give: {named(error)}",
            "define `def state(self)` that returns an array, or leave env.state out (scheme ippo instead of mappo)",
        ) from error
    if state.dtype == np.uint8:
        return spaces.Box(0, 255, state.shape, np.uint8)
    return spaces.Box(-np.inf, np.inf, state.shape, np.float32)


def _blank(space: Space[Any]) -> Any:
    """Return an observation of a space, of zeros or the smallest values."""
    from gymnasium import spaces

    match space:
        case spaces.Dict():
            return {key: _blank(one) for key, one in space.spaces.items()}
        case spaces.Tuple():
            return tuple(_blank(one) for one in space.spaces)
        case spaces.Discrete() | spaces.MultiDiscrete():
            return space.start if isinstance(space, spaces.Discrete) else space.start.copy()
    return np.zeros(space.shape or (), space.dtype)


def _refused(text: str, hint: str) -> EnvironmentFailed:
    return EnvironmentFailed(text, hint=hint, permanent=True)
