"""Writes policies to files for other programs: ONNX, or weights as safetensors.

    hive.export("cartpole-1", "cartpole.onnx", "best")

    FILE.onnx           the whole policy, from raw observations to actions (hive.policy.graph). The metadata
                        of the file names hive's version, the run, and all inputs and outputs. Needs `onnx`; with
                        `onnxruntime` the graph is compared with hive's policy before the file is written.
    FILE.safetensors    the weights by name. The metadata has one key, `hive`: JSON with the same facts, with the
                        description of the policy (`describe_policy`), from which another program can rebuild it, and
                        with the config of its run, so that hive plays it (hive.records.checkpoints.policy_files).

The ONNX file is made by torch's exporter of traces. It needs no package but onnx, gives the same bytes for the same
checkpoint, and takes 0.02 to 0.2 s; the exporter of torch.export takes 1 to 3 s and prints warnings. torch has
deprecated it, and `pyproject.toml` limits torch to versions that have it. Its weakness is that a trace can silently
contain numbers that depend on the example, so torch's warnings about this are errors here, and the comparison uses
another number of observations than the trace.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hive import __version__
from hive.config import load_config
from hive.config.rendering import plain
from hive.distribution import pip_install
from hive.errors import HiveError, NetworkError, UsageError, brief
from hive.policy.descriptions import current_description, described_action
from hive.policy.graph import PolicyGraph, Port
from hive.policy.graph_comparison import OBSERVATIONS, compare_graph
from hive.policy.loaded import Policy, policy_of
from hive.records import Checkpoint, RunDirectory, checkpoint_at, held, policies_of, write_bytes
from hive.records.checkpoints.weights import weights_bytes
from hive.records.export_files import ONNX, check_export_file
from hive.records.runs import folder_of_run
from hive.runtime.process.user_code.torch_state import hive_torch
from hive.versions import check_versions

OF_RUN = ("run", "policy_name", "env_id")  # facts about the run of a policy
OPSET = 17  # the first with LayerNormalization; onnxruntime has it since 1.12 of 2022
IR_VERSION = 8  # that of the first onnx with OPSET; a newer one would make older runtimes refuse the file
TRACED_ROWS = 2  # observations of the trace; one row, unlike others, might be broadcast

# A warning of the exporter that does not concern the result: the bounds of actions, for example, are constants.
HARMLESS = re.compile("registered as constants in the trace")
TORCH = Path(torch.__file__).parent


@dataclass(frozen=True)
class Exported:
    """A file that `export` has written. facts: its metadata. inputs, outputs: those of an ONNX graph.

    compared: number of observations for which the graph was compared with the policy; 0 without onnxruntime, and for
    weights. difference: the largest difference, None if nothing was compared.
    """

    path: Path
    bytes: int
    facts: Mapping[str, Any]
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    compared: int = 0
    difference: float | None = None


@brief
@hive_torch()
def export(place: str | Path, path: str | Path, which: str = "latest", *, own_code: bool = False) -> Exported:
    """Write the policy of a run or checkpoint to the new file `path`, which ends in .onnx or .safetensors.

    place, which, own_code: as for `hive.load`.

    Raises UsageError for another suffix, a file that exists, a folder that does not, and a package that is not
    installed; RecordError for a checkpoint that cannot be loaded and a file that cannot be written; NetworkError for a
    network that cannot be exported, and if the result differs from the policy.
    """
    path = Path(path)
    check_export_file(path)
    onnx = _imported("onnx") if path.suffix == ONNX else None
    (checkpoint,) = held(lambda: [checkpoint_at(str(place), which)])
    policy = policy_of(checkpoint, own_code=own_code, exact=True)
    facts = _facts(checkpoint, policy)
    if onnx is None:
        whole = facts | {"policy": current_description(checkpoint), **_config_of(checkpoint)}
        data = weights_bytes(checkpoint.tensors(), {"hive": json.dumps(whole)})
        write_bytes(path, data)
        return Exported(path, len(data), whole)
    graph = PolicyGraph(policy)
    facts |= {
        "inputs": [port.described() for port in graph.inputs],
        "outputs": [port.described() for port in graph.outputs],
    }
    data = _with_metadata(onnx, _traced(graph), graph, facts)
    difference = _compared(policy, graph, data)
    write_bytes(path, data)
    compared = 0 if difference is None else OBSERVATIONS
    return Exported(path, len(data), facts, tuple(graph.inputs), tuple(graph.outputs), compared, difference)


def _imported(name: str) -> ModuleType:
    check_versions([name])
    try:
        if name == "onnx":
            import onnx

            return onnx
        import onnxruntime

        return onnxruntime  # type: ignore[no-any-return, unused-ignore]
    except ImportError as error:
        raise UsageError(f"an ONNX file needs the package {name}: {error}", hint=pip_install("export")) from None


def _facts(checkpoint: Checkpoint, policy: Policy) -> dict[str, Any]:
    """Return what both formats say about a policy."""
    facts: dict[str, Any] = {"hive_version": __version__}
    if checkpoint.exported:
        facts |= {name: checkpoint.exported.facts[name] for name in OF_RUN if name in checkpoint.exported.facts}
    folder = checkpoint.path.resolve().parent.parent
    with contextlib.suppress(HiveError):  # the folder of a checkpoint alone is enough
        run = RunDirectory.open(folder_of_run(folder))
        facts["run"] = run.name
        if name := next((name for name, of in policies_of(run).items() if of.path == folder), ""):
            facts["policy_name"] = name
        facts["env_id"] = load_config(run.resolved_file).env.id
    mean = {} if checkpoint.mean_return is None else {"mean_return": checkpoint.mean_return}
    progress = {"update": checkpoint.update, "updates": policy.updates, "env_steps": policy.env_steps}
    return facts | progress | mean | {"action": described_action(policy.action)}


def _config_of(checkpoint: Checkpoint) -> dict[str, str]:
    """Return the config of the run that a checkpoint is of; {} for a folder of a checkpoint alone."""
    if checkpoint.exported:
        return {"config": checkpoint.exported.config} if checkpoint.exported.config else {}
    with contextlib.suppress(HiveError):
        run = RunDirectory.open(folder_of_run(checkpoint.path.resolve().parent.parent))
        return {"config": plain(load_config(run.resolved_file))}
    return {}


def _traced(graph: PolicyGraph) -> bytes:
    """Return the graph as ONNX. Raises NetworkError for a network that cannot be traced."""
    names = _trace_names(graph.inputs, "input"), _trace_names(graph.outputs, "output")
    data = io.BytesIO()
    try:
        with warnings.catch_warnings(record=True) as raised, torch.inference_mode(), _attention_in_steps():
            warnings.simplefilter("always")
            torch.onnx.export(
                graph,
                graph.example(TRACED_ROWS),
                data,  # type: ignore[arg-type]  # any binary file
                dynamo=False,
                opset_version=OPSET,
                input_names=names[0],
                output_names=names[1],
                dynamic_axes={name: {0: "batch"} for side in names for name in side},
            )
    except Exception as error:  # whatever a user-defined module or torch raises
        first = next(iter(str(error).strip().splitlines()), "")
        raise _untraceable(f"{type(error).__name__}: {first}") from error
    for warning in raised:
        of_trace = issubclass(warning.category, torch.jit.TracerWarning)  # type: ignore[attr-defined]
        of_torch = Path(warning.filename).is_relative_to(TORCH)  # checks of shapes in attention; results are compared
        if of_trace and not of_torch and not HARMLESS.search(str(warning.message)):
            place = f"{Path(warning.filename).name}, line {warning.lineno}"
            raise _untraceable(f"its result depends on values in Python ({place})")
    return data.getvalue()


@contextlib.contextmanager
def _attention_in_steps() -> Iterator[None]:
    """Let attention and transformers compute by operations that ONNX has: torch has one of its own for evaluation."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _trace_names(ports: Sequence[Port], kind: str) -> list[str]:
    """Return the names of inputs or outputs while a graph is traced: torch replaces names that are numbers."""
    return [f"hive::{kind}_{number}" for number in range(len(ports))]


def _untraceable(cause: str) -> NetworkError:
    return NetworkError(
        f"the network cannot be written as ONNX: {cause}",
        hint="compute with tensors only, without `if`, `len`, `int` or `.item()` on them; a .safetensors file holds "
        "the weights of any policy",
    )


def _with_metadata(onnx: Any, data: bytes, graph: PolicyGraph, facts: Mapping[str, Any]) -> bytes:
    """Return the checked graph with `facts` as its metadata, texts as they are and the rest as JSON."""
    model = onnx.load_model_from_string(data)
    _name_ports(model.graph, graph)
    model.ir_version = IR_VERSION
    model.graph.name = "policy"
    model.producer_name, model.producer_version = "hive", __version__
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in facts.items()}
    onnx.helper.set_model_props(model, texts)
    onnx.checker.check_model(model)
    serialized: bytes = model.SerializeToString(deterministic=True)
    return serialized


def _name_ports(traced: Any, graph: PolicyGraph) -> None:
    """Give the inputs and outputs of a traced onnx.GraphProto the names of their ports."""
    names: dict[str, str] = {}
    for ports, kind in ((graph.inputs, "input"), (graph.outputs, "output")):
        names |= dict(zip(_trace_names(ports, kind), (port.name for port in ports), strict=True))
    given = set(names.values())
    inner = [name for node in traced.node for name in node.output] + [value.name for value in traced.initializer]
    names |= {name: f"{name}::inner" for name in inner if name in given}  # a part may be called as a weight is
    for value in (*traced.input, *traced.output, *traced.initializer, *traced.value_info):
        value.name = names.get(value.name, value.name)
    for node in traced.node:
        for side in (node.input, node.output):
            side[:] = [names.get(name, name) for name in side]


def _compared(policy: Policy, graph: PolicyGraph, data: bytes) -> float | None:
    """Return the largest difference of the graph from the policy; None without onnxruntime. Raises NetworkError."""
    try:
        runtime: Any = _imported("onnxruntime")
    except UsageError:
        return None
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # errors, which are raised too
    options.intra_op_num_threads = 1
    names = [port.name for port in graph.outputs]
    try:
        session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # a class of onnxruntime for each kind of failure
        raise _untraceable(f"onnxruntime refuses it: {error}") from error
    inputs = {one.name for one in session.get_inputs()}  # a network need not use all of them

    def run(given: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        used = {name: np.ascontiguousarray(array) for name, array in given.items() if name in inputs}
        try:
            return dict(zip(names, session.run(names, used), strict=True))
        except Exception as error:
            raise _untraceable(f"onnxruntime cannot compute it: {error}") from error

    return compare_graph(policy, graph, run)
