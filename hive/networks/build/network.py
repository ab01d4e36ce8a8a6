"""The network built from NetworkParameters, and the contract of user-defined networks.

    observations ─ embedder ─┐
    measurements ─ embedder ─┴ merger ─ middleware ─ one linear layer ─┬ columns ─ policy head ─ logits [N, A]
                                                                       └ columns ─ value head ── value [N]

A network takes float32 or uint8 [N, *shape], or a mapping from names to such tensors if it has several
inputs, and returns a tuple with the output of every head, by default (policy, value). A user-defined module must
fulfil the same contract, see `custom`. With an LSTM or a GRU the network is another class, see `recurrent`.

Calls of small layers dominate the cost of acting, so `forward` calls a list of steps, which for the usual layers are
torch's functions on the layer's parameters. All heads share one matrix product, and a plain vector input needs no
layer. Hooks on inner layers are therefore not called; those on the network are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from operator import call
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from hive.config.references import calls_user_code
from hive.declared import is_within
from hive.errors import NetworkError
from hive.networks.build.agents import AgentNetwork, Critics, Temperature
from hive.networks.build.convolutions import Convolution, FeatureLayer, check_bfloat16
from hive.networks.build.custom import ExtractedNetwork, Extractor, from_module
from hive.networks.build.embedders import embedded_inputs, hidden_gain, middleware_layers, network_inputs
from hive.networks.build.head_kinds import make_head
from hive.networks.build.heads import Head, OutputLayer, takes_features
from hive.networks.build.layers import seeded, with_noise
from hive.networks.build.naming import freeze
from hive.networks.build.parameters import (
    GRUMiddlewareParameters,
    HeadParameters,
    InputEmbedderParameters,
    LSTMMiddlewareParameters,
    MiddlewareParameters,
    NetworkParameters,
)
from hive.networks.build.spaces import BoundedAction, DiscreteAction, InputSpec, Spaces
from hive.networks.rows.inputs import ACTION_INPUT, OBSERVATION, InputName, dotted_name
from hive.networks.rows.normalization import NormalizedNetwork
from hive.networks.rows.novelty import Novelty, novelty_inputs
from hive.networks.rows.packed import PackedNetwork, PackedSpec, StackedNetwork, part_key, stacked_spec
from hive.networks.rows.recurrent import (
    RecurrentNetwork,
    RecurrentNetworkPerHead,
    recurrent_cell,
)
from hive.networks.weights.dense import Dense
from hive.networks.weights.flat import FlatParameters
from hive.runtime.process.user_code.torch_state import hive_torch

Observations = Tensor | Mapping[str, Tensor]
"""A batch [N, ...] of the only observation, or of each by name: float32 or uint8."""

LayerCall: TypeAlias = tuple[Callable[..., Tensor], dict[str, Any]]  # a function of the columns, its keyword arguments


# Layers that allocate their output and do not read it in their backward pass, and activations that may overwrite it.
PRODUCERS = (nn.Linear, Convolution, FeatureLayer, nn.LayerNorm)
IN_PLACE: dict[type[nn.Module], Callable[[Tensor], Tensor]] = {nn.ReLU: torch.relu_, nn.Tanh: torch.tanh_}


class Network(nn.Module):
    """Layers that return features [N, width], and heads. Maps observations to a tuple of the heads' outputs.

    Children: `trunk` (all layers in order, the heads' common linear layer last) and `heads`.
    """

    def __init__(
        self,
        layers: Sequence[nn.Module],
        width: int,
        heads: Sequence[Head],
        *,
        orthogonal: bool = True,
        noisy_deviation: float = 0.0,
    ) -> None:
        """orthogonal: the heads' linear layer has orthogonal weights at first; False: those of torch.nn.Linear.

        noisy_deviation: that of hive.networks.build.layers for all linear layers; 0: no noise.
        """
        super().__init__()
        self.trunk = nn.Sequential(*layers, OutputLayer(width, heads, orthogonal=orthogonal))
        self.heads = nn.ModuleList(heads)
        if noisy_deviation:
            with_noise(self, noisy_deviation)
        self._steps = _steps(list(self.trunk))
        self._head_calls: tuple[Callable[..., Tensor], ...] = tuple(head.forward for head in heads)
        self._widths = tuple(head.width for head in heads)
        self._take_features = takes_features(heads, width)
        self.dense: Dense | None = None  # set by `compute_natively`

    def forward(self, observations: Observations) -> tuple[Tensor, ...]:
        if self.dense is not None and (found := self.dense(observations)) is not None:
            return self.from_columns(found[0])
        columns: Any = observations
        features: Any = None
        for function, arguments in self._steps:
            features, columns = columns, function(columns, **arguments)
        return self.from_columns(columns, features)

    def from_columns(self, columns: Tensor, features: Tensor | None = None) -> tuple[Tensor, ...]:
        """Return the outputs of the heads from the columns of their common layer, float32 [N, width].

        features: the input of that layer, float32 [N, features], if a head takes it.
        """
        pieces = columns.split_with_sizes(self._widths, -1)
        if not any(self._take_features):
            return tuple(map(call, self._head_calls, pieces))
        calls = zip(self._head_calls, pieces, self._take_features, strict=True)
        return tuple([head(piece, features) if takes else head(piece) for head, piece, takes in calls])


class NetworkPerHead(nn.Module):
    """Several networks, `branches`, for the same observations; returns the outputs of all in one tuple, in order.

    alike: whether all see the same parts of an observation; otherwise each computes natively by itself.
    """

    def __init__(self, branches: Sequence[nn.Module], *, alike: bool = True) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)
        self.alike = alike
        self.dense: Dense | None = None  # set by `compute_natively`
        self.used: int | None = None  # how many of the branches are computed; None: all

    def forward(self, observations: Observations) -> tuple[Tensor, ...]:
        branches: Any = self.branches[: self.used]
        if self.dense is not None and (found := self.dense(observations, self.used)) is not None:
            pairs = zip(branches, found, strict=True)
            return tuple([output for branch, columns in pairs for output in branch.from_columns(columns)])
        return tuple([output for branch in branches for output in branch(observations)])


@hive_torch()
def build_network(
    parameters: NetworkParameters, spaces: Spaces, generator: torch.Generator, device: torch.device | None = None
) -> nn.Module:
    """Build the network that `parameters` describe, with initial weights drawn from `generator`, on the CPU.

    The same generator state gives the same weights. device: where it will compute; None: on the CPU. Raises
    NetworkError for invalid parameters and for parameters that do not fit the spaces or the device.
    """
    parameters.refuse_impossible()
    check_network_device(parameters, device)
    if not spaces.observations:
        raise NetworkError("the spaces have no observations", hint='for example {"observation": ...}')
    _check_critic_parts(parameters, spaces)
    network = _normalized(parameters, spaces, generator)
    freeze(network, parameters.frozen)
    if parameters.precision != "float32" and not any(isinstance(layer, Convolution) for layer in network.modules()):
        raise NetworkError(
            f'precision = "{parameters.precision}" has no effect on this network: it has no convolutions',
            hint="leave network.precision out",
        )
    return network


def check_network_device(parameters: NetworkParameters, device: torch.device | None) -> None:
    """Raise NetworkError for a precision or backend that the device, or None for the CPU in place, does not have."""
    if parameters.precision == "bfloat16" and (device is None or device.type == "cpu"):
        check_bfloat16()
    if parameters.backend == "native" and device is not None:
        raise NetworkError(
            f'network.backend = "native" computes on the CPU, not on {device}', hint='use "auto", or the device "cpu"'
        )


def _normalized(parameters: NetworkParameters, spaces: Spaces, generator: torch.Generator) -> nn.Module:
    """Build a network, and around it the normalizer and the networks of RND if there are any."""
    network = (_agent if parameters.critics else _for_stored)(parameters, spaces, generator)
    observations, rewards = parameters.normalize_observations, parameters.normalize_rewards
    if not (observations or rewards or parameters.novelty):
        return network
    if (observations or parameters.novelty) and len(spaces.observations) != 1:
        raise NetworkError(f"{'normalize_observations' if observations else 'novelty'} needs a single observation")
    (observation,) = spaces.observations.values() if observations else (None,)
    novelty = _novelty(parameters, spaces, generator) if parameters.novelty else None
    return NormalizedNetwork(observation, network, rewards, novelty)


def compute_natively(module: nn.Module, flat: FlatParameters, backend: str = "auto") -> None:
    """Let the networks in `module` that are made of dense layers compute by hive._native, see
    hive.networks.weights.dense.

    flat: binds the parameters of `module`. backend: that of NetworkParameters. Raises NetworkError for "native" if
    torch has to compute some of the networks.
    """
    if backend == "torch":
        return
    found = _nets_in(module)
    for network, branches in found:
        masked = range(len(branches)) if isinstance(network, Critics) else (0,)
        network.dense = Dense.of(flat, [(list(one.trunk), heads_of(one) or []) for one in branches], masked)
    if backend == "native" and not (found and all(network.dense for network, _ in found)):
        raise NetworkError(
            'backend = "native" cannot compute this network',
            hint="it computes linear layers, with noise or without, tanh, relu, silu, LayerNorm and dueling heads; "
            '"auto" uses torch for all others',
        )


def acting_alone(module: nn.Module) -> nn.Module:
    """Let the networks in `module` compute the policy, their first output, without separate other networks."""
    for network in module.modules():
        if isinstance(network, NetworkPerHead):
            network.used = 1
    return module


def _nets_in(module: nn.Module) -> list[tuple[Any, list[Network]]]:
    """Return the modules that compute one or several Networks of the same input, and these."""
    found: list[tuple[Any, list[Network]]] = []
    within: set[nn.Module] = set()
    for network in module.modules():
        if isinstance(network, NetworkPerHead | Critics) and getattr(network, "alike", True):
            every = network.networks if isinstance(network, Critics) else network.branches
            branches = [one for one in every if isinstance(one, Network)]
            if len(branches) == len(network.branches):
                found.append((network, branches))
                within |= set(branches)
        elif isinstance(network, Network) and network not in within:
            found.append((network, [network]))
    return found


def _agent(parameters: NetworkParameters, spaces: Spaces, generator: torch.Generator) -> nn.Module:
    """Build the actor, whose heads are those of the parameters, and critics with the same kind of layers."""
    action, discrete = spaces.action, isinstance(spaces.action, DiscreteAction)
    if len(spaces.observations) != 1:
        raise NetworkError("critics need a single observation", hint="a dictionary of parts is one observation")
    if not (discrete or isinstance(action, BoundedAction)):
        hint = "use ppo, a2c or impala for this environment"
        raise NetworkError(f"critics need a box action with bounds or a discrete one, not {action!r}", hint=hint)
    (observation,) = spaces.observations.values()
    usual = next(iter(parameters.input_embedders_parameters.values()), InputEmbedderParameters())
    inputs = {OBSERVATION: usual} | ({} if discrete else {ACTION_INPUT: InputEmbedderParameters()})
    critic = dataclasses.replace(
        parameters,
        middleware_parameters=parameters.value_middleware_parameters or parameters.middleware_parameters,
        value_middleware_parameters=None,
        critics=0,
        critic_parts=(),
        temperature=False,
        use_separate_networks_per_head=False,
        heads_parameters=[HeadParameters("q" if discrete else "value", gain=parameters.critic_gain)],
        input_embedders_parameters=inputs,
    )
    actor = _for_stored(parameters, spaces, generator)
    seen = Spaces({OBSERVATION: observation}, action)
    critics = [_for_stored(critic, seen, generator) for _ in range(parameters.critics)]
    temperature = Temperature() if parameters.temperature else None
    return AgentNetwork(actor, Critics(critics, takes_actions=not discrete), temperature)


def _novelty(parameters: NetworkParameters, spaces: Spaces, generator: torch.Generator) -> Novelty:
    """Build the networks of RND, whose embedders are those of the policy, in float32."""
    parameters = dataclasses.replace(parameters, precision="float32")  # novelty is a small difference of two outputs
    (observation,) = spaces.observations.values()
    if isinstance(observation, PackedSpec) and observation.parts:
        parameters = _for_parts(dataclasses.replace(parameters, module=None), observation)
    with seeded(generator):
        return Novelty(observation, parameters, Spaces(novelty_inputs(observation), spaces.action))


def _for_stored(parameters: NetworkParameters, spaces: Spaces, generator: torch.Generator) -> nn.Module:
    """Build the network for observations as they are stored: in rows of parts, stacked, or as they are."""
    only = next(iter(spaces.observations.values())) if len(spaces.observations) == 1 else None
    stack = int(getattr(only, "stack", 1))
    if isinstance(only, PackedSpec) and only.parts:
        named = parameters.module is not None
        inputs = _parts(parameters, only, stack, named=named)
        network = _built(_for_parts(parameters, only), Spaces(inputs, spaces.action), generator)
        return PackedNetwork(only, network, named=named)
    if only is None or stack == 1:
        return _built(parameters, spaces, generator)
    (name,) = spaces.observations
    return StackedNetwork(only, _built(parameters, Spaces({name: stacked_spec(only, stack)}, spaces.action), generator))


def _for_parts(parameters: NetworkParameters, packed: PackedSpec) -> NetworkParameters:
    """Return parameters with the embedder of each part that the network sees.

    An embedder called "observation", or otherwise than the parts, is that of all parts.
    """
    chosen: dict[InputName, InputEmbedderParameters] = dict(parameters.input_embedders_parameters)
    action = {ACTION_INPUT: chosen.pop(ACTION_INPUT)} if ACTION_INPUT in chosen else {}
    keys = {dotted_name(key): key for key in _parts(parameters, packed, 1)}
    if len(chosen) == 1 and (OBSERVATION in chosen or chosen.keys().isdisjoint(keys)):
        (usual,) = chosen.values()
        chosen = dict.fromkeys(_parts(parameters, packed, 1), usual)
    else:
        chosen = {keys.get(dotted_name(name), name): one for name, one in chosen.items()}
    return dataclasses.replace(parameters, input_embedders_parameters={**chosen, **action})


def _parts(
    parameters: NetworkParameters, packed: PackedSpec, stack: int, *, named: bool = False
) -> dict[InputName, InputSpec]:
    """Return the inputs of the network of a packed observation: its parts by path, stacked if `stack` are seen.

    Beside an action a single part is the observation, because a PackedNetwork does not name it. named: by name, for a
    custom module. Raises NetworkError if two names are equal then.
    """
    parts: dict[InputName, InputSpec] = {}
    for part in packed.parts:
        key = part.name if named else part_key(part)
        if key in parts:
            raise NetworkError(
                f"two parts of the observation are called `{dotted_name(key)}`, and a custom module gets parts by name",
                hint="rename one of them in a wrapper of the environment (env.wrappers)",
            )
        parts[key] = stacked_spec(part, stack)
    if ACTION_INPUT not in parameters.input_embedders_parameters or len(parts) > 1:
        return parts
    return {OBSERVATION: next(iter(parts.values()))}


@calls_user_code("network.module")
def _built(parameters: NetworkParameters, spaces: Spaces, generator: torch.Generator) -> nn.Module:
    with seeded(generator):
        heads = [make_head(head, spaces.action) for head in parameters.heads()]
        if parameters.module is not None:
            return from_module(parameters.module(spaces), spaces, heads)
        if isinstance(parameters.middleware_parameters, LSTMMiddlewareParameters | GRUMiddlewareParameters):
            return _recurrent(parameters, spaces, heads)
        groups = [[head] for head in heads] if parameters.use_separate_networks_per_head else [heads]
        networks = [_network(parameters, spaces, group) for group in groups]
        if parameters.use_separate_networks_per_head:
            return NetworkPerHead(networks, alike=not parameters.critic_parts)
        return networks[0]


def _seen_by(heads: Sequence[Head], parameters: NetworkParameters) -> NetworkParameters:
    """Return parameters with the embedders of the parts that a network with these heads sees."""
    if not _hides_parts(heads, parameters):
        return parameters
    chosen = parameters.input_embedders_parameters
    seen = {name: one for name, one in chosen.items() if not is_within(dotted_name(name), parameters.critic_parts)}
    return dataclasses.replace(parameters, input_embedders_parameters=seen)


def _check_critic_parts(parameters: NetworkParameters, spaces: Spaces) -> None:
    """Raise NetworkError if not every one of `critic_parts` can be hidden from the policy."""
    names = parameters.critic_parts
    if not names:
        return
    only = next(iter(spaces.observations.values())) if len(spaces.observations) == 1 else None
    parts = [part.name for part in only.parts] if isinstance(only, PackedSpec) else []
    heads = [head.name for head in parameters.heads()]
    unknown = [name for name in names if not any(is_within(part, [name]) for part in parts)]
    known = f"its parts are {', '.join(parts)}"
    faults = [
        (
            parameters.module is not None,
            "cannot be combined with `module`",
            "let the module choose what its policy sees",
        ),
        (
            not parts or "" in parts,
            "needs observations of several parts",
            "this environment has one array; a wrapper (env.wrappers) can make a dictionary of it",
        ),
        (bool(unknown), f'has "{"".join(unknown[:1])}", which is no part of the observation', known),
        (all(is_within(part, names) for part in parts), "leaves the policy no part of the observation", known),
        (
            not (parameters.critics or "value" in heads),
            f"needs a critic, and this algorithm has only the heads {', '.join(heads)}",
            "use ppo, a2c, impala, sac, td3 or ddpg",
        ),
        (
            not (parameters.critics or parameters.use_separate_networks_per_head),
            "needs separate networks for policy and value",
            "set network.separate_networks = true",
        ),
    ]
    for is_given, fault, hint in faults:
        if is_given:
            raise NetworkError(f"network.critic_parts {fault}", hint=hint)


def heads_of(module: nn.Module) -> list[Head] | None:
    """Return the heads of a network that `build_network` made of layers, one per output; None for other modules."""
    if isinstance(module, AgentNetwork):
        return heads_of(module.actor)
    if isinstance(module, NormalizedNetwork | PackedNetwork | StackedNetwork | ExtractedNetwork):
        return heads_of(module.network)
    if isinstance(module, NetworkPerHead | RecurrentNetworkPerHead):
        return [head for branch in module.branches for head in heads_of(branch) or ()]
    if isinstance(module, Network | RecurrentNetwork):
        return [head for head in module.heads if isinstance(head, Head)]
    return None


def _steps(layers: Sequence[nn.Module]) -> tuple[LayerCall, ...]:
    """Return steps equivalent to calling `layers` in order. A linear layer's arguments are its live parameter dict."""
    steps: list[LayerCall] = []
    before: nn.Module | None = None
    for layer in layers:
        plain = type(layer) is nn.Linear or (isinstance(layer, OutputLayer) and layer.rescale is None)
        if plain:
            steps.append((nn.functional.linear, layer._parameters))
        elif type(before) in PRODUCERS and type(layer) in IN_PLACE:
            steps.append((IN_PLACE[type(layer)], {}))
        else:
            steps.append((layer.forward, {}))
        before = layer
    return tuple(steps)


def _network(parameters: NetworkParameters, spaces: Spaces, heads: Sequence[Head]) -> nn.Module:
    """Build embedders and merger, or the extractor, then middleware and these heads."""
    layers, width = _first_layers(parameters, spaces, heads)
    extractor = layers.pop() if parameters.extractor is not None else None
    dense, width = middleware_layers(_middleware(parameters, heads), width, hidden_gain(parameters))
    orthogonal, noisy = parameters.initialization == "orthogonal", parameters.noisy_deviation
    network = Network(layers + dense, width, heads, orthogonal=orthogonal, noisy_deviation=noisy)
    return ExtractedNetwork(extractor, network) if isinstance(extractor, Extractor) else network


def _first_layers(parameters: NetworkParameters, spaces: Spaces, heads: Sequence[Head]) -> tuple[list[nn.Module], int]:
    """Return the layers that embed all inputs that these heads see, and the width of their output."""
    if parameters.extractor is None:
        return embedded_inputs(_seen_by(heads, parameters), spaces)
    inputs = network_inputs(parameters, spaces)
    if _hides_parts(heads, parameters):
        hidden = parameters.critic_parts
        inputs = {name: spec for name, spec in inputs.items() if not is_within(dotted_name(name), hidden)}
    normalized = parameters.normalize_observations
    extractor = Extractor(parameters.extractor, inputs, spaces, normalized=normalized)
    return [extractor], extractor.width


def _hides_parts(heads: Sequence[Head], parameters: NetworkParameters) -> bool:
    """Whether a network with these heads does not see `critic_parts`."""
    return bool(parameters.critic_parts) and any(head.settings.name != "value" for head in heads)


def _middleware(parameters: NetworkParameters, heads: Sequence[Head]) -> MiddlewareParameters:
    return parameters.middleware_of([head.settings for head in heads])


def _recurrent(parameters: NetworkParameters, spaces: Spaces, heads: Sequence[Head]) -> nn.Module:
    """Build the network with a cell after the layers; one per head with `use_separate_networks_per_head`."""
    named = len(network_inputs(parameters, spaces)) > 1
    orthogonal, gain = parameters.initialization == "orthogonal", hidden_gain(parameters)

    def branch(some: Sequence[Head]) -> RecurrentNetwork:
        middleware = _middleware(parameters, some)
        assert isinstance(middleware, LSTMMiddlewareParameters | GRUMiddlewareParameters)
        layers, width = _first_layers(parameters, spaces, some)
        if not middleware.dense_last:
            dense, width = middleware_layers(middleware, width, gain)
            layers += dense
        cell = recurrent_cell(middleware, width)
        dense, width = [], cell.hidden_size
        if middleware.dense_last:
            dense, width = middleware_layers(middleware, width, gain)
        last = OutputLayer(width, some, orthogonal=orthogonal)
        output = nn.Sequential(*dense, last) if dense else last
        return RecurrentNetwork(layers, cell, output, some, named=named)

    if parameters.use_separate_networks_per_head:
        return RecurrentNetworkPerHead([branch([head]) for head in heads])
    return branch(heads)
