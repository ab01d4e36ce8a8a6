"""Initial weights from files: what fits is taken bit for bit, and what does not is one error before any process."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from numpy.typing import NDArray
from small_trainer import config_of
from torch import Tensor, nn

from hive.config import Config
from hive.errors import HiveError
from hive.hosts.shape import without_hosts
from hive.networks import aligned_block
from hive.records import checkpoint_at, write_checkpoint
from hive.training import Blueprint
from hive.training.run_start import write_first_state

NET = "test_given_weights:Net"


class Net(nn.Module):
    """A body that others have trained, tied to a second name, with a buffer; and heads."""

    def __init__(self, spaces: Any = None) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        self.policy, self.value = nn.Linear(4, 2), nn.Linear(4, 1)
        self.again = self.policy
        self.register_buffer("passing", torch.zeros(1), persistent=False)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.body(observations)
        return self.again(hidden), self.value(hidden)[:, 0]


def body() -> dict[str, Tensor]:
    """The state of a trained body."""
    torch.manual_seed(3)
    module = Net().body
    module(torch.randn(9, 3))
    return module.state_dict()


def floats(state: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    return {name: one.to(dtype) if one.is_floating_point() else one for name, one in state.items()}


def saved(path: Path, state: dict[str, Tensor]) -> str:
    safetensors.torch.save_file({name: one.contiguous() for name, one in state.items()}, path)
    return json.dumps(str(path))


def config(weights: str, **more: Any) -> Config:
    own = {"network__module": f'"{NET}"', "network__frozen": '["body.*"]', **more}
    return config_of("small_environments:Drift", network__weights=weights, **own)


def begun(blueprint: Blueprint) -> dict[str, NDArray[Any]]:
    """The first weights of a run, by name."""
    state, optimizer_state = aligned_block(blueprint.state.bytes), aligned_block(blueprint.optimizer_state_bytes)
    write_first_state(blueprint, state, optimizer_state)
    return blueprint.flat.arrays(state[: blueprint.flat.block_bytes])


def in_body(arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {name.partition("body.")[2]: array for name, array in arrays.items() if "body." in name}


@pytest.mark.parametrize("normalize", ["false", "true"])
def test_a_module_begins_with_the_weights_of_a_file(tmp_path: Path, normalize: str) -> None:
    """Buffers too, under any modules that hive puts around the network; all others begin as without the file."""
    file = saved(tmp_path / "body.safetensors", body())
    blueprint = Blueprint(config(f"{{body={file}}}", network__normalize_observations=normalize))
    usual = begun(Blueprint(config("{}", network__normalize_observations=normalize)))
    found = begun(blueprint)
    for name, tensor in body().items():
        assert in_body(found)[name].tobytes() == tensor.numpy().tobytes()
    assert all(found[name].tobytes() == array.tobytes() for name, array in usual.items() if "body" not in name)
    assert blueprint.weight_files == {"body": hashlib.sha256((tmp_path / "body.safetensors").read_bytes()).hexdigest()}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_smaller_floats_keep_their_values(tmp_path: Path, dtype: torch.dtype) -> None:
    state = floats(body(), dtype)
    found = in_body(begun(Blueprint(config(f"{{body={saved(tmp_path / 'f', state)}}}"))))
    assert all(
        torch.equal(torch.from_numpy(found[name]), one.to(torch.from_numpy(found[name]).dtype))
        for name, one in state.items()
    )


def test_a_file_may_lack_the_counter_of_batch_norm(tmp_path: Path) -> None:
    state = {name: one for name, one in body().items() if not name.endswith("num_batches_tracked")}
    assert len(state) == len(body()) - 1
    found = in_body(begun(Blueprint(config(f"{{body={saved(tmp_path / 'old', state)}}}"))))
    assert all(found[name].tobytes() == tensor.numpy().tobytes() for name, tensor in state.items())


def test_a_prefix_chooses_and_patterns_leave_out(tmp_path: Path) -> None:
    state = {f"net.{name}": one for name, one in body().items()} | {
        "net.fc.weight": torch.ones(2),
        "other": torch.ones(1),
    }
    file = saved(tmp_path / "agent", state)
    found = in_body(begun(Blueprint(config(f'{{body={{file={file}, prefix="net.", skip=["fc.*"]}}}}'))))
    assert found["0.weight"].tobytes() == body()["0.weight"].numpy().tobytes()


def test_of_a_whole_network_tied_and_passing_tensors_are_no_matter(tmp_path: Path) -> None:
    """safetensors keeps one name of a tied tensor; names as in a checkpoint of hive are right as well."""
    state = {name: one + 1 for name, one in Net().state_dict().items() if not name.startswith("policy")}
    for prefix in ("", "network."):
        named = {prefix + name: one for name, one in state.items()}
        blueprint = Blueprint(config(f'{{""={saved(tmp_path / "whole", named)}}}', network__normalize_rewards="true"))
        found = begun(blueprint)
        assert found["network.policy.weight"].tobytes() == state["again.weight"].numpy().tobytes()


def test_a_file_overrides_the_weights_of_another_run(tmp_path: Path) -> None:
    other = begun(Blueprint(config("{}", run__seed=9)))
    there = write_checkpoint(tmp_path, 7, tensors=other, parts={}, state={})
    file = saved(tmp_path / "body.safetensors", body())
    found = begun(Blueprint(config(f"{{body={file}}}", run__init_from=json.dumps(str(there)))))
    assert found["policy.weight"].tobytes() == other["policy.weight"].tobytes()
    assert in_body(found)["0.weight"].tobytes() == body()["0.weight"].numpy().tobytes()


def test_a_resumed_run_reads_no_file(tmp_path: Path) -> None:
    made = config('{body="/nowhere/body.safetensors"}')
    state = {"weight_files": {"body": "12ab"}}
    resume = checkpoint_at(str(write_checkpoint(tmp_path, 7, tensors={}, parts={}, state=state)))
    assert Blueprint(made, resume).weight_files == {"body": "12ab"}
    with pytest.raises(HiveError, match=r"/nowhere/body\.safetensors"):
        Blueprint(made)
    Blueprint(without_hosts(made))  # another host needs no file: it gets the weights of every turn


STATE = body()
WRONG: dict[str, tuple[Any, str, str]] = {
    "missing names": ({"0.weight": STATE["0.weight"]}, "has no 0.bias, 1.weight, ", "it has 0.weight"),
    "a prefix": ({f"net.{name}": one for name, one in STATE.items()}, "has no 0.weight", 'prefix = "net."'),
    "left over": (
        STATE | {"fc.bias": torch.ones(2)},
        "has fc.bias, which module `body` does not have",
        'skip = ["fc.*"]',
    ),
    "another shape": (
        STATE | {"0.bias": torch.ones(5)},
        r"has `0.bias` as \[5\], module `body` has it as \[4\]",
        "same layers",
    ),
    "float64": (floats(STATE, torch.float64), "in F64, module `body` has it in float32", ".float()"),
    "integers": (STATE | {"0.bias": torch.ones(4, dtype=torch.int64)}, "`0.bias` in I64", ".float()"),
    "bytes": (STATE | {"0.bias": torch.ones(4, dtype=torch.int16)}, "`0.bias` in I16", ".float()"),
    "nan": (STATE | {"0.bias": torch.full((4,), torch.nan)}, "NaN or infinity in `0.bias`", "works"),
    "no safetensors": (b"junk" * 9, "is not a safetensors file", "save_file"),
    "a pickle": (None, "is a file of torch.save", r"torch.load"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_is_one_error_with_the_way_out(tmp_path: Path, case: str) -> None:
    given, text, hint = WRONG[case]
    path = tmp_path / "given"
    if isinstance(given, dict):
        saved(path, given)
    elif given is None:
        torch.save(STATE, path)
    else:
        path.write_bytes(given)
    with pytest.raises(HiveError, match=text) as caught:
        Blueprint(config(f"{{body={json.dumps(str(path))}}}"))
    assert hint in caught.value.hint
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("weights", "text", "hint"),
    [
        ('{boddy="%s"}', '"boddy": the network has no such module', "did you mean `body`?"),
        ('{body={file="%s", prefix="net."}}', "begins with `net.`", "it has 0."),
        ('{body={file="%s", skip=["q*"]}}', 'skip "q\\*" matches', "it has 0."),
    ],
)
def test_a_module_a_prefix_or_a_pattern_that_is_not_there(tmp_path: Path, weights: str, text: str, hint: str) -> None:
    saved(tmp_path / "body", STATE)
    with pytest.raises(HiveError, match=text) as caught:
        Blueprint(config(weights % (tmp_path / "body")))
    assert hint in caught.value.hint


def test_a_link_is_followed(tmp_path: Path) -> None:
    """Caches of downloaded models consist of links."""
    saved(tmp_path / "blob", STATE)
    (tmp_path / "link").symlink_to(tmp_path / "blob")
    assert (
        begun(Blueprint(config(f'{{body="{tmp_path / "link"}"}}')))["body.0.bias"].tolist() == STATE["0.bias"].tolist()
    )


@pytest.mark.parametrize("weights", ["{a=3}", "{a={}}", '{a={file="x", more=1}}', '{a={file="x", skip="b"}}', '{a=""}'])
def test_other_values_of_the_key(weights: str) -> None:
    with pytest.raises(HiveError, match=r"network\.weights"):
        config(weights)


def test_steps_of_training_leave_it_to_the_updates(tmp_path: Path) -> None:
    """Nothing reads the file again: the second block of the trainer is made from the first."""
    path = tmp_path / "body.safetensors"
    blueprint = Blueprint(config(f"{{body={saved(path, STATE)}}}"))
    first = in_body(begun(blueprint))
    path.unlink()
    again = in_body(begun(blueprint))
    assert all(np.array_equal(first[name], again[name]) for name in first)
