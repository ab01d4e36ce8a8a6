"""Target networks, which compute an Approximation's `target(...)`.

    TrivialTarget                     the network itself
    FixedTarget(update_frequency)     a copy, replaced every `update_frequency` updates (Mnih et al. 2015)
    PolyakTarget(rate)                a copy that follows: target = (1 - rate) * target + rate * network

All compute without a graph and by default in evaluation mode, because dropout or the statistics of the current batch
would make the target vary. `mode="train"` is for networks whose noise belongs to the target, such as NoisyNet's
(Fortunato et al. 2018).

A copy has parameters and buffers (the statistics of BatchNorm, the atoms of a distribution). `buffers` selects how an
update treats the buffers: "copy", "average" (floating-point ones, like the parameters) or "ignore".

`counts="env_steps"` counts steps of the environment instead of updates; the program reports them with
`advance`. A copy follows its network to another device.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from hive.compat.autonomous.polyak import polyak_step
from hive.errors import NetworkError
from hive.learning import TargetNetwork
from hive.learning.approximation import evaluating
from hive.networks.build.field_rules import FieldRule

Mode = Literal["eval", "train"]
Buffers = Literal["copy", "average", "ignore"]
Counts = Literal["updates", "env_steps"]


class TrivialTarget(TargetNetwork):
    """The network itself, without a copy. mode: "eval" or "train"."""

    def __init__(self, *, mode: Mode = "eval") -> None:
        self.mode = _one_of(mode, Mode, "mode")
        self._model: nn.Module | None = None

    def __call__(self, *inputs: Any) -> Any:
        model = _known(self._model)
        with torch.no_grad():
            if self.mode == "train":
                return model(*inputs)
            with evaluating(model):
                return model(*inputs)

    def init(self, model: nn.Module) -> None:
        self._model = model

    def update(self) -> None:
        pass


class CopiedTarget(TargetNetwork):
    """A copy of the network. Subclasses implement `_count`, which moves it after new updates or steps."""

    def __init__(self, mode: Mode, buffers: Buffers, counts: Counts) -> None:
        self.mode = _one_of(mode, Mode, "mode")
        self.buffers = _one_of(buffers, Buffers, "buffers")
        self.counts = _one_of(counts, Counts, "counts")
        self._source: nn.Module | None = None
        self._copy: nn.Module | None = None

    def __call__(self, *inputs: Any) -> Any:
        with torch.no_grad():
            return self._current_copy()(*inputs)

    def init(self, model: nn.Module) -> None:
        """Copy the current `model`, hooks included."""
        self._source = model
        self._copy = _copy_of(model).requires_grad_(False)
        if self.mode == "eval":
            self._copy.eval()

    def update(self) -> None:
        if self.counts == "updates":
            self._count(1)

    def advance(self, env_steps: int) -> None:
        """Count `env_steps` further steps of the environment. Raises NetworkError for a target that counts updates."""
        if self.counts != "env_steps":
            raise NetworkError("this target counts updates", hint='construct it with counts="env_steps"')
        self._count(FieldRule.whole(0).checked("advance", "env_steps", env_steps))

    def state_dict(self) -> dict[str, Any]:
        return {"model": _known(self._copy).state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        _known(self._copy).load_state_dict(state["model"])

    @abstractmethod
    def _count(self, more: int) -> None: ...

    def _current_copy(self) -> nn.Module:
        """Return the copy, moved to the network's current device."""
        target, source = _known(self._copy), _known(self._source)
        here, there = next(target.parameters(), None), next(source.parameters(), None)
        if here is not None and there is not None and here.device != there.device:
            target.to(there.device)
        return target

    def _move(self, rate: float) -> None:
        """Set copy = (1 - rate) * copy + rate * network; rate 1 copies exactly."""
        target, source = self._current_copy(), _known(self._source)
        pairs = zip(target.parameters(), source.parameters(), strict=True)
        with torch.no_grad():
            # The mean of two equal numbers may differ from them in the last bit.
            moved = [(old, new) for old, new in pairs if new.requires_grad or not torch.equal(old, new)]
            polyak_step([old for old, _ in moved], [new for _, new in moved], rate)
            if self.buffers != "ignore":
                polyak_step(list(target.buffers()), list(source.buffers()), rate if self.buffers == "average" else 1.0)


class FixedTarget(CopiedTarget):
    """A copy that is replaced by the network after every `update_frequency` updates (Mnih et al. 2015).

    mode: "eval" or "train". buffers: "copy" or "ignore". counts: "updates" or "env_steps". Raises NetworkError for a
    frequency below 1 and for other values.
    """

    def __init__(
        self,
        update_frequency: int,
        *,
        mode: Mode = "eval",
        buffers: Literal["copy", "ignore"] = "copy",
        counts: Counts = "updates",
    ) -> None:
        super().__init__(mode, buffers, counts)
        FieldRule.whole(1).checked(type(self).__name__, "update_frequency", update_frequency)
        self.update_frequency = update_frequency
        self._since = 0

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "since": self._since}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        since = FieldRule.whole(0).checked("this state", "since", state["since"])
        super().load_state_dict(state)
        self._since = int(since)

    def _count(self, more: int) -> None:
        self._since += more
        if self._since >= self.update_frequency:
            self._since %= self.update_frequency
            self._move(1.0)


class PolyakTarget(CopiedTarget):
    """A copy that moves towards the network by `rate` after every update (Polyak averaging; Lillicrap et al. 2016).

    rate: the weight of the network, from 0 to 1. `advance(n)` makes one move with 1 - (1 - rate) ** n.
    mode: "eval" or "train". buffers: "copy", "average" or "ignore". counts: "updates" or "env_steps". Raises
    NetworkError for other values.
    """

    def __init__(
        self, rate: float, *, mode: Mode = "eval", buffers: Buffers = "copy", counts: Counts = "updates"
    ) -> None:
        super().__init__(mode, buffers, counts)
        FieldRule.number(0).checked(type(self).__name__, "rate", rate)
        if rate > 1.0:
            raise NetworkError(f"the rate of a target must be from 0 to 1, got {rate}", hint="0.005 is usual")
        self.rate = rate

    def _count(self, more: int) -> None:
        if more:
            self._move(self.rate if more == 1 else 1.0 - (1.0 - self.rate) ** more)


def _copy_of(model: nn.Module) -> nn.Module:
    """Return a deep copy. Tensor attributes with a graph, which deepcopy refuses, are copied without the graph."""
    tensors = [v for child in model.modules() for v in vars(child).values() if isinstance(v, Tensor)]
    memo: dict[int, Any] = {id(tensor): tensor.detach().clone() for tensor in tensors if tensor.grad_fn is not None}
    return copy.deepcopy(model, memo)


def _known(model: nn.Module | None) -> nn.Module:
    if model is None:
        raise NetworkError("this target has no network yet", hint="call init(model), as an Approximation does")
    return model


def _one_of(value: Any, kind: Any, name: str) -> Any:
    if value not in get_args(kind):
        raise NetworkError(f"{name} = {value!r} is not known", hint=f"one of: {', '.join(get_args(kind))}")
    return value
