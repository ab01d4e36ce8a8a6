"""Conversion of state dictionaries to named arrays and JSON, and back; checkpoints contain these instead of pickles.

    {"optimizer": {"state": {0: {"exp_avg": <tensor>}}, "param_groups": [{"betas": (0.9, 0.999)}]}}

    arrays   "optimizer/state/0/exp_avg"
    JSON     {"dict": [["optimizer", {"dict": [["state", {"dict": [[0, {"dict": [["exp_avg",
             {"tensor": "optimizer/state/0/exp_avg"}]]}]]}], ["param_groups", [{"dict": [["betas",
             {"tuple": [0.9, 0.999]}]]}]]]}]]}

The keys of JSON objects are strings and JSON has no tuples, so a dictionary, a tuple and a Counter are written as an
object with that one key. Arrays of a dtype that hive.records.checkpoints.weights does not support (bool, bfloat16 ...)
are written as their bytes. Reading does not trust its input: any other form raises RecordError, and nothing can be
executed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hive.errors import RecordError
from hive.records.documents import JSON

Arrays = dict[str, npt.NDArray[Any]]

# Greatest nesting; optimizers and schedulers need five levels. The limit stops files made to exhaust the stack.
MAX_DEPTH = 32

STORED_DIRECTLY = {torch.float32, torch.float64, torch.float16, torch.int64, torch.uint8}
AS_BYTES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.bool, torch.bfloat16, torch.int8, torch.int16, torch.int32, torch.complex64, torch.complex128)
}


def to_record(state: Any, path: str = "") -> tuple[JSON, Arrays]:
    """Return the JSON and the arrays of a state; the arrays are copies in host memory.

    state: dictionaries, lists and tuples of tensors, numbers, strings, booleans and None. Raises RecordError, which
    names the path, for anything else (a function in a scheduler, a module).
    """
    arrays: Arrays = {}
    return _encoded(state, path, arrays), arrays


def from_record(record: Any, arrays: Mapping[str, npt.NDArray[Any]]) -> Any:
    """Return the state that `to_record` converted, with tensors on the CPU. Raises RecordError for other input."""
    return _decoded(record, arrays, MAX_DEPTH)


def _encoded(value: Any, path: str, arrays: Arrays) -> JSON:
    if path.count("/") > MAX_DEPTH:
        raise RecordError(f"`{path}` lies deeper than {MAX_DEPTH} levels")
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value) in (bool, int, float, str):
        return value  # type: ignore[no-any-return]
    if isinstance(value, Tensor):
        return _tensor_in(value, path, arrays)
    if isinstance(value, Mapping):
        kind = "counter" if isinstance(value, Counter) else "dict"
        keys = [(_encoded_key(key, path), key) for key in value]
        return {kind: [[plain, _encoded(value[key], _below(path, key), arrays)] for plain, key in keys]}
    if isinstance(value, list | tuple):
        items = [_encoded(item, _below(path, index), arrays) for index, item in enumerate(value)]
        return items if isinstance(value, list) else {"tuple": items}
    raise RecordError(
        f"`{path}` is a {type(value).__name__}, which a checkpoint cannot hold",
        hint="use numbers, strings, tensors, and lists and dictionaries of them",
    )


def _encoded_key(key: Any, path: str) -> JSON:
    if type(key) not in (bool, int, float, str):
        raise RecordError(f"`{path}` has a key of type {type(key).__name__}, which a checkpoint cannot hold")
    return key  # type: ignore[no-any-return]


def _below(path: str, key: Any) -> str:
    return f"{path}/{key}" if path else str(key)


def _tensor_in(tensor: Tensor, path: str, arrays: Arrays) -> JSON:
    name = path or "tensor"
    while name in arrays:  # paths can coincide: a key may contain a slash, and 1 and "1" may both be keys
        name += "'"
    if tensor.layout != torch.strided:
        raise RecordError(f"`{path}` is {tensor.layout}, but a checkpoint holds dense tensors")
    values = tensor.detach().to("cpu", copy=True).contiguous()
    if values.dtype in STORED_DIRECTLY:
        arrays[name] = values.numpy()
        return {"tensor": name}
    dtype = str(values.dtype).removeprefix("torch.")
    if dtype not in AS_BYTES:
        raise RecordError(f"`{path}` is {dtype}, which a checkpoint cannot hold")
    arrays[name] = values.reshape(-1).view(torch.uint8).numpy()
    return {"tensor": name, "dtype": dtype, "shape": list(values.shape)}


def _decoded(node: Any, arrays: Mapping[str, npt.NDArray[Any]], depth: int) -> Any:
    if depth < 0:
        raise RecordError(f"the record nests deeper than {MAX_DEPTH} levels")
    match node:
        case None | bool() | int() | float() | str():
            return node
        case list():
            return [_decoded(item, arrays, depth - 1) for item in node]
        case {"tensor": _}:
            return _tensor_of(node, arrays)
        case {"tuple": list(items), **rest} if not rest:
            return tuple(_decoded(item, arrays, depth - 1) for item in items)
        case {"dict": list(items), **rest} if not rest and all(map(_is_entry, items)):
            return {key: _decoded(item, arrays, depth - 1) for key, item in items}
        case {"counter": list(items), **rest} if not rest and all(map(_is_entry, items)):
            return Counter({key: _decoded(item, arrays, depth - 1) for key, item in items})
    raise RecordError(f"the record contains {str(node)[:40]!r}, which is not the form of a state")


def _is_entry(item: Any) -> bool:
    return isinstance(item, list) and len(item) == 2 and isinstance(item[0], bool | int | float | str)


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, list) and all(type(size) is int and 0 <= size < 2**63 for size in shape)


def _tensor_of(node: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Tensor:
    name, dtype, shape = node["tensor"], node.get("dtype"), node.get("shape")
    if not isinstance(name, str) or name not in arrays:
        raise RecordError(f"the record names the array {str(name)[:40]!r}, which does not exist")
    values = torch.from_numpy(arrays[name])
    if dtype is None:
        return values
    is_bytes = values.dtype == torch.uint8 and values.dim() == 1
    if not (isinstance(dtype, str) and dtype in AS_BYTES and _is_shape(shape) and is_bytes):
        raise RecordError(f"`{name}` is written as {str(dtype)[:40]!r} {str(shape)[:40]}, which is not a valid tensor")
    try:
        # Any byte but 0 is true, and torch cannot view an empty tensor as a wider dtype.
        wide = dtype != "bool" and len(values) > 0
        typed = values.view(AS_BYTES[dtype]) if wide else (values != 0).to(AS_BYTES[dtype])
        return typed.reshape(torch.Size(shape))  # type: ignore[arg-type]  # checked above
    except RuntimeError as error:
        raise RecordError(f"`{name}` does not hold {dtype} {shape}") from error
