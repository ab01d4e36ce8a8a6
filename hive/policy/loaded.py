"""Trained policies, loaded from a checkpoint, which only act.

    policy = hive.load("runs/cartpole-ppo-1")           # of its newest checkpoint; which="best": the best policy
    action = policy(observation)                        # the most likely one; [B, ...] observations give B actions
    action = policy(observation, noise=generator)       # drawn from its distribution, as while it trained

A policy that remembers takes and returns its state, which begins anew with each episode:

    state = policy.initial_state()                      # of another policy: None
    action, state = policy(observation, state)

A checkpoint describes its policy in state.json (`describe_policy`): the observation, the action and [network]. `load`
makes a policy of this description and of weights.safetensors, in one process and without environments. The format is
JSON and bytes, and no code in it is executed. A user-defined network is the exception: its module is imported and its
class called, so it requires `own_code=True`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hive.config import NetworkConfig
from hive.config.answers import answered, answers
from hive.config.references import give_setup
from hive.envs import ActionSpec, ObservationSpec, action_converter, each_action
from hive.errors import HiveError, MemoryShort, NetworkError, RecordError, UsageError, brief
from hive.free_memory import allocation_limit, free_memory, size_text
from hive.networks.act.distributions import ActionDistribution
from hive.networks.build.configured import check_arrays, copy_arrays, load_module, network_parameters
from hive.networks.build.convolutions import has_bfloat16_instructions
from hive.networks.build.layers import without_memory
from hive.networks.build.network import build_network, compute_natively
from hive.networks.build.parameters import HeadParameters
from hive.networks.build.spaces import Spaces
from hive.networks.rows.inputs import state_width_of
from hive.networks.weights.flat import FlatLayout, FlatParameters, aligned_block
from hive.networks.weights.wrapper import BoundNetwork
from hive.policy.acting import Acting
from hive.policy.acting_state import ActingState
from hive.policy.descriptions import classes_in, current_description, distribution_in, heads_in, specs_in
from hive.policy.given_observations import GivenObservations
from hive.policy.origin import config_of, environment_of, environment_text, run_of
from hive.records import Checkpoint, checkpoint_at, held
from hive.runtime.process.user_code.torch_state import hive_torch

REFERENCES = ("module", "extractor", "policy_head", "value_head")  # keys of [network] that may name user-defined code


@answers("policy")
class Policy:
    """A trained policy: a function from observations to actions.

    observation, action: their specs; parts that only the critic sees are `hidden` in the first.
    network: the module, in evaluation mode; it returns (policy outputs, value) or (action values,); a recurrent one
        also takes and returns a state (hive.networks.rows.recurrent). distribution: maps the first output to actions.
    updates, env_steps: progress of its run. mean_return: mean of the last 100 training episodes, None before the first;
        of a best policy, the mean that it was chosen by. checkpoint: that it was loaded from, without weights.
    """

    checkpoint: Checkpoint | None = None

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
        self._given = GivenObservations(observation)
        self._convert = action_converter(action)
        self.network = network.eval()
        self._remembers = ActingState(observation, state_width_of(network))
        self.updates = int(facts.get("updates", 0))
        self.env_steps = int(facts.get("env_steps", 0))
        self.mean_return: float | None = facts.get("mean_return")

    def __repr__(self) -> str:
        where = ""
        if self.checkpoint is not None:
            with contextlib.suppress(HiveError):  # its run may be gone
                where = f" for {environment_text(config_of(self.checkpoint, run_of(self.checkpoint)))}"
        return f"<hive.Policy{where}, after {self.env_steps:,} steps>"

    def environment(self, render_mode: str | None = None) -> Any:
        """Return a new environment as the policy's run has it in evaluations: with its options and its wrappers.

        It is a gymnasium.Env, or one of several agents in the form of PettingZoo; its code is imported and called.
        render_mode: as in gymnasium.make. Raises UsageError for a policy whose folder is not in that of a run, and
        EnvironmentMissing or EnvironmentFailed if it cannot be made.
        """
        if self.checkpoint is None:
            raise UsageError("this policy was not loaded from a run", hint="hive.load(RUN).environment()")
        return environment_of(config_of(self.checkpoint, run_of(self.checkpoint)), render_mode)

    def initial_state(self, batch: int | None = None) -> Any:
        """Return the state of a policy that remembers, at the beginning of an episode; None for any other policy.

        batch: None: the state of one environment; a number B: those of B environments. `hive.policy.acting_state`
        has the forms of states.
        """
        return self._remembers.initial(batch)

    @brief
    @answered("policy")
    @hive_torch()
    def __call__(
        self,
        observation: Any,
        state: Any = None,
        *,
        action_mask: Any = None,
        noise: np.random.Generator | None = None,
    ) -> Any:
        """Return the action for one observation, as its environment takes it, or actions [B, ...] for a batch [B, ...].

        It is the most likely action, or with `noise` a sampled one. A batch of dictionaries or tuples has arrays
        [B, ...] in the place of one observation's, and of one action's. action_mask: where env.action_mask is "info",
        the mask of the state, info["action_mask"].

        A policy that remembers (it is recurrent, or env.frame_stack is more than 1) also takes the state of each
        environment and returns a pair: the action or actions, and the state for the next call. An empty batch gives no
        actions. Parts that only the critic sees may be missing. Raises ValueError for what the observation space does
        not hold (`hive.policy.given_observations`), for a mask that is missing or that the policy does not take,
        and for such a state.
        """
        outputs, after, single = self._outputs(observation, state, action_mask)
        if noise is None:
            actions = self.most_likely(outputs)
        else:
            drawn = self.distribution.draw_noise(noise, len(outputs))
            actions = self._convert(self.distribution.sample_numpy(outputs, drawn))
        action = next(iter(each_action(actions))) if single else actions
        return (action, after) if self._remembers.kinds else action

    @hive_torch()
    def outputs(
        self, observation: Any, state: Any = None, *, action_mask: Any = None
    ) -> tuple[NDArray[np.float32], Any]:
        """Return the network's outputs from which actions are chosen, float32 [B, ...], and the state after the call.

        B is 1 for a single observation; the state is None for a policy that does not remember. Arguments and errors are
        those of a call.
        """
        return self._outputs(observation, state, action_mask)[:2]

    @hive_torch()
    def most_likely(self, outputs: NDArray[np.float32]) -> Any:
        """Return the most likely actions [B, ...], as the environment takes them, for `outputs` [B, ...]."""
        return self._convert(self.distribution.mode(torch.from_numpy(outputs)).numpy())

    def _outputs(self, observation: Any, state: Any, action_mask: Any) -> tuple[NDArray[np.float32], Any, bool]:
        """Return what `outputs` returns, and whether the observation was a single one."""
        rows, single = self._given(observation, action_mask)
        count = len(rows)
        given = self._remembers.arrays(state, count, single=single)
        if not count:  # no layer has to know what to do without rows: one row is computed, and left out
            rows, *given = (np.zeros((1, *array.shape[1:]), array.dtype) for array in (rows, *given))
        acting = Acting.of(self)
        acting.begin(len(rows))
        acting.recall(given)
        acting.see(rows)
        with torch.inference_mode():
            outputs = acting.outputs(rows)
        states = [one.copy() for one in acting.remembered]
        return outputs[:count], self._remembers.after([one[:count] for one in states], single=single), single


@brief
@answered("load")
@hive_torch()
def load(
    place: str | os.PathLike[str], which: str = "latest", *, own_code: bool = False, policy: str | None = None
) -> Policy:
    """Load the policy of a checkpoint or of a run.

    place: the folder of either, the name of a run below $HIVE_HOME, its `hive.Result`, or a file of `hive export`,
        FILE.safetensors.
    which: of a run, "latest": the policy of its newest checkpoint; "best": the policy with the highest mean return in
        an evaluation or, without [evaluation], over 100 training episodes.
    own_code: whether to import and call the classes that [network] of the run names.
    policy: the name of one of the policies of a run with several; None: the first.

    Raises RecordError for a checkpoint that is damaged, has no description of a policy or does not fit it, for a run
    without such a policy, and for user-defined code without `own_code`; UsageError if the run does not exist, for
    another `which`, and for "best" with the folder of a checkpoint or with a file; MemoryShort before anything large is
    allocated.
    """
    (checkpoint,) = held(lambda: [checkpoint_at(os.fspath(place), which, policy)])
    return policy_of(checkpoint, own_code=own_code)


@hive_torch()
def policy_of(checkpoint: Checkpoint, *, own_code: bool = False, exact: bool = False) -> Policy:
    """Load the policy of an open checkpoint, as `load` does.

    exact: compute in float32 what the run computes in bfloat16. Raises RecordError as `load` does.
    """
    try:
        description = current_description(checkpoint)
        observation, action, network = specs_in(description)
        heads = heads_in(description)
        distribution = distribution_in(description, action, network, heads)
    except (KeyError, TypeError, ValueError, OverflowError, NetworkError) as error:
        again = "resume the run and stop it: its last checkpoint then describes the policy"
        raise RecordError(
            f"{checkpoint.described_in} describes no policy: {type(error).__name__}: {error}",
            hint="export the policy of its run again" if checkpoint.exported else again,
        ) from None
    named = [reference for key in REFERENCES if (reference := getattr(network, key)) is not None]
    named += filter(None, classes := classes_in(description))
    if named and not own_code:
        raise RecordError(
            f"the network of {checkpoint.path} uses `{named[0]}`, which would be imported and called",
            hint="if you trust the checkpoint, call hive.load(..., own_code=True)",
        )
    if named:
        with contextlib.suppress(HiveError):  # the folder of a checkpoint alone has no config
            give_setup(config_of(checkpoint, run_of(checkpoint)).run.setup)
    heads = tuple(
        dataclasses.replace(head, cls=load_module(custom, "head"))
        if custom and isinstance(head, HeadParameters)
        else head
        for head, custom in zip(heads, classes, strict=True)
    )
    if exact or not has_bfloat16_instructions():  # the same weights, and faster than emulated bfloat16
        network = dataclasses.replace(network, precision="float32")
    if network.module is None:
        _check_layers(checkpoint, network, heads)
    if not named:
        _check_size(checkpoint, observation, action, network, heads)
    with allocation_limit(f"the network of {checkpoint.path}") if named else nullcontext():
        flat = FlatParameters(module := _network(observation, action, network, heads))
    compute_natively(module, flat, network.backend)
    block = aligned_block(flat.block_bytes)
    copy_arrays(checkpoint.tensors(), flat.arrays(block), str(checkpoint.path))
    flat.bind(block, read_only=True)
    facts = checkpoint.state | {"mean_return": checkpoint.mean_return}
    policy = Policy(observation.without(network.critic_parts), action, module, facts, distribution)
    policy.checkpoint = dataclasses.replace(checkpoint, weights=None)
    return policy


def _check_layers(checkpoint: Checkpoint, network: NetworkConfig, heads: Sequence[str | HeadParameters]) -> None:
    """Raise RecordError for more layers than a checkpoint has tensors: millions would take minutes even unallocated."""
    layers, tensors = len(network.middleware) + len(network.value_middleware or ()), len(checkpoint.kinds())
    if max(layers, len(heads)) > tensors:
        raise RecordError(f"{checkpoint.described_in} describes {layers:,} layers, and it has {tensors} tensors")


def _check_size(
    checkpoint: Checkpoint,
    observation: ObservationSpec,
    action: ActionSpec,
    network: NetworkConfig,
    heads: Sequence[str | HeadParameters],
) -> None:
    """Raise RecordError if a checkpoint holds another network than it describes, and MemoryShort if it has no room.

    Nothing is allocated for the network, whatever its size.
    """
    kinds = checkpoint.kinds()
    try:
        with without_memory():
            parameters, spaces = network_parameters(network, heads=heads), Spaces({"observation": observation}, action)
            layout = FlatLayout(build_network(parameters, spaces, torch.Generator().manual_seed(0)))
    except (TypeError, ValueError, RuntimeError, OverflowError, NetworkError) as error:
        raise RecordError(f"{checkpoint.described_in} describes no network: {error}") from None
    own = layout.hollow_arrays()
    check_arrays(kinds, own, str(checkpoint.path))
    if checkpoint.exported and (others := kinds.keys() - own.keys()):
        raise RecordError(
            f"{checkpoint.path} has another network than it describes: `{min(others)}` is no part of that",
            hint="export the policy of its run again",
        )
    if layout.block_bytes > (free := free_memory()).usable:
        raise MemoryShort(
            f"the network of {checkpoint.path} needs {size_text(layout.block_bytes)}, and {free} are free",
            hint="end other programs, or load it on a machine with more memory",
        )


def _network(
    observation: ObservationSpec, action: ActionSpec, network: NetworkConfig, heads: Sequence[str | HeadParameters]
) -> torch.nn.Module:
    parameters, spaces = network_parameters(network, heads=heads), Spaces({"observation": observation}, action)
    any_seed = torch.Generator().manual_seed(0)  # the weights are overwritten
    return BoundNetwork(parameters, spaces, any_seed).module
