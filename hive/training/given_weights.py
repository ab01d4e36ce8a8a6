"""Puts weights of files into the initial weights of a network: `network.weights` of a config.

    [network.weights]
    encoder = "resnet.safetensors"                       a submodule: the names of its own state_dict
    encoder = { file = "agent.safetensors", prefix = "encoder.", skip = ["fc.*"] }
    "" = "network.safetensors"                           the whole network

A file must have every parameter and saved buffer of the module, in its shape, and no others. With `prefix` only the
names that begin with it count, without it; names that match a pattern of `skip` do not count. float16 and bfloat16
become float32, which changes no value; float64 would lose digits and is refused.

The files are read when a run begins, by the process that makes its first weights. A run that is resumed has its
weights in the checkpoint and reads no file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from hive.config.values import toml_text
from hive.errors import NetworkError
from hive.networks.build.configured import check_arrays, copy_arrays
from hive.networks.build.naming import names_text, shown_name, shown_tensors, statistics_of
from hive.networks.rows.normalization import MOMENTS_OF
from hive.paths import user_path
from hive.records import checkpoint_at
from hive.records.checkpoints.weight_files import WeightFile, read_weight_file
from hive.runtime.memory.segments import Arrays

WIDER = {"F16": ("float32", "float64"), "BF16": ("float32", "float64"), "F32": ("float64",)}
"""Dtype in a file -> dtypes of tensors that have all of its values, beside the same one."""

SAME = {"F64": "float64", "F32": "float32", "I64": "int64", "U8": "uint8", "BOOL": "bool"}


STATISTICS = tuple(prefix for prefixes in MOMENTS_OF.values() for prefix in prefixes)
"""How names of tensors begin that are statistics of observations, rewards and novelty."""

COUNTER = "num_batches_tracked"  # of BatchNorm, which files of other programs lack and no pass reads


class GivenWeights:
    """The arrays of the files that `weights`, the key of a config, names, for the tensors of a network.

    module: the network, which may be on "meta". `sha256`: of each file, by the name of the module. Raises RecordError
    for a file that cannot be read, and NetworkError for one that does not fit.
    """

    def __init__(self, weights: Mapping[str, Any], module: nn.Module) -> None:
        self._arrays: dict[str, NDArray[Any]] = {}
        self.sha256: dict[str, str] = {}
        if not weights:
            return
        own = {id(tensor): name for name, tensor in (*module.named_parameters(), *module.named_buffers())}
        optional = set(map(id, statistics_of(module)))  # a network of another program has none
        for name in sorted(weights, key=len):  # of a module and one inside of it, the inner one has the last word
            given = weights[name] if isinstance(weights[name], Mapping) else {"file": weights[name]}
            file = read_weight_file(user_path(given["file"]))
            fitting = _Fitting(name, file, str(given.get("prefix", "")), given.get("skip", ()), optional)
            for tensor, array in fitting.pairs(_tensors_in(module, name)):
                self._arrays[own[id(tensor)]] = array
            self.sha256[name] = file.sha256

    def write(self, arrays: Arrays) -> None:
        """Write them into the arrays of a network's block, by their names there."""
        for name, array in self._arrays.items():
            np.copyto(arrays[name], array)


class _Fitting:
    """A file and the module that it is for."""

    def __init__(self, module: str, file: WeightFile, prefix: str, skip: Iterable[str], optional: set[int]) -> None:
        """optional: ids of tensors that the file may lack."""
        self._file = file
        self._optional = optional
        self._called = f"module `{module}`" if module else "the network"
        self._key = f"network.weights {toml_text(module)}"
        short = {name.removeprefix(prefix): name for name in file.arrays if name.startswith(prefix)}
        if not short:
            raise self._refused(f"has no name that begins with `{prefix}`", f"it has {names_text(sorted(file.arrays))}")
        skipped = {pattern: [name for name in short if fnmatchcase(name, pattern)] for pattern in skip}
        if unused := [pattern for pattern, names in skipped.items() if not names]:
            raise self._refused(f'has nothing that skip "{unused[0]}" matches', f"it has {names_text(sorted(short))}")
        left_out = {name for names in skipped.values() for name in names}
        self._names = {name: stored for name, stored in short.items() if name not in left_out}

    def pairs(self, tensors: Mapping[str, Tensor]) -> list[tuple[Tensor, NDArray[Any]]]:
        """Return each tensor of the module with its array. tensors: by all of their names."""
        named: dict[int, list[str]] = {}
        for name, tensor in tensors.items():
            named.setdefault(id(tensor), []).append(name)
        given = {id(tensors[name]) for name in self._names if name in tensors}
        needed = {key: names for key, names in named.items() if key not in given | self._optional}
        missing = [names[0] for names in needed.values() if names[0].rpartition(".")[2] != COUNTER]
        if missing:
            raise self._without(missing)
        if left := [name for name in self._names if name not in tensors]:
            above = left[0].rpartition(".")[0]
            hint = f"skip = {toml_text([f'{above}.*' if above else left[0]])} leaves it out"
            raise self._refused(f"has {names_text(sorted(left))}, which {self._called} does not have", hint)
        return [(tensors[name], self._array(name, tensors[name])) for name in tensors if name in self._names]

    def _array(self, name: str, tensor: Tensor) -> NDArray[Any]:
        stored = self._names[name]
        array, its = self._file.arrays[stored], self._file.dtypes[stored]
        mine = str(tensor.dtype).removeprefix("torch.")
        if SAME.get(its) != mine and mine not in WIDER.get(its, ()):
            hint = "save it as float32: call .float() on the module before its state_dict"
            raise self._refused(f"has `{stored}` in {its}, {self._called} has it in {mine}", hint)
        if array.shape != tuple(tensor.shape):
            found = f"{list(array.shape)}, {self._called} has it as {list(tensor.shape)}"
            raise self._refused(f"has `{stored}` as {found}", "both must have the same layers and inputs")
        broken = ~np.isfinite(array) if isinstance(tensor, nn.Parameter) else np.isnan(array)  # a mask may be infinite
        if broken.any():
            raise self._refused(f"has NaN or infinity in `{stored}`", "save weights of a network that works")
        return array

    def _without(self, missing: list[str]) -> NetworkError:
        what = f"has no {names_text(missing)}, which {self._called} has"
        before = {name[: -len(missing[0])] for name in self._names if name.endswith(f".{missing[0]}")}
        if len(before) == 1:
            (prefix,) = before
            table = f"{{ file = {toml_text(str(self._file.path))}, prefix = {toml_text(prefix)} }}"
            return self._refused(what, f"its names begin with `{prefix}`: write {table}")
        return self._refused(what, f"it has {names_text(sorted(self._names))}")

    def _refused(self, what: str, hint: str) -> NetworkError:
        return NetworkError(f"{self._key}: `{self._file.path}` {what}", hint=hint)


def _tensors_in(module: nn.Module, name: str) -> dict[str, Tensor]:
    """Return parameters and saved buffers of a submodule by the names in it; of the network, also by those in a block.

    Raises NetworkError if there is no submodule of this name.
    """
    tensors = shown_tensors(module)
    if not name:
        stored = module.state_dict(keep_vars=True)
        return {name: one for name, one in stored.items() if isinstance(one, Tensor)} | tensors
    inside = {one.removeprefix(f"{name}."): tensor for one, tensor in tensors.items() if one.startswith(f"{name}.")}
    if inside:
        return inside
    modules = dict.fromkeys(shown_name(path, module) for path, _ in module.named_modules() if path)
    near = get_close_matches(name, modules, 1)
    hint = f"did you mean `{near[0]}`?" if near else f'"" is the whole network; its modules are {names_text(modules)}'
    raise NetworkError(f"network.weights {toml_text(name)}: the network has no such module with weights", hint=hint)


def copy_weights_of(place: str, arrays: Arrays, *, statistics: bool = True) -> None:
    """Overwrite the initial weights with those of another run (`run.init_from`). Raises RecordError if they do not fit.

    arrays: the tensors of this run's network, by name. statistics: also those of its observations and rewards.
    """
    kept = {} if statistics else {name: one.copy() for name, one in arrays.items() if name.startswith(STATISTICS)}
    checkpoint = checkpoint_at(place)
    if checkpoint.exported:  # its header is enough to refuse it
        check_arrays(checkpoint.kinds(), arrays, str(checkpoint.path))
    copy_arrays(checkpoint.tensors(), arrays, str(checkpoint.path))
    for name, array in kept.items():
        arrays[name][...] = array
