"""Policies: what a run has learned, ready to act, without anything that trains.

    policy = hive.load("runs/cartpole-1")
    action = policy(observation)                        # the most likely one; [B, ...] observations give B actions
    action = policy(observation, noise=generator)       # drawn from its distribution, as while it trained

A checkpoint describes its policy in state.json (`describe_policy`): the observation, the action and [network]. Of that
and of weights.safetensors a policy is made, in one process, without environments: the format is JSON and bytes, and
nothing in it is executed. A network of somebody's own code is the exception, and has to be asked for (`own_code=True`),
for its module is imported and its class called.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hive.config import NetworkConfig
from hive.envs import ActionSpec, Box, Discrete, MultiDiscrete, ObservationSpec
from hive.errors import NetworkError, RecordError
from hive.networks import (
    HEADS,
    ActionDistribution,
    Categorical,
    EpsilonGreedy,
    FlatParameters,
    NetworkWrapper,
    Spaces,
    aligned_block,
    copy_arrays,
    distribution_for,
    network_parameters,
)
from hive.records import checkpoint_at

__all__ = ["Policy", "describe_policy", "load"]

KINDS: dict[str, type[Discrete] | type[MultiDiscrete] | type[Box]] = {
    "discrete": Discrete,
    "multi-discrete": MultiDiscrete,
    "box": Box,
}
USUAL_HEADS = ("policy", "value")  # of descriptions that name none
REFERENCES = ("module", "policy_head", "value_head")  # the keys of [network] that name somebody's own code


class Policy:
    """A trained policy: a function from observations to actions.

    observation, action: what one is. network: the module, in evaluation mode; it gives (policy outputs, value), or
        (action values,). distribution: what actions are drawn from, given the first of these.
    updates, env_steps: how far its run was. mean_return: of the last 100 training episodes, None before the first.
    """

    def __init__(
        self,
        observation: ObservationSpec,
        action: ActionSpec,
        network: torch.nn.Module,
        facts: Mapping[str, Any],
        distribution: ActionDistribution,
    ) -> None:
        self.observation = observation
        self.action = action
        self.distribution = distribution
        self.network = network.eval()
        self.updates = int(facts.get("updates", 0))
        self.env_steps = int(facts.get("env_steps", 0))
        self.mean_return: float | None = facts.get("mean_return")

    def __call__(self, observation: Any, *, noise: np.random.Generator | None = None) -> Any:
        """The action for one observation, as its environment takes it, or an array [B, ...] for a batch [B, ...].

        The most likely one; with `noise` one that is drawn. Raises ValueError for another shape.
        """
        batch, single = self._batch(observation)
        with torch.inference_mode():
            outputs = self.network(torch.from_numpy(batch))[0]
            if noise is None:
                stored = self.distribution.mode(outputs).numpy()
            else:
                stored = self.distribution.sample_numpy(
                    outputs.numpy(), self.distribution.draw_noise(noise, len(batch))
                )
        actions = self._for_environment(stored)
        return actions[0] if single else actions

    def _batch(self, observation: Any) -> tuple[NDArray[Any], bool]:
        """(observations [B, ...] as the network takes them, whether it was one)."""
        spec, given = self.observation, np.asarray(observation)
        if spec.first is not None and given.dtype.kind in "iu" and given.ndim < 2:  # a number for a one-hot
            given = np.eye(*spec.shape, dtype=np.float32)[given - spec.first]
        single = given.shape == spec.shape
        if not single and given.shape[1:] != spec.shape:
            raise ValueError(
                f"observations of shape {list(given.shape)}, expected {list(spec.shape)} or a batch of those"
            )
        batch = given[None] if single else given
        return np.ascontiguousarray(batch, spec.dtype), single

    def _for_environment(self, stored: NDArray[Any]) -> NDArray[Any]:
        """From the network's actions to those that the environment takes."""
        action = self.action
        if isinstance(action, Discrete):
            return stored + action.start
        if isinstance(action, MultiDiscrete):
            return stored + np.asarray(action.start, np.int64) if action.start else stored
        low, high = (np.asarray(bound, np.float32).reshape(action.shape) for bound in (action.low, action.high))
        clipped: NDArray[Any] = np.clip(stored, low, high)
        return clipped


def load(place: str, *, own_code: bool = False) -> Policy:
    """The policy of a run or of one of its checkpoints: its folder, or a name below $HIVE_HOME (the newest then).

    own_code: import and call the classes that [network] of that run names. Raises RecordError for a checkpoint that is
    damaged, describes no policy or does not fit its description, UsageError for a run that is not there.
    """
    checkpoint = checkpoint_at(str(place))
    try:
        description = checkpoint.state["policy"]
        observation, action, network = _specs_in(description)
        heads, distribution = _heads_in(description), _distribution_in(description, action)
    except (KeyError, TypeError, ValueError, NetworkError) as error:
        raise RecordError(
            f"state.json of {checkpoint.path} describes no policy: {type(error).__name__}: {error}",
            hint="resume the run and stop it: the checkpoint that it writes then does",
        ) from None
    named = [reference for key in REFERENCES if (reference := getattr(network, key)) is not None]
    if named and not own_code:
        raise RecordError(
            f"the network of {checkpoint.path} is made of `{named[0]}`, which would be imported and called",
            hint="hive.load(..., own_code=True) does that, if you trust the checkpoint",
        )
    module = _network(observation, action, network, heads)
    flat = FlatParameters(module)
    block = aligned_block(flat.block_bytes)
    copy_arrays(checkpoint.tensors(), flat.arrays(block), str(checkpoint.path))
    flat.bind(block, read_only=True)
    facts = checkpoint.state | {"mean_return": checkpoint.mean_return}
    return Policy(observation, action, module, facts, distribution)


def describe_policy(
    observation: ObservationSpec,
    action: ActionSpec,
    network: NetworkConfig,
    heads: Sequence[str] = USUAL_HEADS,
    distribution: ActionDistribution | None = None,
) -> dict[str, Any]:
    """What `load` makes a policy of, besides the weights; JSON has room for all of it.

    heads: what the network ends in. distribution: what actions are drawn from; None: the usual one of the action.
    """
    exploration = {"epsilon": distribution.epsilon} if isinstance(distribution, EpsilonGreedy) else {}
    kind = next(kind for kind, cls in KINDS.items() if isinstance(action, cls))
    facts = {name: _plain(value) for name, value in dataclasses.asdict(action).items()}
    return {
        "observation": {name: _plain(value) for name, value in dataclasses.asdict(observation).items()},
        "action": {"kind": kind, **facts},
        "network": {name: _plain(value) for name, value in dataclasses.asdict(network).items()},
        "heads": list(heads),
        **exploration,
    }


def _plain(value: Any) -> Any:
    """Tuples as lists; bounds that are infinite, for which JSON has no number, as text."""
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return str(value) if isinstance(value, float) and not np.isfinite(value) else value


def _specs_in(description: Mapping[str, Any]) -> tuple[ObservationSpec, ActionSpec, NetworkConfig]:
    """Raises KeyError, TypeError or ValueError for what `describe_policy` has not made."""
    seen, facts, network = (dict(description[part]) for part in ("observation", "action", "network"))
    observation = ObservationSpec(tuple(map(int, seen["shape"])), str(seen["dtype"]), seen["first"])
    if observation.dtype not in ("float32", "uint8"):
        raise ValueError(f"observations of dtype {observation.dtype}")
    cls = KINDS[facts.pop("kind")]
    numbers = float if cls is Box else int
    for name, value in facts.items():
        convert = int if name == "shape" else numbers
        facts[name] = tuple(map(convert, value)) if isinstance(value, list) else convert(value)
    network["middleware"] = tuple(map(int, network["middleware"]))
    return observation, cls(**facts), NetworkConfig(**network)


def _heads_in(description: Mapping[str, Any]) -> tuple[str, ...]:
    """The heads of the network. Older descriptions name none."""
    heads = tuple(map(str, description.get("heads", USUAL_HEADS)))
    if unknown := set(heads) - set(HEADS):
        raise ValueError(f"no heads {', '.join(sorted(unknown))}")
    return heads


def _distribution_in(description: Mapping[str, Any], action: ActionSpec) -> ActionDistribution:
    """The usual distribution of the action; with an epsilon that of a policy that acts by action values."""
    distribution = distribution_for(action)
    if "epsilon" not in description:
        return distribution
    if not isinstance(distribution, Categorical):
        raise ValueError("an epsilon, and actions that are not a single choice")
    epsilon = float(description["epsilon"])
    return EpsilonGreedy(distribution.n, epsilon, epsilon)


def _network(
    observation: ObservationSpec, action: ActionSpec, network: NetworkConfig, heads: Sequence[str]
) -> torch.nn.Module:
    wrapper = NetworkWrapper(
        network_parameters(network, heads=heads),
        has_target=False,
        has_global=False,
        name="policy",
        spaces=Spaces({"observation": observation}, action),
        generator=torch.Generator().manual_seed(0),  # of weights that are overwritten
    )
    return wrapper.online_network.module
