"""Trained policies, loaded from a checkpoint, which only act.

    policy = hive.load("runs/cartpole-1")               # of its newest checkpoint; which="best": the best policy
    action = policy(observation)                        # the most likely one; [B, ...] observations give B actions
    action = policy(observation, noise=generator)       # drawn from its distribution, as while it trained

A checkpoint describes its policy in state.json (`describe_policy`): the observation, the action and [network]. `load`
makes a policy of this description and of weights.safetensors, in one process and without environments. The format is
JSON and bytes, and no code in it is executed. A user-defined network is the exception: its module is imported and its
class called, so it requires `own_code=True`.
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
from hive.networks.configured import copy_arrays, network_parameters
from hive.networks.distributions import ActionDistribution, Categorical, distribution_for
from hive.networks.exploration import EpsilonGreedy
from hive.networks.flat import FlatParameters, aligned_block
from hive.networks.head_kinds import HEADS
from hive.networks.spaces import Spaces
from hive.networks.wrapper import NetworkWrapper
from hive.records import checkpoint_at

__all__ = ["Policy", "describe_policy", "load"]

KINDS: dict[str, type[Discrete] | type[MultiDiscrete] | type[Box]] = {
    "discrete": Discrete,
    "multi-discrete": MultiDiscrete,
    "box": Box,
}
USUAL_HEADS = ("policy", "value")  # heads if a description names none
REFERENCES = ("module", "policy_head", "value_head")  # keys of [network] that may name user-defined code


class Policy:
    """A trained policy: a function from observations to actions.

    observation, action: their specs. network: the module, in evaluation mode; it returns (policy outputs, value) or
        (action values,). distribution: maps the first of these outputs to actions.
    updates, env_steps: progress of its run. mean_return: mean of the last 100 training episodes, None before the first;
        of a best policy, the mean that it was chosen by.
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
        """Return the action for one observation, as its environment takes it, or actions [B, ...] for a batch [B, ...].

        It is the most likely action, or with `noise` a sampled one. Raises ValueError for another shape.
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
        """Return observations [B, ...] in the network's dtype, and whether the argument was a single observation."""
        spec, given = self.observation, np.asarray(observation)
        if spec.first is not None and given.dtype.kind in "iu" and given.ndim < 2:  # integers become one-hot vectors
            given = np.eye(*spec.shape, dtype=np.float32)[given - spec.first]
        single = given.shape == spec.shape
        if not single and given.shape[1:] != spec.shape:
            raise ValueError(
                f"got observations of shape {list(given.shape)}, expected {list(spec.shape)} or a batch of these"
            )
        batch = given[None] if single else given
        return np.ascontiguousarray(batch, spec.dtype), single

    def _for_environment(self, stored: NDArray[Any]) -> NDArray[Any]:
        """Convert the network's actions to those of the environment: shifted to `start`, or clipped to the bounds."""
        action = self.action
        if isinstance(action, Discrete):
            return stored + action.start
        if isinstance(action, MultiDiscrete):
            return stored + np.asarray(action.start, np.int64) if action.start else stored
        low, high = (np.asarray(bound, np.float32).reshape(action.shape) for bound in (action.low, action.high))
        clipped: NDArray[Any] = np.clip(stored, low, high)
        return clipped


def load(place: str, which: str = "latest", *, own_code: bool = False) -> Policy:
    """Load the policy of a checkpoint or of a run.

    place: the folder of either, or the name of a run below $HIVE_HOME.
    which: of a run, "latest": the policy of its newest checkpoint; "best": the policy with the highest mean return in
        an evaluation or, without [evaluation], over 100 training episodes.
    own_code: whether to import and call the classes that [network] of the run names.

    Raises RecordError for a checkpoint that is damaged, has no description of a policy or does not fit it, for a run
    without such a policy, and for user-defined code without `own_code`; UsageError if the run does not exist, for
    another `which`, and for "best" with the folder of a checkpoint.
    """
    checkpoint = checkpoint_at(str(place), which)
    try:
        description = checkpoint.state["policy"]
        observation, action, network = _specs_in(description)
        heads, distribution = _heads_in(description), _distribution_in(description, action)
    except (KeyError, TypeError, ValueError, NetworkError) as error:
        raise RecordError(
            f"state.json of {checkpoint.path} describes no policy: {type(error).__name__}: {error}",
            hint="resume the run and stop it: its last checkpoint then describes the policy",
        ) from None
    named = [reference for key in REFERENCES if (reference := getattr(network, key)) is not None]
    if named and not own_code:
        raise RecordError(
            f"the network of {checkpoint.path} uses `{named[0]}`, which would be imported and called",
            hint="if you trust the checkpoint, call hive.load(..., own_code=True)",
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
    """Return the description, for JSON, from which `load` rebuilds a policy, apart from its weights.

    heads: the network's heads. distribution: that of the actions; None: the default distribution of the action spec.
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
    """Convert tuples to lists, and floats that are not finite, which JSON lacks, to text."""
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return str(value) if isinstance(value, float) and not np.isfinite(value) else value


def _specs_in(description: Mapping[str, Any]) -> tuple[ObservationSpec, ActionSpec, NetworkConfig]:
    """Read the specs in a description. Raises KeyError, TypeError or ValueError if it is invalid."""
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
    """Read the heads of the network; USUAL_HEADS for older descriptions, which name none."""
    heads = tuple(map(str, description.get("heads", USUAL_HEADS)))
    if unknown := set(heads) - set(HEADS):
        raise ValueError(f"unknown heads {', '.join(sorted(unknown))}")
    return heads


def _distribution_in(description: Mapping[str, Any], action: ActionSpec) -> ActionDistribution:
    """Return the default distribution of the action, or EpsilonGreedy if the description has an epsilon."""
    distribution = distribution_for(action)
    if "epsilon" not in description:
        return distribution
    if not isinstance(distribution, Categorical):
        raise ValueError("epsilon requires a single discrete action")
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
        generator=torch.Generator().manual_seed(0),  # any seed: the weights are overwritten
    )
    return wrapper.online_network.module
