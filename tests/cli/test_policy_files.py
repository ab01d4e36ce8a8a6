"""Files of `hive export` in the place of a run: the same episodes, and one error for what cannot be played."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import safetensors

import hive
from hive.errors import HiveError, UsageError
from hive.records import checkpoint_at
from hive.records.checkpoints.weights import read_weights, weights_bytes
from hive.training.given_weights import copy_weights_of

if TYPE_CHECKING:
    from conftest import Place

CONFIG = (
    'env.wrappers=[{ name = "TimeLimit", max_episode_steps = 30 }]',
    "env.frame_stack=2",
    "network.memory=lstm",
    "network.memory_size=4",
    "network.middleware=[8]",
    "network.normalize_observations=true",
)
Facts = dict[str, Any]


@pytest.fixture
def file(place: Place) -> Path:
    place.trained((100, 200), best=150, sets=CONFIG)
    done = place.hive("export", "-o", "mine.safetensors")
    assert (done.code, done.err) == (0, "")
    return place.folder / "mine.safetensors"


def changed(file: Path, change: Callable[[Facts], object]) -> Path:
    """The file with other facts in its metadata."""
    with safetensors.safe_open(file, "numpy") as opened:
        facts = json.loads(opened.metadata()["hive"])
    change(facts)
    file.write_bytes(weights_bytes(read_weights(file), {"hive": json.dumps(facts)}))
    return file


def test_it_plays_the_episodes_of_its_run(place: Place, file: Path) -> None:
    how = ("--episodes", 3, "--seed", 5, "--sample", "--json")
    its, (mine,) = (json.loads(place.hive("eval", name, *how).out) for name in ("cartpole-1", file))
    assert (mine["run"], Path(mine["checkpoint"])) == ("mine.safetensors", file)
    for one in (mine, *its):
        assert one.pop("wall_s") >= 0
        del one["run"], one["checkpoint"]
    assert [mine] == its
    assert 1 < mine["mean_length"] <= 30
    rows = place.hive("eval", "mine.safetensors", "cartpole-1", "--episodes", 2).out.splitlines()
    assert rows[1].split()[1:] == rows[2].split()[1:]


def test_it_is_loaded_exported_and_begins_a_run(place: Place, file: Path) -> None:
    both = [hive.load(str(name)) for name in (file, "cartpole-1")]
    seen = np.ones(4, np.float32)
    outputs = [policy.outputs(seen, policy.initial_state())[0] for policy in both]
    assert np.array_equal(*outputs)
    assert (both[0].updates, both[0].env_steps, both[0].mean_return) == (200, 6400, 90.0)
    done = place.hive("export", file, "-o", "again.safetensors")
    assert done.out.startswith("again.safetensors: the weights of the policy of mine.safetensors after 200 updates")
    assert (place.folder / "again.safetensors").read_bytes() == file.read_bytes()
    arrays = {name: np.zeros_like(array) for name, array in checkpoint_at("cartpole-1").tensors().items()}
    copy_weights_of(str(file), arrays)
    assert all(np.array_equal(array, read_weights(file)[name]) for name, array in arrays.items())


def test_a_file_without_a_config(place: Place, file: Path) -> None:
    """Those of earlier releases have none; `--set` has what is missing."""
    changed(file, lambda facts: facts.pop("config"))
    done = place.hive("eval", file)
    assert (done.code, "does not say how its environment is made" in done.err) == (2, True)
    sets = ("-s", "env.id=CartPole-v1", "-s", "env.frame_stack=2")
    assert place.hive("eval", file, "--episodes", 1, *sets).code == 0


def test_one_of_several_policies(place: Place, file: Path) -> None:
    rows = "policies.a.agents = 'x'\npolicies.b.agents = 'y'\n"
    changed(file, lambda facts: facts.update(policy_name="a", config=rows + facts["config"]))
    assert "holds the policy `a`, and `b` play too" in place.hive("eval", file).err
    assert hive.load(str(file), policy="a").updates == 200
    with pytest.raises(UsageError, match="holds the policy `a`, not `b`"):
        hive.load(str(file), policy="b")


def test_words_that_select_nothing_in_a_file(place: Place, file: Path) -> None:
    assert "holds one policy" in place.hive("eval", file, "--which", "best").err
    assert "holds one policy" in place.hive("play", file, "--which", "100").err
    done = place.hive("eval", "policy.onnx")
    assert done.err.startswith("error: `policy.onnx` is a policy for other programs, which hive cannot play\n")
    assert "no such file" in place.hive("eval", "none.safetensors").err


def described(**values: Any) -> Callable[[Path], object]:
    """Give the description of the network other values."""
    return lambda file: changed(file, lambda facts: facts["policy"]["network"].update(values))


def acting(**action: Any) -> Callable[[Path], object]:
    """Give the description another action."""
    return lambda file: changed(file, lambda facts: facts["policy"].update(action=action))


def with_other_weights(file: Path) -> None:
    """One tensor more than the described network has."""
    with safetensors.safe_open(file, "numpy") as opened:
        metadata = opened.metadata()
    file.write_bytes(weights_bytes({**read_weights(file), "more": np.zeros(2, np.float32)}, metadata))


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda file: file.write_bytes(b""), "is damaged, or no safetensors file"),
    "truncated": (lambda file: file.write_bytes(file.read_bytes()[:-9]), "is damaged, or no safetensors file"),
    "half a header": (lambda file: file.write_bytes(file.read_bytes()[:300]), "is damaged, or no safetensors file"),
    "a giant header": (lambda file: file.write_bytes(b"\xff" * 7 + b"\0" + b"{}"), "its header has no possible size"),
    "other bytes": (lambda file: file.write_bytes(bytes(1000)), "is damaged, or no safetensors file"),
    "no description": (
        lambda file: file.write_bytes(weights_bytes({"w": np.zeros(1)})),
        "has weights, but no description of a policy",
    ),
    "no updates": (lambda file: changed(file, lambda facts: facts.pop("update")), "has no number of updates"),
    "no network": (lambda file: changed(file, lambda facts: facts["policy"].pop("network")), "describes no policy"),
    "other weights": (with_other_weights, "has another network than it describes: `more` is no part of that"),
    "another network": (described(middleware=[9]), r"this network has float32\[9"),
    "a giant network": (described(middleware=[1 << 40]), r"this network has float32\[1099511627776"),
    "an impossible network": (described(middleware=[1 << 62, 1 << 62]), "more parameters than any machine"),
    "a million layers": (described(middleware=[1] * 1_000_000), "describes 1,000,000 layers"),
    "negative layers": (described(middleware=[-4]), "describes no network"),
    "a giant action": (acting(kind="multi-binary", env_shape=[1 << 40]), "an action of 1,099,511,627,776 elements"),
    "many actions": (acting(kind="discrete", n=1 << 40), r"this network has float32\[1099511627776"),
}


@pytest.mark.rotates
@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_file_is_one_error_before_anything_is_allocated(file: Path, case: str) -> None:
    damage, cause = DAMAGE[case]
    damage(file)
    with pytest.raises(HiveError, match=cause):
        hive.load(str(file))


def test_a_network_larger_than_memory(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hive.free_memory import FreeMemory
    from hive.policy import loaded

    monkeypatch.setattr(loaded, "free_memory", lambda: FreeMemory(100))
    with pytest.raises(HiveError, match=r"the network of .* needs .*, and 100 bytes are free"):
        hive.load(str(file))


def test_a_config_in_a_file_is_checked(place: Place, file: Path) -> None:
    changed(file, lambda facts: facts.update(config="env.id = 3\n"))
    done = place.hive("eval", file)
    assert (done.code, "mine.safetensors:1" in done.err) == (2, True)
