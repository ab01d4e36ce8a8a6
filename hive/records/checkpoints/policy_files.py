"""Reads the policy that `hive export` has written as safetensors, and plays its part as a checkpoint.

    FILE.safetensors     weights by name, and in its metadata the key `hive`: JSON with the description of the policy,
                         the progress of its run, and the config of the run as TOML

No content is trusted. The header is read first, so that what a file describes can be compared with what it holds, and
with the memory that is free, before its weights are read. Nothing in it is executed.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hive.errors import RecordError, UsageError
from hive.records.documents import failure, is_json_number, parse_object
from hive.records.export_files import ONNX, WEIGHTS
from hive.records.regular import open_regular

if TYPE_CHECKING:
    import numpy.typing as npt

HEADER_BYTES = 1 << 24  # of names, shapes and metadata; those of a network with a thousand tensors have 200 KiB
METADATA = "hive"  # the key of hive in the metadata
WRITTEN = "`hive export RUN -o FILE.safetensors` writes one"


@dataclass(frozen=True)
class PolicyFile:
    """An exported policy. facts: its metadata. kinds: name -> an array of the shape and dtype there, without memory."""

    path: Path
    facts: Mapping[str, Any]
    kinds: Mapping[str, npt.NDArray[Any]] = field(repr=False)

    @property
    def name(self) -> str:
        """The name of its policy, of several; "" of the only one."""
        return str(self.facts.get("policy_name", ""))

    @property
    def config(self) -> str:
        """The config of its run as TOML; "" in files of earlier versions of hive."""
        return str(self.facts.get("config", ""))

    @property
    def state(self) -> dict[str, Any]:
        """What state.json of its checkpoint has: the description of the policy, and counters."""
        counters = {name: self.facts.get(name) for name in ("env_steps", "updates", "mean_return")}
        counters["updates"] = self.facts.get("updates", self.facts.get("update"))
        known = {name: value for name, value in counters.items() if is_json_number(value)}
        return {**known, "policy": self.facts["policy"]}

    def tensors(self) -> dict[str, npt.NDArray[Any]]:
        """Return the weights by name. Raises RecordError."""
        from hive.records.checkpoints.weights import read_weights

        return read_weights(self.path)


def is_policy_file(text: str) -> bool:
    """Whether a text names the file of a policy, and not a run."""
    return Path(text).suffix in (WEIGHTS, ONNX)


def read_policy_file(path: Path) -> PolicyFile:
    """Read the header of a file; links are followed.

    Raises UsageError for an ONNX file, and RecordError for a file that is missing, damaged or truncated, or holds no
    policy of hive.
    """
    if path.suffix == ONNX:
        raise UsageError(
            f"`{path}` is a policy for other programs, which hive cannot play",
            hint=f"hive plays its run, and a file with the suffix {WEIGHTS}: {WRITTEN}; examples/play_onnx.py plays an "
            "ONNX file with onnxruntime",
        )
    try:
        path = path.resolve()
        with open_regular(path) as file:
            start = file.read(8)
    except (OSError, ValueError, RuntimeError) as error:  # a name with \\0; links in a circle
        raise failure("read", path, OSError(0, getattr(error, "strerror", None) or str(error))) from None
    if len(start) == 8 and struct.unpack("<Q", start)[0] > HEADER_BYTES:
        raise RecordError(f"`{path}` is damaged, or no safetensors file: its header has no possible size", hint=WRITTEN)
    metadata, kinds = _header(path)
    facts = parse_object(metadata.get(METADATA, "").encode(errors="replace"))
    if facts is None or not isinstance(facts.get("policy"), dict):
        raise RecordError(f"`{path}` has weights, but no description of a policy of hive", hint=WRITTEN)
    if not is_json_number(facts.get("update")):
        raise RecordError(f"the metadata of `{path}` has no number of updates", hint=WRITTEN)
    return PolicyFile(path, facts, kinds)


def _header(path: Path) -> tuple[dict[str, str], dict[str, npt.NDArray[Any]]]:
    import numpy as np
    import safetensors

    from hive.records.checkpoints.weights import ALLOWED, DTYPES

    try:
        with safetensors.safe_open(path, "numpy") as file:  # compares the sizes in the header with that of the file
            kinds = {}
            for name in file.keys():  # noqa: SIM118  # it is no mapping
                part = file.get_slice(name)
                if (dtype := DTYPES.get(part.get_dtype())) is None:
                    raise ValueError(f"`{name}` is {part.get_dtype()}; a checkpoint holds {ALLOWED}")
                kinds[name] = np.broadcast_to(np.zeros((), dtype), part.get_shape())
            return file.metadata() or {}, kinds
    except OSError as error:
        raise failure("read", path, error) from None
    except (safetensors.SafetensorError, ValueError) as error:
        raise RecordError(f"`{path}` is damaged, or no safetensors file: {error}", hint=WRITTEN) from None
