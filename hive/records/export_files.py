"""Checks the file of `hive export` before any work: torch, which writes it, takes seconds to import."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from hive.distribution import pip_install
from hive.errors import UsageError

ONNX, WEIGHTS = ".onnx", ".safetensors"
SUFFIXES = (ONNX, WEIGHTS)


def check_export_file(path: Path) -> None:
    """Raise UsageError if no policy can be written to `path`.

    The reason is another suffix, a missing package, a file that exists, or a folder that does not.
    """
    if path.suffix not in SUFFIXES:
        raise UsageError(
            f"`{path}` has no suffix of a format that hive writes",
            hint="use .onnx for the whole policy, or .safetensors for its weights",
        )
    if path.suffix == ONNX and importlib.util.find_spec("onnx") is None:
        raise UsageError(
            f"`{path}` needs the package onnx",
            hint=f"{pip_install('export')}; a .safetensors file of the weights needs no package",
        )
    if path.exists() or path.is_symlink():
        raise UsageError(f"`{path}` already exists", hint="choose another name, or remove it")
    if not path.parent.is_dir():
        raise UsageError(f"cannot write `{path}`: `{path.parent}` is not a folder", hint="create it first")
