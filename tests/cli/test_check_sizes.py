"""`hive check` prints the sizes of a run, and refuses, as `hive init` does, what does not fit."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import hive.schemes
from hive.cli.parts import sizes as sizes_module
from hive.cli.parts.sizes import NetworkSizes, Sizes, size_lines, sizes_of
from hive.config import load_config

if TYPE_CHECKING:
    from conftest import Place

GIB = 1 << 30

LARGE = """
import gymnasium

class Large(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(2**31 - 1)
    action_space = gymnasium.spaces.Discrete(2)

class Images(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 255, (84, 84, 4), "uint8")
    action_space = gymnasium.spaces.Discrete(2)
"""


def test_a_carrier_without_a_line_is_listed_by_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config("x", text='[env]\nid = "CartPole-v1"\n')
    topology = hive.schemes.build(config, Path("nowhere"))
    monkeypatch.setattr(sizes_module, "LISTED", {})
    sizes = sizes_of(topology, topology.plan())
    assert sizes.kinds["rollouts"] == "slots"
    assert [line.split()[:2] for line in size_lines(sizes)[1:3]] == [
        ["slots", "rollouts"],
        ["board", "optimizer_state"],
    ]


def test_every_line() -> None:
    network = NetworkSizes(2_000_000, 8_000_000, 28_224, 32_000_000, 30 * GIB, "adam", 2.0, 28)
    sizes = Sizes(
        bytes=5 * GIB,
        free_bytes=8 * GIB,
        free="8.00 GiB",
        worst=26 * GIB,
        parts={"rollouts": GIB, "weights": GIB, "memory": 2 * GIB, "private memory": GIB},
        kinds={"rollouts": "slots", "weights": "boards", "memory": "shared"},
        processes=3,
        hosts={"a": 3 * GIB},
        network=network,
    )
    assert size_lines(sizes) == [
        "memory: 5.00 GiB; 8.00 GiB are free, of which a run may take 90 %",
        "  slots     rollouts 1.00 GiB",
        "  boards    weights 1.00 GiB",
        "  shared    memory 2.00 GiB",
        "  private   1.00 GiB: networks and gradients in 3 processes",
        "  at worst  26.0 GiB more, if every step ended an episode by truncation",
        "  on hosts  a 3.00 GiB",
        "network: 2,000,000 parameters in 7.63 MiB; 27.6 KiB an observation",
        "on disk: 30.5 MiB a checkpoint, and 30.0 GiB of a full replay memory",
        "optimizer: adam takes 2 ms an update (28 bytes a parameter at 28 GB/s, measured here)",
    ]


def test_the_parts_are_the_whole_and_hosts_have_theirs(place: Place) -> None:
    hosts = 'run.scheme = "ppo"\nenv.id = "CartPole-v1"\ncollection.workers = 4\ncollection.hosts = ["head", "a"]\n'
    path = place.config(hosts + "[hosts.cores]\na = 2\n")
    memory = json.loads(place.hive("check", "--draw", path, "--json").out)["memory"]
    assert memory["bytes"] == sum(memory["parts"].values())
    assert memory["parts"].keys() - memory["kinds"].keys() == {"private memory"}
    assert memory["network"]["parameters"] * 4 <= memory["network"]["bytes"]
    assert memory["hosts"].keys() == {"a"}
    assert 0 < memory["hosts"]["a"] < memory["bytes"]


@pytest.mark.parametrize("command", [("init",), ("check", "--env")])
def test_an_environment_that_needs_terabytes_is_refused_and_named(place: Place, command: tuple[str, ...]) -> None:
    (place.folder / "terabytes_in_check.py").write_text(LARGE)
    done = place.hive(*command, "terabytes_in_check:Large")
    assert done.code == 3
    assert re.search(r"error: this run needs .* TiB of memory, .* Discrete\(2147483647\)\n\nhint: ", done.err), done.err
    assert not list(place.folder.glob("*.toml"))


def test_images_are_not_refused(place: Place) -> None:
    (place.folder / "images_in_check.py").write_text(LARGE)
    assert place.hive("init", "images_in_check:Images").code == 0


def test_check_prints_what_it_refuses(place: Place) -> None:
    path = place.config('[env]\nid = "CartPole-v1"\n[network]\nmiddleware = [200_000, 200_000]\n')
    done = place.hive("check", path)
    assert done.code == 3
    assert re.search(r"memory: .* TiB; .* of which a run may take 90 %: too little", done.out)
    assert "large in it: network.middleware = [200_000, 200_000]" in done.err
