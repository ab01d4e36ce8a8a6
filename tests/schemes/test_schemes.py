"""Schemes by name or reference, user-defined schemes, and the errors of invalid ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_trainer import LIMIT_S, config_of

from hive.config import SCHEMES, render
from hive.errors import ConfigError, RecordError, TopologyError
from hive.records import RunDirectory
from hive.runtime import Actor, Topology
from hive.runtime.memory.status import read_status
from hive.runtime.supervise.supervisor import Supervisor
from hive.runtime.topology.building import load
from hive.schemes import blueprint_of, build
from hive.testing import run_inline
from hive.training import Blueprint

ENV = "small_environments:OneState"
TWINS = "small_environments:Twins"


class Plain(Actor):
    def __init__(self, blueprint: str = "") -> None: ...


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return RunDirectory.create(tmp_path, "test").path


@pytest.mark.parametrize("name", SCHEMES)
def test_every_scheme_that_the_config_knows_is_there(directory: Path, name: str) -> None:
    id = {"td3": "Pendulum-v1", "ddpg": "Pendulum-v1", "ippo": TWINS, "mappo": TWINS}.get(name, ENV)
    separate = "true" if name == "mappo" else "false"  # its critic sees more than its policy
    config = config_of(id, run__scheme=f'"{name}"', network__separate_networks=separate)
    if name == "bc":
        with pytest.raises(TopologyError, match=r"algorithm\.replay_from is not set"):
            build(config, directory)
        return
    assert build(config, directory).plan().results_actor == "learner-0"


def test_the_blueprint_of_a_topology(directory: Path) -> None:
    """More actors take it, also where groups were added before those of the trainer."""
    config = config_of(ENV)
    topology = build(config, directory)
    blueprint = blueprint_of(topology)
    assert isinstance(blueprint, Blueprint)
    assert blueprint.config is config
    assert blueprint_of(build(config_of(ENV, run__scheme='"own_schemes:accompanied"'), directory)).collectors == 1


@pytest.mark.parametrize("parameters", [{}, {"blueprint": "something else"}])
def test_a_topology_without_a_blueprint(parameters: dict[str, str]) -> None:
    topology = Topology()
    topology.add(Plain, **parameters)
    with pytest.raises(TopologyError, match="has no blueprint") as caught:
        blueprint_of(topology)
    assert "hive.schemes.build(config)" in caught.value.hint


def test_a_scheme_of_your_own(directory: Path) -> None:
    config = config_of(ENV, run__scheme='"own_schemes:greeting"', run__name='"hello"')
    outcome = run_inline(build(config, directory), seconds=LIMIT_S)
    assert (outcome.state, outcome.reason) == ("finished", "hello")
    assert (directory / "word").read_text() == "hello"


def test_the_trainer_with_another_actor(directory: Path) -> None:
    """A scheme is a topology, and more can be added to it."""
    seen: list[Supervisor] = []
    config = config_of(ENV, run__scheme='"own_schemes:accompanied"', run__steps=64)
    outcome = run_inline(build(config, directory), watch=seen.append, seconds=LIMIT_S)
    assert (outcome.state, outcome.results["updates"]) == ("finished", 4)
    assert read_status(seen[0].memory.pages, 4).counters["lives"] == 1


@pytest.mark.parametrize(
    ("reference", "cause"),
    [
        ("no_such_package.schemes:mine", "No module named 'no_such_package'"),
        ("own_schemes:mine", "module 'own_schemes' has no attribute 'mine'"),
        ("hive.schemes.nothing:topology", "No module named 'hive.schemes.nothing'"),
    ],
)
def test_a_scheme_that_is_not_there(directory: Path, reference: str, cause: str) -> None:
    with pytest.raises(TopologyError, match=cause) as caught:
        build(config_of(ENV, run__scheme=f'"{reference}"'), directory)
    assert str(caught.value).startswith(f"the scheme `{reference}` cannot be loaded: ")
    assert "package.module:function" in caught.value.hint
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("reference", ["nothing", "a.b", "a:b:c", ""])
def test_a_name_that_is_no_scheme_is_a_mistake_of_the_config(reference: str) -> None:
    with pytest.raises(ConfigError, match=r"run\.scheme"):
        config_of(ENV, run__scheme=f'"{reference}"')


def test_a_schemes_error_is_not_hidden(directory: Path) -> None:
    with pytest.raises(ValueError, match="the scheme itself is wrong"):
        build(config_of(ENV, run__scheme='"own_schemes:raises"'), directory)


def test_a_run_directory_is_enough(directory: Path) -> None:
    """The fork server loads a run from its directory, which holds the resolved config."""
    values: dict[str, Any] = {"run__scheme": '"own_schemes:greeting"', "run__name": '"again"'}
    RunDirectory.open(directory).resolved_file.write_text(render(config_of(ENV, **values)))
    run_inline(load(str(directory)), seconds=LIMIT_S)
    assert (directory / "word").read_text() == "again"


def test_a_folder_that_is_no_run_directory(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="is not a run directory"):
        load(str(tmp_path))


@pytest.mark.parametrize("name", ["NUMBER", "nothing"])
def test_a_scheme_that_gives_no_topology(name: str, tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match=rf"the scheme `own_schemes:{name}` did not return a hive.Topology"):
        build(config_of("small_environments:OneState", run__scheme=f'"own_schemes:{name}"'), tmp_path)
