"""The destinations of a reduction: the block of `out`, and the `.grad` of the parameters in `into`.

Both are checked before anything is written, so a refused reduction changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from hive.compat.rlpack.map_of_tensors import MapOfTensors
from hive.compat.rlpack.rounds import GradientField, RoundBlock, Rounds

Into = nn.Module | Mapping[str, Tensor] | Iterable[tuple[str, Tensor]]
ResultTargets = list[tuple[str, Tensor, bool]]  # name, parameter, whether any round had a gradient for it


def block_for(out: Mapping[str, Tensor] | None, rounds: Rounds, held: Sequence[RoundBlock]) -> RoundBlock:
    """Return the block of `out` if it is one of `rounds`, otherwise a new one that copy_into copies from.

    Raises ValueError for an `out` of other names, shapes or dtypes, and for one that shares memory with a held round.
    """
    if out is None:
        return rounds.new_block()
    block = _block_of(out)
    if isinstance(block, RoundBlock):
        if any(one is block for one in held):
            raise ValueError("out is a round of this accumulator, which a reduction must not overwrite")
        if block.owner is rounds:
            return block
    for field in rounds.fields:
        tensor = out.get(field.name)
        if tensor is None or (tensor.shape, tensor.dtype) != (field.shape, field.dtype):
            raise ValueError(f"out has no tensor `{field.name}` of {field.dtype} {list(field.shape)}")
    _check_foreign([out[field.name] for field in rounds.fields], held)
    return rounds.new_block()


def _check_foreign(tensors: Sequence[Tensor], held: Sequence[RoundBlock]) -> None:
    """Raise ValueError for tensors that share memory with a held round."""
    lent = [view for block in held if block.lent for view in block.tensors]
    ours = {view.untyped_storage().data_ptr() for view in lent}
    if any(tensor.untyped_storage().data_ptr() in ours for tensor in tensors):
        raise ValueError("out has tensors of a round of this accumulator, which a reduction must not overwrite")


def copy_into(out: Mapping[str, Tensor], block: RoundBlock) -> None:
    """Copy a result to `out`, unless `out` is the map of that block."""
    if _block_of(out) is not block:
        with torch.no_grad():
            torch._foreach_copy_([out[field.name] for field in block.owner.fields], list(block.tensors))


def _block_of(out: Mapping[str, Tensor]) -> object:
    """Return the block that the tensors of a MapOfTensors are views of; None for another mapping."""
    return out.block if isinstance(out, MapOfTensors) else None


def targets_in(into: Into, fields: Sequence[GradientField], counts: Mapping[str, int]) -> ResultTargets:
    """Return the trainable parameters in `into` that get a gradient. Other names are ignored.

    counts: parameter name -> number of rounds with a gradient for it.

    Raises ValueError for a parameter that its gradient does not fit, and if a parameter with a gradient is missing;
    TypeError for plain tensors, and for those computed from others, whose `.grad` nothing reads.
    """
    given = _named(into)
    targets: ResultTargets = []
    for field in fields:
        parameter = given.get(field.name)
        if parameter is None:
            if counts[field.name]:
                raise ValueError(f"into has no parameter `{field.name}`, and there is a gradient for it")
        elif parameter.requires_grad and not parameter.is_leaf:
            raise TypeError(f"`{field.name}` of into is computed from other tensors: pass the parameters themselves")
        elif parameter.requires_grad:
            _check_fits(field, parameter)
            targets.append((field.name, parameter, counts[field.name] > 0))
        elif not isinstance(parameter, nn.Parameter):
            raise TypeError(f"`{field.name}` of into is not a parameter: pass a module or its named_parameters()")
    return targets


def _named(into: Into) -> Mapping[str, Tensor]:
    if isinstance(into, nn.Module):
        return dict(into.named_parameters())
    given = into if isinstance(into, Mapping) else dict(into)
    for name, parameter in given.items():
        if not isinstance(parameter, Tensor):
            raise TypeError(f"`{name}` of into must be a parameter, not {type(parameter).__name__}")
    return given


def _check_fits(field: GradientField, parameter: Tensor) -> None:
    if (parameter.shape, parameter.dtype, parameter.device) != (field.shape, field.dtype, field.device):
        raise ValueError(
            f"`{field.name}` of into is {parameter.dtype} {list(parameter.shape)} on {parameter.device}, "
            f"its gradient is {field.dtype} {list(field.shape)} on {field.device}"
        )
