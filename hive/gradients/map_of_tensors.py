"""MapOfTensors: named tensors in a fixed order, a mapping like any other.

What an accumulator returns. Where it can, its tensors are views of one block of bytes, each at a multiple of 64; they
are made when somebody first asks for one, so a map that is only handed on costs nothing. It behaves as a dict does:
`copy()` is shallow, assigning a name puts another tensor there, `==` compares names, dtypes, devices and values, and
`load_state_dict` takes it. `clone()` copies the tensors too. It can be pickled, deep-copied and saved with torch.save;
views of a block become tensors of their own. It does not know what its tensors mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["MapOfTensors"]


class MapOfTensors(MutableMapping[str, Tensor]):
    """Names and their tensors, in the order given.

    tensors: a mapping, or pairs of a name and a tensor. Raises TypeError for anything else.
    """

    __slots__ = ("_block", "_names", "_tensors", "_views")
    __hash__ = None  # type: ignore[assignment]  # it can change, as a dict can

    def __init__(self, tensors: Mapping[str, Tensor] | Iterable[tuple[str, Tensor]] = ()) -> None:
        self._block: object = None
        self._names: Sequence[str] = ()
        self._views: Callable[[], Sequence[Tensor]] | None = None
        self._tensors: dict[str, Tensor] = {}
        for name, tensor in dict(tensors).items():
            self[name] = tensor

    @classmethod
    def lazy(cls, names: Sequence[str], views: Callable[[], Sequence[Tensor]], block: object) -> MapOfTensors:
        """The map of `names` and what `views` returns once it is asked for. They are views of `block`."""
        new = cls()
        new._names, new._views, new._block = names, views, block
        return new

    @property
    def block(self) -> Any:
        """What the tensors are views of; None once a name was assigned or deleted, and where they are not."""
        return self._block

    def _known(self) -> dict[str, Tensor]:
        if self._views is not None:
            self._tensors = dict(zip(self._names, self._views(), strict=True))
            self._views = None
        return self._tensors

    def __getitem__(self, name: str) -> Tensor:
        return self._known()[name]

    def __setitem__(self, name: str, tensor: Tensor) -> None:
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise TypeError(f"expected a name and a tensor, got {type(name).__name__} and {type(tensor).__name__}")
        self._known()[name] = tensor
        self._block = None

    def __delitem__(self, name: str) -> None:
        del self._known()[name]
        self._block = None

    def __iter__(self) -> Iterator[str]:
        return iter(self._known())

    def __len__(self) -> int:
        return len(self._known())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return self.keys() == other.keys() and all(_same(tensor, other[name]) for name, tensor in self.items())

    def __copy__(self) -> MapOfTensors:
        return self.copy()

    def copy(self) -> MapOfTensors:
        """Another map of the same tensors."""
        return MapOfTensors(self._known())

    def clone(self) -> MapOfTensors:
        """Another map, of copies of the tensors."""
        return MapOfTensors({name: tensor.detach().clone() for name, tensor in self.items()})

    def __reduce__(self) -> tuple[type[MapOfTensors], tuple[dict[str, Tensor]]]:
        return type(self), ({name: _compact(tensor) for name, tensor in self.items()},)

    def __repr__(self) -> str:
        inside = ", ".join(
            f"{name}: {str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}" for name, tensor in self.items()
        )
        return f"MapOfTensors({{{inside}}})"


def _compact(tensor: Tensor) -> Tensor:
    """A tensor that does not bring the whole block with it."""
    whole = tensor.untyped_storage().nbytes() == tensor.nbytes if tensor.layout is torch.strided else True
    return tensor if whole else tensor.detach().clone()


def _same(tensor: Tensor, other: object) -> bool:
    return (
        isinstance(other, Tensor)
        and (tensor.dtype, tensor.device, tensor.shape) == (other.dtype, other.device, other.shape)
        and torch.equal(tensor, other)
    )
