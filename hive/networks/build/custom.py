"""Modules of users: whole networks, extractors, and probes of what a module does.

A whole network replaces all layers and heads; `from_module` says what it must return.

    observations ─ as float32 ─ extractor ─ features [N, F] ─┬─ middleware ─ heads
                                action, of a critic that takes one ─┘

An extractor takes the place of embedders. It is called with one observation, float32 [N, *shape], or with a mapping
from the names of parts to such tensors. Numbers are in the scale that the built-in layers would see: what has declared
bounds is within 0 ... 1 (pixels, too), and each discrete value that is stored as a number is that number.

Each network has an extractor of its own: the policy and a separate value, the actor and each critic, and their targets.
So a value's gradient does not move the policy's features, and every rule about separate networks stays true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from hive.config.references import calls_user_code
from hive.declared import NO_IMAGE, NUMBER_BYTES
from hive.errors import NetworkError
from hive.networks.build.convolutions import scaled, scaling
from hive.networks.build.head_kinds import make_head
from hive.networks.build.heads import Head
from hive.networks.build.layers import in_mode
from hive.networks.build.naming import set_training
from hive.networks.build.parameters import NetworkParameters
from hive.networks.build.spaces import ActionSpec, InputArray, InputSpec, Spaces, bounds_of, channels_at, counts_of
from hive.networks.rows.inputs import (
    ACTION_INPUT,
    OBSERVATION,
    RECURRENT_STATE,
    InputName,
    dotted_name,
    input_order,
    state_width_of,
)
from hive.networks.rows.packed import seen_shape

PROBE_ROWS = 2  # rows of the probe batch; with one row, a module that loses its batch axis would pass
MOST_PROBED = 2  # observations of the probe; fewer, one, are another case: a collector with one environment has one


class ExtractorInput(nn.Module):
    """Converts an input [N, *shape] to float32 of `seen.shape`, in the scale of its declared bounds.

    normalized: whether its numbers are normalized already, which replaces this scale.
    """

    def __init__(self, spec: InputSpec, *, normalized: bool) -> None:
        super().__init__()
        shape, counts = tuple(spec.shape), counts_of(spec)
        bounds = ((), ()) if counts or (normalized and spec.dtype == "float32") else bounds_of(spec)
        self._scaling = scaling(bounds, shape)
        self.values = max(counts, default=1)  # below this are its numbers
        self._bytes = torch.tensor([1 << 8 * byte for byte in range(NUMBER_BYTES)]) if counts else None
        shape = (shape[:-1] or (1,)) if counts else shape
        low, high = ((0.0,), (1.0,)) if self._scaling is not None else ((), ())
        self.seen = InputArray(shape, "float32", low, high, NO_IMAGE if counts else channels_at(spec))

    def forward(self, values: Tensor) -> Tensor:
        if self._bytes is not None:
            numbers = (values.to(torch.int64) * self._bytes).sum(-1)
            return numbers.reshape(values.shape[0], *self.seen.shape).to(torch.float32)
        if self._scaling is None:
            return values.to(torch.float32)
        if isinstance(self._scaling, float):
            return values.to(torch.float32) * self._scaling
        return scaled(values, self._scaling)

    def probe(self, rows: int, generator: torch.Generator) -> Tensor:
        """Return what this may return for so many rows: numbers within 0 ... 1, or discrete values."""
        drawn = torch.rand((rows, *self.seen.shape), generator=generator)
        return drawn if self._bytes is None else (drawn * self.values).floor()


class Extractor(nn.Module):
    """The user's module `own` with its inputs. Maps observations to features, float32 [N, width].

    make: is called with the spaces, whose observations are as `own` gets them, and returns `own`. inputs: by name or
    path, as the network gets them; `action`, if it is among them and no observation, follows the features.

    Raises NetworkError for a module that does not fulfil the contract.
    """

    def __init__(
        self,
        make: Callable[[Spaces], nn.Module],
        inputs: Mapping[InputName, InputSpec],
        spaces: Spaces,
        *,
        normalized: bool,
    ) -> None:
        super().__init__()
        self._takes_action = ACTION_INPUT in inputs and ACTION_INPUT not in spaces.observations
        self._keys = sorted((k for k in inputs if not (self._takes_action and k == ACTION_INPUT)), key=input_order)
        self._names = _names(self._keys)
        numbers = [ExtractorInput(inputs[key], normalized=normalized) for key in self._keys]
        self.numbers = nn.ModuleList(numbers)
        seen = {name: one.seen for name, one in zip(self._names, numbers, strict=True)}
        with _called_with(seen):
            self.own = _made(make, seen, spaces.action)
        self.width = self._probed(numbers, seen)
        if self._takes_action:
            self.width += int(torch.Size(inputs[ACTION_INPUT].shape).numel())

    def forward(self, inputs: Any) -> Tensor:
        given = [one(inputs[k] if isinstance(inputs, Mapping) else inputs) for k, one in self._pairs()]
        features: Tensor = self._features(given)
        if not self._takes_action:
            return features
        return torch.cat([features, inputs[ACTION_INPUT].reshape(features.shape[0], -1).to(torch.float32)], -1)

    def _pairs(self) -> Any:
        return zip(self._keys, self.numbers, strict=True)

    @calls_user_code("network.extractor")
    def _features(self, given: list[Tensor]) -> Any:
        return self.own(given[0] if len(given) == 1 else dict(zip(self._names, given, strict=True)))

    def _probed(self, numbers: list[ExtractorInput], seen: Mapping[str, InputSpec]) -> int:
        """Return the number of features of an observation, and check them for one row and for several."""
        generator = torch.Generator().manual_seed(0)
        width = 0
        for rows in range(MOST_PROBED, 0, -1):
            given = [one.probe(rows, generator) for one in numbers]
            before = [one.clone() for one in given]
            with in_mode(self.own, training=False), torch.enable_grad(), _called_with(seen):
                found: Any = self._features(given)
            fault, hint = self._fault_of(found, rows, width)
            if not all(map(torch.equal, given, before)):
                fault, hint = "features, but changes its observations", "they are needed again: compute with copies"
            if fault:
                raise NetworkError(f"the extractor `{type(self.own).__name__}` returns {fault}", hint=hint)
            width = found.shape[1]
        return width

    def _fault_of(self, found: Any, rows: int, width: int) -> tuple[str, str]:
        """Return what is wrong with features of so many rows, and a hint; empty texts: nothing. width: 0: any."""
        is_batch = (
            isinstance(found, Tensor) and found.dtype == torch.float32 and found.dim() == 2 and len(found) == rows
        )
        if not is_batch or not found.shape[1] or width not in (0, found.shape[1]):
            what = f"{found.dtype} {list(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
            which = f"{rows} observations" if rows > 1 else "a single observation"
            return f"{what} for {which}", f"for N observations return features, torch.float32 [N, {width or 'F'}]"
        if not torch.isfinite(found).all():
            return "NaN or infinity for numbers between 0 and 1", "check its divisions, logarithms and initial weights"
        if not found.requires_grad and any(parameter.requires_grad for parameter in self.own.parameters()):
            return (
                "features that have no gradient path to its parameters",
                "compute them without torch.no_grad, detach and NumPy, or set requires_grad of its parameters False",
            )
        return "", ""


class ExtractedNetwork(nn.Module):
    """Calls `network` with the features of `extractor`. The network may compute natively
    (hive.networks.weights.dense).
    """

    def __init__(self, extractor: Extractor, network: nn.Module) -> None:
        super().__init__()
        self.extractor = extractor
        self.network = network

    def forward(self, observations: Any) -> tuple[Tensor, ...]:
        outputs: Any = self.network(self.extractor(observations))
        return tuple(outputs)


@contextmanager
def _called_with(seen: Mapping[str, InputSpec]) -> Iterator[None]:
    """Add what an extractor takes to an error that its code raises."""
    try:
        yield
    except Exception as error:
        parts = [f"{name} float32 [{', '.join(map(str, ('N', *spec.shape)))}]" for name, spec in seen.items()]
        error.add_note(f"it maps {', '.join(parts)} to features float32 [N, F]")
        raise


def _names(keys: list[InputName]) -> list[str]:
    """Return the names by which the module gets the inputs."""
    if len(keys) == 1:
        return [keys[0] if isinstance(keys[0], str) else OBSERVATION]
    names = [*map(dotted_name, keys)]
    if twice := [name for name in names if names.count(name) > 1]:
        raise NetworkError(
            f"two parts of the observation are called `{twice[0]}`, and an extractor gets parts by name",
            hint="rename one of them in a wrapper of the environment (env.wrappers)",
        )
    return names


@calls_user_code("network.extractor")
def _made(make: Callable[[Spaces], nn.Module], seen: Mapping[str, InputSpec], action: ActionSpec) -> nn.Module:
    own: Any = make(Spaces(seen, action))
    if isinstance(own, nn.Module):
        return own
    given: Any = getattr(make, "func", make)  # with options it is a functools.partial
    raise NetworkError(
        f"the extractor `{getattr(given, '__name__', given)}` returns a {type(own).__name__}, not a torch.nn.Module",
        hint="it is called with the spaces and must return the module that maps observations to features",
    )


@calls_user_code("network.module")
def from_module(module: nn.Module, spaces: Spaces, heads: Sequence[Head] | None = None) -> nn.Module:
    """Check that a user-defined module fulfils the contract, and return it.

    The module is called with observations, a float32 or uint8 tensor [N, *shape] (several inputs: a mapping from
    names to tensors). It must return a tuple `(policy, value)`. The policy is float32 [N, A] for a discrete action,
    [N, sum(nvec)] for a multi-discrete one, [N, 2 * D] (means, then log standard deviations) for a box of D
    elements; the value is float32 [N]. With other `heads` it returns an output [N, *output_shape] for each of them.
    Further outputs are allowed. The check calls the module in evaluation mode with two zero observations.

    Raises NetworkError, which names the wrong output.
    """
    if heads is None:
        heads = [make_head(head, spaces.action) for head in NetworkParameters().heads()]
    if not isinstance(module, nn.Module):
        raise NetworkError(
            f"`module` returns a {type(module).__name__}, not a torch.nn.Module",
            hint="it is called with the spaces and must return the network",
        )
    outputs = _probed(module, spaces, training=False)
    if fault := _fault_of(outputs, heads):
        shapes = [f"{head.settings.name} [{', '.join(map(str, ('N', *head.output_shape)))}]" for head in heads]
        hint = f"for N observations return ({', '.join(shapes)})"
        raise NetworkError(f"`{type(module).__name__}` returns {fault}", hint=hint)
    return module


def _fault_of(outputs: Any, heads: Sequence[Head]) -> str:
    """Return what a module returns instead of an output for each head; "" if it fulfils the contract."""
    if not isinstance(outputs, tuple) or len(outputs) < len(heads):
        found = f"{len(outputs)} outputs" if isinstance(outputs, tuple) else type(outputs).__name__
        return f"{found}, expected a tuple ({', '.join(head.settings.name for head in heads)})"
    for head, output in zip(heads, outputs, strict=False):
        shape = (PROBE_ROWS, *head.output_shape)
        if not isinstance(output, Tensor) or output.dtype != torch.float32 or output.shape != shape:
            found = f"{output.dtype} {list(output.shape)}" if isinstance(output, Tensor) else type(output).__name__
            return f"a {head.settings.name} of {found} for {PROBE_ROWS} observations"
    return ""


def buffers_that_training_changes(module: nn.Module, spaces: Spaces) -> list[str]:
    """Return the names of the buffers that a forward pass in training mode changes, as BatchNorm's does.

    The buffers have their former values afterwards.
    """
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    if not before:
        return []
    with torch.random.fork_rng(devices=()):  # dropout would advance torch's global generator
        _probed(module, spaces, training=True, numbers=True)  # a mean of zeros would not change
    changed = [name for name, buffer in module.named_buffers() if not torch.equal(buffer, before[name])]
    for name, buffer in module.named_buffers():
        buffer.copy_(before[name])
    return changed


def shared_tensor(module: nn.Module, copy: nn.Module) -> str:
    """Return the name of a parameter or buffer that a module shares with another one; "" for none.

    Two are looked at: `copy`, which is built like `module`, and the branches of `module` among each other.
    """
    every = [(*one.named_parameters(), *one.named_buffers()) for one in (module, copy)]
    others = {id(tensor) for _, tensor in every[1]}
    if found := next((name for name, tensor in every[0] if id(tensor) in others), ""):
        return found
    for path, one in module.named_modules():
        seen: dict[int, int] = {}
        branches = getattr(one, "branches", ())
        for number, branch in enumerate(branches if isinstance(branches, nn.ModuleList) else ()):
            for name, tensor in (*branch.named_parameters(), *branch.named_buffers()):
                if seen.setdefault(id(tensor), number) != number:
                    return ".".join(filter(None, (path, "branches", str(number), name)))
    return ""


def keeps_numbers_elsewhere(module: nn.Module, copy: nn.Module, spaces: Spaces) -> bool:
    """Return whether outputs differ though `copy`, which is built like `module`, gets its parameters and buffers."""
    given = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for name, tensor in (*copy.named_parameters(), *copy.named_buffers()):
        tensor.data = given[name].detach().clone()  # as `FlatParameters.bind` does: views of the former memory stay
    found = []
    for network in (module, copy):
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(0)
            found.append(_tensors(_probed(network, spaces, training=False, numbers=True)))
    one, other = found
    return any(not torch.equal(mine.nan_to_num(), its.nan_to_num()) for mine, its in zip(one, other, strict=True))


def varies(module: nn.Module, spaces: Spaces) -> str:
    """Return what makes two passes of one observation differ, in training or evaluation mode; "" for nothing."""
    passes = [(False, 0), (False, 1), (True, 0), (True, 1)]  # training, seed of torch's generator
    found = []
    for training, seed in passes:
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            found.append(
                [one.nan_to_num() for one in _tensors(_probed(module, spaces, training=training, numbers=True))]
            )
    if all(
        torch.allclose(*pair, rtol=1e-3, atol=1e-5) for other in found[1:] for pair in zip(found[0], other, strict=True)
    ):
        return ""
    dropped = [
        type(one).__name__ for one in module.modules() if "Dropout" in type(one).__name__ and getattr(one, "p", True)
    ]
    return (
        f"nn.{dropped[0]}" if dropped else "what it draws or counts in a forward pass, or does in training mode only,"
    )


def mixes_rows(module: nn.Module, spaces: Spaces) -> bool:
    """Return whether the outputs of an observation depend on the others of its batch, in evaluation mode."""
    found = []
    for alike in (False, True):
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(0)
            found.append(_tensors(_probed(module, spaces, training=False, numbers=True, alike=alike)))
    one, other = ([tensor[:1].nan_to_num() for tensor in outputs if tensor.dim()] for outputs in found)
    return not all(torch.allclose(*pair, rtol=1e-3, atol=1e-5) for pair in zip(one, other, strict=True))


def _tensors(outputs: Any) -> list[Tensor]:
    return [outputs] if isinstance(outputs, Tensor) else [one for one in outputs if isinstance(one, Tensor)]


@calls_user_code("network.module")
def _probed(module: nn.Module, spaces: Spaces, *, training: bool, numbers: bool = False, alike: bool = False) -> Any:
    """Call the module with two observations, in training mode or not, and restore its mode.

    numbers: observations are numbers from 1/4 to 1, or bytes of 0 and 1; otherwise zeros. alike: the second observation
    is the first once more.
    """
    probe = {
        name: torch.zeros((PROBE_ROWS, *seen_shape(spec)), dtype=getattr(torch, spec.dtype))
        for name, spec in spaces.observations.items()
    }
    for zeros in probe.values() if numbers else ():
        fractions = torch.linspace(0.25, 1.0, zeros.numel()).view(zeros.shape)
        zeros.copy_(fractions if zeros.is_floating_point() else fractions.round())
        if alike:
            zeros[1] = zeros[0]
    if width := state_width_of(module):
        probe[RECURRENT_STATE] = torch.zeros(PROBE_ROWS, width)
    with in_mode(module, training=training), torch.no_grad():
        set_training(module, training)  # frozen parts stay in evaluation mode
        return module(probe if len(probe) > 1 else next(iter(probe.values())))
