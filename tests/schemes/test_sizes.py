"""Sizes follow from the layouts: what does not fit is refused with its cause, before anything is allocated."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import psutil
import pytest
import torch
from gymnasium import spaces
from torch import nn

from hive import schemes
from hive.config import Config, load_config, render
from hive.envs import EnvironmentSpec
from hive.envs.spaces.actions import action_spec
from hive.envs.spaces.observation import observation_spec
from hive.errors import MemoryShort
from hive.free_memory import FreeMemory
from hive.records import RunDirectory, write_bytes
from hive.runtime import Actor
from hive.runtime.process import limits
from hive.runtime.topology.building import load
from hive.schemes import assemble, check_memory, sizes
from hive.schemes.sizes import check_settings, memory_of
from hive.training import Blueprint, Trainer
from hive.training.initial_network import InitialNetwork

GIB = 1 << 30
ROOM = 1 << 29  # bytes that a refusal may take: far less than any of the runs that are refused

VECTOR = spaces.Box(-1, 1, (4,), np.float32)
TWO = spaces.Discrete(2)
IMAGE = spaces.Box(0, 255, (84, 84, 4), np.uint8)
BOUNDED = spaces.Box(-1, 1, (2,), np.float32)


def spec(observation: spaces.Space[Any], action: spaces.Space[Any] = TWO, limit: int | None = None) -> EnvironmentSpec:
    return EnvironmentSpec("x:X", observation_spec("x:X", observation), action_spec("x:X", action), limit)


def config(scheme: str = "ppo", **values: Any) -> Config:
    given = [f"{name.replace('__', '.')}={value}" for name, value in values.items()]
    return load_config("t.toml", given, text=f'run.scheme = "{scheme}"\nenv.id = "x:X"\nrun.steps = 1_000_000\n')


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with 16 GiB free."""
    monkeypatch.setattr(limits, "free_memory", lambda: FreeMemory(16 * GIB))


@pytest.fixture
def small_room() -> Iterator[None]:
    """Let this process allocate ROOM bytes, and no more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + ROOM, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.parametrize(
    ("environment", "given", "cause", "way"),
    [
        (spec(spaces.Discrete(2**31 - 1)), {}, "the observation, Discrete(2147483647)", "wrapper"),
        (spec(spaces.Discrete(2**62)), {}, "the observation, Discrete(4611686018427387904)", "wrapper"),
        (spec(spaces.MultiDiscrete([10**9] * 4)), {}, "MultiDiscrete of 4 elements", "wrapper"),
        (spec(spaces.MultiBinary((10**6, 10**6, 10**6))), {}, "numbers of float32 in the shape (1000000,", "wrapper"),
        (spec(spaces.Dict(a=VECTOR, user=spaces.Discrete(10**10))), {}, "`user`, Discrete(10000000000)", "wrapper"),
        (spec(VECTOR, spaces.Discrete(10**10)), {}, "the actions, Discrete(10000000000)", "wrapper"),
        (spec(VECTOR), {"network__middleware": "[65536,65536]"}, "network.middleware = [65", "network.middleware"),
        (
            spec(VECTOR),
            {"network__memory": '"lstm"', "network__memory_size": 60_000},
            "memory_size = 60",
            "network.memory_size",
        ),
        (spec(VECTOR), {"collection__rollout": 10**8}, "collection.rollout = 100", "collection.rollout"),
        (spec(VECTOR), {"collection__envs": 10**8}, "collection.envs = 100", "collection.envs"),
        (
            spec(IMAGE),
            {"scheme": "dqn", "algorithm__replay_capacity": 10**6},
            "algorithm.replay_capacity = 1",
            "run.replay_folder",
        ),
        (
            spec(IMAGE),
            {"collection__workers": 500, "collection__envs": 64},
            "28,224 numbers of uint8",
            "collection.workers",
        ),
        (
            spec(VECTOR),
            {"scheme": "dd-ppo", "gradients__workers": 60, "network__middleware": "[4000,4000]"},
            "middleware = [4",
            "gradients.workers",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_its_cause_and_without_allocating(
    free: None, small_room: None, environment: EnvironmentSpec, given: dict[str, Any], cause: str, way: str
) -> None:
    with pytest.raises(MemoryShort) as caught:
        check_settings(config(**given), environment)
    assert cause in str(caught.value)
    assert way in caught.value.hint


def test_six_tenths_of_the_free_memory_are_granted_and_all_of_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    given, environment = config(collection__rollout=4096), spec(IMAGE)
    needed = memory_of(given, environment, Path("none"))
    assert needed is not None
    for share, fits in ((0.6, True), (1.0, False)):
        monkeypatch.setattr(limits, "free_memory", lambda share=share: FreeMemory(int(needed / share)))
        if fits:
            check_settings(given, environment)
        else:
            with pytest.raises(MemoryShort, match="collection"):
                check_settings(given, environment)


def test_a_declared_limit_decides_how_many_last_observations_of_a_replay_memory_count() -> None:
    given = config("dqn", algorithm__replay_capacity=100_000, checkpoint__replay="false")
    never, often, always = (memory_of(given, spec(IMAGE, limit=limit), Path("none")) or 0 for limit in (None, 1_000, 1))
    one = 84 * 84 * 4
    assert 0.9 * one * 100 < often - never < 2 * one * 110
    assert 0.9 * one * 100_000 < always - never < 1.1 * one * 100_000


OPTIONS: list[tuple[str, spaces.Space[Any], spaces.Space[Any], dict[str, Any]]] = [
    ("ppo", VECTOR, BOUNDED, {"network__action_distribution": '"gsde"'}),
    ("ppo", VECTOR, TWO, {"network__normalize_observations": "true", "network__novelty_weight": 0.5}),
    ("a2c", VECTOR, TWO, {"network__memory": '"gru"', "network__layer_norm": "true"}),
    ("ppo", spaces.Dict(a=IMAGE, b=spaces.Discrete(5)), TWO, {"env__frame_stack": 2}),
    ("pqn", VECTOR, TWO, {}),
    ("dqn", IMAGE, TWO, {"algorithm__dueling": 64}),
    ("c51", VECTOR, TWO, {"network__noisy_deviation": 0.5}),
    ("qr-dqn", VECTOR, TWO, {}),
    ("sac", VECTOR, BOUNDED, {}),
    ("td3", VECTOR, BOUNDED, {"network__initialization": '"uniform"'}),
]


@pytest.mark.parametrize(("scheme", "observation", "action", "given"), OPTIONS)
def test_sizes_are_those_of_the_network_that_is_made_later(
    scheme: str, observation: spaces.Space[Any], action: spaces.Space[Any], given: dict[str, Any]
) -> None:
    made = config(scheme, **given)
    environment = spec(observation, action)
    stacked = environment.observation.__class__(**{**vars(environment.observation), "stack": made.env.frame_stack})
    flat = Blueprint(made, None, EnvironmentSpec("x:X", stacked, environment.action)).flat
    assert (flat.parameters, flat.buffers) == (flat.made.parameters, flat.made.buffers)
    assert flat.groups == flat.made.groups
    assert flat.count == sum(parameter.numel() for parameter in flat.made._parameters)


class Wide(nn.Module):
    """A user-defined network whose constructor needs petabytes."""

    def __init__(self, given: Any) -> None:
        super().__init__()
        self.layer = torch.zeros(1 << 52)


class Hungry(Actor):
    @classmethod
    def private_bytes(cls, parameters: Mapping[str, Any]) -> int:
        return 1 << 40


class Little(gymnasium.Env[Any, Any]):
    observation_space = VECTOR
    action_space = TWO

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(4, np.float32), 0.0, True, False, {}


def test_a_custom_network_that_allocates_too_much_is_named() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(MemoryShort, match="the network of `test_sizes:Wide` needs more memory than is free"):
        Blueprint(config(network__module='"test_sizes:Wide"'), None, spec(VECTOR))
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def run_of(folder: Path, *sets: str) -> RunDirectory:
    directory = RunDirectory.create(folder, "large")
    text = 'run.scheme = "ppo"\nrun.steps = 1000\nenv.id = "test_sizes:Little"\n' + "\n".join(sets)
    write_bytes(directory.config_file, text.encode())
    write_bytes(directory.resolved_file, render(load_config("t.toml", text=text)).encode())
    return directory


def test_a_run_is_refused_before_its_weights_are_made(
    free: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InitialNetwork, "_first_weights", lambda self: pytest.fail("weights were made"))
    with pytest.raises(MemoryShort, match=r"large in it: network.middleware = \[40_000, 40_000\]"):
        load(str(run_of(tmp_path, "network.middleware = [40_000, 40_000]").path))


def test_a_run_that_fits_has_its_weights_before_its_processes(free: None, tmp_path: Path) -> None:
    topology = load(str(run_of(tmp_path).path))
    (blueprint,) = {group.parameters["blueprint"] for group in topology.groups.values()}
    assert "made" in vars(blueprint.flat)


def test_a_run_that_has_its_memory_is_not_compared_with_what_is_left(
    free: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemes, "check_memory", lambda topology, config: pytest.fail("it was compared"))
    topology = load(str(run_of(tmp_path).path), allocated=True)
    (blueprint,) = {group.parameters["blueprint"] for group in topology.groups.values()}
    assert "made" in vars(blueprint.flat)


def test_every_process_counts_its_networks(free: None) -> None:
    """Collectors, gradient workers, evaluators and replicas keep copies outside of shared memory."""
    alone = config("dd-ppo", gradients__workers=1)
    more = config("dd-ppo", gradients__workers=3, evaluation__every="{updates=5}", evaluation__workers=2)
    block = Blueprint(alone, None, spec(VECTOR)).flat.block_bytes
    plans = []
    for one in (alone, more):
        topology = sizes.assemble(Blueprint(one, None, spec(VECTOR)), Path("none"))
        plans.append({actor.name: actor.private_bytes for actor in topology.plan().actors})
    assert plans[1]["evaluator-1"] == plans[1]["collector-2"] == 2 * block
    assert plans[1]["gradient-worker-2"] > 8 * block  # networks, and two pairs of weights and optimizer state
    assert sum(plans[1].values()) > 3 * (plans[0]["gradient-worker-0"] + plans[0]["collector-0"])


def test_a_trainer_in_a_script_is_checked(free: None, small_room: None) -> None:
    with pytest.raises(MemoryShort, match=r"a trainer of this config needs .* GiB of memory"):
        Trainer(config(env__id='"test_sizes:Little"', network__middleware="[100_000, 100_000]"))


class Wider(nn.Module):
    """A user-defined network of 26 million parameters for four numbers and two actions."""

    def __init__(self, given: Any) -> None:
        super().__init__()
        self.layer, self.heads = nn.Linear(4, 10), nn.Linear(10, 3)
        self.unused = nn.Parameter(torch.zeros(26_000_000))

    def forward(self, observations: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        outputs = self.heads(self.layer(observations))
        return outputs[:, :2], outputs[:, 2]


def test_a_custom_network_that_is_too_large_for_a_run_is_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "free_memory", lambda: FreeMemory(GIB))
    with pytest.raises(MemoryShort, match=r"large in it: network\.module") as caught:
        check_settings(config(network__module='"test_sizes:Wider"'), spec(VECTOR))
    assert "make the network" in caught.value.hint


def test_memory_of_actors_in_a_custom_topology_is_not_blamed_on_the_config(free: None, tmp_path: Path) -> None:
    made = load_config("t.toml", text='run.steps = 10\nenv.id = "test_sizes:Little"\n')
    topology = assemble(made, tmp_path)
    topology.add(Hungry, group="hungry")
    with pytest.raises(MemoryShort, match=r"1\.00 TiB of networks and gradients in \d processes") as caught:
        check_memory(topology, made)
    assert "large in it" not in str(caught.value)


def test_a_custom_topology_is_checked_too(free: None, tmp_path: Path) -> None:
    made = load_config("t.toml", text='run.steps = 10\nenv.id = "test_sizes:Little"\ncollection.envs = 100_000_000')
    topology = assemble(made, tmp_path)
    with pytest.raises(MemoryShort, match=r"collection\.envs"):
        check_memory(topology, made)
