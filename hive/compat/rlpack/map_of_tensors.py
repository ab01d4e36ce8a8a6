"""MapOfTensors: named tensors in a fixed order, a mutable mapping.

An accumulator returns its results in this form. The tensors of such a result are views of one block of bytes where
possible, each at a multiple of 64. The views are created at the first access, so passing a map on costs nothing. It
behaves as a dict: `copy()` is shallow, assignment replaces a tensor, `==` compares names, dtypes, devices and values,
and `load_state_dict` accepts it. `clone()` copies the tensors too. It can be pickled, deep-copied and saved with
torch.save; views of a block then become separate tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import torch
from torch import Tensor


class MapOfTensors(MutableMapping[str, Tensor]):
    """An ordered mapping from names to tensors.

    tensors: a mapping, or pairs of a name and a tensor. Raises TypeError for anything else.
    """

    __slots__ = ("_block", "_names", "_tensors", "_views")
    __hash__ = None  # type: ignore[assignment]  # mutable, like a dict

    def __init__(self, tensors: Mapping[str, Tensor] | Iterable[tuple[str, Tensor]] = ()) -> None:
        self._block: object = None
        self._names: Sequence[str] = ()
        self._views: Callable[[], Sequence[Tensor]] | None = None
        self._tensors: dict[str, Tensor] = {}
        for name, tensor in dict(tensors).items():
            self[name] = tensor

    @classmethod
    def lazy(cls, names: Sequence[str], views: Callable[[], Sequence[Tensor]], block: object) -> MapOfTensors:
        """Return a map of `names` to the tensors that `views` returns, called at the first access.

        The tensors are views of `block`.
        """
        new = cls()
        new._names, new._views, new._block = names, views, block
        return new

    @property
    def block(self) -> Any:
        """The block that the tensors are views of; None if they are not, or once a name was assigned or deleted."""
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
        """Return another map of the same tensors."""
        return MapOfTensors(self._known())

    def clone(self) -> MapOfTensors:
        """Return another map, of copies of the tensors."""
        return MapOfTensors({name: tensor.detach().clone() for name, tensor in self.items()})

    def __reduce__(self) -> tuple[type[MapOfTensors], tuple[dict[str, Tensor]]]:
        return type(self), ({name: _compact(tensor) for name, tensor in self.items()},)

    def __repr__(self) -> str:
        inside = ", ".join(
            f"{name}: {str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}" for name, tensor in self.items()
        )
        return f"MapOfTensors({{{inside}}})"


def _compact(tensor: Tensor) -> Tensor:
    """Return the tensor, or a copy if its storage is a larger block, which pickle would save as a whole."""
    whole = tensor.untyped_storage().nbytes() == tensor.nbytes if tensor.layout is torch.strided else True
    return tensor if whole else tensor.detach().clone()


def _same(tensor: Tensor, other: object) -> bool:
    return (
        isinstance(other, Tensor)
        and (tensor.dtype, tensor.device, tensor.shape) == (other.dtype, other.device, other.shape)
        and torch.equal(tensor, other)
    )
