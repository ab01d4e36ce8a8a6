"""Extractors: a user's module that maps observations to features, before the dense layers and heads of hive.

    observations ─ as float32 ─ extractor ─ features [N, F] ─┬─ middleware ─ heads
                                action, of a critic that takes one ─┘

The extractor takes the place of embedders. It is called with one observation, float32 [N, *shape], or with a mapping
from the names of parts to such tensors. Numbers are in the scale that the built-in layers would see: what has declared
bounds is within 0 ... 1 (pixels, too), and each discrete value that is stored as a number is that number.

Each network has an extractor of its own: the policy and a separate value, the actor and each critic, and their targets.
So a value's gradient does not move the policy's features, and every rule about separate networks stays true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from hive.config.references import calls_user_code
from hive.declared import NO_IMAGE, NUMBER_BYTES
from hive.errors import NetworkError
from hive.networks.build.convolutions import scaled, scaling
from hive.networks.build.layers import in_mode
from hive.networks.build.spaces import ActionSpec, InputArray, InputSpec, Spaces, bounds_of, channels_at, counts_of
from hive.networks.rows.inputs import ACTION_INPUT, OBSERVATION, InputName, dotted_name, input_order

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
        is_right = isinstance(found, Tensor) and found.dtype == torch.float32 and found.dim() == 2
        if not is_right or len(found) != rows or not found.shape[1] or found.shape[1] != (width or found.shape[1]):
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
